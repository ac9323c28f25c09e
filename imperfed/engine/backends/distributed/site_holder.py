"""What every rank does with the sites that it holds: it answers exchanges by the backend of its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.labels.validity import Validity
from imperfed.engine.backends.base import Backend, Reply
from imperfed.engine.backends.distributed.held import Form, memory_of, remember
from imperfed.engine.failures import Failure
from imperfed.engine.population import Population, Scores, Share


@dataclass(frozen=True)
class Answered:
    """That a site has answered: its loss, and the shapes of its answer, which stays at the rank until it is needed."""

    loss: float
    forms: dict[str, Form]

    def reply(self) -> Reply:
        """Return the answer as the engine gets it: shapes without numbers."""
        return Reply(self.loss, {n: torch.empty(shape, dtype=t, device="meta") for n, (shape, t) in self.forms.items()})


class SiteHolder:
    """The sites of one rank. Its methods are called by name, at all ranks at the same time."""

    def __init__(self, population: Population, backend: Backend) -> None:
        self.population, self.backend = population, backend
        self.answers: dict[int, Tree] = {}
        """The answers of the last exchange."""
        self.answered = (0, -1)
        """The round and number of that exchange."""

    @property
    def share(self) -> Share:
        """The sites of this rank."""
        assert self.population.share is not None
        return self.population.share

    def ask(self, round: int, number: int, sites: Sequence[int]) -> dict[int, Answered | Failure]:
        """Let the sites answer; the answers stay here."""
        if self.answered != (round, number):
            self.answered, self.answers = (round, number), {}
        results: dict[int, Answered | Failure] = {}
        own = self.share.among(sites)
        replies = self.backend.ask(round, number, own) if own else {}
        for k, reply in replies.items():
            if isinstance(reply, Failure):
                results[k] = reply
            else:
                self.answers[k] = reply.up
                results[k] = Answered(reply.loss, {name: (t.shape, t.dtype) for name, t in reply.up.items()})
        return results

    def partial_sum(self, names: Sequence[str], sites: Sequence[int], weights: Tensor, size: int) -> Tensor:
        """Return the weighted sums of answers over this rank's sites, one per row of weights.

        In double precision: so the sum of all hardly depends on which rank holds which site.
        """
        device = self.population.runtime.net.row.device
        total = torch.zeros(len(weights), size, dtype=torch.float64, device=device)
        for row, k in enumerate(sites):
            if k in self.answers:
                answer = torch.cat([self.answers[k][name].flatten() for name in names])
                for part, weight in zip(total, weights[:, row].tolist(), strict=True):
                    part.add_(answer, alpha=weight)
        return total

    def rows(self, name: str, sites: Sequence[int]) -> dict[int, Tensor]:
        """Return single answers of this rank's sites under a name."""
        return {k: self.answers[k][name] for k in self.share.among(sites)}

    def sum_gradients(self, round: int, number: int, sites: Sequence[int], weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the gradients of this rank's sites, and their losses."""
        own = self.share.among(sites)
        if not own:
            server = self.population.state.server
            return torch.zeros_like(server["w"]), torch.zeros(0)
        at = {k: row for row, k in enumerate(sites)}
        return self.backend.sum_gradients(round, number, own, weights[[at[k] for k in own]])

    def evaluate(self, sites: Sequence[int]) -> tuple[dict[int, Scores], Scores]:
        """Return the scores of this rank's sites, and of the global model where the common test rows are."""
        tested = frozenset(self.share.tested)
        return self.backend.evaluate(False, [k for k in sites if k in tested])

    def validate(self, sites: Sequence[int]) -> dict[int, Validity]:
        """Return how far the models of this rank's sites agree with the rows that they hold out."""
        return self.backend.validate(self.share.among(sites))

    def inferred_labels(self) -> Tensor | None:
        """Return the inferred labels of this rank's rows."""
        return self.backend.inferred_labels() if self.share.sites else None

    def memory(self) -> Tree:
        """Return what this rank's sites remember."""
        return memory_of(self.population, self.share)

    def remember(self, tree: Tree) -> None:
        """Let this rank's sites remember what they are told."""
        remember(self.population, self.share, tree)

    def close(self) -> None:
        """Shut the rank's backend down."""
        self.backend.close()
