"""An audit over real sites: the findings of one process, each in its place, and nothing but sums on the way."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch
from pyarrow import parquet
from rich.console import Console

import imperfed as package
from imperfed.core.batch import Tree
from imperfed.core.context import SiteView
from imperfed.core.errors import QuorumError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.files.declaration import read_declaration
from imperfed.data.own_files import federate_ready
from imperfed.flower.coordinator import serving
from imperfed.flower.coordinator.audit_run import AuditRun
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.coordinator.remote_repair import refuse_claims
from imperfed.flower.coordinator.serving import Service, begin, serve_audit
from imperfed.flower.messages.local_grid import LocalGrid
from imperfed.flower.messages.transport import Timeouts
from imperfed.flower.processes.child import Stopped
from imperfed.flower.site.joining import farewell
from imperfed.flower.site.site_data import central_of, read_files
from imperfed.label_audit.audit_settings import audit_config
from imperfed.label_audit.audit_summary import AuditOverview
from imperfed.label_audit.audit_table import print_overview
from imperfed.repairs.posterior import cross_fit, noise_model, set_posterior, support
from tests.support.inspector import assert_nothing_private, letters_from
from tests.support.mislabelled import SITES, WRONG, birds, in_sets, in_tables
from tests.support.rehearsal import AT_ONCE, Apart
from tests.support.small_files import annotated
from tests.support.terminal import done
from tests.support.terminal import imperfed as typed

LISTED = {
    "hello": {"count", "sum", "square", "mistakes"},
    "axes": {"n", "sum x", "sum x^2", "sum z z^T", "sum a a^T"},
    "probe": {"gradients"},
    "noise": {"sum p", "N", "log-likelihood"},
    "support": {"predicted", "surest", "contradicted", "doubted"},
    "decide": {"changed", "noise"},
}
"""All that leaves a site in an audit without trusted rows."""


class Sites(Apart):
    """Real sites with files of their own, as `imperfed join` reads them."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.declaration, self.config = read_declaration(data), audit_config(str(data), {})
        self.folder, self.secret, self.central = folder, b"", central_of(self.declaration)
        self.files = {site: data / "sites" / f"{site}.csv" for site in SITES}
        declared = self.declaration.toml()
        self.holdings = [read_files(site, file, None, self.config, declared) for site, file in self.files.items()]
        self.grid = LocalGrid({100 + k: self.node(h) for k, h in enumerate(self.holdings)})

    def coordinator(self, timeouts: Timeouts = AT_ONCE) -> Coordinator:
        self.server = super().coordinator(timeouts)
        self.server.declaration = declared = self.declaration.toml()
        self.server.transport.greeting = replace(self.server.transport.greeting, declaration=declared)
        return self.server

    def own(self, site: str) -> Path:
        """What the audit left at a site."""
        return self.folder / site / "run"

    def remembered(self, k: int) -> Tree:
        """What a site knows of its rows."""
        table = parquet.read_table(self.own(SITES[k]) / "labels" / f"{SITES[k]}.parquet")
        columns = {f"rows/{name}": torch.tensor(table[name].to_pylist()) for name in ("probability", "suspicion")}
        return columns | {"personal": torch.empty(0)}


@pytest.fixture(scope="module", autouse=True)
def _fewer_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for steps in ("POOLED_STEPS", "POOLED_STEPS_IN_SEARCH"):
            patch.setattr(noise_model, steps, 3)
        patch.setattr(cross_fit, "STEPS", 15)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_tables(tmp_path_factory.mktemp("files") / "birds")


@pytest.fixture(scope="module")
def whole(folder: Path) -> package.AuditResult:
    return package.audit(folder, folder.parent / "whole")


@pytest.fixture(scope="module")
def apart(folder: Path) -> Sites:
    sites = Sites(folder, folder.parent / "apart")
    AuditRun(sites.coordinator()).run()
    return sites


@pytest.mark.parametrize("site", SITES)
def test_a_site_has_what_one_process_writes_for_it(site: str, apart: Sites, whole: package.AuditResult) -> None:
    labels = f"labels/{site}.parquet"
    assert (apart.own(site) / labels).read_bytes() == (whole.folder / labels).read_bytes()
    own, all_sites = (json.loads((at / "audit.json").read_text()) for at in (apart.own(site), whole.folder))
    assert own["sites"] == [one for one in all_sites["sites"] if one["site"] == site]
    for figure in ("agreement", "contradicted", "clear", "level", "features", "classes", "trusted"):
        assert own[figure] == all_sites[figure]
    assert own["others"] == 1
    assert f"{site} gives" in (page := (apart.own(site) / "audit.html").read_text())
    assert all(row["id"] in page for row in own["sites"][0]["worst"])
    left = {path.name for path in apart.own(site).iterdir()}
    assert left == {"agreement.json", "asked", "audit.html", "audit.json", "config.toml", "federation.toml", "labels"}


def test_the_coordinator_has_figures_and_no_label(apart: Sites, whole: package.AuditResult) -> None:
    path, known = apart.server.folder.path, whole.summary
    found = AuditOverview.from_json((path / "audit.json").read_text())
    assert found.changes == known.changes == len(WRONG["north"])
    assert found.noise == pytest.approx(known.noise, abs=1e-12)
    assert [(one.site, one.rows, one.noise, one.changes) for one in found.sites] == [
        (one.site, one.rows, one.noise, one.changes) for one in known.sites
    ]
    assert found.support == known.support
    assert found.cautions == known.cautions
    assert found.advice.startswith(f"A repair would change {len(WRONG['north'])} labels at 1 of 2 sites")
    assert "finch taken for robin in" in " ".join(found.findings)
    written = "".join(file.read_text() for file in path.rglob("*") if file.is_file() and file.suffix != ".safetensors")
    assert not any(ring in written for site in SITES for ring in birds(site)["ring"])
    assert not (path / "labels").exists()
    assert (path / "audit.html").exists()


def test_nothing_but_the_listed_sums_leaves_a_site(apart: Sites) -> None:
    assert_nothing_private(apart, apart.remembered)
    listed = set().union(*LISTED.values())
    for k in range(len(SITES)):
        sent = {name for letter in letters_from(apart, 100 + k) for tree in letter.trees.values() for name in tree}
        assert sent <= listed, sent - listed


def test_the_inspector_would_find_posteriors(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = support.Support.compare

    def leaking(self: support.Support, site: SiteView) -> Tree:
        return honest(self, site) | {"leak": site.memory["Q"].max(1).values}

    monkeypatch.setattr(support.Support, "compare", leaking)
    sites = Sites(folder, tmp_path)
    AuditRun(sites.coordinator()).run()
    with pytest.raises(AssertionError, match="rows/probability"):
        assert_nothing_private(sites, sites.remembered)


def test_an_audit_that_a_site_left_begins_again(folder: Path, whole: package.AuditResult, tmp_path: Path) -> None:
    sites = Sites(folder, tmp_path)
    node, answered = sites.grid.nodes[101], 0

    def leave_soon(message, answer):  # type: ignore[no-untyped-def]
        nonlocal answered
        answered += 1
        node.online = answered < 8
        return answer(message) if node.online else None

    node.mishap = leave_soon
    with pytest.raises(QuorumError, match=r"south: .* begin again: imperfed resume .*/run"):
        AuditRun(sites.coordinator()).run()
    assert not (tmp_path / "run" / "audit.json").exists()
    node.mishap, node.online = None, True
    AuditRun(sites.coordinator()).run()
    for site in SITES:
        labels = f"labels/{site}.parquet"
        assert (sites.own(site) / labels).read_bytes() == (whole.folder / labels).read_bytes()


@pytest.mark.parametrize(
    ("changed", "noise", "part"),
    [(61, 0.1, "61 labels to change, of 60 rows"), (-1, 0.1, "-1 labels"), (3, 1.5, "1.5"), (3, float("nan"), "nan")],
)
def test_claims_that_cannot_be_are_refused_by_name(apart: Sites, changed: int, noise: float, part: str) -> None:
    x = torch.empty(0, 3)
    federation = Federation("birds", x, Exact.empty(3), (0, 60, 120), SITES, ("a", "b", "c"), (), x)
    server = {"changed": torch.tensor([0, changed]), "noise": torch.tensor([0.0, noise])}
    with pytest.raises(QuorumError, match=f"south: .*{part}"):
        refuse_claims(server, federation)


def test_thumbnails_are_on_the_pages_of_sites_only(tmp_path: Path) -> None:
    y = torch.arange(80) % 2
    x = 0.3 * torch.rand(80, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    x[y == 0, :, :, :4] += 0.6
    x[y == 1, :, :4, :] += 0.6
    given = torch.where(torch.arange(80) % 10 == 0, 1 - y, y)
    names = tuple(map(str, range(80)))
    bars = Federation("bars", x, Exact(given, 2), (0, 40, 80), ("a", "b"), ("left", "top"), names, x[:0])
    sites = Apart(audit_config("bars", {}), federate_ready(bars), tmp_path, scales=False)
    AuditRun(sites.coordinator()).run()
    pictures = [(tmp_path / site / "run" / "audit.html").read_text().count("data:image/webp") for site in "ab"]
    assert pictures == [4, 4]
    assert "data:image/webp" not in (tmp_path / "run" / "audit.html").read_text()


# -- repair ------------------------------------------------------------------------------------------------------------


def test_a_site_writes_its_file_again_and_back(apart: Sites, folder: Path, tmp_path: Path) -> None:
    file, before = apart.files["north"], apart.files["north"].read_bytes()
    said = done("repair", file, "--audit", apart.own("north"), "--out", tmp_path / "new")
    assert f"north: {len(WRONG['north'])} labels changed" in said.out
    assert "undo with" in said.out
    done("repair", folder, "--out", tmp_path / "whole")
    assert (tmp_path / "new/north.csv").read_bytes() == (tmp_path / "whole/sites/north.csv").read_bytes()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"north.csv", "federation.toml", "repair.json"}
    done("repair", tmp_path / "new", "--undo", "--out", tmp_path / "back")
    assert (tmp_path / "back/north.csv").read_bytes() == file.read_bytes() == before
    assert "Against the truth: no label is wrong." in done("audit", tmp_path / "new", "--out", tmp_path / "audit").out


def test_what_a_site_cannot_repair(apart: Sites, folder: Path, tmp_path: Path) -> None:
    own, file, out = apart.own("north"), apart.files["north"], ["--out", tmp_path / "out"]
    lines = file.read_text().splitlines()
    other = tmp_path / "north.csv"
    other.write_text("\n".join([*lines[:3], lines[3].replace("wren", "finch"), *lines[4:]]) + "\n")
    shorter = tmp_path / "shorter.csv"
    shorter.write_text("\n".join(lines[:-1]) + "\n")
    for words, part in (
        ([other, "--audit", own, *out], "Row 3 has id n002, label finch now, and had id n002, label wren in the audit"),
        ([shorter, "--audit", own, *out], "Row 60 has no such row now"),
        ([tmp_path / "none.csv", "--audit", own, *out], "no such file"),
        ([file, "--audit", folder, *out], "not what an audit with real sites left"),
        ([file, "--audit", own, "--force", *out], "--audit takes no settings"),
        ([file, "--audit", own, "--out", folder], "nothing is overwritten"),
    ):
        said = typed("repair", *words)
        assert said.code in (2, 3)
        assert part in said.err
        assert not (tmp_path / "out").exists()


def test_a_site_whose_noise_is_not_borne_out_repairs_nothing(tmp_path: Path) -> None:
    sites = Sites(in_tables(tmp_path / "birds", spread=40), tmp_path / "apart")
    found = AuditRun(sites.coordinator()).run()
    assert found.advice.startswith("Do not repair")
    said = typed("repair", sites.files["north"], "--audit", sites.own("north"), "--out", tmp_path / "out")
    assert said.code == 3
    assert "nothing written. Do not repair" in said.err


def test_candidate_sets_are_ranked_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_posterior, "FITS", 2)
    folder = in_sets(tmp_path / "sets")
    sites, here = Sites(folder, tmp_path / "apart"), package.audit(folder, tmp_path / "here")
    found = AuditRun(sites.coordinator()).run()
    for site in SITES:
        labels = f"labels/{site}.parquet"
        assert (sites.own(site) / labels).read_bytes() == (here.folder / labels).read_bytes()
        assert "Nothing is changed" in (sites.own(site) / "audit.html").read_text()
    assert found.sets
    assert found.noise == pytest.approx(here.summary.noise)
    assert found.clear == here.summary.clear
    assert found.cautions == here.summary.cautions
    print_overview(Console(file=(told := io.StringIO()), width=100), found, tmp_path)
    assert "would change" not in told.getvalue()
    said = typed("repair", sites.files["north"], "--audit", sites.own("north"), "--out", tmp_path / "out")
    assert said.code == 2
    assert "repair changes exact labels" in said.err


# -- commands ----------------------------------------------------------------------------------------------------------


def test_what_serve_refuses_of_an_audit(folder: Path, tmp_path: Path) -> None:
    file, marks = folder / "federation.toml", annotated(tmp_path / "marks") / "federation.toml"
    for words, part in (
        ([file, "audit", "--rounds", 3], "an audit trains no model"),
        ([file, "audit", "--budget", 3], "an audit searches for nothing"),
        ([file, "audit", "--features", "hogg"], "features 'hogg'"),
        ([file, "fedavg", "--features", "hog"], "--set repair.features=NAME"),
        ([marks, "audit"], "an audit judges"),
    ):
        said = typed("serve", *words, "--sites", "north,south", "--out", tmp_path / "runs")
        assert said.code == 2, said.err
        assert part in said.err
        assert not (tmp_path / "runs").exists()


def test_an_audit_that_was_stopped_says_how_to_begin_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(str(folder / "federation.toml"), SITES, "127.0.0.1", 1, audit=True)
    config = audit_config(str(folder / "federation.toml"), {})
    run = begin(tmp_path / "audits", config, service)
    assert run.path.name.startswith("audit-birds-")
    assert begin(run.path, config, service) == run
    with pytest.raises(UsageError, match="holds a run with other settings"):
        begin(run.path, config, Service(service.federation, SITES, "127.0.0.1", 1))

    def stopped(*words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serving, "persist", stopped)
    with pytest.raises(Stopped, match=f"begin again with: imperfed resume {run.path}"):
        serve_audit(run, lambda line: None)


def test_an_audit_that_has_ended_is_shown_again(apart: Sites, folder: Path, tmp_path: Path) -> None:
    service = Service(str(folder / "federation.toml"), SITES, "127.0.0.1", 1, audit=True)
    run = begin(tmp_path / "audits", audit_config(service.federation, {}), service)
    run.write("audit.json", (apart.server.folder.path / "audit.json").read_text())
    said = done("resume", run.path)
    assert "A repair would change" in said.out
    screen = Console(file=io.StringIO(), width=80)
    print_overview(screen, serve_audit(run, print), Path("audits"))
    assert isinstance(screen.file, io.StringIO)
    assert max(map(len, screen.file.getvalue().splitlines())) <= 80


def test_what_a_site_is_told_at_the_end() -> None:
    page = Path("state/audit-birds/audit.html")
    assert farewell("north", Path("north.csv"), page)[1].endswith(
        "imperfed repair north.csv --audit state/audit-birds --out NEW"
    )
    (line,) = farewell("north", Path("north.csv"), page.with_name("report.html"))
    assert line == f"the run has ended; north's own report, model and labels: {page.with_name('report.html')}"
