"""`imperfed inspect` on files written by hand: what it says, what it writes, what it never writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from rich.console import Console

from imperfed.census.advice import first
from imperfed.census.console import print_inspection
from imperfed.census.inspect import inspect
from imperfed.census.pictures import draw_all
from imperfed.core.labels import KINDS
from imperfed.data.files.declaration import read_declaration
from tests.support.terminal import done, imperfed, strict

NORTH = "id,w,v,Nodule,Edema\na,1,2,1,\nb,2,3,0,\nc,2,3,0,\n"
SOUTH = "id,w,v,Nodule,Edema\na,5,2,0,1\nb,2,3,,0\n"
KEYS = {
    *(
        "name",
        "federation",
        "guessed",
        "unwritten",
        "labels",
        "classes",
        "rows",
        "sites",
        "candidate_pairs",
        "inseparable",
    ),
    *("shared_inputs", "contradicted_inputs", "test_rows_trained_on", "warnings", "methods", "next", "picture"),
    *("shared_ids", "odd_cells", "values_picture"),
}
SITE_KEYS = {
    *("name", "rows", "positive", "negative", "unknown", "set_sizes", "largest_class", "skew", "repeated_rows"),
    *("rows_elsewhere", "groups", "ambiguous_rows", "values"),
}


@pytest.fixture
def wards(tmp_path: Path) -> Path:
    for name, text in (("north", NORTH), ("south", SOUTH)):
        path = tmp_path / "wards" / "sites" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "wards"


def test_guesses_are_written_and_said(wards: Path) -> None:
    out = done("inspect", wards).out
    assert "was guessed from the files and written. Please check:" in out
    assert "a blank is read as not annotated" in out
    assert "site north never annotates Edema" in out
    assert "2 sites, 5 rows, 2 classes; missing labels" in out
    assert f"imperfed run fedpsl --data {wards}" in out
    found = read_declaration(wards)
    assert found.labels.kind == "annotated"
    assert found.inputs.numeric == ("w", "v")


def test_a_second_look_reads_what_was_written_and_leaves_it_as_it_is(wards: Path) -> None:
    done("inspect", wards)
    path = wards / "federation.toml"
    path.write_text(path.read_text() + "# mine\n")
    said = path.read_bytes()
    assert "guessed" not in done("inspect", wards).out
    assert "guessed" not in done("inspect", path).out
    assert path.read_bytes() == said


def test_the_picture(wards: Path, tmp_path: Path) -> None:
    done("inspect", wards)
    done("inspect", wards, "--picture", tmp_path / "own.png")
    for path in (wards / "census.png", tmp_path / "own.png"):
        with Image.open(path) as image:
            assert image.format == "PNG"
            colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
            assert {(0x1F, 0x5F, 0x99), (0xD5, 0xDD, 0xE5), (0xF2, 0xB8, 0x4B)} <= colours


@pytest.mark.filterwarnings("error")
def test_pictures_have_names_in_any_letters(tmp_path: Path) -> None:
    for name in ("上海", "Zürich"):
        (tmp_path / f"{name}.csv").write_text("漢字,étiquette\n1,ß\n2,語\n3,ß\n", encoding="utf-8")
    draw_all(inspect(tmp_path), tmp_path / "census.png")
    assert (tmp_path / "census-values.png").exists()


def test_exact_labels_are_trusted_until_an_audit_doubts_them(tmp_path: Path) -> None:
    for name in ("north", "south"):
        rows = "".join(f"{i},{'ab'[i % 2]}\n" for i in range(40))
        (tmp_path / f"{name}.csv").write_text(f"width,bird\n{rows}")
    out = done("inspect", tmp_path).out
    assert f"imperfed run fedavg --data {tmp_path}" in out
    assert f"imperfed compare fedavg,local-only --data {tmp_path}" in out
    assert f"imperfed audit {tmp_path}" in out
    assert "made for exact labels, of which some are wrong:" in out


@pytest.mark.parametrize(
    ("kind", "searched", "method"),
    [
        ("candidates", True, "pfedpll"),
        ("annotated", True, "fedpsl"),
        ("positives", True, "fedavg"),  # not one for very many classes
        ("positive", False, "fedalc"),  # one class per site, which plain averaging cannot learn from
        ("exact", False, "fedavg"),
    ],
)
def test_the_method_to_begin_with(kind: str, searched: bool, method: str) -> None:
    assert first(KINDS[kind], searched) == method


def test_json_has_everything_under_stable_names(wards: Path) -> None:
    found = strict(done("inspect", wards, "--json").out)
    assert set(found) == KEYS
    assert all(set(site) == SITE_KEYS for site in found["sites"])
    north, south = found["sites"]
    assert north["positive"] == {"Nodule": 1, "Edema": 0}
    assert north["negative"] == {"Nodule": 2, "Edema": 0}
    assert north["unknown"] == {"Nodule": 0, "Edema": 3}
    assert (north["repeated_rows"], north["rows_elsewhere"], south["rows_elsewhere"]) == (1, 2, 1)
    assert found["shared_inputs"] == [{"sites": ["north", "south"], "inputs": 1}]
    assert {"name": "fedpsl", "part": "algorithm", "made_for": True}.items() <= found["methods"][0].items()
    assert found["guessed"]


def test_no_other_kinds_method_is_offered(wards: Path) -> None:
    methods = {entry["name"] for entry in strict(done("inspect", wards, "--json").out)["methods"]}
    assert {"fedpsl", "masked-bce", "fedavg", "local-only"} <= methods
    assert not methods & {"pfedpll", "cc", "cross-entropy", "fedalc", "fb-nll"}


def test_problems_are_told_all_at_once_and_nothing_is_written(wards: Path) -> None:
    (wards / "sites" / "north.csv").write_text(NORTH.replace("a,1,2,1,", "a,1,inf,1,").replace("b,2,3", "b,-inf,3"))
    said = imperfed("inspect", wards)
    assert said.code == 3
    assert "north.csv, line 2, column v" in said.err
    assert "north.csv, line 3, column w" in said.err
    assert "was guessed and not written" in said.err
    assert not (wards / "federation.toml").exists()
    assert not (wards / "census.png").exists()


def test_a_folder_that_cannot_be_written_to_is_inspected_all_the_same(wards: Path) -> None:
    (wards / "census.png").mkdir()
    (wards / "federation.toml").symlink_to(wards / "away" / "federation.toml")
    said = imperfed("inspect", wards)
    assert said.code == 0
    assert "was guessed from the files and could not be written" in said.out
    assert 'kind = "annotated"' in said.out
    assert "2 sites, 5 rows" in said.out
    assert "warning: picture not drawn" in said.err
    assert "use --picture FILE" in said.err
    found = strict(imperfed("inspect", wards, "--json").out)
    assert found["picture"] is None
    assert 'kind = "annotated"' in found["unwritten"]


def test_a_picture_that_was_asked_for_and_cannot_be_drawn_is_an_error(wards: Path) -> None:
    said = imperfed("inspect", wards, "--picture", wards / "away" / "own.png")
    assert said.code == 1
    assert "2 sites, 5 rows" in said.out


def test_nothing_is_compared_where_nothing_can_be_measured(tmp_path: Path) -> None:
    for site in ("a", "b"):
        (tmp_path / f"{site}.csv").write_text(
            "w,tags\n" + "".join(f"{i}.5,{'u|v' if i % 2 else 'v'}\n" for i in range(6))
        )
    out = done("inspect", tmp_path).out
    assert "imperfed run" in out
    assert "imperfed compare" not in out
    assert 'write kind = "positives"' in " ".join(out.split())


def test_columns_of_true_and_false_are_0_and_1(tmp_path: Path) -> None:
    flags = pa.table({"w": [1.0, 2.0, 3.0], "smoker": [True, False, True], "label": [True, False, False]})
    yes = pa.table({"w": [1.0, 2.0, 3.0], "flu": [True, None, False], "gout": [False, None, True]})
    for name, table in (("exact", flags), ("marks", yes)):
        for site in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
            parquet.write_table(table, tmp_path / name / f"{site}.parquet")
    exact, marks = (inspect(tmp_path / name) for name in ("exact", "marks"))
    assert exact.declaration.inputs.numeric == ("w", "smoker")
    assert (exact.declaration.labels.kind, exact.declaration.labels.classes) == ("exact", ("0", "1"))
    assert (marks.declaration.labels.kind, marks.declaration.labels.classes) == ("annotated", ("flu", "gout"))
    assert marks.census.sites[0].known.unknown.tolist() == [1, 1]


def test_no_such_path(wards: Path) -> None:
    done("inspect", wards)
    said = imperfed("inspect", wards / "away")
    assert said.code == 3
    assert "no such file or folder" in said.err


@pytest.mark.parametrize(("sites", "classes"), [(4, 14), (200, 14), (4, 60), (30, 3)])
def test_nothing_is_wider_than_eighty_columns(tmp_path: Path, sites: int, classes: int) -> None:
    names = [f"a finding with a long name {c}"[-20:] for c in range(classes)]
    for k in range(sites):
        rows = "".join(
            f"{i},{','.join('10'[(i + c + k) % 2] if (c + k) % 3 else '' for c in range(classes))}\n" for i in range(12)
        )
        path = tmp_path / "sites" / f"the-clinic-number-{k}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"w,{','.join(names)}\n{rows}")
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False, width=80)
    with console.capture() as captured:
        print_inspection(inspect(tmp_path), console, {"sites x classes": Path("census.png")})
    lines = [line for line in captured.get().splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert len(lines) < 140
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
