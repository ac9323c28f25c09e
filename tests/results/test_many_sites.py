"""Of very many sites, pages and tables list the worst and the best; files and means hold them all."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.engine.schedule import RoundReport
from imperfed.results.many_sites import AT_EACH_END, MANY, listed_of, which_of
from imperfed.results.metrics import metrics


@dataclass(frozen=True)
class Ranked:
    value: float | None


def test_few_sites_are_listed_as_they_are() -> None:
    sites = [Ranked(k / MANY) for k in range(MANY)]
    assert listed_of(sites) is sites
    assert which_of(MANY, MANY) == f"All {MANY} sites, one by one"


def test_of_many_sites_the_worst_and_the_best_are_listed() -> None:
    sites = [Ranked((7 * k % (2 * MANY)) / MANY) for k in range(2 * MANY)] + [Ranked(None)] * 5
    listed = [site.value for site in listed_of(sites)]
    ranked = [k / MANY for k in range(2 * MANY)]
    assert listed == [*ranked[:AT_EACH_END], *ranked[-AT_EACH_END:]]
    assert which_of(len(listed), len(sites)) == "The 20 worst and the 20 best of 2005 sites"


def test_of_many_sites_without_figures_the_first_are_listed() -> None:
    sites = [Ranked(None) for _ in range(2 * MANY)]
    assert listed_of(sites) == sites[: 2 * AT_EACH_END]
    few = [Ranked(None)] * MANY + [Ranked(0.5), Ranked(0.25)]
    assert listed_of(few) == [Ranked(0.25), Ranked(0.5)]
    assert which_of(2, len(few)) == "2 of 1002 sites"


def test_of_many_losses_only_the_mean_is_written() -> None:
    def written(sites: int) -> list[tuple[str, float]]:
        report = RoundReport(0, tuple(range(sites)), {k: float(k % 2) for k in range(sites)}, {})
        lines = metrics(report, [str(k) for k in range(sites)], [])
        return [(line["site"], line["value"]) for line in lines if line["metric"] == "train/loss"]

    assert len(written(MANY)) == MANY
    assert written(2 * MANY) == [("*", 0.5)]
