"""Tasks: disjoint sets of classes, one task per site. The setting of personalised learning with several tasks (FB-NLL).

The two tasks on CIFAR-10 are the paper's; it does not say how it chose three and five tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from imperfed.core.errors import UsageError
from imperfed.data.generator import Index, check_share
from imperfed.data.partitions.base import RowPartition, Tasks, UnassignedRows

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
OF_CIFAR10 = {
    2: (0, 0, 1, 1, 1, 1, 1, 1, 0, 0),  # vehicles, animals
    3: (0, 0, 2, 1, 1, 1, 2, 1, 0, 0),  # vehicles, four mammals, bird and frog
    5: (0, 1, 4, 2, 3, 2, 4, 3, 0, 1),  # sky and sea, road, pets, deer and horse, bird and frog
}


@dataclass(frozen=True)
class TasksPartition(RowPartition):
    """All rows; those of a task are assigned at random to its sites, except for a share spread over all sites."""

    name: ClassVar[str] = "tasks"
    tasks: int = 2  # T, disjoint sets of classes; every site holds the classes of one
    task_of: tuple[int, ...] = ()  # the task of every class; empty: by kind on CIFAR-10, else class c has task c mod T
    impurity: float = 0.0  # share of each task's rows that is spread over all sites

    def __post_init__(self) -> None:
        check_share("partition.impurity", self.impurity)

    def divide(self, rows: UnassignedRows, sites: int, generator: np.random.Generator) -> list[Index]:
        y = rows.true_classes(self.name)
        of_class, of_site = self.tasks_of(rows.classes, sites)
        held: list[list[Index]] = [[] for _ in range(sites)]
        foreign: list[Index] = []
        for task in range(self.tasks):
            of_task = generator.permutation(np.flatnonzero(of_class[y] == task))
            cut = round(self.impurity * len(of_task))
            foreign.append(of_task[:cut])
            owners = np.flatnonzero(of_site == task)
            for site, part in zip(owners, np.array_split(of_task[cut:], len(owners)), strict=True):
                held[site].append(part)
        spread = np.array_split(generator.permutation(np.concatenate(foreign)), sites)
        return [np.concatenate([*parts, more]) for parts, more in zip(held, spread, strict=True)]

    def tasks_of(self, classes: Sequence[str], sites: int) -> Tasks:
        return self.task_of_classes(classes), self.task_of_sites(sites)

    def task_of_classes(self, classes: Sequence[str]) -> Index:
        """Return the task of every class."""
        if not 1 <= self.tasks <= len(classes):
            raise UsageError(
                f"partition.tasks must lie in 1 .. {len(classes)}, the number of classes; got {self.tasks}"
            )
        known = OF_CIFAR10.get(self.tasks, ()) if tuple(classes) == CIFAR10 else ()
        of_class = np.array(self.task_of or known or [c % self.tasks for c in range(len(classes))])
        if len(of_class) != len(classes) or sorted(set(of_class.tolist())) != list(range(self.tasks)):
            raise UsageError(
                f"partition.task_of must give each of {len(classes)} classes a task 0 .. {self.tasks - 1}, and each "
                f"task a class; got {list(self.task_of)}"
            )
        return of_class

    def task_of_sites(self, sites: int) -> Index:
        """Return the task of every site: consecutive sites, divided among the tasks as evenly as possible."""
        if sites < self.tasks:
            raise UsageError(f"{self.tasks} tasks need at least as many sites; got {sites}")
        return np.arange(sites) * self.tasks // sites
