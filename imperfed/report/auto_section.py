"""The section of the report about the search of `auto`: what was tried and chosen, and what each site is given."""

from __future__ import annotations

from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Section, ShownTable
from imperfed.report.words import many, named, per_cent
from imperfed.results.auto_summary import AutoSummary

MOST_OPEN = 30
"""Sites above which their table is folded."""


def section(run: RunFiles) -> Section | None:
    """Describe the search; None if the run named its method."""
    auto = run.summary.auto if run.summary else None
    if auto is None:
        return None
    return Section(
        "The search",
        text(auto),
        tables=[table for table in (shares(auto, named(run.metric or "figure")), tried(auto)) if table],
    )


def text(auto: AutoSummary) -> str:
    """Say how the search went and what it chose."""
    *cuts, last = auto.rungs
    went_on = f"each trial had {many(last, 'round')}"
    if cuts:
        went_on = f"after {', '.join(map(str, cuts))} rounds about a third of the trials went on, up to round {last}"
    parts = [
        f"Of {auto.combinations} combinations of a method, a model and a recipe, {len(auto.trials)} were tried within "
        f"a budget of {auto.budget:g} min. Each site held out {100 * auto.held_out:g} % of its rows; {went_on}. "
        f"Chosen: {auto.method}, model {auto.model}, {many(auto.rounds, 'round')}, trained again on all rows."
    ]
    check = auto.label_check
    if check.words and not check.corrected:
        parts.append(f"Labels were taken as they are given: {check.words}.")
    if auto.alone_left_out:
        parts.append(f"Sites fitted no models alone: {auto.alone_left_out}.")
    if auto.consensus:
        parts.append(
            "Most trials stayed inside most candidate sets and yet contradicted one another, so they were judged by "
            "what all of them agree on rather than by the sets."
        )
    if auto.cut_short:
        parts.append("The search took far too long and was cut short: another run may choose otherwise.")
    return " ".join(parts)


def shares(auto: AutoSummary, figure: str) -> ShownTable | None:
    """Show what each site predicts with; None if it is the federated model everywhere."""
    if not any(site.alone for site in auto.sites):
        return None
    rows = [
        (
            site.site,
            f"{100 * site.weight:.0f}\N{NO-BREAK SPACE}%",
            f"{100 - 100 * site.weight:.0f}\N{NO-BREAK SPACE}%",
            site.alone or "none",
            per_cent(site.value),
        )
        for site in auto.sites
    ]
    columns = ("site", auto.method, "own model", "which", f"test {figure} with it alone")
    folded = f"What {len(rows)} sites predict with" if len(rows) > MOST_OPEN else ""
    return ShownTable("Table of what each site predicts with", columns, rows, folded, "What each site predicts with.")


def tried(auto: AutoSummary) -> ShownTable:
    """Show the trials, from the best to the worst."""
    trials = sorted(auto.trials, key=lambda trial: -1.0 if trial.score is None else trial.score, reverse=True)
    rows = [
        (
            trial.method,
            trial.model,
            ", ".join(f"{name.partition('.')[2]}={value}" for name, value in trial.settings.items()) or "defaults",
            trial.failure or per_cent(trial.score),
            str(trial.rounds),
            str(trial.best_round),
        )
        for trial in trials
    ]
    columns = ("method", "model", "settings", "rows held out", "rounds", "best round")
    return ShownTable("Table of trials", columns, rows, f"{many(len(rows), 'trial')}, the best first", said=(1, 2))
