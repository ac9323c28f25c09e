"""Runs on lazy inputs: the same bits as from memory, and problems that are found late."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from imperfed.core.errors import DataError
from imperfed.core.lazy import LazyRows, read
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, read_declaration
from imperfed.data.files.reading import Reading, read_sites
from imperfed.experiments.ranks import start_ranks, stop_ranks
from tests.support.terminal import done, imperfed
from tests.support.written_files import declare

SITES, CLASSES = ("north", "south"), ("cat", "dog")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_page: None) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "imperfed" / "rows"


def images(folder: Path, lazy: bool = False) -> Path:
    draw = np.random.default_rng(0)
    for name in (f"{s}/{c}/{i}.png" for s in SITES for c in CLASSES for i in range(12)):
        path = folder / "sites" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(256, size=(12, 10, 3), dtype=np.uint8)).save(path)
    inputs = Inputs(size=(8, 8), standardise=True, lazy=lazy)
    return declare(folder, Declaration("pets", "sites/*", inputs=inputs, labels=LabelColumns("exact", CLASSES)))


def table(folder: Path, lazy: bool = False) -> Path:
    """Numbers with blanks and one beyond reason, words, and row groups of unequal sizes."""
    (folder / "sites").mkdir(parents=True)
    for s, site in enumerate(SITES):
        draw = np.random.default_rng(s)
        age = draw.normal(40, 9, 50).tolist()
        age[3], age[44] = None, 1e29
        columns = {
            "age": age,
            "pulse": draw.integers(50, 90, 50),
            **{f"lab{j}": draw.normal(size=50) for j in range(5)},
            "sex": draw.choice(["f", "m"], 50),
            "animal": draw.choice(CLASSES, 50),
        }
        parquet.write_table(pyarrow.table(columns), folder / f"sites/{site}.parquet", row_group_size=15)
    numeric = ("age", "pulse", *(f"lab{j}" for j in range(5)))
    inputs = Inputs(numeric, {"sex": ("f", "m")}, fill={"age": "median"}, lazy=lazy)
    labels = LabelColumns("exact", CLASSES, "animal")
    return declare(folder, Declaration("people", "sites/*.parquet", inputs=inputs, labels=labels))


WRITERS = {"images": images, "table": table}


def found(folder: Path) -> Reading:
    return read_sites(read_declaration(folder)).check()


def settings(folder: Path, workers: int) -> Iterator[str | Path]:
    model = "cnn" if folder.name == "images" else "mlp"
    yield from ("run", "fedavg", "--data", folder, "--rounds", "3", "--workers", str(workers), "--model", model)
    for setting in ("steps=3", "local.batch=8", "split.validation=0.2", "rounds.checkpoint_every=1"):
        yield from ("--set", setting)


def refused(*words: object) -> str:
    said = imperfed(*words)
    assert said.code
    return said.err


def numbers(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "models").glob("*.safetensors")}


@pytest.mark.parametrize("what", WRITERS)
def test_a_lazy_run_has_the_bits_of_a_run_from_memory(what: str, tmp_path: Path) -> None:
    folder = WRITERS[what](tmp_path / what)
    from_memory = done(*settings(folder, 1), "--out", tmp_path / "whole").folder
    for workers in (1, 2):
        lazy = done(*settings(folder, workers), "--set", "lazy=true", "--out", tmp_path / f"lazy-{workers}").folder
        assert numbers(lazy) == numbers(from_memory)
        assert (lazy / "split.parquet").read_bytes() == (from_memory / "split.parquet").read_bytes()
        assert "lazy = true" in (lazy / "federation.toml").read_text()
    (lazy / "summary.json").unlink()
    shutil.rmtree(lazy / "models")
    (lazy / "checkpoints/last.safetensors").unlink()
    done("resume", lazy)
    assert numbers(lazy) == numbers(from_memory)


def test_a_lazy_run_over_ranks_is_that_of_one_process(tmp_path: Path) -> None:
    """Every rank opens the files by itself; a defence that looks at single answers keeps all bits."""
    folder = images(tmp_path / "images", lazy=True)
    median = ("--set", "defence=median", "--set", "adversaries=0")
    alone = done(*settings(folder, 1), *median, "--out", tmp_path / "one").folder
    try:
        start_ranks(2)
        apart = done(*settings(folder, 1), *median, "--out", tmp_path / "two").folder
    finally:
        stop_ranks()
    assert "2 ranks hold 1 + 1 sites" in (apart / "log.txt").read_text()
    assert numbers(apart) == numbers(alone)


@pytest.mark.parametrize("what", WRITERS)
def test_lazy_rows_are_the_rows(what: str, tmp_path: Path) -> None:
    whole, lazy = (found(WRITERS[what](tmp_path / str(flag) / what, lazy=flag)).sites for flag in (False, True))
    for one, other in zip(whole, lazy, strict=True):
        assert isinstance(other.rows.x, LazyRows)
        assert torch.equal(read(other.rows.x).nan_to_num(-1), one.rows.x.nan_to_num(-1))
        assert other.rows.ids() == one.rows.ids()


def test_a_damaged_image_is_named_when_a_batch_needs_it(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", lazy=True)
    damaged = folder / "sites/south/dog/7.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    x = found(folder).sites[1].rows.x  # nothing is decoded yet
    with pytest.raises(DataError, match=r"south/dog/7\.png.*not readable as an image"):
        read(x)
    declared = read_declaration(folder)
    declare(folder, replace(declared, inputs=replace(declared.inputs, standardise=False)))
    for workers in (1, 2):
        said = refused(*settings(folder, workers), "--out", tmp_path / "out")
        assert said.startswith(f"error: {damaged}, column image: found not readable as an image")


def test_a_missing_image_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("photo,animal\na.png,cat\nb.png,dog\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    labels = LabelColumns("exact", CLASSES, "animal")
    declare(tmp_path, Declaration("pets", "*.csv", inputs=Inputs(image="photo", size=(8, 8), lazy=True), labels=labels))
    with pytest.raises(DataError, match=r"north\.csv, line 3, column photo: found 'b\.png': no such file"):
        found(tmp_path)
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    x = found(tmp_path).sites[0].rows.x
    (tmp_path / "b.png").unlink()
    with pytest.raises(DataError, match=r"north\.csv, line 3, column photo: found 'b\.png': "):
        read(x)


def test_a_damaged_cell_is_named_when_a_batch_needs_it(tmp_path: Path) -> None:
    folder = table(tmp_path / "table", lazy=True)
    path = folder / "sites/south.parquet"
    held = parquet.read_table(path)
    pulse = [float("inf") if i == 33 else value for i, value in enumerate(held["pulse"].to_pylist())]
    held = held.set_column(1, "pulse", pyarrow.array(pulse))
    parquet.write_table(held, path, row_group_size=15)
    x = found(folder).sites[1].rows.x
    read(x[:30])
    with pytest.raises(DataError, match=r"south\.parquet, row 33, column pulse: found inf, expected a finite number"):
        read(x[31:32])


def test_files_are_told_apart_by_size_time_and_settings(tmp_path: Path, cache: Path) -> None:
    folder = images(tmp_path / "images", lazy=True)

    def identities() -> list[str]:
        return [source.identity for site in found(folder).sites for source in site.rows.x.sources]  # type: ignore[attr-defined]

    north, south = identities()
    assert north != south
    assert identities() == [north, south]
    assert len([*cache.glob("*.rows")]) == 2
    path = folder / "sites/south/dog/7.png"
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    changed = identities()
    assert changed[0] == north
    assert changed[1] != south
    declared = read_declaration(folder)
    declare(folder, replace(declared, inputs=replace(declared.inputs, channels=1)))
    assert not {*identities()} & {north, south, *changed}


def test_a_file_that_changes_during_a_run_is_noticed(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", lazy=True)
    x = found(folder).sites[0].rows.x
    path = folder / "sites/north/cat/0.png"
    Image.new("RGB", (9, 9)).save(path)
    with pytest.raises(DataError, match=r"north/cat/0\.png.*another file than when it was listed"):
        read(x)


def test_lazy_is_refused_for_tables_that_are_not_parquet(tmp_path: Path) -> None:
    csv = table(tmp_path / "table", lazy=True)
    declared = read_declaration(csv)
    for site in SITES:
        (csv / f"sites/{site}.csv").write_text("age,sex,animal\n40,f,cat\n")
    said = refused("inspect", declare(csv, replace(declared, sites="sites/*.csv", inputs=Inputs(("age",), lazy=True))))
    assert "found a .csv file, expected Parquet for tables with lazy = true" in said
