"""Groups of sites: what is sent, who sends nothing, and that labels play no part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import UsageError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.engine.conversation import Transcript
from imperfed.repairs.fb_nll.grouping import Grouping
from tests.support import crowd
from tests.support.crowd import D, Message, site

COUNTS = [[30, 20, 0, 0], [2, 0, 25, 20], [25, 35, 1, 0], [0, 0, 15, 40], [0, 3, 20, 25], [0, 0, 4, 2]]
GROUPING = Grouping(groups=2, M=3, linkage="average", center=False, features="raw")


def sites() -> list[SiteView]:
    draw = torch.Generator().manual_seed(0)
    return [site(k, counts, draw)[0] for k, counts in enumerate(COUNTS)]


def spoken(grouping: Grouping = GROUPING, views: list[SiteView] | None = None) -> tuple[Transcript, list[Message]]:
    return crowd.held(grouping.exchanges(), views or sites(), {})


def held(grouping: Grouping = GROUPING, views: list[SiteView] | None = None) -> Transcript:
    return spoken(grouping, views)[0]


def test_sites_of_one_task_are_together_and_who_sends_nothing_joins_the_most() -> None:
    assert held().server["groups"].tolist() == [0, 1, 0, 1, 1, 1]


def test_the_most_are_a_majority_and_not_the_last_group() -> None:
    draw = torch.Generator().manual_seed(0)
    counts = [[2, 0, 25, 20], [30, 20, 0, 0], [0, 0, 15, 40], [0, 3, 20, 25], [25, 35, 1, 0], [0, 0, 4, 2]]
    views = [site(k, own, draw)[0] for k, own in enumerate(counts)]
    assert held(views=views).server["groups"].tolist() == [0, 1, 0, 0, 1, 0]


def test_nothing_but_directions_and_scores_leaves_a_site() -> None:
    talk, messages = spoken()
    up = {(m.exchange, m.site, name): tuple(t.shape) for m in messages if m.up for name, t in m.content.items()}
    directions = {("directions", k, "V"): (D, 3) for k in range(5)}
    assert up == directions | {("scores", k, "r"): (5,) for k in range(5)}  # site 5 has 6 rows and sends nothing
    assert talk.sent == {"V": (D, 3), "r": (5,)}
    assert talk.up == 5 * (D * 3 + 5) * 4
    assert talk.down == 5 * 5 * D * 3 * 4


def test_what_is_sent_are_unit_vectors_and_shares() -> None:
    for message in spoken()[1]:
        if "V" in message.content and message.up:
            V = message.content["V"]
            assert (V.T @ V).numpy() == pytest.approx(np.eye(3), abs=1e-5)
        if "r" in message.content:
            assert ((message.content["r"] >= 0) & (message.content["r"] <= 1 + 1e-5)).all()


def test_labels_do_not_enter() -> None:
    noisy = [replace(v, labels=Exact(torch.full_like(v.labels.values, 3), 4), memory={}) for v in sites()]
    other, same = held(views=noisy), held()
    assert torch.equal(other.server["R"], same.server["R"])
    assert torch.equal(other.server["groups"], same.server["groups"])


def test_similarities_as_written_in_numpy() -> None:
    views = sites()[:5]
    S = [v.x.double().numpy().T @ v.x.double().numpy() / len(v.x) for v in views]
    spectra = [np.linalg.eigh(s) for s in S]
    expected = np.empty((5, 5))
    for i in range(5):
        lam = spectra[i][0][::-1][:3]
        for j in range(5):
            e = np.linalg.norm(S[i] @ spectra[j][1][:, ::-1][:, :3], axis=0)
            expected[i, j] = np.prod(np.minimum(lam, e) / np.maximum(lam, e)) ** (1 / 3)
    similar = held(views=views).server["R"].numpy()
    assert similar == pytest.approx((expected + expected.T) / 2, abs=1e-5)
    assert (np.abs(expected - expected.T) > 1e-3).any()  # the two one-sided scores do differ


def test_a_claim_that_is_no_share_does_not_count() -> None:
    liar = {"r": torch.tensor([torch.nan, 1e9, -5.0])}
    claims = Updates((0, 1, 2), torch.ones(3), {}, ({"r": torch.ones(3)}, {"r": torch.ones(3)}, liar))
    server = GROUPING.form({"who": torch.arange(3)}, claims, ServerView())
    assert ((server["R"] >= 0) & (server["R"] <= 1)).all()


def test_too_few_sites_with_rows_enough() -> None:
    with pytest.raises(UsageError, match=r"repair\.groups is 3, but only 2 sites have the 10 rows"):
        held(replace(GROUPING, groups=3), [sites()[k] for k in (0, 1, 5)])


def test_center_is_another_measure() -> None:
    assert not torch.allclose(held(replace(GROUPING, center=True)).server["R"], held().server["R"], atol=0.01)
