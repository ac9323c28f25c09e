"""A private run: what may leave its sites, what every round costs them, and the round before which it must end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Query
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.network import Layout


@dataclass
class PrivacyBudget:
    """The rounds in which sites were asked for their updates. A site that failed may have sent one, so it counts."""

    mechanism: PrivacyMechanism
    on_duty: Callable[[int], tuple[int, ...]]
    """Returns the sites that are asked in a round."""
    asked: list[Counter[int]] = field(default_factory=lambda: [Counter[int]()])
    """How often each site was asked, before round 0, before round 1 ..."""

    def releases(self, rounds: int) -> Counter[int]:
        """Return how often each site was asked in so many rounds."""
        while len(self.asked) <= rounds:
            self.asked.append(self.asked[-1] + Counter(self.on_duty(len(self.asked) - 1)))
        return self.asked[rounds]

    def epsilons(self, round: int) -> dict[int, float]:
        """Return what every site on duty in a round has spent after it."""
        releases = self.releases(round + 1)
        return {k: self.mechanism.epsilon(releases[k]) for k in self.on_duty(round)}

    def forbids(self, round: int) -> bool:
        """Return whether a round would bring one of its sites above what it may spend."""
        releases = self.releases(round + 1)
        return any(self.mechanism.forbids(releases[k]) for k in self.on_duty(round))


def refuse_not_private(
    privacy: PrivacyMechanism, algorithm: Algorithm, layout: Layout, rounds: int, asked: Sequence[Query]
) -> None:
    """Refuse, before training, what would leave a site without noise, and what noise would protect in vain."""
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
