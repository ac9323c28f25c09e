"""Tasks: disjoint sets of classes, one task a site. The setting of personalised learning with several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import UsageError

if TYPE_CHECKING:
    from imperfed.data.partitions import SplitConfig

Index = npt.NDArray[np.int64]
Tasks = tuple[Index, Index]
"""The task of every class, and of every site."""

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
OF_CIFAR10 = {
    2: (0, 0, 1, 1, 1, 1, 1, 1, 0, 0),  # vehicles, animals
    3: (0, 0, 2, 1, 1, 1, 2, 1, 0, 0),  # vehicles, four mammals, bird and frog
    5: (0, 1, 4, 2, 3, 2, 4, 3, 0, 1),  # sky and sea, road, pets, deer and horse, bird and frog
}
"""Two tasks are the paper's; it does not say which three and five it took."""


def task_of_classes(classes: Sequence[object], tasks: int, own: Sequence[int] = ()) -> Index:
    """The task of every class: `own` where given, by kind on CIFAR-10, else class c has task c mod T (odd and even)."""
    if not 1 <= tasks <= len(classes):
        raise UsageError(f"split.tasks must lie in 1 .. {len(classes)}, the number of classes; given: {tasks}")
    known = OF_CIFAR10.get(tasks, ()) if tuple(classes) == CIFAR10 else ()
    task_of = np.array(own or known or [c % tasks for c in range(len(classes))])
    if len(task_of) != len(classes) or sorted(set(task_of.tolist())) != list(range(tasks)):
        raise UsageError(
            f"split.task_of must give each of {len(classes)} classes a task 0 .. {tasks - 1}, and each task a class; "
            f"given: {list(own)}"
        )
    return task_of


def task_of_sites(sites: int, tasks: int) -> Index:
    """The task of every site: as many sites for each task as there can be, the sites of a task one after the other."""
    if sites < tasks:
        raise UsageError(f"{tasks} tasks need as many sites; given: {sites}")
    return np.arange(sites) * tasks // sites


def tasks_of(split: SplitConfig, classes: Sequence[str]) -> Tasks | None:
    """The tasks of a split; None where it has none."""
    if split.partition != "tasks":
        return None
    return task_of_classes(classes, split.tasks, split.task_of), task_of_sites(split.sites, split.tasks)


def by_task(y: Index, task_of: Index, sites: int, impurity: float, generator: np.random.Generator) -> list[Index]:
    """All rows; those of a task are dealt at random to its sites, but a share `impurity` of them to all sites alike."""
    if not 0 <= impurity <= 1:
        raise UsageError(f"split.impurity is a share and must lie in 0 .. 1; given: {impurity}")
    tasks = int(task_of.max()) + 1
    of_site = task_of_sites(sites, tasks)
    held: list[list[Index]] = [[] for _ in range(sites)]
    astray: list[Index] = []
    for task in range(tasks):
        rows = generator.permutation(np.flatnonzero(task_of[y] == task))
        cut = round(impurity * len(rows))
        astray.append(rows[:cut])
        owners = np.flatnonzero(of_site == task)
        for site, part in zip(owners, np.array_split(rows[cut:], len(owners)), strict=True):
            held[site].append(part)
    spread = np.array_split(generator.permutation(np.concatenate(astray)), sites)
    return [np.concatenate([*parts, more]) for parts, more in zip(held, spread, strict=True)]
