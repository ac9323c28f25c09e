"""What a curious coordinator could reconstruct from a round: everything that `leak.json` holds, as types."""

from __future__ import annotations

from imperfed.results.part import Part, WholeFile

LIMITS = (
    "A failed attack proves nothing: stronger ones exist, and one that knows more about the rows finds more.",
    "A coordinator that sends weights chosen for the purpose singles out rows of larger batches (Fowl et al., “Robbing "
    "the Fed”; Boenisch et al., “When the Curious Abandon Honesty”). `imperfed leak --dishonest` tries one way, on "
    "networks of two layers.",
    "Each site's single round is looked at alone; many rounds together give away more.",
)
"""What such an attack does not show."""


class RowPair(Part, frozen=True):
    """A row and its reconstruction."""

    site: str
    real: tuple[float, ...]
    made: tuple[float, ...]
    distance: float


class SiteLeak(Part, frozen=True):
    """What could be reconstructed of one site's rows."""

    site: str
    rows: int
    """The different rows that the site visited in the round."""
    visits: int
    """Rows of all its steps together; a row may be visited again."""
    attempted: int
    """Rows that were reconstructed, right or wrong: at most `rows`."""
    exact: int
    """Rows recovered by a quotient of gradients, without any search."""
    recovered: int
    """Rows recovered by either attack."""
    by_chance: int
    """Rows that would count as recovered if the site had visited as many other rows."""
    distance: float
    """The median distance from a row to its reconstruction; 1: no better than the average row."""
    closer: float
    """The share of reconstructions nearer to a row of the round than to any row elsewhere."""
    closer_by_chance: float
    cosine: float
    """How well the rows that were searched for explain the update, 1 at best."""
    labels_wrong: float | None
    """The share of rows whose class is wrong in the estimated counts; None where labels were not attempted."""
    labels_guessed: float | None
    """The same for the mix of classes at the other sites."""


class LeakSummary(WholeFile, frozen=True):
    """The result of an attack on one round of a run."""

    method: str
    data: str
    model: str
    round: int
    """The round attacked; the first is 1."""
    batch: int
    steps: tuple[int, ...]
    """Local steps of each site attacked; 0: a gradient over all rows at once."""
    optimizer: str
    lr: float
    sites: tuple[SiteLeak, ...]
    nothing: str = ""
    """Why nothing could be attacked; empty if something was."""
    also_sent: tuple[str, ...] = ()
    """Names of what the sites send besides, which the attack did not look at."""
    shape: tuple[int, ...] = ()
    """The shape of one row."""
    dishonest: bool = False
    """Whether the weights sent were chosen to single out rows."""
    pairs: tuple[RowPair, ...] = ()
    """The best reconstructions."""

    # -- sums over sites -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """The number of rows that the sites attacked visited."""
        return sum(site.rows for site in self.sites)

    @property
    def recovered(self) -> int:
        """How many of them were recovered."""
        return sum(site.recovered for site in self.sites)

    @property
    def exact(self) -> int:
        """How many of them were recovered without any search."""
        return sum(site.exact for site in self.sites)

    @property
    def by_chance(self) -> int:
        """How many would count as recovered among rows that no site visited."""
        return sum(site.by_chance for site in self.sites)

    def labels(self) -> tuple[float, float] | None:
        """Return the share of wrong labels of the attack and of a guess, over all visits; None if not attempted."""
        known = [s for s in self.sites if s.labels_wrong is not None and s.labels_guessed is not None]
        if not known:
            return None
        visits = sum(s.visits for s in known)
        wrong = sum((s.labels_wrong or 0.0) * s.visits for s in known) / visits
        return wrong, sum((s.labels_guessed or 0.0) * s.visits for s in known) / visits

    # -- in words ------------------------------------------------------------------------------------------------------

    def setting(self) -> str:
        """Return what was attacked, in words."""
        steps = " or ".join(f"{n}" for n in sorted(set(self.steps)))
        how = f"{steps} local step{'' if steps == '1' else 's'} of up to {numbered(self.batch, 'row')}"
        if steps == "0":
            how = "one gradient over all rows"
        chosen = " with weights chosen to single out rows" if self.dishonest else ""
        return f"{how}, model {self.model}{chosen}, {self.method} on {self.data}, round {self.round}"

    def sentences(self) -> list[str]:
        """Return the findings, one sentence each."""
        if self.nothing:
            return [f"{self.nothing}."]
        exactly = f", {self.exact} of them exactly" if self.recovered else ""
        visited = f"{numbered(self.rows, 'row')} that {numbered(len(self.sites), 'site')} visited"
        found = f"Recovered: {self.recovered} of {visited}{exactly}; by chance: {self.by_chance}."
        return [found, self._of_distance(), self._of_labels(), *self._of_others()]

    def _of_distance(self) -> str:
        total = sum(s.attempted for s in self.sites)
        near = 100 * sum(s.closer * s.attempted for s in self.sites) / total
        chance = 100 * sum(s.closer_by_chance * s.attempted for s in self.sites) / total
        distances = [s.distance for s in self.sites]
        apart = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(distances), max(distances))))
        return (
            f"Median distance of a reconstruction from its row: {apart}, where 0 is the row itself and 1 is no better "
            f"than the average row. {near:.0f} % are nearer to their row than to any row elsewhere; by chance "
            f"{chance:.0f} %."
        )

    def _of_labels(self) -> str:
        if (labels := self.labels()) is None:
            return "Labels were not attempted: the last layer's bias is not sent, or rows may have several classes."
        wrong, guessed = (f"{100 * share:.0f} % of rows" for share in labels)
        if labels[0] == 0:
            return f"How many rows each class has follows exactly; guessing the mix elsewhere misses {guessed}."
        return f"How many rows each class has: estimated with {wrong} wrong; guessing the mix elsewhere: {guessed}."

    def _of_others(self) -> list[str]:
        names = ", ".join(self.also_sent)
        return [f"The sites also send {names}, which this attack does not look at."] if names else []

    def __str__(self) -> str:
        """Return the setting and the findings."""
        return "\n".join((*([f"{self.setting()}:"] if self.sites else []), *self.sentences()))


def numbered(n: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
