"""Blank inputs: which cells are blank, what takes their place, and that one mistake outweighs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.data.files.declaration import parse, read_declaration
from imperfed.data.files.reading import read_site, read_sites
from imperfed.data.fill import ColumnFill, learn_fills
from imperfed.data.labelling import LabelConfig
from imperfed.data.moments import Moments, beyond_reason
from imperfed.data.own_files import federate_files, server_files, site_files
from imperfed.data.scale import Scale
from imperfed.data.split import SplitConfig

LABELS = '[labels]\nkind = "exact"\ncolumn = "y"\nclasses = ["a", "b"]\n'


def declare(folder: Path, inputs: str, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "federation.toml").write_text(f'sites = "*.csv"\n[inputs]\n{inputs}\n{LABELS}')
    return folder


def rows(values: list[str], words: list[str]) -> str:
    pairs = zip(values, words, strict=True)
    return "w;c;y\n" + "".join(f"{value};{word};{'ab'[i % 2]}\n" for i, (value, word) in enumerate(pairs))


NORTH = rows(["", "?", *map(str, range(1, 13))], ["", *["u"] * 13])
SOUTH = rows([str(value) for value in range(20, 34)], [*["v"] * 6, *["u"] * 8])
INPUTS = 'numeric = ["w"]\nmissing = ["?"]\ncategorical = {c = ["u", "v"]}\n'


def federated(folder: Path) -> torch.Tensor:
    reading = read_sites(read_declaration(folder)).check()
    return federate_files(reading, SplitConfig(test=0.0, public=0.0), LabelConfig(), 0).federation.x


@pytest.mark.parametrize(("how", "value"), [('"mean"', 17.0), ("5", 5.0), ('"median"', 21.0)])
def test_what_takes_the_place_of_a_blank(tmp_path: Path, how: str, value: float) -> None:
    fill = f'standardise = false\nfill = {{w = {how}, c = "mode"}}'
    x = federated(declare(tmp_path, INPUTS + fill, north=NORTH, south=SOUTH))
    known = [*range(1, 13), *range(20, 34)]
    value = sum(known) / len(known) if how == '"mean"' else value
    assert x[:2, 0].tolist() == pytest.approx([value] * 2)
    assert x[0, 1:3].tolist() == [1.0, 0.0]  # most say u
    assert x[:, 3].tolist() == [1.0, 1.0] + [0.0] * 26  # where w was blank
    assert x[:, 4].tolist() == [1.0] + [0.0] * 27  # where c was
    assert x.isfinite().all()


def test_without_indicators(tmp_path: Path) -> None:
    folder = declare(tmp_path, INPUTS + 'indicators = false\nfill = "median"', north=NORTH, south=SOUTH)
    assert federated(folder).shape == (28, 3)


def test_a_real_site_reports_what_the_simulation_learns_from(tmp_path: Path) -> None:
    folder = declare(tmp_path, INPUTS + 'fill = "median"', north=NORTH, south=SOUTH)
    declaration = read_declaration(folder)
    reading = read_sites(declaration).check()
    data = federate_files(reading, SplitConfig(test=0.0, public=0.0), LabelConfig(), 0)
    received = parse(declaration.toml())
    alone = [
        site_files(received, read_site(name, folder / f"{name}.csv", None, received), 0.0, 0, frozenset())
        for name in ("north", "south")
    ]
    scale = server_files(reading).scale([site.info() for site in alone])
    assert scale.tree().keys() == data.scale.tree().keys() == {"mean", "spread", "fill"}
    for name, values in scale.tree().items():
        assert torch.equal(values, data.scale.tree()[name])
    assert torch.equal(torch.cat([scale(site.x) for site in alone]), data.federation.x)
    assert torch.equal(Scale.of_tree(scale.tree())(alone[0].x), scale(alone[0].x))


def test_a_blank_without_a_fill_is_refused_and_the_fix_works(tmp_path: Path) -> None:
    folder = declare(tmp_path, INPUTS, north=NORTH, south=SOUTH)
    with pytest.raises(DataError, match=r"north\.csv, line 2, column w: found a blank.*write fill under \[inputs\]"):
        read_sites(read_declaration(folder)).check()


def test_a_word_that_is_not_declared_is_no_blank(tmp_path: Path) -> None:
    folder = declare(tmp_path, 'numeric = ["w"]\nfill = "mean"', north=NORTH, south=SOUTH)
    with pytest.raises(DataError, match=r"line 3, column w: found '\?', .*; list it under missing of \[inputs\]"):
        read_sites(read_declaration(folder)).check()


def test_numbers_that_mean_a_blank_count_in_their_column_only(tmp_path: Path) -> None:
    text = "w,v,y\n" + "".join(f"{99 if i < 3 else i},{99 if i > 8 else i},{'ab'[i % 2]}\n" for i in range(14))
    inputs = 'numeric = ["w", "v"]\nfill = "mean"\n[inputs.missing]\nw = [99]'
    x = read_sites(read_declaration(declare(tmp_path, inputs, north=text, south=text))).check().sites[0].rows.x
    assert x.isnan().sum(0).tolist() == [3, 0, 0, 0]


def test_too_few_known_values_say_nothing(tmp_path: Path) -> None:
    few = rows([*map(str, range(5)), *[""] * 9], ["u"] * 14)
    with pytest.raises(DataError, match="too few values of w are known at any site to learn its mean"):
        federated(declare(tmp_path, 'numeric = ["w"]\nfill = "mean"', north=few, south=few))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ('numeric = ["w"]\nfill = "mode"', "median, mean or a number"),
        ('numeric = ["w"]\nfill = "medain"', "did you mean 'median'"),
        ('numeric = ["w"]\nfill = {v = "mean"}', "no such input"),
        ('numeric = ["w"]\ncategorical = {c = ["u", "v"]}\nfill = {c = "mean"}', "mode or a category"),
    ],
)
def test_fills_that_cannot_be(tmp_path: Path, inputs: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_declaration(declare(tmp_path, inputs))


def test_the_median_of_unequal_sites_is_near_that_of_all_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, 1, generator=draw).exp() + k for k, n in enumerate((2000, 300, 40))]
    fill = learn_fills([ColumnFill("w", 0, 1, "median")], [Moments.of_table(part, [0]) for part in parts])
    assert float(fill) == pytest.approx(float(torch.cat(parts).median()), rel=0.05)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_one_broken_cell_neither_moves_the_scale_nor_outweighs_a_row() -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(1)) + 50
    broken = x.clone()
    broken[7, 0] = 1e29
    sound, robust = (Scale.of_files([Moments.of_table(part)], (), True) for part in (x, broken))
    assert torch.allclose(robust.mean, sound.mean, atol=0.05)
    assert torch.allclose(robust.spread, sound.spread, atol=0.05)
    assert robust(broken).abs().max() == 20
    assert torch.equal(sound(x), Scale.of(x, [torch.arange(200)])(x))  # nothing changes without mistakes


@pytest.mark.parametrize(
    "column",
    [torch.randn(500).exp().square(), torch.arange(500.0), (torch.arange(500) == 3).float(), torch.full((500,), 4.0)],
)
def test_long_tails_and_rare_values_are_no_mistakes(column: torch.Tensor) -> None:
    assert not beyond_reason(column[:, None]).any()


# -- dialects and patterns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("w;y\n1,5;a\n2;b\n", [1.5, 2.0]),
        ('w,y\n"1,5",a\n2,b\n', [1.5, 2.0]),
        ("w\ty\n1.5\ta\n2\tb\n", [1.5, 2.0]),
        ("w;y\n1,5e1;a\n-,5;b\n", [15.0, -0.5]),
    ],
)
def test_marks_are_found_file_by_file(tmp_path: Path, text: str, values: list[float]) -> None:
    folder = declare(tmp_path, 'numeric = ["w"]', north=text, south="w,y\n1.5,a\n2,b\n")
    sites = read_sites(read_declaration(folder)).check().sites
    assert sites[0].rows.x.flatten().tolist() == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("w;y\n1,5;a\n2.5;b\n", "found '1,5', .* numbers of this file have a decimal '.'"),
        ('w,y\n"1,500",a\n2,b\n', "found '1,500'"),
    ],
)
def test_numbers_of_two_kinds_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_sites(read_declaration(declare(tmp_path, 'numeric = ["w"]', north=text))).check()


def test_marks_can_be_declared_by_site(tmp_path: Path) -> None:
    folder = declare(tmp_path, 'numeric = ["w"]', north='w,y\n"1,500",a\n2,b\n', south="w,y\n1.5,a\n2,b\n")
    file = folder / "federation.toml"
    file.write_text(file.read_text().replace("[inputs]", '[decimal]\nnorth = ","\n[inputs]'))
    sites = read_sites(read_declaration(folder)).check().sites
    assert [site.rows.x.flatten().tolist() for site in sites] == [[1.5, 2.0]] * 2


def test_patterns_name_all_columns_without_another_role(tmp_path: Path) -> None:
    text = "y,w10,w2,v,name\na,1,2,3,n1\nb,4,5,6,n2\n"
    folder = declare(tmp_path, 'numeric = ["v", "w*"]', north=text, south="w2,w10,y,v\n2,1,a,3\n5,4,b,6\n")
    reading = read_sites(read_declaration(folder)).check()
    assert reading.declaration.inputs.numeric == ("v", "w2", "w10")
    assert torch.equal(reading.sites[0].rows.x, reading.sites[1].rows.x)
    folder = declare(tmp_path, 'numeric = ["z*"]')
    with pytest.raises(DataError, match="a pattern of some columns"):
        read_declaration(folder)


def test_several_classes_in_a_cell_say_what_to_declare(tmp_path: Path) -> None:
    folder = declare(tmp_path, 'numeric = ["w"]', north="w,y\n1,a\n2,a|b\n")
    with pytest.raises(DataError, match=r'line 3, column y: .* one class; write kind = "candidates" if one of them'):
        read_sites(read_declaration(folder)).check()
