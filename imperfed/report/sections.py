"""The sections of the report that most runs have: each is made from a run, or is None if it does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from imperfed.core.labels import KINDS
from imperfed.report import plots
from imperfed.report.run_files import COMMON, PERSONAL, Course, LabelFiles, RunFiles
from imperfed.report.words import count, many, named, per_cent
from imperfed.results.data_facts import DataFacts
from imperfed.results.label_summary import ResolvedLabels
from imperfed.results.many_sites import MANY

if TYPE_CHECKING:
    from markupsafe import Markup
    from numpy.typing import ArrayLike

PAIRS = 5  # most pairs of mistaken classes that are named
ABSENT = 30  # most classes held by no site that are named
BINS = 20  # bins of a histogram of shares


@dataclass(frozen=True)
class Picture:
    """A figure and its caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class ShownTable:
    """A table of the page, whose first column names its rows."""

    label: str
    """For readers who cannot see it."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: str = ""
    """What stands in place of the table until it is opened; empty if it is open."""
    caption: str = ""
    said: Sequence[int] = ()
    """The columns that hold sentences rather than figures."""
    best: int | None = None
    """The row that is set in bold."""


@dataclass(frozen=True)
class Section:
    """A heading with text, figures, a list and tables."""

    title: str
    text: str
    pictures: Sequence[Picture] = ()
    lead: str = ""
    """The heading of the list."""
    points: Sequence[str] = ()
    tables: Sequence[ShownTable] = ()


def learning(run: RunFiles) -> Section:
    """Draw test figures and training loss per round."""
    pictures = []
    if course := run.course(PERSONAL):
        tests = in_per_cent(course)
        common = {r: values[0] for r, values in in_per_cent(run.course(COMMON)).items()}
        what = named(run.metric)
        label = f"{what}, mean over sites in per cent: {from_to(tests)}"
        svg = plots.curves("tests", label, tests, f"{what}, %", "the only site", common)
        tested = [n for _, n in course[max(course)].values()]
        n = max(tested) if run.one_test else sum(tested)
        also = f"; global model on the common test set, n = {count(run.common[1])}" if run.common else ""
        rows = "the common test set" if run.one_test else "their own test rows"
        pictures.append(Picture(svg, f"Test {what} of the sites' models on {rows}, n = {count(n)}{also}."))
    elif course := run.course(COMMON):
        what, tests = named(run.metric), in_per_cent(course)
        svg = plots.curves("tests", f"{what} in per cent: {from_to(tests)}", tests, f"{what}, %", "global model")
        n = next(iter(course[max(course)].values()))[1]
        pictures.append(Picture(svg, f"Test {what} of the global model on the common test set, n = {count(n)}."))
    if course := run.history.get("train/loss", {}):
        losses = {r: [value for value, _ in sites.values()] for r, sites in course.items()}
        label = f"training loss, mean over sites: {from_to(losses)}"
        svg = plots.curves("losses", label, losses, "training loss", "training loss")
        pictures.append(Picture(svg, "Training loss, the mean over a round's local steps."))
    return Section("Learning curves", "" if pictures else "No round has been finished yet.", pictures)


def in_per_cent(course: Course) -> dict[int, list[float]]:
    """Return the values of a metric in per cent, by round."""
    return {r: [100 * value for value, _ in sites.values()] for r, sites in course.items()}


def from_to(rounds: dict[int, list[float]]) -> str:
    """Describe where a curve begins and ends, for readers who cannot see it."""
    first, last = min(rounds), max(rounds)
    return f"{np.mean(rounds[first]):.4g} after round {first}, {np.mean(rounds[last]):.4g} after round {last}"


def label_sentence(run: RunFiles) -> str:
    """Describe how many labels were resolved correctly, compared with picking at random."""
    if run.summary is None:
        return "The labels that a run infers are written, and counted here, when it ends."
    labels = run.summary.labels
    if not isinstance(labels, ResolvedLabels):
        if run.summary.repair:
            return "The labels as given were repaired before training; see below."
        kind = KINDS[run.summary.facts.labels]
        if kind.settles:
            return f"The sites learned from {kind.title}: there was nothing to resolve."
        return "No labels were inferred."
    rows, accuracy, chance = many(labels.n, "training row"), labels.accuracy, labels.picking_at_random
    if accuracy is None:
        return (
            f"Labels were inferred for {rows}. The true ones are unknown, so their accuracy is unknown; picking a "
            f"candidate at random would get {per_cent(chance)} right."
        )
    verdict = "" if accuracy > chance else " The method did not help: it is no better than chance."
    return (
        f"Of {rows}, {count(accuracy * labels.n)} had their label resolved correctly ({per_cent(accuracy)}); picking a "
        f"candidate at random would get {per_cent(chance)} right.{verdict}"
    )


def candidate_sets(run: RunFiles) -> Section | None:
    """Describe the sizes of the sets, which classes occur together, and which were mistaken for each other."""
    if run.summary is None or (mean_size := run.summary.facts.mean_size) is None:
        return None
    facts, labels, classes = run.summary.facts, run.summary.labels, run.summary.classes
    text = (
        f"{_origin(facts.sets)} hold {mean_size:.2f} of {many(len(classes), 'class', 'classes')} on average, "
        f"{facts.min_size} at least and {facts.max_size} at most; {per_cent(facts.singletons)} of "
        f"n = {count(sum(facts.rows))} hold one class only."
    )
    pictures, points = [_set_sizes(run.labels)] if run.labels else [], []
    if isinstance(labels, ResolvedLabels):
        label = "how often two classes are in the same candidate set"
        svg = plots.heat_map("together", label, labels.together, ("", classes), ("", classes))
        pictures.append(Picture(svg, "Classes that occur together: the number of candidate sets with both."))
        if labels.mistaken and facts.counts:
            label = "how often a class was mistaken for another"
            svg = plots.heat_map("mistaken", label, labels.mistaken, ("true", classes), ("mistaken for", classes))
            pictures.append(Picture(svg, "Classes mistaken for another: the number of labels resolved wrongly."))
            points = mistaken_pairs(labels.mistaken, facts.counts, classes)
    return Section("Candidate sets", text, pictures, "Most often mistaken" if points else "", points)


def _origin(sets: str | None) -> str:
    """Begin a sentence about candidate sets, after one that says where they come from, if that is known."""
    if sets is None:
        return "The sets"
    origin = "came with the data" if sets == "given" else f"were made by the generator “{sets}”"
    return f"The sets {origin}. They"


def _set_sizes(files: LabelFiles) -> Picture:
    sizes = np.arange(files.sizes.min(), files.sizes.max() + 1)
    heights = np.bincount(files.sizes)[sizes]
    label = "number of training rows by size of the candidate set"
    svg = plots.bars("sizes", label, sizes - 0.5, heights, 1, "candidates in a set", "training rows")
    return Picture(svg, f"Sizes of the candidate sets, n = {count(len(files.sizes))}.")


def mistaken_pairs(
    mistaken: Sequence[Sequence[int]], counts: Sequence[Sequence[int]], classes: Sequence[str]
) -> list[str]:
    """Describe the most frequent mistakes."""
    pairs = sorted(((n, i, j) for i, row in enumerate(mistaken) for j, n in enumerate(row) if n), key=lambda p: -p[0])
    return [
        f"“{classes[i]}” mistaken for “{classes[j]}”: {count(n)} of {many(sum(counts[i]), 'row')} "
        f"({per_cent(n / sum(counts[i]))})"
        for n, i, j in pairs[:PAIRS]
    ]


def confidence(run: RunFiles) -> Section | None:
    """Describe how confident the method is in the labels it inferred."""
    labels = run.summary.labels if run.summary else None
    if labels is None or run.labels is None:
        return None
    text = f"Mean confidence is {per_cent(labels.mean_confidence)}, n = {count(labels.n)}"
    if labels.accuracy is None:
        text += "."
    else:
        more = 100 * (labels.mean_confidence - labels.accuracy)
        text += (
            f"; {per_cent(labels.accuracy)} are correct, so the method is {'over' if more > 0 else 'under'}confident "
            f"by {abs(more):.2f} points."
        )
    svg = shares("confidence", "number of labels by confidence", run.labels.confidence, "confidence, %", "labels")
    return Section("Confidence of the labels", text, [Picture(svg, "Confidence in the label suggested for each row.")])


def shares(name: str, label: str, values: ArrayLike, xlabel: str, ylabel: str) -> Markup:
    """Draw a histogram of fractions, in per cent."""
    heights, edges = np.histogram(values, bins=BINS, range=(0, 1))
    return plots.bars(name, label, 100 * edges[:-1], heights, 100 / BINS, xlabel, ylabel)


def data(run: RunFiles) -> Section | None:
    """Describe how the rows were split."""
    if run.summary is None:
        return None
    facts, classes, pictures = run.summary.facts, run.summary.classes, []
    if facts.counts is not None and len(run.sites) <= MANY:
        names = [row.site for row in run.sites]
        svg = plots.heat_map(
            "classes", "training rows by class and site", facts.counts, ("class", classes), ("", names)
        )
        pictures.append(Picture(svg, "Training rows per class and site, by true class; blank: none."))
    return Section("Data", " ".join(about_split(facts)), pictures)


def about_split(facts: DataFacts) -> list[str]:
    """Describe the split in sentences."""
    rows, tests = facts.rows, sum(facts.test_rows)
    at_sites = facts.test_rows and not facts.common_test
    own = f", and {many(tests, 'test row')}" if at_sites else ""
    sentences = [
        f"{many(sum(rows), 'training row')} at {many(len(rows), 'site')}, from {count(min(rows))} to {count(max(rows))}"
        f" each{own}."
    ]
    if facts.examples is not None:
        sentences.append(f"They are {many(facts.examples, 'example')}, each at one site for every label it has.")
    if facts.common_test_rows:
        measured = "; every site is evaluated on it" if facts.common_test else ""
        sentences.append(f"A common test set of {many(facts.common_test_rows, 'row')} belongs to no site{measured}.")
    if facts.held_out_rows is not None:
        held = many(sum(facts.held_out_rows), "further row")
        sentences.append(f"The sites hold out {held} of their own, with the labels as given, to judge rounds by.")
    if facts.validation_rows:
        sentences.append(f"Settings are chosen on {many(facts.validation_rows, 'further row')}.")
    if facts.most_frequent:
        figures = ", ".join(f"{named(name)} {per_cent(value)}" for name, value in facts.most_frequent.items())
        sentences.append(f"Always predicting the most frequent labels: {figures}.")
    if facts.public_rows:
        held = many(facts.public_rows, "unlabelled public input")
        sentences.append(f"The server holds {held} from {facts.public_from}.")
    if facts.trusted_rows:
        sentences.append(f"The server holds {many(facts.trusted_rows, 'labelled row')} of its own, which no site has.")
    if facts.rows_left_out:
        sentences.append(f"{many(facts.rows_left_out, 'row')} of the data belong to no site.")
    if facts.counts is not None:
        classes = many(len(facts.counts), "class", "classes")
        some = len(facts.counts) - len(facts.classes_at_nobody)
        sentences.append(f"Of {classes}, {some} are held by some site.")
    if absent := facts.classes_at_nobody:
        more = f" and {len(absent) - ABSENT} further classes" if len(absent) > ABSENT else ""
        sentences.append(f"No site holds a training row of {', '.join(absent[:ABSENT])}{more}.")
    return sentences
