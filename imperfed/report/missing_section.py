"""The report section on missing labels: which site annotates what, figures per class, the labels filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imperfed.report import plots
from imperfed.report.run_files import RunFiles
from imperfed.report.sections import Picture, Section, ShownTable
from imperfed.report.words import count, many, per_cent
from imperfed.results.data_facts import DataFacts
from imperfed.results.label_summary import FilledLabels
from imperfed.results.many_sites import listed_of, which_of
from imperfed.results.summary import ClassSummary, SiteSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 30  # most classes in a figure


def missing_labels(run: RunFiles) -> Section | None:
    """Describe annotations and figures per class; None if no site leaves out a class."""
    if run.summary is None or not run.summary.by_class:
        return None
    classes, sites, facts = run.summary.by_class, run.summary.sites, run.summary.facts
    unannotated = [row.name for row in classes if not row.annotated_at]
    known, rows = sum(row.annotations for row in classes), sum(facts.rows)
    text = (
        f"A class that a site does not annotate is unknown there, not absent. {count(rows * len(classes) - known)} of "
        f"{count(rows * len(classes))} labels are missing."
    )
    alone = len(sites) == 1  # a site's own report does not say what others annotate
    if unannotated and alone:
        text += f" This site never annotates {', '.join(unannotated)}."
    elif unannotated:
        text += f" Nobody annotates {', '.join(unannotated)}, left out of every mean."
    pictures = [_annotations(classes, sites, facts), _aurocs(classes)]
    return Section("Missing labels", text, pictures, tables=[_by_class(classes, alone), _by_site(sites)])


def filled_sentence(labels: FilledLabels) -> str:
    """Describe how many labels were filled in, and how well."""
    filled = many(labels.filled_in, "missing label")
    if labels.accuracy is None:
        return f"{filled} were filled in. The true ones are unknown, so their accuracy is unknown."
    return (
        f"{filled} were filled in: AUROC {per_cent(labels.auroc)}; with a threshold of 0.5, "
        f"{per_cent(labels.accuracy)} of {count(labels.n)} are correct, where always saying absent would get "
        f"{per_cent(labels.always_absent)}."
    )


def _annotations(classes: Sequence[ClassSummary], sites: Sequence[SiteSummary], facts: DataFacts) -> Picture:
    svg = plots.heat_map(
        "annotations",
        "annotations by class and site",
        facts.annotated_rows or (),
        ("class", [row.name for row in classes]),
        ("", [row.site for row in sites]),
    )
    return Picture(svg, "Training rows annotated for each class at each site; blank: the site never annotates it.")


def _aurocs(classes: Sequence[ClassSummary]) -> Picture:
    shown = [row for row in classes if row.auroc is not None][:SHOWN]
    here, elsewhere = [row.auroc_annotated for row in shown], [row.auroc_never_annotated for row in shown]

    def draw(ax: Axes) -> None:
        for values, marker, colour, words in (
            (here, "o", plots.ACCENT, "at sites that annotate it"),
            (elsewhere, "x", plots.INK, "elsewhere"),
        ):
            points = [(100 * value, i) for i, value in enumerate(values) if value is not None]
            ax.scatter([x for x, _ in points], [y for _, y in points], marker=marker, s=28, color=colour, label=words)
        ax.axvline(50, color=plots.QUIET, linewidth=0.8, linestyle=(0, (4, 2)))
        ax.set_yticks(range(len(shown)), [row.name for row in shown], parse_math=False)
        ax.invert_yaxis()
        ax.set(xlabel="AUROC, %")
        ax.grid(axis="x", color=plots.QUIET, alpha=0.2, linewidth=0.6)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderpad=0, columnspacing=1.2)

    svg = plots.render("by-class", "AUROC of every class", min(1.2 + 0.26 * len(shown), 4.4), draw)
    return Picture(svg, "Test AUROC of every class, mean over the sites' models; the dashed line marks guessing.")


def _by_class(classes: Sequence[ClassSummary], alone: bool) -> ShownTable:
    """Return the figures of every class; `alone`: what other sites annotate is not known."""
    nowhere = "not here" if alone else "nowhere"
    rows = [
        (
            row.name,
            ", ".join(row.annotated_at) or nowhere,
            count(row.positives),
            per_cent(row.auroc),
            per_cent(row.auroc_annotated),
            per_cent(row.auroc_never_annotated),
        )
        for row in classes
    ]
    columns = ("class", "annotated at", "positives in training", "AUROC", "where annotated", "where never annotated")
    caption = "AUROC of every class, mean over the sites' models; none where test rows are all alike."
    folded = f"{many(len(rows), 'class', 'classes')}" if len(rows) > SHOWN else ""
    return ShownTable("Table of classes", columns, rows, folded, caption, said=(1,))


def _by_site(sites: Sequence[SiteSummary]) -> ShownTable:
    """Return what each site's model reaches on the classes that the site annotates, and on the others."""
    shown = listed_of(sites)
    rows = [(row.site, per_cent(row.auroc_annotated), per_cent(row.auroc_never_annotated)) for row in shown]
    columns = ("site", "classes it annotates", "classes that only others annotate")
    folded = which_of(len(rows), len(sites)) if len(sites) > SHOWN else ""
    return ShownTable("Table of sites", columns, rows, folded, "AUROC of each site's model, mean over classes.")
