"""A site's answers in a search: it fits models to its own rows and keeps them; what leaves it are sums and figures.

Between two messages of a search the site keeps what it has worked out in its store, as it keeps its states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import cast

import msgspec
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.federation import HeldOut
from imperfed.core.labels import Labels
from imperfed.core.threads import one_thread
from imperfed.engine.site import logits_of
from imperfed.evaluation.paired import paired_difference
from imperfed.experiments.auto.alone_search import (
    OwnModel,
    OwnModels,
    fit_alone,
    fit_and_judge,
    joined,
    own_model,
    site_rows,
)
from imperfed.experiments.auto.consensus import agreement, resolved
from imperfed.experiments.auto.search_sites import figures_on_held_out, told_at_temperatures
from imperfed.experiments.auto.site_choice import WEIGHTS, mixed, mixture_table, own_option, sums_of
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.search_figures import (
    agreement_words,
    difference_words,
    families_of,
    likelihood_words,
    score_words,
    weights_of,
)
from imperfed.flower.site.runtime import LocalSite, open_site, own_data
from imperfed.flower.site.store import Store, key_in
from imperfed.results.auto_summary import SiteMixture
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import Mixture, save_mixture

LOGITS, FAMILY, OWN, TRIAL = "search-logits", "search-family", "search-own", "search-trial"
"""What a site keeps during a search: the federated model's logits, a family's probabilities, the family chosen,
and what each trial says about the rows held out."""
CHOICE = "choice.json"
"""What the site has chosen for itself, in its folder of the run."""


def apply(place: LocalSite, payload: Payload) -> Payload:
    """Apply the model of a trial to the rows held out, and keep what it says."""
    run_info = RunInfo.of(payload)
    logits, labels = _applied(place, payload)
    place.store(run_info.run).keep(f"{TRIAL}-{run_info.trial:04}", {"probability": labels.probabilities(logits)})
    return Payload({"done": 1})


def agree(place: LocalSite, payload: Payload) -> Payload:
    """Tell how far trials agree with what all agree on about the rows held out."""
    _, store, labels = _opened(place, payload)
    numbers = cast(list[int], payload.several("numbers"))
    weights = weights_of(payload)
    with one_thread():
        said = _said(store, {*weights, *numbers})
        return Payload(agreement_words(agreement(labels, said, weights, numbers)))


def calibrate(place: LocalSite, payload: Payload) -> Payload:
    """Apply the model of the best trial to the rows held out; tell how likely their labels are at each temperature."""
    logits, labels = _applied(place, payload)
    store = place.store(RunInfo.of(payload).run)
    store.keep(LOGITS, {"logits": logits})
    judge = _judge(store, labels, payload)
    return Payload(likelihood_words(told_at_temperatures(judge, logits)))


def fit_family(place: LocalSite, payload: Payload) -> Payload:
    """Fit one family of models to the site's own rows; tell how likely it makes the labels held out."""
    run_info = RunInfo.of(payload)
    config, number, (kind,) = run_info.config(), payload.number("number"), families_of(payload)
    federation = own_data(place, run_info, config).federation
    assert federation.validation is not None
    own = fit_and_judge(federation, 0, kind, config.run.seed)
    score = torch.tensor([] if own.score is None else [own.score], dtype=torch.float64)
    store = place.store(run_info.run)
    store.keep(f"{FAMILY}-{number:03}", {"probability": own.probability, "score": score})
    judge = _judge(store, federation.validation.at(0)[1], payload)
    return Payload(likelihood_words(sums_of(OwnModels([own], judge).table())))


def mix(place: LocalSite, payload: Payload) -> Payload:
    """Choose the site's own family, given the common one; tell how likely each mixture makes the labels held out."""
    _, store, labels = _opened(place, payload)
    models = _families(store, payload)
    chosen = OwnModels(models, _judge(store, labels, payload)).chosen(payload.number("family"))
    store.keep(OWN, {"family": torch.tensor(chosen)})
    judge = _judge(store, labels, payload, models)
    table = mixture_table(judge, _federated(store, labels, payload), models[chosen].probability)
    return Payload(likelihood_words(sums_of(table)))


def settle(place: LocalSite, payload: Payload) -> Payload:
    """Choose the weight of the mixture, given the common one; tell how it compares, and how sure it is."""
    run_info, store, labels = _opened(place, payload)
    family = int(_kept(store, OWN)["family"])
    models, federated = _families(store, payload), _federated(store, labels, payload)
    own, judge = models[family], _judge(store, labels, payload, models)
    option = own_option(mixture_table(judge, federated, own.probability), payload.number("weight"))
    weight = WEIGHTS[option]
    figures = figures_on_held_out(labels, federated, own.probability, weight)
    choice = SiteMixture(place.name, weight, own.kind.name, asdict(own.kind), own.score)
    RunFolder(store.path).write(CHOICE, msgspec.json.encode(choice).decode())
    words = {"family": family, "weight": option} | score_words("score", own.score)
    words |= difference_words(paired_difference([figures], run_info.config().run.seed))
    mixture = labels.logits(mixed(federated, own.probability, weight))
    return Payload(words | likelihood_words(told_at_temperatures(judge, mixture)))


def keep(place: LocalSite, payload: Payload) -> Payload:
    """Fit the site's own model to all its rows, and keep it with what it is mixed with."""
    run_info = RunInfo.of(payload)
    config, folder = run_info.config(), RunFolder(place.store(run_info.run).path)
    choice = read_own_choice(folder)
    if choice is None:
        raise DataError(f"{folder.path}: what the site has chosen in this search is missing ({CHOICE})")
    all_rows = own_data(place, run_info, replace(config, split=replace(config.split, validation=0.0))).federation
    model = fit_alone(own_model(choice.alone, choice.settings), *site_rows(all_rows, 0), config.run.seed)
    temperatures = payload.real("temperature"), payload.real("mixture temperature")
    save_mixture(folder, place.name, Mixture(model, choice.weight, *temperatures))
    return Payload({"done": 1})


def forget_search(place: LocalSite, run: str) -> None:
    """Remove what is no longer needed once a search has ended."""
    place.store(run).drop("search-*")
    place.forget_trials(run)


def read_own_choice(folder: RunFolder) -> SiteMixture | None:
    """Return what a site has chosen in a search; None if it was not asked to."""
    path = folder.path / CHOICE
    return msgspec.json.decode(path.read_bytes(), type=SiteMixture) if path.exists() else None


def _opened(place: LocalSite, payload: Payload) -> tuple[RunInfo, Store, Labels]:
    """Return the run, the site's store and the labels that it holds out."""
    run_info = RunInfo.of(payload)
    held: HeldOut | None = own_data(place, run_info, run_info.config()).federation.validation
    assert held is not None
    return run_info, place.store(run_info.run), held.at(0)[1]


def _applied(place: LocalSite, payload: Payload) -> tuple[Tensor, Labels]:
    """Return the logits of the model in a message for the rows held out, and their labels."""
    remote = open_site(place, RunInfo.of(payload), key_in(payload, "from"))
    held = remote.data.federation.validation
    assert held is not None
    x, labels = held.at(0)
    return logits_of(remote.load(payload.trees["model"]), x), labels


def _judge(store: Store, labels: Labels, payload: Payload, own: Sequence[OwnModel] = ()) -> Labels:
    """Return the labels by which models are judged: those held out, or what the trials named in a message agree on.

    `own`: the site's own models, which have a say as well where mixtures are judged.
    """
    weights = weights_of(payload)
    return resolved(labels, *joined(_said(store, weights), weights, own)) if weights else labels


def _said(store: Store, numbers: Iterable[int]) -> dict[int, Tensor]:
    """Return what trials say about the rows held out."""
    return {number: _kept(store, f"{TRIAL}-{number:04}")["probability"] for number in numbers}


def _families(store: Store, payload: Payload) -> list[OwnModel]:
    return [_family(store, number, payload) for number in range(len(families_of(payload)))]


def _family(store: Store, number: int, payload: Payload) -> OwnModel:
    kept = _kept(store, f"{FAMILY}-{number:03}")
    score = kept["score"].tolist()
    return OwnModel(families_of(payload)[number], kept["probability"], score[0] if score else None)


def _federated(store: Store, labels: Labels, payload: Payload) -> Tensor:
    """Return the calibrated probabilities of the federated model for the rows held out."""
    return labels.probabilities(_kept(store, LOGITS)["logits"] / payload.real("temperature"))


def _kept(store: Store, name: str) -> dict[str, Tensor]:
    tree = store.kept(name)
    if tree is None:
        raise DataError(f"{store.path}: what the site worked out earlier in this search is missing ({name})")
    return tree
