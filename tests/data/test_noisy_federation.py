"""Noise and tasks in a federation: what the sites are told, what only the oracle knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Exact
from imperfed.data.corruption.noise import noises
from imperfed.data.corruption.noise.class_dependent import ClassDependentNoise
from imperfed.data.corruption.noise.uniform_noise import UniformNoise
from imperfed.data.dataset import Dataset
from imperfed.data.federate import FederatedData, federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.column import ColumnPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.tasks import TasksPartition
from imperfed.data.sources import load
from imperfed.data.sources.cifar10n import LABELS
from imperfed.data.split import SplitConfig

CLASSES = tuple("abcdef")
SPLIT = SplitConfig(4, TasksPartition(tasks=2, impurity=0.1), trusted=0.1)


def dataset() -> Dataset:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(6).repeat(200)
    return Dataset("made", torch.rand(1200, 3, generator=draw), y, None, CLASSES)


def scene(noise: str, **more: float) -> FederatedData:
    return federate(dataset(), SPLIT, LabelConfig(noise=noises()[noise](**more)), 0)


def rates(found: FederatedData) -> list[float]:
    truth = found.oracle.truth
    assert truth is not None
    wrong = (found.federation.labels.values != truth).double()
    return [float(part.mean()) for part in wrong.split(found.federation.sizes())]


@pytest.mark.parametrize("noise", ["class-independent", "class-dependent"])
def test_the_sites_are_told_wrong_labels_and_the_oracle_knows(noise: str) -> None:
    found = scene(noise, noise_rate=0.3)
    assert isinstance(found.federation.labels, Exact)
    assert rates(found) == pytest.approx([0.3] * 4, abs=0.04)
    assert found.facts["noise"] == noise
    assert found.facts["noise_rates"] == rates(found)
    assert found.oracle.tasks == (0, 0, 1, 1)


def test_wrong_labels_are_of_another_task() -> None:
    found = scene("class-dependent")
    truth, told = found.oracle.truth, found.federation.labels.values
    assert truth is not None
    site = torch.arange(4).repeat_interleave(torch.tensor(found.federation.sizes()))
    wrong = told != truth
    assert (told[wrong] % 2 != site[wrong] // 2).all()  # classes go by c mod 2, sites 0 and 1 have task 0


def test_noise_changes_neither_split_nor_truth_nor_test_sets_nor_clean_rows() -> None:
    noisy, clean = scene("uniform"), scene("none")
    assert noisy.federation.ids == clean.federation.ids
    assert noisy.federation.trusted is not None
    assert clean.federation.trusted is not None
    assert torch.equal(noisy.federation.trusted.labels.values, clean.federation.trusted.labels.values)
    assert all(torch.equal(a, b) for a, b in zip(noisy.oracle.test_y, clean.oracle.test_y, strict=True))
    assert noisy.oracle.truth is not None
    assert clean.oracle.truth is not None
    assert torch.equal(noisy.oracle.truth, clean.oracle.truth)


def test_the_same_seed_makes_the_same_noise() -> None:
    a, b = scene("uniform"), scene("uniform")
    assert torch.equal(a.federation.labels.values, b.federation.labels.values)
    other = federate(dataset(), SPLIT, LabelConfig(noise=UniformNoise()), 1)
    assert rates(other) != rates(a)


def test_noise_of_another_task_needs_tasks() -> None:
    with pytest.raises(UsageError, match="partition = tasks"):
        federate(dataset(), SplitConfig(partition=IIDPartition()), LabelConfig(noise=ClassDependentNoise()), 0)


def test_labels_that_come_with_the_data_are_given_and_not_the_truth() -> None:
    y = dataset().y
    assert y is not None
    told = torch.where(torch.arange(1200) % 10 < 3, (y + 1) % 6, y)
    data = replace(dataset(), given=told)
    found = federate(data, SplitConfig(partition=IIDPartition()), LabelConfig(), 0)
    assert rates(found) == pytest.approx([0.3] * 4, abs=0.06)
    assert found.facts["noise"] == "given"
    with pytest.raises(UsageError, match="leave noise = none"):
        federate(data, SPLIT, LabelConfig(noise=UniformNoise()), 0)
    with pytest.raises(DataError, match="labels as given"):
        replace(data, given=told + 5).check()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "cifar10").mkdir()
    y = rng.integers(10, size=50)
    names = np.array(["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"])
    images = rng.integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
    at = np.array([3, 41, 7, 0, 20, 33, 12, 49])
    parts = {"x_train": images, "y_train": y[at], "train_index": at, "class_names": names}
    parts |= {"x_test": images[:2], "y_test": y[:2], "test_index": np.arange(2)}
    np.savez(tmp_path / "cifar10/cifar10_subset.npz", **parts)
    np.savez(tmp_path / LABELS, clean_label=y, worse_label=(y + 3) % 10, aggre_label=y)
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))
    return tmp_path


def test_cifar10n_finds_the_label_of_every_image(folder: Path) -> None:
    worse, aggre = load("cifar10n-worse"), load("cifar10n-aggre")
    assert worse.y is not None
    assert worse.given is not None
    assert torch.equal(worse.given, (worse.y + 3) % 10)
    assert aggre.given is not None
    assert torch.equal(aggre.given, worse.y)
    assert worse.ids == ("3", "41", "7", "0", "20", "33", "12", "49")


def test_cifar10n_wants_its_labels_and_the_images(folder: Path) -> None:
    labels = folder / LABELS
    arrays = dict(np.load(labels))
    np.savez(labels, **(arrays | {"clean_label": (arrays["clean_label"] + 1) % 10}))
    with pytest.raises(DataError, match="another order"):
        load("cifar10n-worse")
    np.savez(labels, **{name: values[:10] for name, values in arrays.items()})
    with pytest.raises(DataError, match="10 labels, but the images go up to number 49"):
        load("cifar10n-worse")
    labels.unlink()
    with pytest.raises(DataError, match=r"cifar10n_labels\.npz"):
        load("cifar10n-worse")
    np.savez(labels, **arrays)
    (folder / "cifar10/cifar10_subset.npz").unlink()
    with pytest.raises(DataError, match=r"cifar10_subset\.npz"):
        load("cifar10n-worse")


def own_file(path: Path, **more: object) -> Dataset:
    rng = np.random.default_rng(0)
    given = np.arange(80) % 4
    arrays = {"x": rng.normal(size=(80, 3)), "given": given, "site": np.arange(80) % 2, "trusted": np.arange(80) >= 60}
    np.savez(path, **(arrays | more))
    return load(str(path))


def test_a_file_of_ones_own_with_labels_of_which_some_are_trusted(tmp_path: Path) -> None:
    data = own_file(tmp_path / "mine.npz")
    found = federate(data, SplitConfig(partition=ColumnPartition(), test=0), LabelConfig(), 0)
    assert found.federation.sizes() == [30, 30]
    assert found.federation.labels.values.tolist() == [0, 2] * 15 + [1, 3] * 15
    assert found.oracle.truth is None
    assert found.facts["noise"] == "given"
    assert found.federation.trusted is not None
    assert found.federation.trusted.labels.values.tolist() == [0, 1, 2, 3] * 5
    with pytest.raises(UsageError, match=r"leave split\.trusted at 0"):
        federate(data, SplitConfig(partition=ColumnPartition(), test=0, trusted=0.1), LabelConfig(), 0)


def test_where_the_truth_is_known_as_well_the_trusted_rows_have_it(tmp_path: Path) -> None:
    data = own_file(tmp_path / "mine.npz", y=np.full(80, 2))
    found = federate(data, SplitConfig(partition=ColumnPartition()), LabelConfig(), 0)
    assert found.federation.trusted is not None
    assert set(found.federation.trusted.labels.values.tolist()) == {2}
    assert rates(found) == pytest.approx([0.5, 1.0], abs=0.15)


def test_marks_are_0_or_1(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither 0 nor 1"):
        own_file(tmp_path / "mine.npz", trusted=np.full(80, 3))
    with pytest.raises(DataError, match="40 marks of trusted rows"):
        own_file(tmp_path / "mine.npz", trusted=np.ones(40))


def test_clean_rows_cannot_be_drawn_where_nothing_is_known_to_be_right(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((40, 2)), given=np.arange(40) % 2)
    with pytest.raises(DataError, match="mark rows whose labels are right as `trusted`"):
        federate(
            load(str(tmp_path / "mine.npz")),
            SplitConfig(partition=IIDPartition(), test=0, trusted=0.1),
            LabelConfig(),
            0,
        )
