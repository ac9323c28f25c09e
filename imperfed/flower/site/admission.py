"""Whether a site may answer a message: what its policy, the agreement about the run and all earlier runs allow.

Everything here is decided before anything is imported, read or computed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from imperfed.data.held_out import share_at_sites
from imperfed.engine.failures import Declined, Undecided
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.agreement import AFTER_THE_END, Agreement
from imperfed.flower.site.allowed_kinds import why_not
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.reading_ledger import ReadingLedger, RowReading
from imperfed.flower.site.runtime import LocalSite, reading_of
from imperfed.flower.site.site_folder import AGREEMENT
from imperfed.flower.site.withheld import WithheldError

UNLIKE_BEFORE = "NOT as before; a yes allows it all the same"


def admit(place: LocalSite, kind: str, payload: Payload) -> RowReading:
    """Return how the rows are read if the site may answer a message; otherwise raise an error with what it sends."""
    run_info = RunInfo.of(payload)
    folder = place.store(run_info.run).path
    agreement = Agreement.read(folder)
    if agreement is None:
        _refuse_if_any(place, list(_no_room(place, run_info.run, folder)))
    objections = place.policy.objections(run_info.settings, run_info.declaration, run_info.search)
    if agreement is not None:
        objections += agreement.changes(run_info)
        if agreement.ended and kind not in AFTER_THE_END:
            objections.append(f"{kind} in {run_info.run}: this run has ended here, and its results stay as they are")
    _refuse_if_any(place, objections)
    config = run_info.config()
    reading, share = reading_of(place, run_info, config), share_at_sites(config.split)
    if agreement is not None:
        _refuse_if_any(place, list(_read_otherwise(agreement, run_info, reading, share)))
    otherwise = ""
    if agreement is None or agreement.decision != "accepted":
        otherwise = ReadingLedger.read(place.state).objection(reading, share, place.policy.most_readings)
    if otherwise and place.accepts:
        _refuse_if_any(place, [otherwise])
    if agreement is None:
        place.log("\n".join([described(place, run_info), *([f"  {UNLIKE_BEFORE}: {otherwise}"] if otherwise else [])]))
        asked = Agreement(run_info.settings, run_info.declaration, run_info.search, "asked", "", reading, share)
        agreement = asked.write(folder)
    _wait_for_consent(place, folder, agreement)
    if why := why_not(kind, payload, agreement.settings, agreement.search):
        _refuse_if_any(place, [why])
    ReadingLedger.read(place.state).noted(reading, run_info.run, share).write(place.state)
    return reading


def _no_room(place: LocalSite, run: str, folder: Path) -> Iterator[str]:
    """Yield why there is no room for a new run: other files have its name, or there are too many already."""
    if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        yield f"the name {run}: this site keeps other files under it, which stay as they are"
    if len(list(place.state.glob(f"*/{AGREEMENT}"))) >= (most := place.policy.most_runs):
        yield f"one more run: it has taken part in {most} with this state folder (most_runs)"


def _read_otherwise(agreement: Agreement, run_info: RunInfo, reading: RowReading, share: float) -> Iterator[str]:
    """Yield what a message asks about rows that are read or split otherwise than agreed, as it may in a search."""
    if agreement.reading is None:  # of an earlier version
        return
    if changed := "; ".join(reading.differences(agreement.reading)):
        yield f"{changed}: this site agreed to one way to read and split its rows in {run_info.run}"
    # A search is followed by a run of what it has chosen, on all rows.
    if share not in (agreement.held_out, *((0.0,) if agreement.search else ())):
        yield f"split.validation = {share:g}: this site agreed to {agreement.held_out:g} in {run_info.run}"


def _wait_for_consent(place: LocalSite, folder: Path, agreement: Agreement) -> None:
    if agreement.decision == "accepted":
        return
    if place.accepts:
        agreement.decided("accepted").write(folder)
        return
    if agreement.decision == "asked":
        raise WithheldError(Undecided(f"{place.name} was shown this run and has not accepted it yet"))
    agreement.decided("told").write(folder)
    _refuse_if_any(place, ["this run: it was declined by hand"])


def _refuse_if_any(place: LocalSite, objections: list[str]) -> None:
    if objections:
        raise WithheldError(Declined(f"{place.name} refuses {'; '.join(objections)}"))


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
