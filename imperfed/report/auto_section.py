"""The section of the report about the search of `auto`: what was tried and chosen, and what each site is given."""

from __future__ import annotations

from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Section
from imperfed.report.words import many, per_cent
from imperfed.results.auto_summary import AutoSummary, SiteMixture, TrialSummary


def section(run: RunFiles) -> Section | None:
    """Describe the search; None if the run named its method."""
    auto = run.summary.auto if run.summary else None
    if auto is None:
        return None
    trials = sorted(auto.trials, key=lambda trial: -1.0 if trial.score is None else trial.score, reverse=True)
    points = [*(site_in_words(site, auto) for site in auto.sites), *map(trial_in_words, trials)]
    return Section("The search", text(auto), (), "Sites, then trials from the best to the worst", points)


def text(auto: AutoSummary) -> str:
    """Say how the search went and what it chose."""
    parts = [
        f"Of {auto.combinations} combinations of a method, a model and a recipe, {len(auto.trials)} were tried within "
        f"{auto.budget:g} minutes. Each site held out {per_cent(auto.held_out)} of its rows; after "
        f"{', '.join(map(str, auto.rungs))} rounds a third of the trials went on. Chosen: {auto.method}, model "
        f"{auto.model}, {many(auto.rounds, 'round')}, trained again on all rows."
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


def site_in_words(site: SiteMixture, auto: AutoSummary) -> str:
    """Say what one site predicts with."""
    if not site.alone:
        return f"{site.site}: {auto.method}"
    reached = "" if site.value is None else f" (alone {per_cent(site.value)} on its test rows)"
    return (
        f"{site.site}: {100 * site.weight:.0f} % {auto.method}, {100 - 100 * site.weight:.0f} % {site.alone}{reached}"
    )


def trial_in_words(trial: TrialSummary) -> str:
    """Describe a trial and its score on the rows held out."""
    settings = ", ".join(f"{name.partition('.')[2]} {value}" for name, value in trial.settings.items())
    what = f"{trial.method}, {trial.model}, {settings}"
    if trial.score is None:
        return f"{what}: {trial.failure or 'no score'}"
    return f"{what}: {per_cent(trial.score)}, best of {many(trial.rounds, 'round')}: round {trial.best_round}"
