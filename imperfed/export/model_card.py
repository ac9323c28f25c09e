"""The model card of an export, from the summary of its run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from imperfed.core.labels import KINDS
from imperfed.evaluation.paired import interval_of_mean
from imperfed.report.words import MEANINGS, count, many, named, per_cent, product
from imperfed.results.summary import Summary

Z = 1.96
"""Of a 95 % interval."""
ALL = "all sites"
"""Whose model it is that the sites share."""
LEAST_SITES = 3
"""The sites below which their mean has no interval."""
FEW = 100
"""The test rows below which a figure is said to be rough."""


def model_card(summary: Summary, site: str, description: dict[str, Any], file: str) -> str:
    """Return the text of `MODEL_CARD.md`."""
    whose = "the model of all sites" if description["shared"] else f"the model of {site}"
    tested = _tested(summary, None if description["shared"] else site)
    parts = {
        f"{summary.title}, {whose}": _purpose(summary, file),
        "How to call it": _calling(description),
        "Data": _data(summary),
        "Figures": _figures(summary, tested),
        "What left the sites": _sent(summary),
        "Limits": _limits(summary, tested),
    }
    sections = [
        f"{'#' if k == 0 else '##'} {title}\n\n" + "\n".join(lines) for k, (title, lines) in enumerate(parts.items())
    ]
    return "\n\n".join(sections) + "\n"


def accuracy_interval(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of n rows."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return middle - half, middle + half


def _purpose(summary: Summary, file: str) -> Iterator[str]:
    sites, labels = many(len(summary.sites), "site"), KINDS[summary.facts.labels].title
    yield f"`{file}` was trained on {summary.data} across {sites}, whose rows stayed where they are, from {labels}."
    yield f"Method: `{summary.title}`, {many(summary.rounds, 'round')}, seed {summary.seed}."
    if summary.auto is not None:
        yield ""
        yield f"It was chosen by a search. {summary.auto.sentence()}"


def _calling(description: dict[str, Any]) -> Iterator[str]:
    given, returned = description["input"], description["output"]
    yield f"- Input {_tensor(given)}; blanks: {given['blanks']}; scaling: {given['scaling']}."
    if given["columns"]:
        yield f"- Its columns, in order: {', '.join(f'`{name}`' for name in given['columns'])}."
    yield f"- Output {_tensor(returned)}; {returned['meaning']}."
    yield f"- Classes, in order: {', '.join(f'`{name}`' for name in returned['classes'])}."
    yield "- `model.json` holds the same for programs."


def _tensor(described: dict[str, Any]) -> str:
    return f"`{described['name']}`: {described['type']}, [{', '.join(map(str, described['shape']))}]"


def _data(summary: Summary) -> Iterator[str]:
    facts = summary.facts
    yield "| site | training rows | test rows |"
    yield "| --- | --- | --- |"
    yield from (f"| {row.site} | {count(row.train)} | {count(row.test)} |" for row in summary.sites)
    if facts.classes_at_nobody:
        yield ""
        yield f"No site holds: {', '.join(facts.classes_at_nobody)}."
    if (repair := summary.repair) is not None:
        yield ""
        yield f"Before training, `{repair.name}` changed {count(repair.changed)} of {count(repair.n)} labels."


@dataclass(frozen=True)
class Tested:
    """The leading figure of a model on the test rows of those whose model it is."""

    whose: str
    rows: int
    value: float | None


def _tested(summary: Summary, site: str | None) -> Tested:
    """Return how the model of a site was tested, or the one of all sites."""
    if site is None:
        return Tested(ALL, summary.personal.n, summary.personal.weighted)
    own = next(row for row in summary.sites if row.site == site)
    return Tested(own.site, own.test, own.value)


def _figures(summary: Summary, tested: Tested) -> Iterator[str]:
    yield _leading_figure(summary, tested)
    if summary.personal.mean is not None:
        over = _over_sites([row.value for row in summary.sites if row.value is not None])
        mean, worst = per_cent(summary.personal.mean), per_cent(summary.personal.worst)
        yield f"Mean over sites: {mean}{over}; worst site: {worst}."
    for name, figure in summary.common.items():
        yield f"Global model on {many(figure.n, 'common row')}: {named(name)} {per_cent(figure.value)}."
    if summary.calibration is not None:
        yield f"How sure it is: {summary.calibration.sentence()}."
    if summary.predictions is not None:
        yield from (
            "",
            "All sites together, class by class:",
            "",
            "| class | test rows | recall | precision |",
            "| --- | --- | --- | --- |",
        )
        for one in summary.predictions.classes:
            yield f"| {one.name} | {count(one.support)} | {per_cent(one.recall)} | {per_cent(one.precision)} |"


def _leading_figure(summary: Summary, tested: Tested) -> str:
    if tested.value is None and tested.whose == ALL:
        return "No site has test rows of its own."
    if tested.value is None:
        return f"{tested.whose} has no test rows of its own, so this model was not tested there."
    rows = many(tested.rows, "test row")
    line = f"On the {rows} of {tested.whose}: {named(summary.metric)} {per_cent(tested.value)}"
    if summary.metric != "accuracy":
        line = f"{line}, the mean weighted by their rows" if tested.whose == ALL else line
        return f"{line}. Its interval would take the rows, which are not here: `imperfed compare` shows one."
    low, high = accuracy_interval(tested.value, tested.rows)
    return f"{line} (95 % interval {per_cent(low)} to {per_cent(high)})."


def _over_sites(values: Sequence[float]) -> str:
    """Return the 95 % interval of the mean over sites, by Student's t, in words; empty for fewer than three sites."""
    if len(values) < LEAST_SITES:
        return ""
    low, high = interval_of_mean(values)
    low, high = max(low, 0.0), min(high, 1.0)
    return f" (95 % interval for sites like these {len(values)}: {per_cent(low)} to {per_cent(high)})"


def _sent(summary: Summary) -> Iterator[str]:
    if not summary.sent:
        yield "Nothing."
    for name, shape in summary.sent.items():
        yield f"- `{name}`, {product(shape)} numbers{f': {MEANINGS[name]}' if name in MEANINGS else ''}"
    for name, value in summary.account.items():
        yield f"- {name}: {value:g}"
    if summary.privacy is not None:
        yield from (f"- {sentence[0].upper()}{sentence[1:]}." for sentence in summary.privacy.sentences())
    elif "epsilon" not in summary.account:
        yield "\nNone of this is differentially private: updates can reveal something about rows."


def _limits(summary: Summary, tested: Tested) -> Iterator[str]:
    yield "- The figures hold for rows like the test rows; other places, devices or times need figures of their own."
    if summary.predictions is not None:
        yield from (f"- {sentence[0].upper()}{sentence[1:]}." for sentence in summary.predictions.sentences())
    if summary.facts.labels != "exact":
        yield f"- Trained from {KINDS[summary.facts.labels].title}: what these leave open was inferred, not observed."
    if summary.calibration is None or summary.calibration.temperature is None:
        yield "- Probabilities are not calibrated."
    if tested.value is not None and tested.rows < FEW:
        yield f"- {tested.whose[0].upper()}{tested.whose[1:]}: {many(tested.rows, 'test row')}, so the figure is rough."
