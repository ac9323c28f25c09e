"""The models of a run that has ended, from its folder."""

from __future__ import annotations

from collections.abc import Callable

import torch

from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation
from imperfed.core.network import Layout, Net
from imperfed.core.threads import one_thread
from imperfed.data.federate import FederatedData
from imperfed.data.held_out import hold_out, share_at_sites
from imperfed.engine.population import Scores
from imperfed.engine.seeds import SERVER, seeded
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.config import Config
from imperfed.experiments.run_data import load_data
from imperfed.experiments.run_parts import make_evaluator, make_network, shape_of
from imperfed.experiments.training_rows import refuse_other_rows
from imperfed.results.folder import AT_THE_SITES, RunFolder
from imperfed.results.mixture import Predictor, read_mixture


def evaluate(folder: RunFolder) -> dict[str, Scores]:
    """Compute the figures of the models in a run's folder again, on the sites' test sets."""
    if folder.served:
        raise UsageError(f"{folder.path}: {AT_THE_SITES.format('report', folder.path.name)}, which has its figures")
    if folder.site:
        raise UsageError(
            f"{folder.path}: the folder of {folder.site} in a run with real sites, whose rows it keeps itself; "
            "its figures are in report.html and summary.json, and `imperfed predict` takes files"
        )
    config = folder.config()
    evaluator, federation, predictor = stored_models(folder, config, load_data(config))
    with one_thread():
        if not evaluator.sites:
            net = load_net(folder, config, federation.sites[0], *shape_of(federation))
            return {"common test set": evaluator.common(net)}
        return {site: evaluator.site(k, predictor(site)) for k, site in enumerate(federation.sites)}


def stored_models(
    folder: RunFolder, config: Config, data: FederatedData
) -> tuple[Evaluator, Federation, Callable[[str], Predictor]]:
    """Return what measures a run that has ended, its sites, and their models by name, from its folder.

    `data`: before any attack or repair.
    """
    data = hold_out(data, share_at_sites(config.split), config.run.data_seed)
    federation = data.federation
    refuse_other_rows(folder, federation)

    def predictor(site: str) -> Predictor:
        net, mixture = load_net(folder, config, site, *shape_of(federation)), read_mixture(folder, site)
        return net if mixture is None else mixture.beside(net, type(federation.labels))

    return make_evaluator(config, data), federation, predictor


def load_net(folder: RunFolder, config: Config, site: str, shape: tuple[int, ...], classes: int, features: int) -> Net:
    """Return the network with which a site predicts, from a run's folder, in evaluation mode."""
    with folder.naming_missing_plugins(), seeded(config.run.seed, 0, SERVER, "build"):
        network = config.method.build(make_network(config, shape, classes, features, folder.scale().edges)).eval()
    net = Net(network, Layout.of(network, config.method.is_personal))
    saved, fields = folder.load_model(site), net.layout.fields
    shapes, expected = ({name: [*t.shape] for name, t in tree.items()} for tree in (saved, fields))
    if misfits := [name for name in {**shapes, **expected} if shapes.get(name) != expected.get(name)]:
        raise DataError(
            f"{folder.path}: the model of {site} does not fit this run's settings: {misfits[0]} has the shape "
            f"{shapes.get(misfits[0])} there and {expected.get(misfits[0])} here"
        )
    return net.load(torch.cat([saved[name].reshape(-1) for name in fields]))
