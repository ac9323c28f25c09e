"""How sure a model may be: one temperature, by which its logits are divided, fitted on rows that sites hold out.

Networks trained for long are surer than they are right. A temperature above 1 makes all probabilities less extreme,
one below 1 more so; the order of the classes stays, and with it every prediction. It is fitted by the log-likelihood of
the labels that the rows have, so what it can mean depends on their kind (`Labels.uncalibrated`). Each site
sends no more than the log-likelihood of its rows at every temperature: these add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imperfed.core.labels import Labels
from imperfed.core.temperatures import TEMPERATURES

AS_IT_IS = TEMPERATURES.index(1.0)
ROUNDING = 1e-4
"""The most that log-likelihoods of many rows differ by rounding alone."""
NOT_HELD_OUT = "no rows are held out (split.validation)"
AT_REAL_SITES = "it takes the rows held out at all sites, and real sites keep theirs"
SAY_NOTHING = "the rows held out say nothing"


@dataclass(frozen=True)
class Temperature:
    """What the logits of a run's models are divided by."""

    value: float
    """1 where it is not fitted."""
    rows: int = 0
    """The rows held out that it is fitted on."""
    reason: str = ""
    """Why it is not fitted; empty where it is."""


UNFITTED = Temperature(1.0, reason=NOT_HELD_OUT)


def most_likely(sites: Sequence[Sequence[float]]) -> float:
    """Return the temperature with the highest sum over sites of `likelihoods`; 1 where nothing speaks against it."""
    sums = _sums(sites)
    best = max(sums)
    return 1.0 if best - sums[AS_IT_IS] <= ROUNDING else TEMPERATURES[sums.index(best)]


def _sums(sites: Sequence[Sequence[float]]) -> list[float]:
    return [sum(site[i] for site in sites) for i in range(len(TEMPERATURES))]


def fitted(sites: Sequence[Sequence[float]], kind: type[Labels], rows: int) -> Temperature:
    """Return the temperature from the likelihoods of the rows that sites hold out, or why there is none."""
    if kind.uncalibrated:
        return Temperature(1.0, reason=kind.uncalibrated)
    if not rows:
        return UNFITTED
    sums = _sums(sites)
    if max(sums) - min(sums) <= ROUNDING:
        return Temperature(1.0, reason=SAY_NOTHING)
    return Temperature(most_likely(sites), rows)
