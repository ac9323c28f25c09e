from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError, UsageError
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions import partitions
from imperfed.data.partitions.base import RowPartition, UnassignedRows
from imperfed.data.partitions.classes import ClassesPartition, deal_classes
from imperfed.data.partitions.column import ColumnPartition
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.partitions.quantity import QuantityPartition
from imperfed.data.partitions.tasks import TasksPartition
from imperfed.data.split import SplitConfig

seeds = st.integers(0, 2**32)
labels = st.lists(st.integers(0, 5), min_size=30, max_size=200).map(np.array)


def rng(seed=0):
    return np.random.default_rng(seed)


def of_classes(y):
    return UnassignedRows(len(y), tuple(map(str, range(int(max(y)) + 1))), np.asarray(y))


def iid(rows, sites, generator):
    return IIDPartition().divide(UnassignedRows(rows, ()), sites, generator)


def dirichlet(y, sites, beta, min_size, generator):
    return DirichletPartition(beta, min_size).divide(of_classes(y), sites, generator)


def x_classes(y, sites, per_site, cover, generator):
    return ClassesPartition(per_site, cover).divide(of_classes(y), sites, generator)


def quantity(rows, sizes, generator):
    return QuantityPartition(tuple(sizes)).divide(UnassignedRows(rows, ()), len(sizes), generator)


def assert_covers(parts, rows):
    assert all(part.dtype == np.int64 for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(rows))


@settings(deadline=None, max_examples=50)
@given(rows=st.integers(1, 300), sites=st.integers(1, 20), seed=seeds)
def test_iid_deals_all_rows_evenly(rows, sites, seed):
    if sites > rows:
        with pytest.raises(UsageError, match=f"{sites} sites but only {rows} rows"):
            iid(rows, sites, rng(seed))
        return
    parts = iid(rows, sites, rng(seed))
    assert_covers(parts, rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_iid_is_random_and_repeatable():
    assert not np.array_equal(iid(50, 1, rng(0))[0], np.arange(50))
    assert np.array_equal(iid(50, 1, rng(3))[0], iid(50, 1, rng(3))[0])
    assert not np.array_equal(iid(50, 1, rng(3))[0], iid(50, 1, rng(4))[0])


@settings(deadline=None, max_examples=80)
@given(y=labels, sites=st.integers(1, 4), beta=st.floats(0.3, 100), min_size=st.integers(0, 3), seed=seeds)
def test_dirichlet_covers_and_keeps_the_minimum(y, sites, beta, min_size, seed):
    parts = dirichlet(y, sites, beta, min_size, rng(seed))
    assert_covers(parts, len(y))
    assert min(len(part) for part in parts) >= max(min_size, 1)


@pytest.mark.parametrize(
    ("beta", "min_size", "change"), [(0.01, 5, "raise beta"), (0.5, 11, "lower sites or min_size")]
)
def test_dirichlet_gives_up_and_says_what_to_change(beta, min_size, change):
    # With so small a beta nearly all rows of a class go to one site; and 30 sites of 11 rows are more than 300.
    with pytest.raises(UsageError, match=rf"beta = {beta}, sites = 30, min_size = {min_size}, 300 rows.*{change}"):
        dirichlet(np.zeros(300, dtype=np.int64), 30, beta, min_size, rng())


def test_dirichlet_proportions_have_the_mean_and_variance_of_their_law():
    """A share of Dir(beta) over K sites has mean 1/K and variance (K-1) / (K^2 (K beta + 1)); each class its own."""
    y = np.repeat(np.arange(400), 100)
    parts = dirichlet(y, 4, 0.5, 10, rng(1))
    shares = np.stack([np.bincount(y[part], minlength=400) for part in parts]) / 100
    assert shares.mean(1) == pytest.approx(0.25, abs=0.04)
    assert shares.var() == pytest.approx(3 / (16 * 3), rel=0.08)
    assert abs(np.corrcoef(shares[0, :-1], shares[0, 1:])[0, 1]) < 0.15


def test_large_beta_is_nearly_even_and_small_beta_is_not():
    y = np.repeat(np.arange(10), 200)

    def widest(beta):
        return max(np.bincount(y[part], minlength=10).max() for part in dirichlet(y, 4, beta, 10, rng(2)))

    assert widest(1e6) <= 52
    assert widest(0.1) > 190


@settings(deadline=None, max_examples=80)
@given(
    counts=st.lists(st.integers(8, 40), min_size=1, max_size=6),
    sites=st.integers(1, 8),
    data=st.data(),
    cover=st.booleans(),
    seed=seeds,
)
def test_x_classes_gives_equal_sites_of_exactly_so_many_classes(counts, sites, data, cover, seed):
    per_site = data.draw(st.integers(1, len(counts)))
    y = rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = x_classes(y, sites, per_site, cover, rng(seed))
    rows = np.concatenate(parts)
    assert len(rows) == len(np.unique(rows))
    assert len({len(part) for part in parts}) == 1
    assert all(len(np.unique(y[part])) == per_site for part in parts)
    if cover and sites * per_site >= len(counts):
        assert set(y[rows]) == set(y)


@settings(deadline=None, max_examples=50)
@given(classes=st.integers(1, 30), sites=st.integers(1, 20), data=st.data(), seed=seeds)
def test_covering_deals_every_class_as_often_as_any_other(classes, sites, data, seed):
    per_site = data.draw(st.integers(1, classes))
    held = deal_classes(classes, sites, per_site, True, rng(seed)).sum(0)
    assert held.sum() == sites * per_site
    assert held.max() - held.min() <= 1


def test_without_covering_some_classes_are_commonly_at_nobody():
    unheld = [(deal_classes(10, 4, 3, False, rng(seed)).sum(0) == 0).sum() for seed in range(200)]
    # Each class is missed by all four with probability 0.7^4.
    assert np.mean(unheld) == pytest.approx(10 * 0.7**4, abs=0.25)


def test_x_classes_takes_evenly_from_unequal_classes():
    y = np.array([0] * 4 + [1] * 40 + [2] * 10 + [3] * 10)
    parts = x_classes(y, 2, 2, True, rng(5))
    sizes = sorted(len(part) for part in parts)
    assert sizes in ([20, 20], [14, 14])  # limited by classes {2, 3} or by {0, 2} / {0, 3}
    for part in parts:
        counts = np.bincount(y[part], minlength=4)
        small = [c for c in np.flatnonzero(counts) if counts[c] < len(part) // 2]
        assert all(counts[c] == np.bincount(y)[c] for c in small)  # a small class is used up before another leads


def test_quantity_is_exact_where_the_sizes_add_up():
    parts = quantity(60000, (5000, 12500, 17500, 25000), rng())
    assert [len(part) for part in parts] == [5000, 12500, 17500, 25000]
    assert_covers(parts, 60000)


@settings(deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), rows=st.integers(500, 900), seed=seeds)
def test_quantity_deals_all_rows_in_proportion(sizes, rows, seed):
    parts = quantity(rows, sizes, rng(seed))
    assert_covers(parts, rows)
    for part, size in zip(parts, sizes, strict=True):
        assert abs(len(part) - rows * size / sum(sizes)) < 1


def test_a_column_has_one_site_per_value():
    rows = UnassignedRows(5, (), column=np.array([7, 3, 7, 9, 3]))
    parts = ColumnPartition().divide(rows, 4, rng())
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2], [3]]


@pytest.mark.parametrize(
    ("partition", "settings", "sites", "message"),
    [
        (IIDPartition, {}, 0, "at least 1"),
        (DirichletPartition, {"beta": 0.0}, 4, "beta must be a positive number"),
        (DirichletPartition, {"beta": float("nan")}, 4, "beta must be a positive number"),
        (DirichletPartition, {"beta": float("inf")}, 4, "beta must be a positive number"),
        (ClassesPartition, {"per_site": 4}, 4, r"1 \.\. 3, the classes in the data; got 4"),
        (ClassesPartition, {"per_site": 0}, 4, r"1 \.\. 3"),
        (ClassesPartition, {"per_site": 3}, 30, "would share the 20 rows of class 0; lower sites"),
        (QuantityPartition, {"sizes": (1, 2)}, 4, "4 positive numbers"),
        (QuantityPartition, {"sizes": (1, 2, 3, 0)}, 4, "4 positive numbers"),
        (QuantityPartition, {"sizes": (1, 1, 1, 1000)}, 4, "leave site 0 without any"),
        (TasksPartition, {"impurity": 1.5}, 4, r"partition\.impurity must lie in 0 \.\. 1"),
    ],
)
def test_settings_that_cannot_be_met_are_named(partition, settings, sites, message):
    with pytest.raises(UsageError, match=message):
        partition(**settings).divide(of_classes(np.repeat(np.arange(3), 20)), sites, rng())


@pytest.mark.parametrize("name", ["dirichlet", "classes", "tasks"])
def test_partitions_by_class_need_classes(name):
    with pytest.raises(DataError, match="use iid, quantity or column"):
        partitions()[name]().divide(UnassignedRows(60, ("a", "b")), 4, rng())


def test_partition_by_column_needs_a_column():
    with pytest.raises(DataError, match="names no site"):
        ColumnPartition().divide(UnassignedRows(60, ()), 4, rng())


SETTINGS = {"classes": {"per_site": 2}, "quantity": {"sizes": (1, 2, 3)}}
OF_ROWS = [name for name, partition in partitions().items() if issubclass(partition, RowPartition)]


@pytest.mark.parametrize("name", OF_ROWS)
def test_every_partition_is_repeatable_and_disjoint(name):
    partition = partitions()[name](**SETTINGS.get(name, {}))
    rows = UnassignedRows(200, tuple("abcd"), rng(0).integers(0, 4, 200), rng(1).integers(0, 3, 200))
    first, second = (partition.divide(rows, 3, rng(8)) for _ in range(2))
    assert len(first) == 3
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    held = np.concatenate(first)
    assert len(np.unique(held)) == len(held)
    assert name == "classes" or len(held) == 200


def test_a_partition_is_told_by_its_name_and_what_was_changed():
    assert str(DirichletPartition()) == "dirichlet"
    assert str(DirichletPartition(beta=0.1)) == "dirichlet beta=0.1"
    assert str(QuantityPartition((1, 2))) == "quantity sizes=(1, 2)"


def test_a_partition_need_not_be_known_by_name_to_be_used():
    class Halves(RowPartition):
        name = "halves"

        def divide(self, rows, sites, generator):
            return np.split(np.arange(rows.count), 2)

    data = Dataset("d", torch.arange(8.0)[:, None], torch.arange(8) % 2, None, ("a", "b"))
    scene = federate(data, SplitConfig(partition=Halves(), test=0.25), LabelConfig("exact"), 0)
    rows = [set(scene.federation.ids[a:b]) for a, b in pairwise(scene.federation.starts)]
    assert rows[0] < set("0123")
    assert rows[1] < set("4567")
