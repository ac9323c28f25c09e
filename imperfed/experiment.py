"""One experiment from settings to products: data, network, engine, run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from imperfed.algorithms import catalogue, reference
from imperfed.config import Config
from imperfed.core import Objective
from imperfed.data.federate import Scene, federate
from imperfed.data.sources import load
from imperfed.engine.rounds import Engine, Report
from imperfed.engine.seeds import SERVER, seed_of
from imperfed.errors import UsageError, unknown
from imperfed.evaluate import Evaluator, Scores
from imperfed.folder import Record, RunFolder
from imperfed.labels import Exact
from imperfed.models import build
from imperfed.network import Layout, Net, Network
from imperfed.products import log_lines, metrics, summarise

DEVICES = ("auto", "cpu")


@dataclass
class Watch:
    """How a run is followed: told that data are being prepared, that it begins, every round; asked whether to stop."""

    prepare: Callable[[Config], None] = lambda config: None
    begin: Callable[[Config, Scene, int], None] = lambda config, scene, round: None
    round: Callable[[Report, float], None] = lambda report, seconds: None
    stop: Callable[[], bool] = lambda: False


class Experiment:
    """Everything a run needs, checked before anything is written."""

    def __init__(self, config: Config) -> None:
        if config.run.device not in DEVICES:
            raise unknown("device", config.run.device, DEVICES)
        self.config = config
        self.scene = _scene(config)
        self.objective = _objective(config, self.scene)
        self.judge = Evaluator(self.scene.oracle)
        self.engine = Engine(
            config.method,
            self.objective,
            _network(config, self.scene),
            self.scene.federation,
            self.judge,
            config.local,
            config.rounds,
            config.run.seed,
        )

    def go(self, folder: RunFolder, watch: Watch) -> Record | None:
        """Train to the end and write the products; returns the summary, or None if interrupted (then it can resume)."""
        engine, trained = self.engine, self.engine.bench.job.federation.sites
        begun = lap = time.perf_counter()
        sent: dict[str, tuple[int, ...]] = {}
        watch.begin(self.config, self.scene, engine.state.round)

        def seen(report: Report) -> None:
            nonlocal lap
            lap, before = time.perf_counter(), lap
            folder.append(metrics(report, trained, self.scene.federation.sites))
            for line in log_lines(report, trained):
                folder.log(line)
            sent.update(report.sent)
            watch.round(report, lap - before)

        try:
            if not engine.run(seen, watch.stop, folder.checkpoint):
                folder.log(f"interrupted after round {engine.state.round}; checkpoint written")
                return None
            head = self._head() | {"seconds": round(time.perf_counter() - begun, 3), "sent": sent}
            return summarise(folder, engine, self.scene, self.judge, head)
        finally:
            engine.close()

    def _head(self) -> Record:
        run = self.config.run
        return {
            "method": run.method,
            "objective": self.objective.name,
            "data": self.scene.federation.name,
            "seed": run.seed,
            "data_seed": run.data_seed,
        }


def _scene(config: Config) -> Scene:
    labelling = config.labels
    wanted = config.method.objective
    if labelling.kind == "auto" and wanted is not None and wanted.labels is Exact:
        labelling = replace(labelling, kind="exact")
    return federate(load(config.run.data), config.split, labelling, config.run.data_seed)


def _objective(config: Config, scene: Scene) -> Objective:
    kind = type(scene.federation.labels)
    objective = config.method.objective or reference(kind)
    if objective.labels is not kind:
        able = [n for n, c in catalogue().items() if issubclass(c, Objective) and c.labels is kind]
        raise UsageError(
            f"{objective.name!r} learns from {objective.labels.kind} labels, but {scene.federation.name} comes with "
            f"{kind.kind} labels here. What learns from those: {', '.join(able)}"
        )
    return objective


def _network(config: Config, scene: Scene) -> Network:
    seed = seed_of(config.run.seed, 0, SERVER, "init")
    federation = scene.federation
    return build(config.model, tuple(federation.x.shape[1:]), len(federation.classes), seed)


def start(config: Config, out: Path, watch: Watch) -> tuple[RunFolder, Record | None]:
    """A new run in a new folder below `out`."""
    watch.prepare(config)
    experiment = Experiment(config)
    folder = RunFolder.create(out, config)
    federation = experiment.scene.federation
    sites = [name for name, n in zip(federation.sites, federation.sizes(), strict=True) for _ in range(n)]
    folder.save_table("split.parquet", {"id": list(federation.ids), "site": sites})
    return folder, experiment.go(folder, watch)


def resume(folder: RunFolder, watch: Watch) -> Record | None:
    """Go on from a run's last checkpoint, or from its beginning if it had none yet."""
    config = folder.config()
    watch.prepare(config)
    experiment = Experiment(config)
    if folder.checkpoint.exists():
        experiment.engine.state.restore(folder.checkpoint)
    folder.forget_from(experiment.engine.state.round)
    folder.log(f"resumed after round {experiment.engine.state.round}")
    return experiment.go(folder, watch)


def evaluate(folder: RunFolder) -> dict[str, Scores]:
    """Figures of the models in a run's folder on the sites' test sets, computed anew."""
    config = folder.config()
    scene = _scene(config)
    network = config.method.build(_network(config, scene))
    judge = Evaluator(scene.oracle)
    figures: dict[str, Scores] = {}
    for k, site in enumerate(scene.federation.sites):
        network.load_state_dict(folder.load_model(site), strict=False)
        figures[site] = judge.site(k, _plain(network))
    return figures


def _plain(network: Network) -> Net:
    return Net(network.eval(), Layout.of(network, lambda name: False))
