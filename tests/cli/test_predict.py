"""What a run's models say of new rows, from the command line and from Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import csv, parquet

import imperfed
from imperfed.core.errors import DataError, UsageError
from tests.support import small_files as small
from tests.support.terminal import Said, arrays, done, write
from tests.support.terminal import imperfed as command
from tests.support.written_files import write_table

FEW = ("--rounds", "2", "--set", "steps=5", "--workers", "1")
NEW = {"sex": ["m", "f"], "race": [["b"], ["a"]], "id": ["x-1", "x-2"], "age": [24.0, 21.5]}
"""Rows for the model of the animals: no labels, and the columns in another order."""


@contextmanager
def no_pages() -> Iterator[None]:
    """Draw none for the runs that several tests look at: they are made before the fixture that says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
        yield


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a head a site on files of its own; the files are gone."""
    folder = tmp_path_factory.mktemp("animals")
    data = small.candidates(folder / "data")
    with no_pages():
        ran = done("run", "pfedpll", "--data", data, *FEW, "--out", folder).folder
    shutil.rmtree(data)
    return ran


def refused(ran: Path, folder: Path, *words: object, **changed: Any) -> Said:
    """A prediction that must fail and write nothing."""
    columns = {name: values for name, values in (NEW | changed).items() if values is not None}
    write_table(folder / "new.csv", columns)
    said = command("predict", ran, folder / "new.csv", "--out", folder / "p.csv", *words)
    assert not (folder / "p.csv").exists()
    return said


def test_rows_of_a_file_become_a_table(animals: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "new.csv", NEW)
    said = done("predict", animals, tmp_path / "new.csv", "--site", "south", "--out", tmp_path / "p.csv")
    assert said.out == f"2 rows predicted; written\n  {tmp_path / 'p.csv'}\n"
    table = csv.read_csv(tmp_path / "p.csv").to_pydict()
    assert list(table) == ["id", "cat", "dog", "lynx", "predicted"]
    assert table["id"] == ["x-1", "x-2"]
    x = np.array([[24.0, 0, 1, 0, 1], [21.5, 1, 0, 1, 0]])  # age, f, m, a, b
    probability = imperfed.load(animals).predict(x, "south")
    assert np.allclose([table[name] for name in small.CLASSES], probability.T)
    assert table["predicted"] == [small.CLASSES[c] for c in probability.argmax(1)]


def test_parquet_by_its_ending(animals: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "new.parquet", NEW)
    done("predict", animals, tmp_path / "new.parquet", "--site", "north", "--out", tmp_path / "p.parquet")
    assert parquet.read_table(tmp_path / "p.parquet")["id"].to_pylist() == ["x-1", "x-2"]


def test_rows_without_ids_are_numbered(animals: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "new.csv", {name: column for name, column in NEW.items() if name != "id"})
    done("predict", animals, tmp_path / "new.csv", "--site", "north", "--out", tmp_path / "p.csv")
    assert csv.read_csv(tmp_path / "p.csv")["id"].to_pylist() == [0, 1]


def test_wrong_rows_are_told_as_the_reader_tells_them(animals: Path, tmp_path: Path) -> None:
    north = ("--site", "north")
    said = refused(animals, tmp_path, *north, age=None, Age=[24.0, 21.5])
    assert (said.code, "column age: found no such column" in said.err) == (3, True)
    said = refused(animals, tmp_path, *north, sex=["m", "x"])
    assert (said.code, "line 3, column sex: found 'x', expected a declared category" in said.err) == (3, True)
    said = refused(animals, tmp_path, *north, age=[24.0, None])
    assert (said.code, "line 3, column age: found a blank" in said.err) == (3, True)


def test_whose_model_must_be_said_where_sites_have_their_own(animals: Path, tmp_path: Path) -> None:
    said = refused(animals, tmp_path)
    assert (said.code, "--site: north, south" in said.err) == (2, True)
    said = refused(animals, tmp_path, "--site", "sout")
    assert (said.code, "Did you mean 'south'" in said.err) == (2, True)


def test_nothing_is_written_over(animals: Path, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    said = refused(animals, tmp_path, "--site", "north", "--out", tmp_path / "there.csv")
    assert (said.code, "already exists" in said.err) == (2, True)
    assert (tmp_path / "there.csv").read_text() == "mine"
    said = refused(animals, tmp_path, "--site", "north", "--out", tmp_path / "p.xlsx")
    assert (said.code, "ending in .csv or .parquet" in said.err) == (2, True)


def test_several_classes_may_be_present(tmp_path: Path) -> None:
    ran = done("run", "fedavg", "--data", small.annotated(tmp_path / "data"), *FEW, "--out", tmp_path).folder
    write_table(tmp_path / "new.csv", {"age": [-50.0, 0.0, 50.0]})
    done("predict", ran, tmp_path / "new.csv", "--out", tmp_path / "p.parquet")  # one model for all: nobody to name
    table = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["id"] == ["0", "1", "2"]
    for cat, dog, said in zip(table["cat"], table["dog"], table["predicted"], strict=True):
        assert said == "|".join(name for name, p in (("cat", cat), ("dog", dog)) if p >= 0.5)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[imperfed.RunResult, np.ndarray[Any, Any]]:
    """A run on one .npz file with pictures of bytes, and those pictures."""
    folder = tmp_path_factory.mktemp("photos")
    x = np.random.default_rng(0).integers(256, size=(40, 6, 6), dtype=np.uint8)
    write(folder / "photos.npz", x=x)
    few = {"rounds": 2, "steps": 5, "workers": 1, "partition": "iid", "model": "mlp"}
    with no_pages():
        return imperfed.run("fedavg", data=str(folder / "photos.npz"), out=folder, **few), x


def test_pictures_are_taken_as_the_file_holds_them(photos: Any, tmp_path: Path) -> None:
    result, x = photos
    inputs = torch.from_numpy(x[:, None] / np.float32(255))
    with torch.no_grad():
        probability = torch.softmax(result.model("site-0")(inputs), 1)
    for form in (x, x[:, None], torch.from_numpy(x), inputs):
        assert torch.equal(result.predict(form, "site-0"), probability)
    np.savez(tmp_path / "new.npz", x=x[:3])
    done("predict", result.folder, tmp_path / "new.npz", "--out", tmp_path / "p.csv")
    table = csv.read_csv(tmp_path / "p.csv").to_pydict()
    assert (list(table), table["id"]) == (["id", "0", "1", "2", "predicted"], [0, 1, 2])
    assert np.allclose(table["0"], probability[:3, 0])


def test_arrays_that_do_not_fit_are_data_errors(photos: Any, tmp_path: Path) -> None:
    wrong = np.full((3, 1, 6, 6), np.nan), np.zeros((3, 5), np.uint8)
    for x, told in zip(wrong, ("row 0, feature 0: nan is not", "rows of shape [1, 6, 6]"), strict=True):
        np.savez(tmp_path / "new.npz", x=x)
        said = command("predict", photos[0].folder, tmp_path / "new.npz", "--out", tmp_path / "p.csv")
        assert (said.code, told in said.err) == (3, True)


def test_pictures_of_bytes_are_refused_where_the_set_scales_them_itself(finished: Path) -> None:
    with pytest.raises(UsageError, match="digits scales its images in its own way"):
        imperfed.load(finished).predict(np.zeros((2, 8, 8), np.uint8), "site-0")


def test_rows_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    few = {"rounds": 1, "steps": 2, "workers": 1, "partition": "iid"}
    result = imperfed.run("fedavg", data=str(write(tmp_path / "mine.npz")), out=tmp_path, **few)
    x = arrays()["x"]
    x[7, 2] = np.nan
    with pytest.raises(UsageError, match="row 7, feature 2: nan"):
        result.predict(x, "site-0")
    with pytest.raises(UsageError, match="found object"):
        result.predict(np.array([["a", "b", "c", "d"]], dtype=object), "site-0")
    with pytest.raises(UsageError, match="rows: rows of different lengths; hand over one array"):
        result.predict([[1, 2], [3]], "site-0")
    (result.folder / "models/scale.safetensors").unlink()
    with pytest.raises(DataError, match=r"scale\.safetensors: no such file, but the run standardised its inputs"):
        result.predict(arrays()["x"], "site-0")


def test_only_a_run_that_has_ended_is_opened(finished: Path, tmp_path: Path) -> None:
    assert imperfed.load(str(finished)).summary.method == "pfedpll"
    cut = shutil.copytree(finished, tmp_path / "cut")
    (cut / "summary.json").unlink()
    with pytest.raises(UsageError, match=f"has not ended; continue with: imperfed resume {cut}"):
        imperfed.load(cut)


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An example of images in folders, and a run on it."""
    folder = imperfed.example("photos", tmp_path_factory.mktemp("scans") / "photos")
    with no_pages():
        return folder, done("run", "fedavg", "--data", folder, *FEW, "--out", folder.parent).folder


def test_a_flat_folder_of_images_has_one_row_per_image(scans: tuple[Path, Path], tmp_path: Path) -> None:
    data, ran = scans
    (new := tmp_path / "new").mkdir()
    for image in sorted((data / "new").iterdir()):
        shutil.copy(image, new)
    (new / "notes.txt").write_text("not an image")
    done("predict", ran, new, "--out", tmp_path / "p.csv")
    table = csv.read_csv(tmp_path / "p.csv").to_pydict()
    assert table["id"] == sorted(path.name for path in (data / "new").iterdir())
    (sorted_in := tmp_path / "sorted" / "some").mkdir(parents=True)
    for image in new.glob("*.png"):
        shutil.copy(image, sorted_in)
    done("predict", ran, sorted_in.parent, "--out", tmp_path / "q.csv")
    again = csv.read_csv(tmp_path / "q.csv").to_pydict()
    assert again["id"] == [f"some/{name}" for name in table["id"]]
    assert again["predicted"] == table["predicted"]
    said = command("predict", ran, tmp_path / "sorted" / "none", "--out", tmp_path / "r.csv")
    assert said.code == 3
    (tmp_path / "empty").mkdir()
    said = command("predict", ran, tmp_path / "empty", "--out", tmp_path / "r.csv")
    assert (said.code, "found no images, expected images; put images there" in said.err) == (3, True)


def test_so_has_one_for_a_run_whose_images_a_table_names(scans: tuple[Path, Path], tmp_path: Path) -> None:
    images = sorted((scans[0] / "new").glob("*.png"))
    for site in ("north", "south"):
        write_table(tmp_path / f"data/{site}.csv", {"file": [str(image) for image in images], "digit": ["a", "b"] * 5})
    (tmp_path / "data/federation.toml").write_text(
        'sites = "*.csv"\nid = "file"\n[inputs]\nimage = "file"\nsize = [8, 8]\nchannels = 1\n'
        '[labels]\nkind = "exact"\nclasses = ["a", "b"]\ncolumn = "digit"\n'
    )
    ran = done("run", "fedavg", "--data", tmp_path / "data", *FEW, "--out", tmp_path).folder
    done("predict", ran, scans[0] / "new", "--out", tmp_path / "p.csv")
    assert csv.read_csv(tmp_path / "p.csv")["id"].to_pylist() == [image.name for image in images]
