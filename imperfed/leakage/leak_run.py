"""From a run's folder, or from settings alone, to what a curious coordinator could reconstruct."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace

from msgspec import structs

from imperfed.core.errors import UsageError, positive
from imperfed.core.mechanism import SumMechanism
from imperfed.core.threads import one_thread
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import called
from imperfed.data.sparse import width
from imperfed.engine.engine import Engine
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.public_inputs import without_unused_public
from imperfed.experiments.training_rows import refuse_other_rows
from imperfed.leakage.chosen_weights import can_single_out, chosen
from imperfed.leakage.first_layer import input_layers
from imperfed.leakage.observed import ObservingBackend, SeenExchange, attacked, is_gradient, observe
from imperfed.leakage.one_site import attack_site
from imperfed.report import write_report
from imperfed.results.folder import RunFolder
from imperfed.results.leak_summary import LeakSummary, RowPair, SiteLeak

PAIRS = 8
"""Reconstructions that are kept for a picture."""
AT_A_SITE = (
    "{}: the rows of a run with real sites are at the sites, so there is nothing to compare a reconstruction with. Any "
    "site can try the same settings on its own rows: imperfed leak {} --data FOLDER{}"
)


SUMMED = (
    "With privacy={} the coordinator gets the sum of the sites' updates and no single one; this attack is on single "
    "ones, and what a sum gives away was not tried"
)


@dataclass(frozen=True)
class LeakOptions:
    """What is attacked, and how long."""

    sites: int = 4
    """Sites that are attacked: the first ones on duty."""
    trained: bool = False
    """Whether the round after the run's newest checkpoint is attacked; otherwise the first one."""
    iterations: int = 500
    """Steps of the search."""
    dishonest: bool = False
    """Whether the coordinator sends weights that it has chosen to single out rows."""

    def __post_init__(self) -> None:
        positive("leak", sites=self.sites, iterations=self.iterations)


def leak_of_folder(
    folder: RunFolder, options: LeakOptions, data: FederatedData | None = None, objects: Objects = NO_OBJECTS
) -> LeakSummary:
    """Attack a round of a run; write `leak.json` into its folder, and its report again."""
    config = folder.config(objects)
    if folder.served or folder.site:
        raise UsageError(AT_A_SITE.format(folder.path, config.run.title, words(config)))
    if options.trained and not folder.checkpoint.exists():
        raise UsageError(f"{folder.path}: it has no checkpoint, so there is no trained model; leave out `trained`")
    summary = leak_of(config, options, data, folder)
    folder.write("leak.json", summary.to_json())
    write_report(folder)
    return summary


def leak_of_settings(config: Config, options: LeakOptions, data: FederatedData | None = None) -> LeakSummary:
    """Attack the first round of a run that would have these settings; nothing is written."""
    if options.trained:
        raise UsageError("without a run's folder there is no trained model; leave out `trained`")
    (config,) = without_unused_public([config])
    return leak_of(config, options, data)


def words(config: Config) -> str:
    """Return the settings that decide how much an update gives away, as options of the command line."""
    names = ("batch", "epochs" if config.local.epochs else "steps", "lr", "momentum", "optimizer")
    settings = {f"local.{name}": getattr(config.local, name) for name in names}
    if config.privacy is not None:
        own = {f"privacy.{field.name}": getattr(config.privacy, field.name) for field in fields(config.privacy)}
        settings |= {"privacy": config.privacy.name} | own
    return f" --model {config.model.name}" + "".join(f" -s {name}={value}" for name, value in settings.items())


def leak_of(
    config: Config, options: LeakOptions, data: FederatedData | None = None, folder: RunFolder | None = None
) -> LeakSummary:
    """Attack a round of a run with these settings; `folder`: where it was made, with the same rows."""
    config = replace(config, run=replace(config.run, device="cpu", precision="auto", compile=False, track="none"))
    if config.method.pools_data:
        return nothing(config, f"{config.run.method} pools the rows of all sites: there is nothing to reconstruct")
    with closing(Experiment(config, data, lambda population, *_: ObservingBackend(population))) as experiment:
        if folder is not None:
            refuse_other_rows(folder, experiment.data.federation)
        if folder is not None and options.trained:
            experiment.engine.state.restore(folder.checkpoint)
        if width(experiment.data.federation.x):
            return nothing(config, "The inputs are sparse (words of a text): this attack reconstructs dense rows only")
        if isinstance(experiment.engine.population.spec.privacy, SumMechanism):
            return nothing(config, SUMMED.format(config.run.privacy))
        with one_thread():
            return attack_round(config, experiment.engine, options)


def attack_round(config: Config, engine: Engine, options: LeakOptions) -> LeakSummary:
    """Attack the engine's next round."""
    population = engine.population
    layer = single_out(engine) if options.dishonest else None
    round, seen = observe(engine, options.sites)
    attackable = {k: one for k, exchanges in sorted(seen.items()) if (one := attacked(exchanges)) is not None}
    if not attackable:
        return nothing(config, f"{config.run.method} sends nothing of a model: there is nothing to reconstruct from")
    found: list[SiteLeak] = []
    pairs: list[RowPair] = []
    for k, exchange in attackable.items():
        site, made = attack_site(engine, round, k, exchange, options.iterations, layer)
        found.append(site)
        pairs += made
    first = min(attackable)
    steps = [0 if is_gradient(engine, round) else config.local.steps_of(population.sizes[k]) for k in attackable]
    return structs.replace(
        nothing(config, ""),
        round=round + 1,
        steps=tuple(steps),
        sites=tuple(found),
        also_sent=others_sent(seen[first], attackable[first]),
        shape=tuple(population.federation.x.shape[1:]),
        dishonest=options.dishonest,
        pairs=tuple(sorted(pairs, key=lambda pair: pair.distance)[:PAIRS]),
    )


def single_out(engine: Engine) -> tuple[str, str]:
    """Put weights that single out rows in place of the model of the next round; return the layer on the inputs."""
    server, net, x = engine.state.servers[0], engine.server.net, engine.population.federation.x
    w = server["w"]
    one_model = w.ndim == 1 and len(engine.state.servers) == 1
    layers = input_layers(net, w, server["buffers"], x.shape[1:]) if one_model else []
    if not (fit := [layer for layer in layers if can_single_out(net, layer)]):
        raise UsageError(
            "dishonest: these weights are worked out for one model of two layers that are both sent, such as mlp under "
            "fedavg; leave it out, or choose these"
        )
    w.copy_(chosen(net, w, fit[0], x))
    return fit[0]


def nothing(config: Config, why: str) -> LeakSummary:
    """Return a result without an attack, and why there is none."""
    local, run = config.local, config.run
    method = f"{run.title} with privacy={run.privacy}" if run.privacy else run.title
    what = (method, called(run.data), config.model.name)
    return LeakSummary(*what, 0, local.batch, (), local.optimizer, local.lr, (), why)


def others_sent(seen: Sequence[SeenExchange], chosen: SeenExchange) -> tuple[str, ...]:
    """Return the names of what a site sent besides the weights or the gradient that were attacked."""
    known = {"w" if chosen.trained else "g", "buffers"}
    parts = [(name, t) for one in seen for name, t in one.up.items() if one is not chosen or name not in known]
    return tuple(dict.fromkeys(name for name, t in parts if t.numel()))
