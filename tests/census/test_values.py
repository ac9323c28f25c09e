"""What is said of input values: figures that can be counted on paper, and a warning only where one is deserved."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from imperfed.census.input_values import SiteValues, look_at_values
from imperfed.census.inspect import inspect
from imperfed.census.value_picture import draw_values
from imperfed.census.value_warnings import value_warnings
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
from imperfed.data.files.reading import read_sites

SPREAD = [60 + 2 * (7 * i % 20) for i in range(20)]
"""Twenty different values from 60 to 98, as of weights."""


def look(folder: Path, **sites: list[object]) -> tuple[SiteValues, ...]:
    """The values of a column v at sites with these cells."""
    for name, cells in sites.items():
        lines = "".join(f"{cell},{'ab'[i % 2]}\n" for i, cell in enumerate(cells))
        (folder / f"{name}.csv").write_text(f"v,y\n{lines}")
    labels = LabelColumns("exact", ("a", "b"), "y")
    declaration = Declaration("d", "*.csv", inputs=Inputs(("v",), fill="median"), labels=labels, folder=folder)
    return look_at_values(read_sites(declaration).check().sites, declaration.inputs)


def test_figures_of_a_column(tmp_path: Path) -> None:
    column = look(tmp_path, a=[1, 2, 2, "", 3, 10, 10])[0].numbers["v"]
    assert (column.rows, column.blanks, column.distinct) == (7, 1, 4)
    assert (column.low.value, column.low.rows, column.low.gap) == (1.0, 1, 1.0)
    assert (column.high.value, column.high.rows, column.high.gap) == (10.0, 2, 7.0)
    assert column.quartiles == (2.0, 2.0, 10.0)


def test_a_column_of_blanks_has_no_figures(tmp_path: Path) -> None:
    sites = look(tmp_path, a=[""] * 12, b=SPREAD)
    assert sites[0].numbers["v"].distinct == 0
    assert value_warnings(sites) == ("column v is mostly blank at a (100.00\N{NO-BREAK SPACE}%)",)
    draw_values(sites, tmp_path / "values.png")


def test_values_in_order_deserve_no_warning(tmp_path: Path) -> None:
    assert value_warnings(look(tmp_path, a=SPREAD, b=[v + 9 for v in SPREAD], c=[v * 1.2 for v in SPREAD])) == ()


@pytest.mark.parametrize(
    ("convert", "said"),
    [
        (lambda v: v * 1000, "1,000 times that of most sites (80), as between g and kg"),
        (lambda v: v / 100, "1/100 of that of most sites (80), as between cm and m"),
        (lambda v: v * 4567, "4,567 times that of most sites (80), which their spread does not explain"),
    ],
)
def test_another_unit(tmp_path: Path, convert: object, said: str) -> None:
    other = [convert(v) for v in SPREAD]  # type: ignore[operator]
    found = value_warnings(look(tmp_path, a=SPREAD, b=other, c=SPREAD))
    assert len(found) == 1
    assert found[0].startswith("column v: the median at b (")
    assert said in found[0]


def test_degrees(tmp_path: Path) -> None:
    celsius = [36 + v / 40 for v in SPREAD]
    found = value_warnings(look(tmp_path, a=celsius, b=[32 + 1.8 * v for v in celsius], c=celsius))
    assert "in other degrees than that of most sites" in found[0]


def test_negative_values_far_apart(tmp_path: Path) -> None:
    around = [v - 80 for v in SPREAD]
    found = value_warnings(look(tmp_path, a=around, b=[v + 500 for v in around], c=around))
    assert "far from that of most sites" in found[0]


@pytest.mark.parametrize(("code", "named"), [(-999, True), (99999, True), (0, True), (97, False), (130, False)])
def test_codes_for_no_value_stand_apart_and_are_repeated(tmp_path: Path, code: int, named: bool) -> None:
    found = value_warnings(look(tmp_path, a=[*SPREAD, code, code], b=SPREAD))
    assert any(f"column v: {code} in 2 rows of a looks like a code" in sentence for sentence in found) is named


def test_constants(tmp_path: Path) -> None:
    assert value_warnings(look(tmp_path, a=[3] * 12, b=[3] * 12)) == (
        "the same value in all rows, which says nothing: v",
    )
    assert value_warnings(look(tmp_path, a=[0] * 12, b=[0, 1] * 6)) == ("the same value in all rows of a site: v at a",)


def test_outliers_are_named_but_a_long_tail_is_not(tmp_path: Path) -> None:
    found = value_warnings(look(tmp_path, a=[*SPREAD, 1e6], b=SPREAD))
    assert found == (
        "column v: 1e+06 (a.csv, line 22), where nine of ten values lie between 62 and 98; fix or blank the cell",
    )
    assert value_warnings(look(tmp_path, a=[*SPREAD, *(1000 * k for k in range(2, 9))], b=SPREAD)) == ()


def test_the_picture_shows_every_site(tmp_path: Path) -> None:
    draw_values(look(tmp_path, a=SPREAD, b=[1000 * v for v in SPREAD], c=[0, 1] * 10), tmp_path / "values.png")
    with Image.open(tmp_path / "values.png") as image:
        assert image.format == "PNG"
        assert (0x1F, 0x5F, 0x99) in {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}


def test_many_columns_are_summed_up(tmp_path: Path) -> None:
    from rich.console import Console

    from imperfed.census.value_tables import print_values

    sites = [SiteValues(f"s{k}", look(tmp_path, a=SPREAD)[0].numbers) for k in range(40)]
    console = Console(width=100)
    with console.capture() as captured:
        print_values(sites, console)
    assert "input values over all sites" in captured.get()
    assert "distinct: the most at a site" in captured.get()
    assert len(captured.get().splitlines()) < 8


def test_images_have_no_table_of_values(tmp_path: Path) -> None:
    for site in ("a", "b"):
        for label in ("cat", "dog"):
            (tmp_path / site / label).mkdir(parents=True)
            Image.new("L", (4, 4)).save(tmp_path / site / label / "1.png")
    assert inspect(tmp_path).values[0].numbers == {}
