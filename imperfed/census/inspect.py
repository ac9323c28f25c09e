"""`imperfed inspect`: from a path, or from rows in memory, to census, warnings and advice.

A path without a federation.toml gets one.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from imperfed.census.advice import Advice, Step, advise, first_steps
from imperfed.census.class_names import name_warnings
from imperfed.census.figures import Census, SiteCensus, SiteRows, take
from imperfed.census.guess import Guess, guess
from imperfed.census.input_values import SiteValues, look_at_values, shared_ids
from imperfed.census.rows_to_test import few_rows_warnings, sites_too_small_to_test
from imperfed.census.value_warnings import value_warnings
from imperfed.census.warnings import id_warnings, warnings
from imperfed.cli.screen import printed
from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels.counts import one_class_each
from imperfed.core.threads import one_thread
from imperfed.data.files.declaration import FILE, Declaration, parse, read_declaration
from imperfed.data.files.reading import Reading, read_sites
from imperfed.report.words import many


@dataclass(frozen=True)
class NextStep:
    """What to type next, and why."""

    command: str
    why: str


@dataclass(frozen=True, repr=False)
class Inspection:
    """Everything reported about the data of a federation before training."""

    declaration: Declaration
    guessed: tuple[str, ...]
    """One sentence for everything that was guessed; empty if there was a federation.toml."""
    census: Census
    values: tuple[SiteValues, ...]
    """The values of the inputs, site by site; of inputs that are no table nothing is said."""
    shared_ids: tuple[tuple[int, int, int], ...]
    """Two sites and the number of ids that both hold, the most first."""
    warnings: tuple[str, ...]
    advice: tuple[Advice, ...]
    steps: tuple[NextStep, ...]
    """What to type next."""
    unwritten: str = ""
    """The text of federation.toml, if it was guessed and its folder cannot be written to."""

    @property
    def commands(self) -> tuple[str, ...]:
        """What to type next, without the reasons."""
        return tuple(step.command for step in self.steps)

    def __repr__(self) -> str:
        """Return what was inspected, in one line."""
        census = self.census
        sites, rows = many(len(census.sites), "site"), many(census.rows, "row")
        return f"<Inspection of {census.name}: {sites}, {rows}, {census.kind.title}; print it to read it>"

    def __str__(self) -> str:
        """Return what `imperfed inspect` prints."""
        from imperfed.census.console import WIDTH, print_inspection

        return printed(lambda console: print_inspection(self, console, {}), WIDTH)

    def _repr_html_(self) -> str:
        """Return the same text for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"


def inspect(path: Path, label: str = "", site: str = "") -> Inspection:
    """Read the files, and write a guessed federation.toml if there is none and the files can be read with it.

    `label`, `site`: the columns of the label and of the site, where their names do not say so.
    """
    declaration, guessed = declaration_of(path, label, site)
    if (label or site) and guessed is None:
        raise UsageError(f"{declaration.file} says what the columns mean; change it, or remove it for another guess")
    reading = read_checked(declaration, guessed)
    if guessed is None:
        return _inspected(reading, ())
    try:
        declaration.file.write_text(guessed.text(), encoding="utf-8")
    except OSError:
        return replace(_inspected(reading, guessed.why), unwritten=guessed.text())
    return _inspected(reading, guessed.why)


def declaration_of(path: Path, label: str = "", site: str = "") -> tuple[Declaration, Guess | None]:
    """Return the declaration of files and, if there is no federation.toml, the guess that it was made from."""
    path = path.expanduser()
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    if path.name == FILE or (folder / FILE).exists():
        return read_declaration(path if path.name == FILE else folder), None
    guessed = guess(path, label, site)
    return _parsed(guessed), guessed


def read_checked(declaration: Declaration, guessed: Guess | None) -> Reading:
    """Return the rows of all files, or raise an error that lists all problems, and shows a guess that may be why."""
    reading = read_sites(declaration) if guessed is None else read_sites(declaration, before=guessed.files)
    try:
        return reading.check()
    except DataError as error:
        raise error if guessed is None else _unsure(guessed, error) from None


def _parsed(guessed: Guess) -> Declaration:
    """Return the declaration as it will be read, or raise an error that shows what was guessed."""
    try:
        return parse(guessed.text(), guessed.declaration.file)
    except DataError as error:
        raise _unsure(guessed, error) from None


def _unsure(guessed: Guess, error: DataError) -> DataError:
    """Return an error with the problems and the guess, which may be the cause."""
    place = guessed.declaration.file
    left_out = "".join(f"\n  {sentence}" for sentence in guessed.why if sentence.startswith("left out"))
    return DataError(
        f"{error}{left_out}\n{place} was guessed and not written; fix the files, or write it:\n\n{guessed.text()}"
    )


def _inspected(reading: Reading, guessed: tuple[str, ...]) -> Inspection:
    folder = reading.declaration.folder
    return inspected(reading, guessed, lambda step: step.command(folder))


@one_thread()
def inspected(reading: Reading, guessed: tuple[str, ...], write: Callable[[Step], str]) -> Inspection:
    """Return what there is to report about rows that have been read; `write`: a next step, as it is typed."""
    declaration, labels = reading.declaration, reading.declaration.labels
    groups = declaration.attribute.values if declaration.attribute is not None else ()
    data = []
    for site in reading.sites:
        assert site.rows.labels is not None
        members = site.rows.x[:, -len(groups) :] if groups else None
        data.append(SiteRows(site.name, site.rows.x, site.rows.labels, members))
    tests = [rows.x for rows in (reading.test, *(site.test for site in reading.sites)) if rows is not None]
    census = take(declaration.name, labels.classes, data, secrets.token_bytes(32), groups, tests)
    measured, ids = declaration.measured, shared_ids(reading.sites) if declaration.id else ()
    values = look_at_values(reading.sites, declaration.inputs)
    shape, rows = tuple(data[0].x.shape[1:]), statistics.median(site.rows for site in census.sites)
    untestable = sites_too_small_to_test(reading)
    tested = measured and not (census.kind.ranked and reading.test is not None)  # such a test set is for one model
    alike = one_class_each(site.known for site in census.sites) and not census.kind.partial
    steps = first_steps(census.kind, shape, rows, tested, bool(untestable), alike)
    return Inspection(
        declaration,
        guessed,
        census,
        values,
        ids,
        (
            *warnings(census, measured),
            *name_warnings(census),
            *few_rows_warnings(untestable),
            *id_warnings(census, declaration.id, ids),
            *value_warnings(values),
        ),
        advise(census.kind),
        tuple(NextStep(write(step), step.why) for step in steps),
    )


def document(inspection: Inspection) -> dict[str, Any]:
    """Return everything as a JSON document."""
    census = inspection.census
    return {
        "name": census.name,
        "federation": None if inspection.declaration.in_memory else str(inspection.declaration.file),
        "guessed": list(inspection.guessed),
        "unwritten": inspection.unwritten,
        "labels": census.kind.kind,
        "classes": list(census.classes),
        "rows": census.rows,
        "sites": [
            _site(census, k, site) | {"values": _values(inspection.values[k])} for k, site in enumerate(census.sites)
        ],
        "candidate_pairs": [{"classes": [a, b], "rows": n} for a, b, n in census.pairs],
        "inseparable": [list(pair) for pair in census.inseparable],
        "shared_inputs": [
            {"sites": [census.sites[a].name, census.sites[b].name], "inputs": n} for a, b, n in census.repeats.shared
        ],
        "contradicted_inputs": census.repeats.contradicted,
        "test_rows_trained_on": census.repeats.tested,
        "shared_ids": [
            {"sites": [census.sites[a].name, census.sites[b].name], "ids": n} for a, b, n in inspection.shared_ids
        ],
        "odd_cells": [asdict(cell) for site in inspection.values for cell in site.odd],
        "warnings": list(inspection.warnings),
        "methods": [
            {"name": a.name, "part": a.part, "made_for": a.made_for, "needs": a.needs, "why": a.why}
            for a in inspection.advice
        ],
        "next": [asdict(step) for step in inspection.steps],
    }


def _site(census: Census, k: int, site: SiteCensus) -> dict[str, Any]:
    counts = {"positive": site.known.positive, "negative": site.known.negative, "unknown": site.known.unknown}
    return {
        "name": site.name,
        "rows": site.rows,
        **{what: dict(zip(census.classes, n.tolist(), strict=True)) for what, n in counts.items()},
        "set_sizes": {str(size): rows for size, rows in site.sizes.items()},
        "largest_class": None if site.largest is None else {"class": site.largest[0], "share": site.largest[1]},
        "skew": site.skew,
        "repeated_rows": census.repeats.within[k],
        "rows_elsewhere": census.repeats.elsewhere[k],
        "groups": site.groups,
        "ambiguous_rows": site.ambiguous,
    }


def _values(site: SiteValues) -> dict[str, Any]:
    """Return the input values of one site by column; figures of a column without values are None."""
    numbers = {
        name: {
            "blanks": c.blanks,
            "distinct": c.distinct,
            **dict.fromkeys(("min", "q1", "median", "q3", "max")),
            **(
                dict(zip(("min", "q1", "median", "q3", "max"), (c.low.value, *c.quartiles, c.high.value), strict=True))
                if c.known
                else {}
            ),
        }
        for name, c in site.numbers.items()
    }
    words = {
        name: {"blanks": c.blanks, "distinct": sum(n > 0 for n in c.counts.values()), "rows": c.counts}
        for name, c in site.words.items()
    }
    return numbers | words
