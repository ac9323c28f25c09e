"""Results on a console: fractions are shown in per cent."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from imperfed.algorithms import catalogue
from imperfed.cli.catalogue import about
from imperfed.cli.terminal_table import TableColumn, print_path, print_table, print_wrapped
from imperfed.cli.unmeasured import APART, apart, why_blank
from imperfed.core.errors import UsageError
from imperfed.engine.population import Scores
from imperfed.evaluation.evaluator import VALIDATION
from imperfed.evaluation.fairness import FAIR
from imperfed.evaluation.model_figures import figure
from imperfed.experiments.blank_cells import reasons, with_figures
from imperfed.experiments.comparison_line import Line, best, further, labels_title, measured, unlike
from imperfed.experiments.comparison_table import ABOUT_ALONE
from imperfed.experiments.federating_gain import ALONE, brought
from imperfed.report.repair_section import changes
from imperfed.report.words import many
from imperfed.results.label_summary import FilledLabels, ResolvedLabels
from imperfed.results.many_sites import listed_of
from imperfed.results.prediction_figures import PredictionSummary
from imperfed.results.site_verdicts import sentences
from imperfed.results.summary import ClassSummary, OverSites, Summary

NAMED = 3  # most sites listed by name in a table cell; more are counted
MOST_CLASSES = 12  # most classes that are listed; of more, the worst
WORST = 8
ROUNDING = 1e-9  # rounding error of a mean over sites
NAMES = re.compile(r"(?:^|\+)([^\s(+]+)")
"""A method and its objective in the title of a line, such as `fedprox mu=1` or `pfedpll(kl=False)+lcp(lambda1=2)`."""


def per_cent(fraction: float | None) -> str:
    """Return a fraction as shown in a table."""
    return "" if fraction is None else f"{100 * fraction:.2f}"


def run_table(console: Console, summary: Summary, folder: Path) -> None:
    """Print a finished run, site by site, and the paths of what it wrote."""
    if summary.auto:
        print_wrapped(console, summary.auto.sentence(), style="bold")
    if not summary.personal.n and summary.common:  # sites without test sets, of which there may be thousands
        rows = sum(row.train for row in summary.sites)
        print_wrapped(console, f"{heading(summary)}: {len(summary.sites)} sites, {rows} training rows")
    else:
        sites_table(console, summary)
    if summary.by_class:
        class_table(console, summary.by_class, len(summary.sites))
    if summary.predictions:
        predictions_table(console, summary.predictions, summary.facts.common_test)
    for line in sentences_of(summary):
        print_wrapped(console, line)
    took = "" if summary.seconds is None else f", after {summary.seconds:.1f} s of training"
    console.print(f"Written{took}:")
    written(console, folder)


def sentences_of(summary: Summary) -> Iterator[str]:
    """Yield what concerns no site in particular, first why figures are blank."""
    yield from why_blank(summary)
    if {*apart(summary.sites)} == {*APART}:
        yield f"annotated, never: {summary.metric} over the classes that a site annotates, and over those it never does"
    for name, common in summary.common.items():
        where = "validation rows" if name.startswith(VALIDATION) else "common test set"
        value = f"{name.removeprefix(VALIDATION)} {per_cent(common.value)} %"
        yield f"global model, {where}: {value} (n = {common.n})"
    if summary.target:
        yield summary.target.sentence()
    if summary.validation:
        yield summary.validation.sentence(summary.rounds)
    if summary.calibration:
        yield summary.calibration.sentence()
    if isinstance(summary.labels, FilledLabels):
        yield filled_sentence(summary.labels)
    elif summary.labels:
        yield resolved_sentence(summary.labels)
    if summary.repair:
        yield changes(summary.repair)
    yield from fairness_lines(summary)
    if summary.suspicions:
        yield from sentences(summary.suspicions)
    if summary.privacy:
        yield from summary.privacy.sentences()


def heading(summary: Summary) -> str:
    """Return which method was run on which data, and for how many rounds."""
    if summary.auto and summary.auto.alone_only:
        return f"auto: models of single sites on {summary.data}"
    title = f"auto: {summary.title}" if summary.auto else summary.title
    return f"{title} on {summary.data}, {many(summary.rounds, 'round')}"


def sites_table(console: Console, summary: Summary) -> None:
    """Print the figures of the sites, as far as there are any."""
    sites = listed_of(summary.sites)
    columns: dict[str, list[float | None]] = {}
    means = []
    if any(row.value is not None for row in sites):
        columns[f"{summary.metric}, %"] = [row.value for row in sites]
        means.append(summary.personal.mean)
    for title, values in apart(summary.sites).items():
        figure_of = {row.site: value for row, value in zip(summary.sites, values, strict=True)}
        columns[f"{title}, %"] = [figure_of[row.site] for row in sites]
        means.append(mean(values))
    if title := labels_column(summary):  # a sentence below the table has the share of all rows
        columns[title] = [row.labels for row in sites]
        means.append(None)
    over_all = "mean over sites" if len(sites) == len(summary.sites) else f"mean over {len(summary.sites)} sites"
    if not columns:
        over_all = "all sites"
    rows = sum(row.train for row in summary.sites)
    table = [
        TableColumn("site", [*(row.site for row in sites), over_all], words=True),
        TableColumn("training rows", [*(str(row.train) for row in sites), str(rows)]),
        TableColumn("test rows", [*(str(row.test) for row in sites), str(summary.personal.n)]),
    ]
    for (name, values), average in zip(columns.items(), means, strict=True):
        table.append(TableColumn(name, [per_cent(value) for value in (*values, average)]))
    print_table(console, table, heading(summary), total=True)


def labels_column(summary: Summary) -> str:
    """Return the title of the column of label figures; empty where there are none."""
    if isinstance(summary.labels, FilledLabels):
        return "filled in, auroc, %" if summary.labels.accuracy is not None else ""
    return "labels resolved, %" if summary.labels and summary.labels.accuracy is not None else ""


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the figures that exist."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def class_table(console: Console, classes: Sequence[ClassSummary], sites: int) -> None:
    """Print one row per class: which sites annotate it, and its AUROC, split by annotation where models differ."""
    pairs = [(row.auroc_annotated, row.auroc_never_annotated) for row in classes]
    differ = any(abs(a - b) > ROUNDING for a, b in pairs if a is not None and b is not None)
    where = [
        ", ".join(row.annotated_at) if len(row.annotated_at) <= NAMED else f"{len(row.annotated_at)} of {sites} sites"
        for row in classes
    ]
    table = [
        TableColumn("class", [row.name for row in classes], words=True),
        TableColumn("annotated at", [names or "nobody" for names in where], words=True),
        TableColumn("positives", [str(row.positives) for row in classes]),
        TableColumn("auroc, %", [per_cent(row.auroc) for row in classes]),
    ]
    if differ:
        table += [TableColumn(f"{name}, %", [per_cent(pair[i]) for pair in pairs]) for i, name in enumerate(APART)]
    print_table(console, table, "auroc, class by class, mean over sites; positives: of the training rows")


def predictions_table(console: Console, predictions: PredictionSummary, shared: bool) -> None:
    """Print recall and precision of every class, or of the worst ones, and which classes are never predicted.

    `shared`: whether all sites are tested on the same rows, so that figures are means over their models.
    """
    tested = predictions.worst()
    shown = tested if len(tested) <= MOST_CLASSES else tested[:WORST]
    which = "class by class" if shown is tested else f"the {WORST} classes of lowest recall of {len(tested)}"
    table = [
        TableColumn("class", [row.name for row in shown], words=True),
        TableColumn("test rows", [str(row.support) for row in shown]),
        TableColumn("predicted", [f"{row.predicted:.0f}" for row in shown]),
        TableColumn("recall, %", [per_cent(row.recall) for row in shown]),
        TableColumn("precision, %", ["never" if row.precision is None else per_cent(row.precision) for row in shown]),
        TableColumn("most often taken for", [predictions.taken_for(row.name) for row in shown], words=True),
    ]
    rows = many(predictions.n, "test row") + (" that all sites share, mean over their models" if shared else "")
    print_table(console, table, f"recall and precision on {rows}, {which}")
    for sentence in predictions.sentences():
        print_wrapped(console, sentence)


def resolved_sentence(labels: ResolvedLabels) -> str:
    """Return how many candidate sets were resolved correctly."""
    if labels.accuracy is None:
        return f"labels resolved: {labels.n}; the true ones are unknown"
    return (
        f"labels resolved correctly: {per_cent(labels.accuracy)} % of {labels.n}; "
        f"picking a candidate at random: {per_cent(labels.picking_at_random)} %"
    )


def filled_sentence(labels: FilledLabels) -> str:
    """Return how well missing labels were filled in."""
    if labels.accuracy is None:
        return f"labels filled in: {labels.filled_in}; the true ones are unknown"
    right, absent = per_cent(labels.accuracy), per_cent(labels.always_absent)
    return (
        f"labels filled in: {labels.filled_in}, AUROC {per_cent(labels.auroc)} %, right at 0.5: {right} % of "
        f"{labels.n}; saying absent every time: {absent} %"
    )


def fairness_lines(summary: Summary) -> list[str]:
    """Return how groups are treated or, where the data name groups, how to have it measured."""
    fairness, facts = summary.fairness, summary.facts
    if fairness:
        head = f"fairness of {fairness.target} against the rest, class {fairness.unprivileged}:"
        return [head, *(f"  {line}" for line in fairness.in_words())]
    if facts.attribute is None or summary.metric != "accuracy":
        return []
    return [
        f"fairness between the groups of {facts.attribute} is not measured: set fairness.target (one of "
        f"{', '.join(facts.groups or ())}) and fairness.unprivileged (a class)"
    ]


def written(console: Console, folder: Path) -> None:
    """Print the paths of a run's main results."""
    for name in (
        "report.html",
        "summary.json",
        "metrics.jsonl",
        "trials.json",
        "models",
        "alone",
        "labels",
        "suspicions.parquet",
    ):
        if (folder / name).exists():
            print_path(console, folder / name)


def compare_table(console: Console, lines: Sequence[Line], seeds: Sequence[int], folder: Path) -> None:
    """Print methods side by side, the best in bold, what each of them is, and the paths of what was written."""
    if sentence := brought(lines):
        print_wrapped(console, sentence, style="bold")
    every, lines = lines, with_figures(lines)
    top = best(lines)
    columns = {
        "method": [line.method for line in lines],
        f"{measured(lines).metric}, %": [per_cent(line.mean) if line.values else "" for line in lines],
    }
    if len(seeds) > 1:
        columns["±"] = [per_cent(line.spread) if line.values else "" for line in lines]
    if any(line.common for line in lines):
        columns["global model, %"] = [per_cent(statistics.fmean(x.common)) if x.common else "" for x in lines]
    if any(line.paper for line in lines):
        columns["paper, %"] = [f"{line.paper:.2f}" if line.paper else "" for line in lines]
    if any(line.labels for line in lines):
        columns[labels_title(lines)] = [per_cent(statistics.fmean(x.labels)) if x.labels else "" for x in lines]
    columns |= further(lines)
    columns["s per run"] = [f"{line.seconds:.1f}" if line.values else "" for line in lines]
    table = [TableColumn(name, cells, words=name == "method") for name, cells in columns.items()]
    bold = [number for number, line in enumerate(lines) if line.mean == top]
    print_table(console, table, f"test {measured(lines).over}, {many(len(seeds), 'seed')}", bold)
    if differs := unlike(lines):
        print_wrapped(console, differs)
    for sentence in reasons(every):
        print_wrapped(console, sentence)
    for reason in dict.fromkeys(reason for line in lines for reason in line.diverged):
        print_wrapped(console, f"diverged: {reason}")
    for name in dict.fromkeys(name for line in lines for name in NAMES.findall(line.method)):
        if meaning := meaning_of(name):
            print_wrapped(console, f"{name}: {meaning}")
    compared_written(console, folder)


def meaning_of(name: str) -> str:
    """Return what a method or an objective of a comparison is; empty for a class that only its caller has."""
    if name == ALONE:
        return ABOUT_ALONE
    if name not in catalogue() and ":" not in name:
        return ""
    with suppress(UsageError):  # a class that no import finds
        return about(catalogue()[name])
    return ""


def compared_written(console: Console, folder: Path) -> None:
    """Print the paths of a comparison's results, its page first, and the folders of its runs."""
    console.print("Written:")
    for name in ("report.html", "table.md", "results.json"):
        if (folder / name).exists():
            print_path(console, folder / name)
    console.print("and a folder for each run, with its report.html and models:")
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            print_path(console, path)


def figures_table(console: Console, figures: dict[str, Scores], as_json: bool, one_test: bool = False) -> None:
    """Print figures that were computed again; `one_test`: whether all sites are tested on the same rows."""
    if as_json:
        print(json.dumps({s: {m: {"value": figure(v), "n": n} for m, (v, n) in f.items()} for s, f in figures.items()}))
        return
    names = [name for name in next(iter(figures.values())) if not name.startswith(FAIR)]
    table = [TableColumn("site", [*figures, "mean over sites"], words=True)]
    for name in names:
        values = [figure(scores[name][0]) for scores in figures.values()]
        overall = OverSites.of([scores[name] for scores in figures.values()]).mean
        table.append(TableColumn(f"{name}, %", [per_cent(value) for value in (*values, overall)]))
    rows = [scores[names[0]][1] for scores in figures.values()]
    total = max(rows) if one_test else sum(rows)
    table.append(TableColumn("test rows", [*map(str, rows), str(total)]))
    print_table(console, table, f"{', '.join(names)} on test rows", total=True)
