"""`imperfed serve`: one run with real sites, from its folder to its report; if killed, resumed from its last round."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.core.labels import KINDS
from imperfed.data.files.declaration import Declaration, parse, read_declaration
from imperfed.data.files.site_names import name_trouble
from imperfed.experiments.auto.request import HELD_OUT, AutoRequest
from imperfed.experiments.auto.run import read_request, refuse_unsearchable
from imperfed.experiments.config import AUTO, Config
from imperfed.experiments.device import Hardware
from imperfed.flower.coordinator.acceptance import refuse_ruled_out
from imperfed.flower.coordinator.audit_run import FINDINGS, again
from imperfed.flower.coordinator.leaving import Leaving
from imperfed.flower.processes.child import Stopped, alone, orderly, private_files
from imperfed.flower.processes.control import Settings
from imperfed.flower.processes.keys import CoordinatorKeys
from imperfed.flower.processes.superlink import ListenConfig, SuperLink, persist
from imperfed.flower.site.site_data import central_of, refuse
from imperfed.label_audit.audit_settings import AUDIT
from imperfed.label_audit.audit_summary import AuditOverview
from imperfed.label_audit.judging import refuse_unjudgeable
from imperfed.repairs.features import refuse_unknown
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.results.damaged_files import parse_file
from imperfed.results.folder import REQUEST, SERVED, RunFolder
from imperfed.results.summary import Summary

SERVER, SITE = "imperfed.flower.apps:server", "imperfed.flower.apps:site"


@dataclass(frozen=True)
class Service:
    """What a run with real sites needs besides its settings; kept in the run's folder so that it can be resumed."""

    federation: str
    """The path of the declaration; the coordinator's own files lie beside it."""
    sites: tuple[str, ...]
    host: str
    port: int
    keys: str = ""
    insecure: bool = False
    answer_timeout: float = 600.0
    """Seconds for a site to answer in a round."""
    audit: bool = False
    """Whether labels are judged, and nothing is trained."""

    def stand(self) -> ListenConfig:
        """Return where the coordinator listens, and with which keys."""
        keys = CoordinatorKeys.read(Path(self.keys)) if self.keys else None
        return ListenConfig(self.host, self.port, keys, self.insecure)

    @classmethod
    def of(cls, folder: RunFolder) -> Service:
        """Read it from a run's folder."""
        fields = json.loads(file_in(folder).read_text(encoding="utf-8"))
        return cls(**fields | {"sites": tuple(fields["sites"])})

    def declaration(self, folder: RunFolder) -> Declaration:
        """Return the declaration as it was when the run began."""
        return parse((folder.path / "federation.toml").read_text(encoding="utf-8"), Path(self.federation))


def file_in(folder: RunFolder) -> Path:
    """Return the path of the file that marks the folder of a run with real sites."""
    return folder.path / SERVED


def home_of(folder: RunFolder) -> Path:
    """Return the folder in which Flower keeps its files for a run."""
    return folder.path / "flower"


def named(declaration: Declaration, names: Sequence[str], keys: CoordinatorKeys | None) -> tuple[str, ...]:
    """Return the sites in numbered order: as given in `names`, else as declared by name, else those that have keys."""
    for name in names:
        if trouble := name_trouble(name):
            raise UsageError(f"--sites has {trouble}; choose another name")
    if names:
        return tuple(names)
    if isinstance(declaration.sites, Mapping):
        return tuple(declaration.sites)
    if keys is not None and keys.sites:
        return tuple(sorted(keys.sites))
    raise UsageError("the sites are not named: give --sites, or a [sites] table in the federation.toml")


def begin(out: Path, config: Config, service: Service, request: AutoRequest | None = None) -> RunFolder:
    """Return a new run folder, or `out` itself if it already holds the same run.

    `request`: what `auto` is asked for; `config` then has the settings before anything is chosen.
    """
    # Refuse mistakes before anything is written.
    declaration = read_declaration(service.federation)
    service.stand().keys_of(service.sites)
    refuse(config, declaration)
    central = central_of(declaration)
    if request is not None:
        searched_settings(request)
    elif service.audit:
        assert isinstance(config.repair, PosteriorRepair)
        refuse_unknown(config.repair.features)
        refuse_unjudgeable(config.repair, declaration.name, KINDS[declaration.labels.kind], 0)
    else:
        refuse_ruled_out(config, declaration, central, service.sites)
    if (out / SERVED).is_file():
        folder = RunFolder.open(out)
        same = read_request(folder) == request and (request is not None or folder.config() == config)
        before = Service.of(folder)
        if not same or (before.sites, before.audit) != (service.sites, service.audit):
            raise UsageError(f"{out} holds a run with other settings; `imperfed resume {out}` continues it with those")
        return folder
    title = AUDIT if service.audit else "" if request is None else AUTO
    here = Hardware.of(replace(config.run, device="cpu"))  # whatever GPU this machine has: the sites compute
    with private_files():
        folder = RunFolder.create(out, config, here.described(), title)
        if request is not None:
            folder.write(REQUEST, json.dumps(request.plain(), indent=2))
        folder.write("federation.toml", declaration.toml())
        folder.write(SERVED, json.dumps(asdict(service), indent=2))
    return folder


def searched_settings(request: AutoRequest) -> Config:
    """Return the settings of a search before anything is chosen; its sites hold rows out."""
    base = request.base
    refuse_unsearchable(base)
    if base.repair is not None:
        raise UsageError(f"auto with real sites does not repair labels; name a method beside {base.repair.name}")
    return replace(base, split=replace(base.split, validation=base.split.validation or HELD_OUT))


def has_ended(folder: RunFolder) -> bool:
    """Return whether a run has its results, and every site has confirmed its own."""
    leaving = Leaving.read(folder)
    return folder.summary() is not None and leaving is not None and not leaving.waiting


def serve(folder: RunFolder, tell: Callable[[str], None]) -> Summary:
    """Wait for the sites, train from the last checkpoint to the end, and return the summary."""
    carry_out(folder, tell, f"the sites keep their state; continue with: imperfed resume {folder.path}")
    summary = folder.summary()
    assert summary is not None
    return summary


def serve_audit(folder: RunFolder, tell: Callable[[str], None]) -> AuditOverview:
    """Wait for the sites, let them judge their labels, and return what the coordinator may know of it."""
    path = folder.path / FINDINGS
    if not path.exists():
        carry_out(folder, tell, f"begin again with: {again(folder.path)}")
    return parse_file(path, AuditOverview.from_json, f"delete it, and begin again with: {again(folder.path)}")


def carry_out(folder: RunFolder, tell: Callable[[str], None], if_stopped: str) -> None:
    """Start Flower's processes, wait until the run has ended, and raise what ended it if that was an error."""
    service, home = Service.of(folder), home_of(folder)
    outcome = home / "outcome.json"

    def once(link: SuperLink) -> str:
        assert link.door is not None
        outcome.unlink(missing_ok=True)
        security = "without keys" if service.keys == "" else "with keys, over TLS"
        tell(f"serving {', '.join(service.sites)} at {link.door.host}:{link.door.port}, {security}")
        settings: Settings = {"folder": str(folder.path.resolve()), "admitted": json.dumps(link.admitted)}
        return link.run(SITE, settings, outcome.exists)

    try:
        with private_files(folder.path), alone(home / "serve.lock", str(folder.path)), orderly():
            persist(lambda: SuperLink(home, service.stand(), service.sites, SERVER), once, tell)
    except KeyboardInterrupt:
        raise Stopped(f"stopped; {if_stopped}") from None
    result = json.loads(outcome.read_text(encoding="utf-8"))
    if "error" in result:
        raise EndedError(result["error"], result["exit_code"])


class EndedError(ImperfedError):
    """The error that ended a run, as its process reported it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
