"""What is read from files of every format and every kind of labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from imperfed.core.errors import DataError
from imperfed.core.labels import Annotated, Candidates, Exact, Positive, Positives
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, parse, read_declaration
from imperfed.data.files.image_files import read_image
from imperfed.data.files.reading import Reading, read_site, read_sites
from imperfed.data.scale import Moments, Scale
from tests.support import small_files as small
from tests.support.written_files import declare, write_table


def found(folder: Path) -> Reading:
    return read_sites(read_declaration(folder)).check()


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_table_with_candidate_sets(ending: str, tmp_path: Path) -> None:
    north, south = found(small.candidates(tmp_path, ending)).sites
    assert (north.name, south.name) == ("north", "south")
    assert south.rows.x[:3].tolist() == [[21.5, 1, 0, 1, 0], [22.5, 0, 1, 1, 1], [23.5, 1, 0, 0, 1]]
    assert isinstance(south.rows.labels, Candidates)
    assert south.rows.labels.values[:3].int().tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert south.rows.truth is not None
    assert south.rows.truth.tolist() == [0, 1, 2, 0, 1, 2]
    assert south.rows.ids()[:2] == ("south 0", "south 1")
    assert south.test is not None
    assert south.test.truth is not None
    assert torch.equal(south.test.truth, south.rows.truth)
    assert torch.equal(south.test.x, south.rows.x)
    line = 2 if ending == "parquet" else 4
    assert south.rows.place(2) == (tmp_path / f"sites/south.{ending}", line)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_missing_and_uncertain_labels_of_sites_in_one_file(ending: str, tmp_path: Path) -> None:
    north, south = found(small.annotated(tmp_path, ending)).sites
    assert isinstance(north.rows.labels, Annotated)
    assert north.rows.labels.values.tolist() == [[1, -1], [-1, 1], [0, 0]]
    assert south.rows.labels is not None
    assert south.rows.labels.values.tolist() == [[0, -1], [1, 1], [-1, 1]]  # the uncertain -1 is read as positive
    assert south.rows.ids() == ("1", "3", "5")
    assert south.rows.place(1) == (tmp_path / f"all.{ending}", 3 if ending == "parquet" else 5)


@pytest.mark.parametrize(("policy", "mark"), [("unknown", -1), ("positive", 1), ("negative", 0)])
def test_policies_for_uncertain_values(policy: str, mark: int, tmp_path: Path) -> None:
    folder = small.annotated(tmp_path)
    text = (folder / "federation.toml").read_text().replace('read_as = "positive"', f'read_as = "{policy}"')
    (folder / "federation.toml").write_text(text)
    labels = found(folder).sites[1].rows.labels
    assert labels is not None
    assert labels.values[1].tolist() == [1, mark]


def test_values_that_mean_not_annotated(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,cat,dog\n1,1.0,NA\n2,?, 0 \n3,-1.00,\n")
    labels = LabelColumns("annotated", ("cat", "dog"), missing=("NA", "?", "-1"))
    folder = declare(tmp_path, Declaration("m", "*.csv", inputs=Inputs(("x",)), labels=labels))
    told = found(folder).sites[0].rows.labels
    assert told is not None
    assert told.values.tolist() == [[1, -1], [-1, 0], [-1, -1]]


def wards(folder: Path, *classes: str, **headers: str) -> Path:
    """Sites with annotated labels, each with the columns of its header and one row of ones."""
    for name, header in headers.items():
        (folder / f"{name}.csv").write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    labels = LabelColumns("annotated", classes)
    return declare(folder, Declaration("wards", "*.csv", inputs=Inputs(("age",)), labels=labels))


def test_a_site_never_annotates_a_class_that_it_has_no_column_of(tmp_path: Path) -> None:
    sites = found(wards(tmp_path, "flu", "covid", "gout", north="age,flu,covid", south="age,gout,flu")).sites
    marks = [site.rows.labels.values.tolist() for site in sites if site.rows.labels is not None]
    assert marks == [[[1, 1, -1]], [[1, -1, 1]]]


def test_a_test_file_may_lack_classes_as_well(tmp_path: Path) -> None:
    folder = wards(tmp_path, "flu", "covid", north="age,flu,covid", south="age,flu")
    (folder / "test").mkdir()
    (folder / "test" / "all.csv").write_text("age,covid\n1,0\n")
    text = (folder / "federation.toml").read_text()
    (folder / "federation.toml").write_text(f'test = "test/all.csv"\n{text}')
    test = found(folder).test
    assert test is not None
    assert test.truth is not None
    assert test.truth.tolist() == [[-1, 0]]


def test_other_delimiters_and_separators(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x;set\n1;"cat + dog"\n2;lynx\n')
    labels = LabelColumns("candidates", small.CLASSES, "set", separator="+")
    folder = declare(tmp_path, Declaration("d", "*.csv", delimiter=";", inputs=Inputs(("x",)), labels=labels))
    told = found(folder).sites[0].rows.labels
    assert told is not None
    assert told.values.int().tolist() == [[1, 1, 0], [0, 0, 1]]


def test_clean_rows_without_truth_are_told_by_their_labels(tmp_path: Path) -> None:
    for kind, given, truth in (
        ("candidates", "cat", [0, 2]),
        ("positive", "cat|dog", [[1, 1, 0], [0, 0, 1]]),
        ("positives", "cat|dog", [[1, 1, 0], [0, 0, 1]]),
    ):
        (tmp_path / "a.csv").write_text("x,y\n1,cat\n2,dog\n")
        (tmp_path / "test.tsv").write_text(f"x\ty\n1\t{given}\n2\tlynx\n")
        labels = LabelColumns(kind, small.CLASSES, "y")
        folder = declare(tmp_path, Declaration("c", "*.csv", test="test.tsv", inputs=Inputs(("x",)), labels=labels))
        clean = found(folder).test
        assert clean is not None
        assert clean.truth is not None
        assert clean.truth.tolist() == truth
    (tmp_path / "test.tsv").write_text("x\ty\n1\tcat\n2\tlynx|dog\n")
    folder = declare(tmp_path, replace(read_declaration(tmp_path), labels=replace(labels, kind="candidates")))
    with pytest.raises(
        DataError, match=r"test\.tsv, line 3, column y: found several classes, expected the one true class"
    ):
        found(folder)


def test_arrays(tmp_path: Path) -> None:
    north, _ = found(small.arrays(tmp_path)).sites
    assert north.rows.x.shape == (6, 1, 4, 4)
    assert north.rows.x.max() <= 1
    assert north.rows.labels is not None
    assert north.rows.labels.values.int().argmax(1).tolist() == [0, 1, 2, 0, 1, 2]


def test_class_numbers_of_an_archive_and_names_that_are_numbers(tmp_path: Path) -> None:
    for classes, y in ((("b", "a"), [0, 1]), (("1", "0"), [1, 0])):
        write_table(tmp_path / "a.npz", {"x": np.zeros((2, 1)), "y": np.array(y)})
        labels = LabelColumns("exact", classes, "y")
        folder = declare(tmp_path, Declaration("n", "*.npz", inputs=Inputs(array="x"), labels=labels))
        told = found(folder).sites[0].rows.labels
        assert isinstance(told, Exact)
        assert told.values.tolist() == [0, 1]


def test_folders_of_images_and_tables_of_paths(tmp_path: Path) -> None:
    north, _ = found(small.pictures(tmp_path / "folders")).sites
    assert north.rows.x.shape == (6, 3, 4, 4)  # grey images of 5 x 4 as colours of 4 x 4
    assert north.rows.ids()[:3] == ("cat/0.png", "cat/3.png", "dog/1.png")
    assert north.rows.labels is not None
    assert north.rows.labels.values.tolist() == [0, 0, 1, 1, 2, 2]
    north, _ = found(small.paths(tmp_path / "paths")).sites
    assert isinstance(north.rows.labels, Positive)
    with Image.open(tmp_path / "paths/north/0.png") as image:
        assert torch.equal(north.rows.x[0, 0], torch.from_numpy(np.asarray(image) / np.float32(255)))
    assert north.rows.ids()[0] == "north/0.png"


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "1", "I;16", "CMYK"])
def test_images_of_many_modes(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        Image.fromarray(np.full((3, 2), 257 * 128, np.uint16)).save(path)
    else:
        Image.new("L", (2, 3), 255).convert(mode).save(path)
    for channels in (1, 3):
        pixels = read_image(path, (3, 2), channels)
        assert not isinstance(pixels, str)
        assert pixels.shape == (channels, 3, 2)
        assert (pixels == (128 if mode == "I;16" else 255)).all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_sparse_features_and_a_test_file_for_all(ending: str, tmp_path: Path) -> None:
    reading = found(small.words(tmp_path, ending))
    rows = reading.sites[0].rows
    assert rows.x.shape == (6, 2, 3)
    assert rows.x[:3].tolist() == [
        [[0, 3, 5], [1, 0.5, 0]],
        [[5, 5, 5], [0, 0, 0]],
        [[2, 5, 5], [pytest.approx(0.1), 0, 0]],
    ]
    assert isinstance(rows.labels, Positives)
    assert reading.test is not None
    assert reading.test.truth is not None
    assert reading.test.truth.tolist() == [[1, 0, 0], [1, 1, 0]]


def test_sparse_cells_without_text_and_of_odd_writing(tmp_path: Path) -> None:
    folder = small.words(tmp_path, "parquet")
    text = ["0:1", None, "03:+1.5 1:.5", "", "4:1.", "2:1"]
    write_table(folder / "sites/north.parquet", {"text": text, "animals": small.sets(1)})
    x = found(folder).sites[0].rows.x
    assert x[1:4].tolist() == [[[5, 5, 5], [0, 0, 0]], [[3, 1, 5], [1.5, 0.5, 0]], [[5, 5, 5], [0, 0, 0]]]


def test_what_lies_among_images_is_passed_over(tmp_path: Path) -> None:
    folder = small.pictures(tmp_path)
    for name in ("Thumbs.db", "cat/notes.txt", "cat/Thumbs.db", "cat/.hidden.png"):
        (folder / "sites" / "north" / name).write_text("no image")
    assert len(found(folder).sites[0].rows) == small.ROWS


def test_what_the_star_stands_for(tmp_path: Path) -> None:
    labels, inputs = LabelColumns("exact", ("0", "1"), "y"), Inputs(("a",))
    for name in ("b-1", "a-2", ".hidden"):
        write_table(tmp_path / f"in/{name}/table.csv", {"a": [1.0], "y": [0]})
        write_table(tmp_path / f"site {name}.csv", {"a": [1.0], "y": [0]})
    for sites in ("in/*/table.csv", "./in/*/table.csv", "site *.csv", f"{tmp_path}/in/*/table.csv"):
        folder = declare(tmp_path, Declaration("n", sites, inputs=inputs, labels=labels))
        assert [site.name for site in found(folder).sites] == ["a-2", "b-1"]
    folder = declare(
        tmp_path, Declaration("n", {"z": "in/a-2/table.csv", "b": "site b-1.csv"}, inputs=inputs, labels=labels)
    )
    assert [site.name for site in found(folder).sites] == ["z", "b"]


def test_the_fast_and_the_slow_way_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.candidates(tmp_path)
    text = (tmp_path / "sites/north.csv").read_text().replace("20.5", " 2.05e1 ").replace("21.5", "+21.50")
    (tmp_path / "sites/north.csv").write_text(text.replace("north 3", '"north\n""3"'))
    fast = found(tmp_path).sites[0].rows
    assert fast.table.lines is None
    monkeypatch.setattr("imperfed.data.files.text._read_fast", lambda *_: None)
    slow = found(tmp_path).sites[0].rows
    assert slow.table.lines is not None
    assert torch.equal(fast.x, slow.x)
    assert fast.ids() == slow.ids()
    assert fast.labels is not None
    assert slow.labels is not None
    assert torch.equal(fast.labels.values, slow.labels.values)
    assert fast.place(5) == slow.place(5) == (tmp_path / "sites/north.csv", 8)


def test_one_site_by_a_declaration_from_elsewhere(tmp_path: Path) -> None:
    text = read_declaration(small.candidates(tmp_path)).toml()
    site = read_site("south", tmp_path / "sites/south.csv", None, parse(text))
    assert torch.equal(site.rows.x, found(tmp_path).sites[1].rows.x)
    (tmp_path / "sites/south.csv").write_text("id,age\n1,2\n")
    with pytest.raises(DataError, match=r"south\.csv: 4 problems"):
        read_site("south", tmp_path / "sites/south.csv", None, parse(text))


def test_sites_that_can_be_read_are_there_beside_the_problems_of_others(tmp_path: Path) -> None:
    folder = small.candidates(tmp_path)
    (folder / "sites/north.csv").unlink()
    (folder / "test/north.csv").unlink()
    write_table(folder / "sites/west.csv", {"id": [1]})
    reading = read_sites(replace(read_declaration(folder), test=""))
    assert [site.name for site in reading.sites] == ["south"]
    assert {problem.column for problem in reading.problems.kept} == {"age", "sex", "animal", "true", "race"}


def test_moments_add_up_to_the_scale_of_all_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=draw) * torch.tensor([1.0, 20.0, 3.0, 0.0]) + torch.tensor([5.0, -300.0, 0.0, 7.0])
    scale = Scale.merged([Moments.of(x[:7]), Moments.of(x[7:8]), Moments.of(x[8:])])
    assert torch.allclose(scale.mean, x.double().mean(0))
    assert torch.allclose(scale.spread[:3], x.double().std(0, unbiased=False)[:3])
    assert scale.spread[3] == 1
    images = torch.rand(9, 3, 4, 5, generator=draw)
    scale = Scale.merged([Moments.of(images[:2]), Moments.of(images[2:])])
    assert scale.mean.shape == (3, 1, 1)
    assert torch.allclose(scale(images).mean((0, 2, 3)), torch.zeros(3), atol=1e-6)
    assert torch.allclose(scale(images).std((0, 2, 3), unbiased=False), torch.ones(3))
