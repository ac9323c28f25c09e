"""One real site, made ready to answer a message from its own rows and its own state."""

from __future__ import annotations

import hmac
import re
import secrets
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from imperfed.core.atomic import append_lines, write_durably
from imperfed.core.batch import Tree
from imperfed.core.components import LabelDecision
from imperfed.core.context import SiteSetup
from imperfed.core.errors import UsageError
from imperfed.core.foreign_text import printable
from imperfed.core.network import Layout, Net
from imperfed.core.objective import Objective
from imperfed.data.federate import FederatedData
from imperfed.data.held_out import draw, hold_out, share_at_sites
from imperfed.data.moments import FEWEST
from imperfed.data.site_files import SiteFiles
from imperfed.engine.failures import Declined
from imperfed.engine.local_training import SiteData
from imperfed.engine.seeds import SERVER, seeded
from imperfed.engine.server import questions
from imperfed.engine.site import RunSpec, Site, SiteRuntime
from imperfed.engine.state import first_memory
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.config import Config, RunConfig
from imperfed.experiments.device import Hardware
from imperfed.experiments.run_data import wanted_labels
from imperfed.experiments.run_parts import choose_objective, make_evaluator, make_network
from imperfed.flower.messages.payload import RefusedError
from imperfed.flower.messages.run_info import NO_TRIAL, RunInfo, other_rows
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.reading_ledger import READINGS, ReadingLedger, RowReading
from imperfed.flower.site.sealed_words import read_sealed, write_sealed
from imperfed.flower.site.site_folder import ENDED, LOG, NODE_HOME, TROUBLE
from imperfed.flower.site.store import Key, Store
from imperfed.flower.site.withheld import WithheldError

REPAIRED = "repaired"
"""The name under which a site keeps the labels decided in a repair."""
ROWS = "rows.json"
"""The file in the folder of a run that says with which rows it began at this site."""
LEDGER = "privacy.json"
"""The file in the state folder that says what the site's updates have cost of its privacy, in all runs."""
REFUSALS = "refusals.json"
"""The file in the state folder that says how often each refusal was given."""
BESIDE_RUNS = (NODE_HOME, "lock", LOG, LEDGER, READINGS, REFUSALS)
"""What a site keeps in its state folder beside the folders of runs, and its own `.safetensors` files."""
LONGEST = 10_000
"""The most characters of a line of the log."""
TRIALS = "trials"
"""The folder of a site's states in the trials of a search."""


@dataclass(frozen=True)
class LocalSite:
    """A site on its own machine: its name, how it reads its rows, where it keeps its states, and the sites' secret."""

    name: str
    files: Callable[[Config, str], SiteFiles]
    """Returns what the site's files hold, from the settings and the declaration."""
    state: Path
    secret: bytes = b""
    device: str = "cpu"
    """Where the site trains and measures."""
    policy: SitePolicy = field(default_factory=SitePolicy)
    """What the site lets a coordinator ask for."""
    accepts: bool = True
    """Whether runs within the policy are joined without a question."""
    source: str = ""
    """The path of the site's file."""
    own_test: bool = False
    """Whether it has a test file of its own."""

    def store(self, run: str) -> Store:
        """Return the store of one run's states."""
        # It comes from the coordinator and becomes the name of a folder, beside what else the site keeps.
        if not re.fullmatch(r"\w[\w.+-]{0,199}", run) or run in BESIDE_RUNS or run.endswith(".safetensors"):
            raise RefusedError(f"{run!r} cannot be the name of a run")
        return Store(self.state / run)

    def states(self, run_info: RunInfo) -> Store:
        """Return where the states that a message is about are kept: a trial's are apart from those of the run."""
        store = self.store(run_info.run)
        return store if run_info.trial == NO_TRIAL else Store(trial_folder(store.path, run_info.trial))

    def forget_trials(self, run: str, alive: tuple[int, ...] = ()) -> None:
        """Remove the states of all trials that will not go on."""
        everything = self.store(run).path / TRIALS
        kept = {trial_folder(self.store(run).path, trial) for trial in alive}
        for path in everything.glob("*") if kept else (everything,):
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def refuse_few_rows(self, config: Config, rows: int) -> None:
        """Refuse steps that rest on too few rows."""
        if why := self.policy.few_rows(config, rows):
            raise WithheldError(Declined(f"{self.name} refuses {why}"))

    def log(self, line: str) -> None:
        """Add lines to the site's own log."""
        self.state.mkdir(parents=True, exist_ok=True)
        lines = (printable(part, LONGEST) for part in line.split("\n"))  # they may quote another machine
        append_lines(self.state / LOG, lines)

    def end(self, run: str, trouble: str) -> None:
        """Note that a run has ended, and what was wrong: `imperfed join` ends with these words."""
        write_durably(self.store(run).path / TROUBLE, lambda partly: partly.write_text(trouble, encoding="utf-8"))

    def has_results(self, run: str) -> None:
        """Note that a run has ended and its results are here: `imperfed join` draws the report, and ends."""
        write_durably(self.store(run).path / ENDED, lambda partly: partly.write_bytes(b""))


def trial_folder(run: Path, trial: int) -> Path:
    """Return the folder of one trial's states."""
    return run / TRIALS / f"{trial:04}"


class RowsAtFirst(msgspec.Struct, frozen=True):
    """The rows with which a site began a run."""

    rows: int
    digest: str


@dataclass(frozen=True)
class RemoteSite:
    """A site in a run: its rows, its state, the network it trains, and its own test set."""

    config: Config
    data: FederatedData
    """The data of this site alone."""
    runtime: SiteRuntime
    site: Site
    evaluator: Evaluator

    def load(self, model: Tree) -> Net:
        """Return the network with these shared parameters and the site's personal ones."""
        return self.runtime.load(self.site, model["w"], model["buffers"])

    def remembered(self) -> Tree:
        """Return the whole state of the site as one tree."""
        tree = {"personal": self.site.personal}
        tree |= {f"memory/{name}": t for name, t in self.site.memory.items()}
        return tree | {f"rows/{name}": t.cpu() for name, t in self.site.data.rows.items()}

    def on(self, device: torch.device) -> RemoteSite:
        """Return the site with its rows and its network on a device; what else it keeps stays in host memory."""
        if device.type == "cpu":
            return self
        federation = self.data.federation.to(device)
        self.runtime.move_to(device)
        stats = self.runtime.spec.objective.site_stats(federation.labels)
        own = SiteData(federation.x, federation.labels, on_device(self.site.data.rows, device), stats)
        return replace(
            self,
            data=replace(self.data, federation=federation),
            site=replace(self.site, data=own),
            evaluator=self.evaluator.to(device),
        )


def on_device(tree: Tree, device: torch.device) -> Tree:
    """Return the same tensors on a device."""
    return {name: t.to(device) for name, t in tree.items()}


def hardware_of(place: LocalSite) -> Hardware:
    """Return on what a site computes, ready for it; raise an error if there is no such device.

    Products are not rounded as on the GPU of a run: the answers of sites with and without one must agree.
    """
    hardware = Hardware.of(RunConfig(device="cuda" if place.device == "cuda" else "cpu", precision="float32"))
    hardware.prepare()
    return hardware


def own_files(place: LocalSite, run_info: RunInfo, config: Config) -> SiteFiles:
    """Return what the site's files hold, if that is what they held when the run began here; else refuse it."""
    files = place.files(config, run_info.declaration)
    refuse_few_between(place, run_info, config, files)
    if not files.digest:
        return files
    path, rows = place.store(run_info.run).path / ROWS, len(files.x)
    kept = read_sealed(path, RowsAtFirst)
    if kept is None:
        write_sealed(path, RowsAtFirst(rows, files.digest))
        return files
    if (kept.rows, kept.digest) != (rows, files.digest):
        raise RefusedError(other_rows(place.name, kept.rows, rows))
    return files


def reading_of(place: LocalSite, run_info: RunInfo, config: Config) -> RowReading:
    """Return how a run reads and splits the rows of a site."""
    return RowReading.of(place.source, place.own_test, run_info.declaration, config)


def refuse_few_between(place: LocalSite, run_info: RunInfo, config: Config, files: SiteFiles) -> None:
    """Refuse to answer with and without few rows: the difference of the two answers would rest on them alone."""
    reading, ledger, rows = reading_of(place, run_info, config), ReadingLedger.read(place.state), len(files.x)
    known = ledger.of(reading)
    if few := ledger.few_between(reading, rows):
        why = (
            f"split.test = {reading.test:g}: it has answered about its rows with another share of test rows, and the "
            f"difference would rest on {few} rows; sums of fewer than {FEWEST} say too much about each of them"
        )
        raise WithheldError(Declined(f"{place.name} refuses {why}"))
    ledger.with_rows(reading, rows).write(place.state)
    shares = {*(known.held_out if known else ()), share_at_sites(config.split)} | ({0.0} if run_info.search else set())
    if len(shares) < 2:
        return
    fewest = place.policy.rows_per_step
    for share in shares - {0.0}:
        held = int(draw(files.name, rows, files.together, share, config.run.data_seed).sum())
        if 0 < held < fewest:
            why = (
                f"split.validation = {share:g}: it would answer about its {rows} rows and about all but {held} "
                f"of them, and the difference would rest on these; this site asks for {fewest} or more (rows_per_step)"
            )
            raise WithheldError(Declined(f"{place.name} refuses {why}"))


def keyed(digest: str, secret: bytes) -> str:
    """Return a digest of rows that says nothing about them to those who do not have the sites' secret."""
    return hmac.new(secret, digest.encode(), "sha256").hexdigest() if digest else ""


def own_data(place: LocalSite, run_info: RunInfo, config: Config) -> FederatedData:
    """Return the site's own data, with its labels as repaired where there was a repair, and with rows held out."""
    data = own_files(place, run_info, config).data(run_info.scale, run_info.annotated)
    if (kept := place.store(run_info.run).kept(REPAIRED)) is not None:
        assert config.repair is not None
        kind = config.repair.gives(wanted_labels(config))
        labels = LabelDecision.of(kept).labels(kind, data.federation.labels.classes)
        data = replace(data, federation=replace(data.federation, labels=labels))
    return hold_out(data, share_at_sites(config.split), config.run.data_seed)


def rows_held_out(files: SiteFiles, config: Config) -> int:
    """Return how many rows the site holds out."""
    share = share_at_sites(config.split)
    if not share:
        return 0
    return int(draw(files.name, len(files.x), files.together, share, config.run.data_seed).sum())


def refuse_heavy(place: LocalSite, config: Config, shape: tuple[int, ...], classes: int, edges: Tensor) -> None:
    """Refuse a model with more parameters than the policy allows, before there is any memory for them.

    One that is imported is named in the policy, and is not tried out.
    """
    if ":" in config.model.name:
        return
    with torch.device("meta"), warnings.catch_warnings(action="ignore"):
        network = make_network(config, shape, classes, config.model.features, edges)
    weights, most = sum(p.numel() for p in network.parameters()), place.policy.most_weights
    if weights > most:
        why = f"model.name = {config.model.name}: with these settings it has {weights} parameters"
        raise WithheldError(Declined(f"{place.name} refuses {why}, and this site allows {most} (most_weights)"))


def open_site(place: LocalSite, run_info: RunInfo, start: Key) -> RemoteSite:
    """Return the site with its rows and the state it starts from."""
    config = run_info.config()
    if config.method.opening() and not place.secret:
        raise UsageError(f"{config.run.method} needs a secret that the sites share; join with the file that holds it")
    if config.privacy is not None:
        config.privacy.check(config.method, config.rounds.rounds)
    data = own_data(place, run_info, config)
    place.refuse_few_rows(config, len(data.federation.x))
    federation, objective = data.federation, choose_objective(config, data)
    shape, classes = tuple(federation.x.shape[1:]), len(federation.classes)
    refuse_heavy(place, config, shape, classes, run_info.scale.edges)
    with seeded(config.run.seed, 0, SERVER, "build"):
        network = config.method.build(make_network(config, shape, classes, config.model.features, run_info.scale.edges))
        layout = Layout.of(network, config.method.is_personal)
        personal = layout.personal(layout.row(network))

    def fresh() -> Tree:
        setup = SiteSetup(run_info.index, len(federation.x), federation.labels, layout)
        tree = {"personal": personal}
        tree |= {f"memory/{name}": t for name, t in first_memory(config.method, setup, config.run.seed).items()}
        return tree | {f"rows/{name}": t for name, t in objective.init_rows(federation.labels).items()}

    kept = place.states(run_info).load(start, fresh, place.log)
    run, rounds = config.run, config.rounds.rounds
    asked = questions(config.defence, federation.attribute)
    spec = RunSpec(
        config.method,
        objective,
        layout,
        config.local,
        run.seed,
        place.secret,
        rounds,
        asked,
        config.privacy,
        noise_key=lambda round, site, w: secrets.token_bytes(32),  # never the simulation's, which anyone can work out
    )
    site = _site(run_info.index, data, objective, kept)
    runtime = SiteRuntime(spec, Net(network.eval(), layout))
    return RemoteSite(config, data, runtime, site, make_evaluator(config, data))


def _site(index: int, data: FederatedData, objective: Objective, kept: Tree) -> Site:
    """Return the engine's view of the site, with its stored state."""

    def part(prefix: str) -> Tree:
        return {name.removeprefix(prefix): t.clone() for name, t in kept.items() if name.startswith(prefix)}

    x, labels = data.federation.x, data.federation.labels
    own = SiteData(x, labels, part("rows/"), objective.site_stats(labels))
    return Site(index, own, kept["personal"].clone(), part("memory/"))
