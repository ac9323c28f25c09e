from __future__ import annotations

import numpy as np
import pytest

from imperfed.core.errors import UsageError
from imperfed.data.partitions.base import UnassignedRows
from imperfed.data.partitions.tasks import CIFAR10, TasksPartition

DIGITS = tuple(map(str, range(10)))


def test_digits_are_odd_or_even() -> None:
    assert TasksPartition(2).task_of_classes(DIGITS).tolist() == [0, 1] * 5


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_every_task_has_classes_and_every_class_one_task(tasks: int) -> None:
    for classes in (DIGITS, CIFAR10):
        assert sorted(set(TasksPartition(tasks).task_of_classes(classes).tolist())) == list(range(tasks))


def test_cifar10_is_vehicles_and_animals() -> None:
    task_of = TasksPartition(2).task_of_classes(CIFAR10)
    vehicles = {name for name, task in zip(CIFAR10, task_of, strict=True) if task == 0}
    assert vehicles == {"airplane", "automobile", "ship", "truck"}


def test_own_tasks() -> None:
    assert TasksPartition(2, (1, 0, 1)).task_of_classes(("a", "b", "c")).tolist() == [1, 0, 1]
    for own in ((1, 0), (1, 1, 1), (0, 1, 2)):
        with pytest.raises(UsageError, match=r"partition\.task_of"):
            TasksPartition(2, own).task_of_classes(("a", "b", "c"))
    with pytest.raises(UsageError, match=r"partition\.tasks"):
        TasksPartition(3).task_of_classes(("a", "b"))


@pytest.mark.parametrize(("sites", "tasks"), [(20, 2), (20, 3), (20, 5), (3, 3)])
def test_sites_are_spread_evenly_over_tasks(sites: int, tasks: int) -> None:
    counts = np.bincount(TasksPartition(tasks).task_of_sites(sites), minlength=tasks)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == sites


def test_fewer_sites_than_tasks() -> None:
    with pytest.raises(UsageError, match="2 tasks need at least as many sites"):
        TasksPartition(2).task_of_sites(1)


def counts_of(impurity: float) -> list[list[int]]:
    y = np.arange(400) % 4
    rows = UnassignedRows(400, ("a", "b", "c", "d"), y)
    parts = TasksPartition(2, impurity=impurity).divide(rows, 4, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))
    return [np.bincount(y[part] % 2, minlength=2).tolist() for part in parts]


def test_a_site_holds_its_task_and_nothing_else() -> None:
    assert counts_of(0.0) == [[100, 0], [100, 0], [0, 100], [0, 100]]


def test_impurity_is_spread_over_all_sites() -> None:
    counts = counts_of(0.2)  # 40 of each task astray, 20 of them at each site
    assert [sum(site) for site in counts] == [100] * 4
    assert all(max(site) - 80 + min(site) == 20 for site in counts)
    assert all(5 <= min(site) <= 15 for site in counts)


def test_bad_impurity() -> None:
    with pytest.raises(UsageError, match=r"partition\.impurity"):
        counts_of(1.5)
