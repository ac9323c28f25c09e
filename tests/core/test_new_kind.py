"""Kinds of labels that the package has never heard of: a class, an objective, and nothing else.

`Ranked` goes all the way that a built-in kind goes: declared in a federation.toml, read from a table, checked, counted
by the census, learned from, and written to a label file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from pyarrow import parquet
from torch import Tensor

from imperfed.algorithms import catalogue
from imperfed.core import labels as package
from imperfed.core.batch import Batch, Tree
from imperfed.core.errors import DataError
from imperfed.core.federation import Federation
from imperfed.core.labels import KINDS, Cells, ClassCounts, Labels, UnreadableError
from imperfed.core.labels.label_cells import NoteRow
from imperfed.core.objective import Objective
from imperfed.core.registry import discover
from imperfed.data.files.declaration import read_declaration
from imperfed.data.files.reading import read_sites
from imperfed.data.oracle import Oracle
from imperfed.evaluation.evaluator import Evaluator
from imperfed.results.folder import RunFolder
from imperfed.results.label_summary import FilledLabels
from imperfed.results.labels import write_labels
from tests.support.terminal import done, imperfed, summary

# -- the new kind ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked(Labels):
    """The classes that come into question, ranked 1, 2, ... and 0 for the others: int64 values [n, C]."""

    kind: ClassVar[str] = "ranked"
    title: ClassVar[str] = "ranked choices"
    dtype: ClassVar[torch.dtype] = torch.int64
    inferable: ClassVar[bool] = True
    from_cells: ClassVar[bool] = True
    legend: ClassVar[tuple[str, str, str]] = ("first choice", "no choice", "a later choice")

    def check(self, where: str) -> None:
        self._check_matrix(where)
        unranked = (self.values != 1).all(1).nonzero()
        if len(unranked):
            raise DataError(f"{where}, row {int(unranked[0])}: no class is the first choice")

    @classmethod
    def read_cell(cls, cell: Any, cells: Cells) -> list[int]:
        choices = cells.classes_in(cell)
        if not choices or len({*choices}) < len(choices):
            raise UnreadableError("every choice once, the first one first", "such as cat>dog")
        return [choices.index(c) + 1 if c in choices else 0 for c in range(len(cells.classes))]

    def as_truth(self, note: NoteRow) -> Tensor:
        return (self.values == 1).int().argmax(1)

    def counts(self) -> ClassCounts:
        first, never = (self.values == 1).sum(0), (self.values == 0).sum(0)
        rows = torch.full_like(first, len(self))
        return ClassCounts(first, never, rows - first - never, first.double(), rows)

    def facts(self, sizes: Sequence[int]) -> dict[str, Any]:
        return {"mean_choices": float((self.values > 0).sum(1).double().mean())}

    def written(self, classes: Sequence[str]) -> list[str]:
        orders = [sorted((rank, c) for c, rank in enumerate(row) if rank) for row in self.values.tolist()]
        return [">".join(classes[c] for _, c in order) for order in orders]


@dataclass(frozen=True)
class RankedEntropy(Objective):
    """Cross-entropy to the reciprocal ranks."""

    name: ClassVar[str] = "ranked-entropy"
    labels: ClassVar[type[Ranked]] = Ranked
    reference: ClassVar[bool] = True

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        ranks = batch.labels.values
        weights = torch.where(ranks > 0, 1.0 / ranks.clamp(min=1), 0.0)
        logs = torch.log_softmax(net(batch.x), -1)
        return -(weights / weights.sum(-1, keepdim=True) * logs).sum(-1), None

    def infer_labels(self, logits: Tensor, labels: Ranked, rows: Tree) -> Tensor:
        return torch.softmax(logits.masked_fill(labels.values == 0, -torch.inf), -1)


@dataclass(frozen=True)
class Graded(Labels):
    """How marked each class is, from 0 to 4: float32 values [n, C]."""

    kind: ClassVar[str] = "graded"
    title: ClassVar[str] = "grades"
    dtype: ClassVar[torch.dtype] = torch.float32
    several: ClassVar[bool] = True
    from_columns: ClassVar[bool] = True

    def check(self, where: str) -> None:
        self._check_matrix(where)

    @classmethod
    def read_mark(cls, cell: Any, cells: Cells) -> float:
        if cells.text_in(cell) not in ("0", "1", "1.5", "2", "4"):
            raise UnreadableError("a grade", "such as 1.5")
        return float(cells.text_in(cell))

    @classmethod
    def from_marks(cls, marks: Tensor, note: NoteRow) -> Tensor:
        for row in (marks == 0).all(1).nonzero().flatten().tolist():
            note(row, "no grade above 0", "at least one", "grade the row")
        return marks

    def counts(self) -> ClassCounts:
        present = (self.values > 0).sum(0)
        rows = torch.full_like(present, len(self))
        return ClassCounts(present, rows - present, torch.zeros_like(present), present.double(), rows)


@dataclass(frozen=True)
class Tagged(Graded):
    """Grades of which those that are not a number are inferred."""

    kind: ClassVar[str] = "tagged"
    inferable: ClassVar[bool] = True

    def unknown(self) -> Tensor:
        return self.values.isnan()


# -- what becomes of it ------------------------------------------------------------------------------------------------

CLASSES = ("cat", "dog", "owl")
CHOICES = ("cat>dog", "dog", "owl>cat>dog")
DECLARED = """
sites = "sites/*.csv"
test = "test.csv"
[inputs]
numeric = ["a", "b"]
[labels]
kind = "ranked"
classes = ["cat", "dog", "owl"]
column = "choice"
separator = ">"
truth = "true"
"""


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register them, as if their files lay in the folders that are searched."""
    for kind in (Ranked, Graded):
        monkeypatch.setitem(KINDS, kind.kind, kind)
    monkeypatch.setitem(catalogue(), RankedEntropy.name, RankedEntropy)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sites with twelve ranked rows each, and a test file whose first choices are true."""
    (tmp_path / "sites").mkdir()
    for name, columns in (("sites/north", 4), ("sites/south", 4), ("test", 3)):
        rows = [f"{c + 0.1 * i},{-c},{CHOICES[c]},{CLASSES[c]}" for i in range(4) for c in range(3)]
        lines = [",".join(line.split(",")[:columns]) for line in ("a,b,choice,true", *rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    (tmp_path / "federation.toml").write_text(DECLARED)
    return tmp_path


def test_a_file_in_the_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ordered.py").write_text(
        "from imperfed.core.labels.candidates import Candidates\n\n\n"
        'class Ordered(Candidates):\n    """Candidates in order."""\n\n    kind = "ordered"\n'
    )
    before = discover(package.__name__, package.__path__, (Labels,), key="kind").keys()
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.ordered", raising=False)
    assert discover(package.__name__, package.__path__, (Labels,), key="kind").keys() == {*before, "ordered"}


def test_it_is_read_from_a_declared_file(folder: Path) -> None:
    reading = read_sites(read_declaration(folder)).check()
    site = reading.sites[0]
    assert isinstance(site.rows.labels, Ranked)
    assert site.rows.labels.values[:3].tolist() == [[1, 2, 0], [0, 1, 0], [2, 3, 1]]
    assert site.rows.truth is not None
    assert site.rows.truth[:3].tolist() == [0, 1, 2]
    assert reading.test is not None
    assert reading.test.truth is not None
    assert reading.test.truth[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("cat>cow", "found 'cat>cow', expected a declared class; did you mean"),
        ("cat>cat", "found 'cat>cat', expected every choice once, the first one first; such as cat>dog"),
        ("", "found a blank, expected every choice once"),
    ],
)
def test_a_bad_cell_is_told_with_its_place(folder: Path, cell: str, message: str) -> None:
    path = folder / "sites" / "north.csv"
    path.write_text(path.read_text().replace("owl>cat>dog", cell, 1))
    with pytest.raises(DataError) as caught:
        read_sites(read_declaration(folder)).check()
    assert f"sites/north.csv, line 4, column choice: {message}" in str(caught.value)


def test_a_declaration_that_cannot_be_is_told(folder: Path) -> None:
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace('column = "choice"', 'columns = ["cat", "dog", "owl"]\nmissing = ["?"]'))
    with pytest.raises(DataError) as caught:
        read_declaration(folder)
    assert "labels.columns: found one column per class, expected one column: labels are ranked" in str(caught.value)
    assert "labels.missing: found ranked labels, expected annotated ones" in str(caught.value)


def test_another_one_is_read_from_one_column_per_class(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("a,cat,dog\n1,0,1.5\n2,4,2\n")
    (tmp_path / "federation.toml").write_text(
        'sites = "*.csv"\n[inputs]\nnumeric = ["a"]\n[labels]\nkind = "graded"\nclasses = ["cat", "dog"]\n'
    )
    labels = read_sites(read_declaration(tmp_path)).check().sites[0].rows.labels
    assert isinstance(labels, Graded)
    labels.check("here")
    assert labels.values.tolist() == [[0, 1.5], [4, 2]]
    (tmp_path / "north.csv").write_text("a,cat,dog\n1,0,0\n2,5,2\n")
    with pytest.raises(DataError) as caught:
        read_sites(read_declaration(tmp_path)).check()
    assert "line 2, column cat, dog: found no grade above 0, expected at least one; grade the row" in str(caught.value)
    assert "line 3, column cat: found '5', expected a grade; such as 1.5" in str(caught.value)


def test_the_census_counts_and_names_it(folder: Path) -> None:
    told = done("inspect", folder).out
    assert "2 sites, 24 rows, 3 classes; ranked choices" in told
    assert "made for ranked choices:" in told
    assert "ranked-entropy" in told
    document = json.loads(done("inspect", folder, "--json").out)
    assert document["labels"] == "ranked"
    assert document["sites"][0]["positive"] == {"cat": 4, "dog": 4, "owl": 4}
    assert document["sites"][0]["unknown"] == {"cat": 4, "dog": 8, "owl": 0}
    assert (folder / "census.png").exists()


def test_averaging_learns_from_it(folder: Path, tmp_path: Path) -> None:
    run = done("run", "fedavg", "--data", folder, "--rounds", 1, "--workers", 1, "--out", tmp_path / "runs").folder
    told = summary(run)
    assert told["objective"] == "ranked-entropy"
    assert told["facts"]["labels"] == "ranked"
    assert told["metric"] == "accuracy"
    assert told["global"]["accuracy"]["value"] > 0.5
    resolved = told["labels"]
    assert resolved["n"] == 24
    assert resolved["accuracy"] > 0.5
    assert resolved["picking_at_random"] == pytest.approx((1 / 2 + 1 + 1 / 3) / 3)
    assert resolved["together"] == [[0, 16, 8], [16, 0, 8], [8, 8, 0]]
    for site in told["sites"]:
        table = parquet.read_table(run / "labels" / f"{site['site']}.parquet").to_pydict()
        assert table["given"] == [*CHOICES] * 4
        assert {*table["suggested"]} <= {*CLASSES}
        assert set(table["reason"]) == {"the most probable class"}
        assert site["labels"] is not None


def test_other_objectives_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    refused = imperfed("run", "proden", "--data", folder, "--rounds", 1, "--out", tmp_path / "runs")
    assert refused.code == 2
    assert "comes with ranked labels here. Objectives that learn from those: ranked-entropy" in refused.err


def test_its_label_file_says_what_was_given_and_what_was_inferred() -> None:
    labels = Ranked(torch.tensor([[1, 2, 0], [0, 1, 0]]), 3)
    table = labels.label_table(("r1", "r2"), CLASSES, torch.tensor([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]]), None)
    assert table["given"] == ["cat>dog", "dog"]
    assert table["suggested"] == ["dog", "dog"]
    assert table["confidence"] == [0.75, 1.0]
    assert labels.chance() == 0.75


def test_labels_of_several_classes_are_filled_in_where_the_kind_leaves_them_open(tmp_path: Path) -> None:
    values = torch.tensor([[4.0, torch.nan], [0.0, 2.0], [torch.nan, torch.nan]])
    federation = Federation(
        name="here",
        x=torch.zeros(3, 1),
        labels=Tagged(values, 2),
        starts=(0, 3),
        sites=("north",),
        classes=("cat", "dog"),
        ids=("r1", "r2", "r3"),
        public=torch.zeros(0, 1),
    )
    truth = torch.tensor([[1, 0], [0, 1], [1, 1]], dtype=torch.int8)
    evaluator = Evaluator.of(Oracle(truth=truth, test_x=(), test_y=()), federation)
    belief = torch.tensor([[0.9, 0.2], [0.1, 0.9], [0.8, 0.4]])
    outcome = write_labels(RunFolder(tmp_path), belief, federation, evaluator)
    assert isinstance(outcome.summary, FilledLabels)
    assert outcome.summary.filled_in == outcome.summary.n == 3
    assert outcome.summary.accuracy == pytest.approx(2 / 3)
    assert (tmp_path / "labels" / "north.parquet").exists()
