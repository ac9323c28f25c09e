"""A private run: what may leave its sites, what every round costs them, and the round before which it must end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query
from imperfed.core.federation import Federation
from imperfed.core.mechanism import FEWEST_SITES, PrivacyMechanism, SumMechanism
from imperfed.core.network import Layout
from imperfed.engine.failures import Failure
from imperfed.engine.site import RunSpec


@dataclass
class PrivacyBudget:
    """The rounds in which sites were asked for their updates. A site that failed may have sent one, so it counts."""

    mechanism: PrivacyMechanism
    on_duty: Callable[[int], tuple[int, ...]]
    """Returns the sites that are asked in a round."""
    rounds: int = 0
    """How many rounds are counted."""
    asked: Counter[int] = field(default_factory=Counter)
    """How often each site was asked in them."""

    def releases(self, rounds: int) -> Counter[int]:
        """Return how often each site was asked in so many rounds; the next call changes it."""
        if rounds < self.rounds:
            self.rounds = 0
            self.asked.clear()
        for round in range(self.rounds, rounds):
            self.asked.update(self.on_duty(round))
        self.rounds = rounds
        return self.asked

    def epsilons(self, round: int) -> dict[int, float]:
        """Return what every site on duty in a round has spent after it."""
        releases = self.releases(round + 1)
        return {k: self.mechanism.epsilon(releases[k]) for k in self.on_duty(round)}

    def forbids(self, round: int) -> bool:
        """Return whether a round would bring one of its sites above what it may spend."""
        releases = self.releases(round + 1)
        return any(self.mechanism.forbids(releases[k]) for k in self.on_duty(round))


def refuse_misfit_privacy(spec: RunSpec, on_duty: int, federation: Federation, inspected: bool) -> None:
    """Refuse, before training, a run that cannot be private as its settings ask; `inspected`: by a defence or attack.

    `on_duty`: the number of sites that take part in a round.
    """
    if spec.privacy is not None:
        refuse_not_private(spec.privacy, spec.algorithm, spec.layout, spec.rounds, spec.questions)
        refuse_not_summed(spec.privacy, on_duty, federation, inspected)


def refuse_not_private(
    privacy: PrivacyMechanism, algorithm: Algorithm, layout: Layout, rounds: int, asked: Sequence[Query]
) -> None:
    """Refuse, before training, what would leave a site without noise, and noise that would protect nothing."""
    privacy.check(algorithm, rounds)
    if layout.shared == 0:
        raise UsageError(f"privacy={privacy.name} protects what sites send; under {algorithm.name} they send nothing")
    if asked:
        raise UsageError(f"privacy={privacy.name} has no noise for {asked[0].name!r}, for which the defence asks sites")
    shared = [name for name, field in layout.fields.items() if field.offset < layout.shared_end]
    if statistics := [name for name in shared if name.endswith("running_var")]:
        raise UsageError(
            f"privacy={privacy.name} lets no statistics of rows leave a site, and this model predicts with those of "
            f"batch normalisation ({statistics[0]}); choose a model without, such as model.norm=group"
        )


def refuse_not_summed(mechanism: PrivacyMechanism, on_duty: int, federation: Federation, inspected: bool) -> None:
    """Refuse, before training, sums that would hide no site, and what needs single updates."""
    if not mechanism.sums:
        return
    if on_duty < FEWEST_SITES:
        raise UsageError(f"privacy={mechanism.name} hides a site among {FEWEST_SITES} or more, and {on_duty} take part")
    if inspected:
        raise UsageError(f"with privacy={mechanism.name} no defence or attack sees single updates")
    if max(federation.groups, default=0) > 0:
        raise UsageError(f"privacy={mechanism.name} adds up the updates of all sites, and these are in several groups")


def mean_of(mechanism: SumMechanism, sent: Tree, shares: Mapping[int, Tensor | Failure]) -> tuple[Tree | None, str]:
    """Return the mean of the sites' models in one row, from their shares; else None, and why there is none."""
    arrived = [share for share in shares.values() if isinstance(share, Tensor)]
    if len(arrived) < len(shares):
        return None, "a sum needs the shares of all its sites, and some are missing,"
    change = mechanism.unfold(torch.stack(arrived).sum(0))
    if change is None:
        return None, "no clipped updates have such a sum; whose share is wrong cannot be told, but it is that"
    w = sent["w"].double() + change.to(sent["w"].device)
    return {"w": w.to(sent["w"].dtype)[None], "buffers": sent["buffers"][None].clone()}, ""
