"""A site's share of a secret sum: its weighted update under masks that cancel in the sum of all shares.

Every pair of the sum's sites has a mask, which the one adds and the other subtracts. It follows from the secret that
the sites share and the coordinator does not have, and from all that makes up the sum: the run and its settings, the
round, the sites and their weights, the model that they were sent. So masks cancel only if all sites were told the same:
the coordinator learns the sum over exactly these sites, and with one share missing nothing. A site gives one share in
a round, and never computes it a second time: with another set of sites, weights or updates, the difference of two sums
could be what one site sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.core.mechanism import SumMechanism, Summed
from imperfed.engine.failures import Declined
from imperfed.flower.messages.payload import Payload, RefusedError
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.last_answer import digest_of
from imperfed.flower.site.privacy_ledger import charging
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.store import Key, Store
from imperfed.flower.site.withheld import WithheldError

TRAINED, SHARED = "trained", "shared"
"""The names under which a site keeps the update that waits for its sum, and the last share that it gave."""


def hold_back(store: Store, key: Key, payload: Payload, up: Tree) -> None:
    """Keep an update at the site until the coordinator has named the sites of the sum."""
    same_for_all = {name: payload.text(name) for name in ("run", "settings", "declaration")}
    parts = {name: payload.trees.get(name, {}) for name in ("scale", "annotated", "down")}
    told = bytes.fromhex(digest_of("sum", Payload(same_for_all, parts)))
    sent, w = payload.trees["down"]["w"].cpu(), up["w"].cpu()
    store.keep(TRAINED, {"key": torch.tensor(key), "told": torch.tensor(list(told)), "sent": sent, "w": w})


def unite(place: LocalSite, payload: Payload) -> Payload:
    """Return the site's share of the sum of a round; the one that it gave already, if it did."""
    run_info = RunInfo.of(payload)
    mechanism, names = run_info.config().privacy, [str(name) for name in payload.several("sites")]
    weights = tuple(map(float, payload.several("weights")))
    if not isinstance(mechanism, SumMechanism) or not place.secret:
        raise UsageError("a secret sum needs privacy=sum and a secret that the sites share; join with its file")
    summed = Summed(tuple(range(len(names))), weights)
    if len(set(names)) < len(names) or place.name not in names:
        raise RefusedError(f"{place.name} gives no share of a sum over other sites")
    if why := summed.objection():
        raise WithheldError(Declined(f"{place.name} refuses {why}"))
    store, key = place.states(run_info), (payload.number("round"), payload.number("exchange"))
    about = hashlib.sha256(json.dumps([run_info.run, *key, names, weights]).encode()).digest()
    share = share_given(place, store, key, about)
    if share is None:
        trained = update_of(place, store, key)
        noise = b""
        if mechanism.multiplier:
            noise = charging(place, run_info, mechanism, payload)(key[0], run_info.index, trained["w"])
        share = mechanism.share(trained["sent"], trained["w"], weights[names.index(place.name)], summed, noise)
        share += masks(place.secret, about + bytes(trained["told"].tolist()), place.name, names, len(share))
        store.keep(SHARED, {"key": torch.tensor(key), "about": torch.tensor(list(about)), "share": share})
    return Payload({}, {"share": {"w": share}})


def share_given(place: LocalSite, store: Store, key: Key, about: bytes) -> Tensor | None:
    """Return the share that the site gave of this very sum, if it did; refuse another one in a round that is over."""
    kept = store.kept(SHARED)
    if kept is None or tuple(kept["key"].tolist()) < key:
        return None
    if kept["about"].tolist() == list(about):
        return kept["share"]
    why = f"another sum in round {key[0] + 1}: it has given its share of one, and two could show a single update"
    raise WithheldError(Declined(f"{place.name} refuses {why}"))


def update_of(place: LocalSite, store: Store, key: Key) -> Tree:
    """Return the update that the site has kept, if it is that of this exchange."""
    trained = store.kept(TRAINED)
    if trained is None or tuple(trained["key"].tolist()) != key:
        raise RefusedError(f"{place.name} has not trained in round {key[0] + 1}, or has gone on since")
    return trained


def masks(secret: bytes, about: bytes, own: str, names: list[str], count: int) -> Tensor:
    """Return the sum of a site's masks with every other site, modulo 2^64; over all sites these sums add up to 0."""
    total = torch.zeros(count, dtype=torch.int64)
    for other in names:
        if other != own:
            pair = json.dumps(sorted((own, other))).encode()
            key = hmac.new(secret, about + pair, "sha256").digest()
            mask = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(8 * count)), dtype=torch.int64)
            total += mask if own < other else -mask
    return total
