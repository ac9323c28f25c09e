"""A comparison whose seeds run in processes of their own; one run serves all tests, since starting it takes long."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from imperfed.core.errors import ImperfedError
from imperfed.experiments.parallel import ParallelRuns
from imperfed.experiments.resolving import resolve
from tests.support.terminal import TINY, Said, imperfed, program, strict, write


@dataclass(frozen=True)
class Compared:
    """What a comparison printed, and its folder."""

    said: Said
    folder: Path


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """A comparison of two methods over two seeds; the option --jobs and the folder are missing."""
    data = write(tmp_path_factory.mktemp("data") / "mine.npz")
    return ("compare", "--no-alone", "cc,rc", "--data", data, *TINY, "--seeds", "0,1", "--json")


@pytest.fixture(scope="module")
def side_by_side(words: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory) -> Compared:
    out = tmp_path_factory.mktemp("two")
    process = program(*words, "--jobs", 2, "--out", out)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    (folder,) = out.iterdir()
    return Compared(Said(0, stdout, stderr), folder)


def test_stdout_holds_json_alone(side_by_side: Compared) -> None:
    assert strict(side_by_side.said.out) == strict((side_by_side.folder / "results.json").read_text())
    assert str(side_by_side.folder / "table.md") in side_by_side.said.err


def test_every_process_says_which_run_begins(side_by_side: Compared) -> None:
    lines = side_by_side.said.err.splitlines()
    assert {"seed 0: cc, 1 of 2", "seed 1: cc, 1 of 2"} <= set(lines)
    assert sum(bool(re.fullmatch(r"seed [01]: rc, 2 of 2, about \d+ s left", line)) for line in lines) == 2


def test_one_after_the_other_gives_the_same_figures(
    words: tuple[object, ...], side_by_side: Compared, tmp_path: Path
) -> None:
    said = imperfed(*words, "--jobs", 1, "--out", tmp_path)
    assert strict(said.out) == strict((next(tmp_path.iterdir()) / "results.json").read_text())
    assert "seed 1: rc" not in said.err
    assert strict(said.out) == strict(side_by_side.said.out)


def test_a_process_that_is_killed_ends_all_with_what_to_do(tmp_path: Path) -> None:
    config = resolve(words={"method": "cc", "data": "digits", "device": "cpu"})
    with pytest.raises(ImperfedError, match=r"killed while.*the same command goes on.*--jobs"), ParallelRuns(2) as pool:
        pool.begun(1, os._exit, [(9,)], config, tmp_path)[0].result()
