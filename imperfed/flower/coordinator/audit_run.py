"""An audit of labels with real sites: they judge their own labels together, and the coordinator learns figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imperfed.core.errors import QuorumError
from imperfed.core.labels import KINDS
from imperfed.engine.failures import Failure
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.coordinator.gathered_sites import GatheredSites
from imperfed.flower.coordinator.remote_repair import conduct_at_sites, refuse_claims
from imperfed.label_audit.audit_summary import AuditOverview
from imperfed.label_audit.judging import judge_of, refuse_unjudgeable
from imperfed.label_audit.overview import survey
from imperfed.label_audit.overview_page import overview_page
from imperfed.repairs.posterior import PosteriorRepair

FINDINGS = "audit.json"
"""Written last: an audit whose folder has it has ended."""


@dataclass
class AuditRun:
    """One audit, from the first hello to the sites' own pages. It keeps nothing, and if stopped begins again."""

    coordinator: Coordinator

    def __post_init__(self) -> None:
        repair = self.coordinator.config.repair
        assert isinstance(repair, PosteriorRepair)
        self.repair = repair

    def run(self) -> AuditOverview:
        """Let the sites judge their labels, and write what the coordinator may know."""
        folder = self.coordinator.folder
        with self.coordinator.counted():
            try:
                found = self.judge()
            except QuorumError as error:
                raise QuorumError(f"{error}. Once every site is back, begin again: {again(folder.path)}") from error
        folder.write("audit.html", overview_page(found))
        folder.write(FINDINGS, found.to_json())
        return found

    def judge(self) -> AuditOverview:
        """Wait for all sites, ask them, and let each write its own page."""
        sites = self.gather()
        federation, told = sites.data().federation, sites.told(self.coordinator.config)
        method = judge_of(self.repair, type(federation.labels))
        server = conduct_at_sites(method, federation, sites.transport, told).server
        refuse_claims(server, federation)
        verdict = method.verdict(server, federation.sites)
        noise, changes = server["noise"].tolist(), server["changed"].tolist()
        found = survey(method, federation, verdict, noise, changes)
        words = {"clean rows": found.clean_rows, "others": len(federation.sites) - 1}
        ends = {
            k: run_info.payload({**words}, {"verdict": method.send_verdict(server, k)})
            for k, run_info in enumerate(told)
        }
        for k, reply in sites.transport.send("query.audit", ends, "the end").items():
            if isinstance(reply, Failure):
                self.coordinator.folder.log(f"{federation.sites[k]} did not write its own page: {reply.reason}")
        return found

    def gather(self) -> GatheredSites:
        """Wait for every site; what they said in an audit that was stopped is not kept, as files change."""
        coordinator = self.coordinator
        infos = tuple(coordinator.transport.gather())
        for info in infos:
            refuse_unjudgeable(self.repair, info.name, KINDS[info.kind], info.features)
        run = coordinator.folder.path.name
        return GatheredSites(coordinator.transport, coordinator.central, infos, run, coordinator.declaration)


def again(path: Path) -> str:
    """Return the command that begins an audit again, in the same folder."""
    return f"imperfed resume {path}"
