"""What sites reach alone, beside the methods of a comparison."""

from __future__ import annotations

import torch

from imperfed.alone import AloneModel
from imperfed.alone.logistic import Logistic
from imperfed.alone.trained_network import NetworkAlone
from imperfed.core.labels import Candidates
from imperfed.experiments.alone_reference import AloneReference
from imperfed.experiments.auto import reference as alone_reference
from imperfed.experiments.auto.alone_search import OwnModel, OwnModels, families, judged_together
from imperfed.experiments.auto.reference import alone_scores
from imperfed.experiments.federating_gain import ALONE
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import load_data
from tests.experiments.auto.conftest import federation


def test_sites_alone_are_measured_on_their_test_rows(monkeypatch):
    monkeypatch.setattr(alone_reference, "families", lambda *_: [Logistic(10.0), Logistic(1.0)])
    words = {"method": "fedavg", "data": "digits", "kind": "exact", "sites": 2, "workers": 1, "device": "cpu"}
    config = resolve(words=words)
    data = load_data(config)
    scores = alone_scores(config, data)
    assert not isinstance(scores, str)
    assert min(site["accuracy"][0] for site in scores.values()) > 0.8
    reference = AloneReference()
    reference.add(config, lambda _: data)
    (row,) = reference.lines()
    assert row.method == ALONE
    figures = [figure(torch.arange(n)) for n, figure in row.by_row[config.run.seed]().sites]
    assert figures == [site["accuracy"][0] for site in scores.values()]
    assert row.mean == sum(figures) / len(figures)


def test_what_is_too_much_for_the_budget_is_shortened() -> None:
    own = federation("exact")
    (whole,) = families(own, 10.0, ["network"])
    (some,) = families(own, 0.01, ["network"])
    assert whole == NetworkAlone(objective="cross-entropy")
    assert 3 <= some.rounds < whole.rounds
    assert families(own, 1e-6, ["network"])[0].rounds == 3


def judged(*models: tuple[AloneModel, list[list[float]]]) -> tuple[OwnModels, OwnModels]:
    labels = Candidates(torch.tensor([[True, True, False]] * 4), 3)
    own = OwnModels([OwnModel(kind, torch.tensor(said), None) for kind, said in models], labels)
    return own, judged_together([own])[0]


def test_only_families_that_decide_between_candidates_vote_if_scores_contradict_one_another() -> None:
    first, second = [[0.9, 0.1, 0.0]] * 4, [[0.2, 0.8, 0.0]] * 4
    before, after = judged((NetworkAlone(), first), (NetworkAlone(lr=0.1), second), (Logistic(), second))
    torch.testing.assert_close(after.labels.values[0], torch.tensor([0.55, 0.45, 0.0]), atol=1e-4, rtol=0)
    assert before.labels.log_likelihood(torch.tensor(first)).sum() == 0  # both stay inside every set


def test_scores_that_agree_are_believed() -> None:
    first = [[0.9, 0.1, 0.0]] * 4
    before, after = judged((NetworkAlone(), first), (NetworkAlone(lr=0.1), first))
    assert after is before
