"""What the ranks other than 0 do: hold the sites that they are sent, and carry out one command after the other."""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from imperfed.core.errors import UsageError
from imperfed.core.lazy import OPENED, LazyRows
from imperfed.engine.backends.base import Backend
from imperfed.engine.backends.distributed.crossing import UnreadableMessageError
from imperfed.engine.backends.distributed.group import RankGroup
from imperfed.engine.backends.distributed.held import HeldSites
from imperfed.engine.backends.distributed.site_holder import SiteHolder
from imperfed.engine.population import Population


class RankDevice(ABC):
    """Where a rank computes; it crosses to the ranks, and each finds its own device by it."""

    @abstractmethod
    def device(self) -> torch.device:
        """Return the device of this rank, made ready."""

    def open_inputs(self) -> Iterable[Tensor]:
        """Return the inputs of the run as this rank finds them, where they are lazy."""
        return ()

    @abstractmethod
    def make_backend(self, population: Population, on_duty: int, workers: int) -> Backend:
        """Return the backend of this rank's device."""


@dataclass(frozen=True)
class Command:
    """Something that rank 0 tells other ranks to do with the sites of one of its backends."""

    number: int
    """The number of the backend."""


@dataclass(frozen=True)
class Begin(Command):
    """Hold these sites from now on, and answer when they are ready."""

    part: HeldSites
    on_duty: int
    workers: int
    place: RankDevice


@dataclass(frozen=True)
class Call(Command):
    """Call a method of the `SiteHolder`, and answer with its result."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Sum(Command):
    """Add this rank's part to a sum over all ranks."""

    arguments: tuple[tuple[str, ...], tuple[int, ...], Tensor, int]


@dataclass(frozen=True)
class Sync(Command):
    """Take over new numbers for parts of the server's memory."""

    names: list[tuple[int, str]]
    """Group and name of each."""
    numbers: list[Tensor]
    """Where they are few; otherwise empty, and each tensor follows."""


@dataclass(frozen=True)
class Drop(Command):
    """Forget the sites."""


class Task(ABC):
    """Something that a rank does by itself, without the sites of a backend."""

    @abstractmethod
    def carry_out(self, group: RankGroup) -> Any:
        """Do it, and return what rank 0 is to know."""


@dataclass(frozen=True)
class Leave:
    """End: no command follows."""


@dataclass(frozen=True)
class Trouble:
    """Why a command could not be carried out."""

    reason: str


ANSWERS = {"ask", "rows", "sum_gradients", "evaluate", "validate", "inferred_labels", "memory", "remember"}
"""The methods of a `SiteHolder` that rank 0 may call."""


def follow(group: RankGroup) -> None:
    """Carry out what rank 0 says, until it says that this is the end."""
    holders: dict[int, SiteHolder] = {}
    try:
        while True:
            for command in group.hear():
                if isinstance(command, Leave):
                    return
                carry_out(group, holders, command)
    finally:
        for holder in holders.values():
            holder.close()


def carry_out(group: RankGroup, holders: dict[int, SiteHolder], command: Command | Task) -> None:
    """Carry out one command."""
    match command:
        case Begin(number, part, on_duty, workers, place):
            made = attempted(lambda: holder_of(part, on_duty, workers, place))
            if isinstance(made, SiteHolder):
                holders[number], made = made, None
            group.answer(made)
        case Call(number, method, arguments) if method in ANSWERS:
            group.answer(attempted(getattr(holders[number], method), *arguments))
        case Sum(number, arguments):
            group.add_up(holders[number].partial_sum(*arguments))
        case Sync(number, names, numbers):
            servers = holders[number].population.state.servers
            for (g, name), new in zip_longest(names, numbers):
                if new is None:
                    group.spread(servers[g][name])
                else:
                    servers[g][name].copy_(new)
        case Task():
            group.answer(attempted(command.carry_out, group))
        case Drop(number):
            if number in holders:  # not so where it could not begin
                holders.pop(number).close()
        case _:
            raise UnreadableMessageError("rank 0 says what no rank knows")


def holder_of(part: HeldSites, on_duty: int, workers: int, place: RankDevice) -> SiteHolder:
    """Return what answers for the sites of a rank other than 0."""
    OPENED.update((s.identity, s) for x in place.open_inputs() if isinstance(x, LazyRows) for s in x.sources)
    held = part.population(place.device())
    return SiteHolder(held, place.make_backend(held, on_duty, workers))


def attempted(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or what went wrong: rank 0 then ends the run."""
    try:
        return work(*arguments)
    except UsageError as error:
        return Trouble(str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Trouble(f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})")
