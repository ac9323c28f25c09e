"""What a site has agreed to: the settings and the declaration of a run, as they were when it was first asked.

The agreement lies in the run's folder in the site's state. Whatever a message asks for is compared with it and with the
site's policy before anything is imported, read or computed, so that nothing changes in mid-run and no run touches the
folder of another.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from imperfed.core.atomic import write_durably
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.data.files.problems import shown
from imperfed.engine.failures import Declined, Undecided
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.site_folder import AGREEMENT
from imperfed.flower.site.withheld import WithheldError

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

    @classmethod
    def read(cls, folder: Path) -> Agreement | None:
        """Return the agreement in a run's folder; None if there is none."""
        path = folder / AGREEMENT
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise DataError(f"{path}: not readable ({error})") from error

    def write(self, folder: Path) -> Agreement:
        """Keep it in a run's folder."""
        content = msgspec.json.encode(self)
        write_durably(folder / AGREEMENT, lambda partly: partly.write_bytes(content))
        return self

    def decided(self, decision: Decision) -> Agreement:
        """Return the same agreement with another decision."""
        return msgspec.structs.replace(self, decision=decision)

    def changes(self, run_info: RunInfo) -> Iterator[str]:
        """Yield what a message asks for otherwise than agreed; in a search, settings change from trial to trial."""
        if run_info.declaration != self.declaration:
            yield "the declaration of the files has changed since this site agreed to it"
        if self.search:
            return
        agreed, asked = _flat(self.settings), _flat(run_info.settings)
        for name in sorted(agreed.keys() | asked.keys()):
            before, now = agreed.get(name), asked.get(name)
            if before != now and not (name == LEARNED and not (before and now)):
                yield f"{name} = {shown(now)}: this site agreed to {shown(before)} for this run"


def _flat(settings: str) -> dict[str, Any]:
    return {f"{part}.{key}": value for part, keys in tomllib.loads(settings).items() for key, value in keys.items()}


def admit(place: LocalSite, kind: str, payload: Payload) -> None:
    """Return if the site may answer a message; otherwise raise an error with what it sends instead."""
    run_info = RunInfo.of(payload)
    folder = place.store(run_info.run).path
    agreement = Agreement.read(folder)
    if agreement is None and folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        _refuse(
            place, run_info, [f"the name {run_info.run}: this site keeps other files under it, which stay as they are"]
        )
    objections = place.policy.objections(run_info.settings, run_info.declaration, run_info.search)
    if agreement is not None:
        objections += agreement.changes(run_info)
        if agreement.ended and kind not in AFTER_THE_END:
            objections.append(f"{kind} in {run_info.run}: this run has ended here, and its results stay as they are")
    if objections:
        _refuse(place, run_info, objections)
    if agreement is None:
        place.log(described(place, run_info))
        agreement = Agreement(run_info.settings, run_info.declaration, run_info.search, "asked").write(folder)
    _wait_for_consent(place, run_info, folder, agreement)


def _wait_for_consent(place: LocalSite, run_info: RunInfo, folder: Path, agreement: Agreement) -> None:
    if agreement.decision == "accepted":
        return
    if place.accepts:
        agreement.decided("accepted").write(folder)
        return
    if agreement.decision == "asked":
        raise WithheldError(Undecided(f"{place.name} was shown this run and has not accepted it yet"))
    agreement.decided("told").write(folder)
    _refuse(place, run_info, ["this run: it was declined by hand"])


def _refuse(place: LocalSite, run_info: RunInfo, objections: list[str]) -> None:
    """Log what is refused, with the settings, and refuse it."""
    place.log("\n".join([*(f"refused: {one}" for one in objections), described(place, run_info)]))
    raise WithheldError(Declined(f"{place.name} refuses {'; '.join(objections)}"))


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


def described(place: LocalSite, run_info: RunInfo) -> str:
    """Return what a run is and how it reads the files, for the site's log and for those who decide about it."""
    sections = tomllib.loads(run_info.settings)
    run, model = sections.get("run", {}), sections.get("model", {})
    objective = f" with objective {run['objective']}" if run.get("objective") else ""
    what = "a search by auto, whose trials vary settings, within the policy" if run_info.search else "one run"
    lines = [
        f"{run_info.run}: {what}",
        f"  method {run.get('method')}{objective}, model {model.get('name')}",
        *(
            f"  [{part}] {', '.join(f'{key} = {value}' for key, value in keys.items())}"
            for part, keys in sections.items()
        ),
        *(f"  federation.toml: {line}" for line in run_info.declaration.splitlines() if line.strip()),
    ]
    if place.policy == SitePolicy():
        lines.append("  no policy of this site's own: the defaults of `imperfed policy` hold")
    return "\n".join(lines)
