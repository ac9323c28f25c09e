"""What a site has agreed to: the settings and the declaration of a run, as they were when it was first asked.

The agreement lies in the run's folder in the site's state. Whatever a message asks for is compared with it
(`admission.py`), so that nothing changes in mid-run and no run touches the folder of another.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from imperfed.core.batch import Tree
from imperfed.data.files.problems import shown
from imperfed.flower.messages.run_info import NO_TRIAL, RunInfo
from imperfed.flower.site.reading_ledger import RowReading
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.sealed_words import read_sealed, write_sealed
from imperfed.flower.site.site_folder import AGREEMENT

AFTER_THE_END = ("query.hello", "query.ready", "evaluate", "query.judge", "query.leave")
"""What a coordinator that was killed just before its own end asks again; none of it changes what the site has kept."""
LEARNED = "model.features"
"""The one setting that a coordinator may fill in after all sites have said what they hold."""

Decision = Literal["asked", "accepted", "declined", "told"]


class Agreement(msgspec.Struct, frozen=True):
    """What was agreed for one run."""

    settings: str
    declaration: str
    search: bool
    decision: Decision
    """`told`: the coordinator knows that its run was declined."""
    ended: str = ""
    """A digest of the model with which the run has ended here."""
    reading: RowReading | None = None
    """How the rows were read and split; None: an earlier version did not note it."""
    held_out: float = 0.0
    """The share of its rows that the site held out for validation."""

    @classmethod
    def read(cls, folder: Path) -> Agreement | None:
        """Return the agreement in a run's folder; None if there is none."""
        return read_sealed(folder / AGREEMENT, cls)

    def write(self, folder: Path) -> Agreement:
        """Keep it in a run's folder."""
        write_sealed(folder / AGREEMENT, self)
        return self

    def decided(self, decision: Decision) -> Agreement:
        """Return the same agreement with another decision."""
        return msgspec.structs.replace(self, decision=decision)

    def changes(self, run_info: RunInfo) -> Iterator[str]:
        """Yield what a message asks for otherwise than agreed; in a search, settings change from trial to trial."""
        if run_info.declaration != self.declaration:
            yield "the declaration of the files has changed since this site agreed to it"
        if run_info.search != self.search or (run_info.trial != NO_TRIAL and not self.search):
            what = ("a search", "a run of one method")
            yield f"{what[self.search]}: this site agreed to {what[not self.search]} under this name"
        if self.search:
            return
        agreed, asked = _flat(self.settings), _flat(run_info.settings)
        for name in sorted(agreed.keys() | asked.keys()):
            before, now = agreed.get(name), asked.get(name)
            if before != now and not (name == LEARNED and not (before and now)):
                yield f"{name} = {shown(now)}: this site agreed to {shown(before)} for this run"


def _flat(settings: str) -> dict[str, Any]:
    return {f"{part}.{key}": value for part, keys in tomllib.loads(settings).items() for key, value in keys.items()}


def ended_with(place: LocalSite, run: str) -> str:
    """Return the digest of the model with which a run has ended here; empty if it has not."""
    agreement = Agreement.read(place.store(run).path)
    return "" if agreement is None else agreement.ended


def end(place: LocalSite, run: str, model: str) -> None:
    """Note that a run has ended here, with a model of this digest."""
    folder = place.store(run).path
    if (agreement := Agreement.read(folder)) is not None:
        msgspec.structs.replace(agreement, ended=model).write(folder)


def digest(model: Tree) -> str:
    """Return a digest of a model."""
    content = hashlib.sha256()
    for name, t in sorted(model.items()):
        content.update(f"{name} {tuple(t.shape)} {t.dtype}".encode() + t.contiguous().numpy().tobytes())
    return content.hexdigest()
