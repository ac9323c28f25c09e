"""The table of a comparison in Markdown, as on a results page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from imperfed.experiments.blank_cells import reasons, with_figures
from imperfed.experiments.comparison_line import SITES, Line, best, further, labels_title, measured, spread, unlike
from imperfed.experiments.federating_gain import ALONE, ComparedGain

ABOUT_ALONE = "best of logistic, forest, boosting and a network at each site, chosen on held-out rows"


def markdown(lines: Sequence[Line], seeds: Sequence[int], gain: ComparedGain | None = None) -> str:
    """Return the table in Markdown, as on a results page; `gain`: what it begins with."""
    every, lines = lines, with_figures(lines)
    top = best(lines)
    figures = [f"**{spread(one.values)}**" if one.mean == top else spread(one.values) for one in lines]
    columns = {
        "method": [one.method for one in lines],
        f"{measured(lines).over}, %": figures,
    }
    if any(one.common for one in lines) and SITES in measured(lines).over:
        columns["global model, %"] = [spread(one.common) for one in lines]
    columns["paper, %"] = [f"{one.paper:.2f}" if one.paper is not None else "" for one in lines]
    columns[labels_title(lines)] = [f"{100 * statistics.fmean(x.labels):.2f}" if x.labels else "" for x in lines]
    columns |= further(lines)
    columns["s per run"] = [f"{one.seconds:.1f}" if one.values else "" for one in lines]
    table = [columns, ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    rows = [f"| {' | '.join(cells)} |" for cells in table]
    first = [] if gain is None else [f"{gain.sentence()}\n"]
    return "\n".join([*first, *rows, f"\n{' '.join(notes(every, seeds))}\n"])


def notes(every: Sequence[Line], seeds: Sequence[int]) -> list[str]:
    """Return the sentences that explain the table."""
    lines = with_figures(every)
    about = f"{ALONE}: {ABOUT_ALONE}." if any(one.method == ALONE for one in lines) else ""
    missing = (f"{sentence}." for sentence in reasons(every))
    return [note for note in (caption(seeds), unlike(lines), about, *missing) if note]


def caption(seeds: Sequence[int]) -> str:
    """Return the caption of a table: its seeds and what ± means."""
    if len(seeds) == 1:
        return f"Seed {seeds[0]}."
    named = ", ".join(map(str, seeds))
    return f"Seeds {named}, each with its own split; ± is the sample standard deviation over them."
