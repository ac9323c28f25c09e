"""Runs of an earlier call of a command are found by their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from imperfed.cli.typed_words import configs
from imperfed.experiments.config import Config
from imperfed.experiments.parallel import run_of
from imperfed.experiments.run_data import anywhere


def config(**words: str) -> Config:
    return configs({"data": "digits", **words})("fedavg", 0)


def stored(config: Config, folder: Path) -> Path:
    run = folder / "a-run"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(anywhere(config).toml(), encoding="utf-8")
    return run


@pytest.mark.parametrize("words", [{}, {"rounds.workers": "1"}, {"track": "tensorboard"}])
def test_a_run_is_found_whatever_changes_no_result(words: dict[str, str], tmp_path: Path) -> None:
    run = stored(config(**words), tmp_path)
    found = run_of(config(), tmp_path)
    assert found is not None
    assert found.path == run


@pytest.mark.parametrize("words", [{"device": "cpu"}, {"lr": "0.02"}, {"data_seed": "1"}, {"rounds.rounds": "3"}])
def test_a_run_with_other_settings_is_another(words: dict[str, str], tmp_path: Path) -> None:
    stored(config(**words), tmp_path)
    assert run_of(config(), tmp_path) is None


def test_settings_that_are_cut_short_are_those_of_no_run(tmp_path: Path) -> None:
    run = stored(config(), tmp_path)
    (run / "config.toml").write_text("[run]\nmethod = ")
    assert run_of(config(), tmp_path) is None
