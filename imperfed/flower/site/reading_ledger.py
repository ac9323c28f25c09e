"""In which ways a site's rows were read and split, in all runs of its state folder.

Sums over two sets of rows that differ in one row are that row. The declaration, the share and the seed of test rows
and the share held out choose the rows, and a coordinator may name others in every run. So a site answers about its
rows as they were first read and split, whatever the run is called. Another way needs its policy (`most_readings`) or
the yes of a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from imperfed.data.files.declaration import parse
from imperfed.data.moments import FEWEST
from imperfed.experiments.config import Config
from imperfed.flower.site.sealed_words import read_sealed, write_sealed

READINGS = "readings.json"
"""The file in the state folder that says how the rows were read and split."""
TRIES = 10
"""How many readings that came to nothing, as of a declaration with a mistake, are tried for each that is allowed."""


class RowReading(msgspec.Struct, frozen=True):
    """One way to read and split the rows of a site."""

    source: str
    """The path of the site's file."""
    declaration: str
    """A digest of all that is declared about it."""
    own_test: bool
    """Whether the site has a test file of its own."""
    test: float
    """The share of its rows that it is tested on."""
    data_seed: int

    @classmethod
    def of(cls, source: str, own_test: bool, declaration: str, config: Config) -> RowReading:
        """Return the reading that the settings and the declaration of a run ask for."""
        text = ""
        if declaration:  # without what it says about files that are not the site's
            text = replace(parse(declaration), name="", sites="", test="", public="", trusted="").toml()
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(source, digest, own_test, 0.0 if own_test else config.split.test, config.run.data_seed)

    def differences(self, before: RowReading) -> Iterator[str]:
        """Yield in what it differs from another one, as settings."""
        if self.declaration != before.declaration:
            yield "the declaration (federation.toml)"
        if self.own_test != before.own_test:
            yield "test rows of its own" if self.own_test else "no test rows of its own"
        for name, now, then in (
            ("split.test", self.test, before.test),
            ("run.data_seed", self.data_seed, before.data_seed),
        ):
            if now != then:
                yield f"{name} = {now:g} instead of {then:g}"

    def is_kin_of(self, other: RowReading) -> bool:
        """Return whether they differ at most in that one keeps no row for tests, as an audit does."""
        alike = msgspec.structs.replace(self, test=other.test) == other
        return alike and (self.test == other.test or 0 in (self.test, other.test))


class ReadingKept(msgspec.Struct, frozen=True):
    """A reading that was asked for, and what was given of it."""

    reading: RowReading
    run: str
    """The first run that asked for it."""
    given: bool = False
    """Whether an answer was given."""
    held_out: tuple[float, ...] = ()
    """The shares of rows that were held out for validation; 0: none."""
    grids: tuple[str, ...] = ()
    """The grids on which values were counted."""
    rows: int = 0
    """How many rows were left when those for tests were taken; 0: not known."""


class ReadingLedger(msgspec.Struct, frozen=True):
    """All readings that were asked for at a site."""

    kept: tuple[ReadingKept, ...] = ()

    @classmethod
    def read(cls, state: Path) -> ReadingLedger:
        """Return the ledger in a state folder, an empty one if there is none."""
        return read_sealed(state / READINGS, cls) or cls()

    def of(self, reading: RowReading) -> ReadingKept | None:
        """Return what is known of a reading."""
        return next((one for one in self.kept if one.reading == reading), None)

    def objection(self, reading: RowReading, share: float, most: int) -> str:
        """Return why a reading is refused where so many are allowed; `share`: of rows held out for validation."""
        others = [one for one in self.kept if not one.reading.is_kin_of(reading)]
        others = [one for one in others if one.reading.source == reading.source]
        given, known = [one for one in others if one.given], self.of(reading)
        if (known is None or not known.given) and len(given) >= most:
            changed, run = "; ".join(reading.differences(given[-1].reading)), given[-1].run
            return (
                f"{changed}: for {run} its rows were read or split otherwise, and the difference of two answers can be "
                f"a single row. Ask as for {run}, or ask the site to allow it (most_readings = {most})"
            )
        if known is None and len(others) - len(given) >= TRIES * most:
            return (
                f"yet another way to read its rows: {len(others) - len(given)} came to nothing (most_readings = {most})"
            )
        shares = {one for one in ((*known.held_out, share) if known else (share,)) if one}
        if known is not None and share not in known.held_out and len(shares) > most:
            before = ", ".join(f"{one:g}" for one in known.held_out if one)
            return (
                f"split.validation = {share:g}: for {known.run} and later runs it was {before}, and the difference of "
                f"two answers can be a single row. Ask as then, or ask the site to allow it (most_readings = {most})"
            )
        return ""

    def noted(self, reading: RowReading, run: str, share: float) -> ReadingLedger:
        """Return the ledger with a reading that is about to be answered."""
        known = self.of(reading) or ReadingKept(reading, run)
        return self._with(msgspec.structs.replace(known, held_out=tuple(sorted({*known.held_out, share}))))

    def few_between(self, reading: RowReading, rows: int) -> int:
        """Return how many rows of difference to another reading are too few for a sum; 0 if none are."""
        others = (one.rows for one in self.kept if one.reading.is_kin_of(reading) and one.reading.test != reading.test)
        between = (abs(other - rows) for other in others if other)
        return next((few for few in between if 0 < few < FEWEST), 0)

    def with_rows(self, reading: RowReading, rows: int) -> ReadingLedger:
        """Return the ledger with the number of rows of a reading."""
        known = self.of(reading)
        return self if known is None else self._with(msgspec.structs.replace(known, rows=rows))

    def answered(self, reading: RowReading) -> ReadingLedger:
        """Return the ledger after an answer about a reading."""
        known = self.of(reading)
        return self if known is None else self._with(msgspec.structs.replace(known, given=True))

    def counted(self, reading: RowReading, grid: str) -> ReadingLedger:
        """Return the ledger after values were counted on a grid."""
        known = self.of(reading)
        assert known is not None
        return self._with(msgspec.structs.replace(known, grids=(*known.grids, grid)))

    def _with(self, kept: ReadingKept) -> ReadingLedger:
        if self.of(kept.reading) is None:
            return ReadingLedger((*self.kept, kept))
        return ReadingLedger(tuple(kept if one.reading == kept.reading else one for one in self.kept))

    def write(self, state: Path) -> None:
        """Keep the ledger, before anything that it counts is sent."""
        if self != ReadingLedger.read(state):
            write_sealed(state / READINGS, self)
