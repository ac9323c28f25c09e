"""Rows of several classes from a file to a federation: label matrices, patients, the official test set."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.core.labels import Annotated
from imperfed.data import readers, sources
from imperfed.data.corruption.annotations.listed import ListedAnnotation
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.split import SplitConfig

REAL = Path(os.environ.get("IMPERFED_DATA", "nowhere"))
IID = SplitConfig(sites=2, partition=IIDPartition(), public=0.0)


def ward(n: int = 60, tests: int = 20) -> Dataset:
    """Patients with two images each, four findings, and an official test set."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(n + tests, 3, generator=draw), torch.randint(0, 2, (n + tests, 4), generator=draw).to(torch.int8)
    patients = torch.arange(n) // 2
    return Dataset("ward", x[:n], y[:n], None, ("a", "b", "c", "d"), x[n:], y[n:], group=patients)


def rows_of(data: FederatedData) -> list[set[int]]:
    """The rows that each site trains on."""
    ids, starts = data.federation.ids, data.federation.starts
    return [set(map(int, ids[a:b])) for a, b in pairwise(starts)]


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_matrix_says_what_is_present_absent_and_not_annotated(tmp_path: Path) -> None:
    y = np.array([[1, -1], [0, 1], [-1, 0]])
    np.savez(
        tmp_path / "own.npz", x=np.ones((3, 2)), y=y, group=np.array([4, 4, 7]), y_test=y[:1], x_test=np.ones((1, 2))
    )
    own = readers.read_npz(tmp_path / "own.npz")
    assert own.y is not None
    assert own.test_y is not None
    assert own.group is not None
    assert own.y.dtype == own.test_y.dtype == torch.int8
    assert own.y.tolist() == y.tolist()
    assert own.classes == ("0", "1")
    assert own.group.tolist() == [4, 4, 7]


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"y": np.array([[1, 2], [0, 1]])}, r"own\.npz, y, row 0, column 1: 2 is none of 1 \(present\)"),
        ({"y": np.array([["a", "b"], ["c", "d"]])}, "expected a matrix of 1, 0 and -1"),
        ({"y": np.eye(2), "candidates": np.eye(2)}, "candidate sets need rows with one class each"),
        ({"y": np.eye(2), "x_test": np.ones((1, 2)), "y_test": np.array([0])}, "y_test: expected a matrix"),
        ({"y": np.eye(2), "group": np.array([1])}, "2 examples but 1 groups"),
    ],
)
def test_what_a_matrix_must_not_hold_is_named(arrays: dict[str, np.ndarray], told: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((2, 2)), **arrays)
    with pytest.raises(DataError, match=told):
        readers.read_npz(tmp_path / "own.npz")


def test_a_test_set_must_be_labelled_like_the_rest() -> None:
    with pytest.raises(DataError, match="one or several"):
        replace(ward(), test_y=torch.zeros(20, dtype=torch.int64)).check()


def test_chestxray14_from_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chestxray14").mkdir()
    images = np.random.default_rng(0).integers(0, 255, (4, 8, 8)).astype("u1")
    np.savez(
        tmp_path / "chestxray14/chestxray14_part1_64.npz",
        images=images,
        labels=np.array([[1, 0], [0, 0], [0, 1], [1, 1]], "u1"),
        patient=np.array([1, 1, 2, 3], "i4"),
        split=np.array([0, 1, 2, 0], "u1"),
        file_names=np.array(["1_0.png", "1_1.png", "2_0.png", "3_0.png"]),
        class_names=np.array(["Mass", "Hernia"]),
    )
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))
    read = sources.load("chestxray14")
    assert read.ids == ("1_0.png", "1_1.png", "3_0.png")
    assert read.y is not None
    assert read.y.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert read.test_y is not None
    assert read.test_y.tolist() == [[0, 1]]
    assert read.group is not None
    assert read.group.tolist() == [1, 1, 3]
    first = images[0] / 255
    expected = (first - first.mean()) / first.std(ddof=1)
    assert np.allclose(read.x[0, 0].numpy(), expected, atol=1e-5)


def test_real_chestxray14(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.sources()["chestxray14"]
    if not source.present(REAL):
        pytest.skip(f"chestxray14 not in {REAL}; set IMPERFED_DATA")
    assert source.verify(REAL) == []
    monkeypatch.setenv("IMPERFED_DATA", str(REAL))
    read = sources.load("chestxray14")
    assert read.x.shape == (3954, 1, 64, 64)
    assert read.test_y is not None
    assert read.y is not None
    assert read.test_y.shape == (1045, 14)
    positives = dict(zip(read.classes, (read.y.sum(0) + read.test_y.sum(0)).tolist(), strict=True))
    assert (positives["Infiltration"], positives["Hernia"]) == (829, 27)


# -- federations -------------------------------------------------------------------------------------------------------


def test_sites_know_their_classes_and_evaluation_knows_all() -> None:
    data = ward()
    scene = federate(data, IID, LabelConfig(annotates=ListedAnnotation("a, b; b, c"), classes="all"), 0)
    labels = scene.federation.labels
    assert isinstance(labels, Annotated)
    known = torch.stack([(v >= 0).any(0) for v in labels.values.split(scene.federation.sizes())])
    assert known.tolist() == [[True, True, False, False], [False, True, True, False]]
    assert scene.oracle.truth is not None
    assert data.y is not None
    assert torch.equal(scene.oracle.truth, data.y[[int(i) for i in scene.federation.ids]])
    assert (scene.oracle.truth >= 0).all()
    assert torch.equal(labels.values[labels.values >= 0], scene.oracle.truth[labels.values >= 0])
    sizes = scene.federation.sizes()
    assert scene.facts["annotated_rows"] == [[sizes[0], 0], sizes, [0, sizes[1]], [0, 0]]
    assert scene.facts["counts"][0] == [int(y[:, 0].sum()) for y in scene.oracle.truth.split(sizes)]


def test_only_the_classes_named_are_learned_and_tested() -> None:
    data = federate(ward(), IID, LabelConfig(annotates=ListedAnnotation("d; b, d")), 0)
    assert data.federation.classes == ("b", "d")
    assert data.oracle.common_y is not None
    assert data.oracle.common_y.shape[1] == data.federation.labels.values.shape[1] == 2


def test_no_patient_is_trained_and_tested_on_not_even_at_two_sites() -> None:
    data = ward(200)
    scene = federate(data, replace(IID, test=0.3), LabelConfig(), 0)
    trained = set().union(*rows_of(scene))
    patients = {row // 2 for row in trained}
    tested = {row for row in range(200) if row not in trained}
    assert len(tested) == sum(scene.facts["test_rows"])
    assert not patients & {row // 2 for row in tested}
    assert 0.25 < len(tested) / 200 < 0.35
    without = federate(replace(data, group=None), replace(IID, test=0.3), LabelConfig(), 0)
    together = {row // 2 for row in set().union(*rows_of(without))}
    assert together & {row // 2 for row in range(200) if row not in set().union(*rows_of(without))}


def test_every_site_may_be_measured_on_the_official_test_set() -> None:
    data = federate(ward(), replace(IID, common_test=True), LabelConfig(), 0)
    assert sum(data.federation.sizes()) == 60
    for x, y in zip(data.oracle.test_x, data.oracle.test_y, strict=True):
        assert x is data.oracle.common_x
        assert y is data.oracle.common_y
    assert data.facts["test_rows"] == [0, 0]
    bare = replace(ward(), test_x=None, test_y=None)
    with pytest.raises(DataError, match="no official test set"):
        federate(bare, replace(IID, common_test=True), LabelConfig(), 0)


def test_a_partition_by_classes_needs_one_class_a_row() -> None:
    with pytest.raises(DataError, match="use iid, quantity or column"):
        federate(ward(), SplitConfig(), LabelConfig(), 0)


def test_labels_that_miss_some_classes_are_taken_as_they_came() -> None:
    data = ward()
    assert data.y is not None
    y = data.y.clone()
    y[::3, 1] = -1
    scene = federate(replace(data, y=y), IID, LabelConfig(), 0)
    assert scene.facts["annotates"] == "given"
    assert torch.equal(scene.federation.labels.values, y[[int(i) for i in scene.federation.ids]])
