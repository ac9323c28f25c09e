"""What a private run has cost, what that covers, and what left the sites without noise all the same."""

from __future__ import annotations

from collections.abc import Iterator

from imperfed.results.part import Part


class PrivacySummary(Part, frozen=True, kw_only=True):
    """The privacy of a run: epsilon bounds what a site's updates reveal about all of its rows together."""

    mechanism: str
    epsilon: float | None
    """None without noise. The largest of any site; in a site's own summary, its own."""
    delta: float
    releases: int
    """How many updates of that site count."""
    early: bool
    """Whether the run ended because another round would have cost more than `privacy.epsilon_max`."""
    simulated: bool
    """Whether the noise follows from the seed, so that nothing is protected."""
    not_covered: tuple[str, ...]
    """What left the sites without noise."""

    def sentences(self) -> Iterator[str]:
        """Yield what was spent, on what it says nothing, and whether anything was protected."""
        if self.epsilon is None:
            yield (
                f"privacy={self.mechanism}: only sums of updates leave the sites, without noise, so that epsilon has "
                "no bound"
            )
            return
        early = "; the run ended here, since another round would exceed privacy.epsilon_max" if self.early else ""
        yield (
            f"privacy={self.mechanism}: epsilon {self.epsilon:.3g} at delta {self.delta:g} for all rows of a site "
            f"together, after {self.releases} updates from it{early}"
        )
        yield f"not covered by epsilon: {', '.join(self.not_covered)}"
        if self.simulated:
            yield "the noise of a simulation follows from its seed: it shows what privacy costs, and protects nothing"
