"""What sites reach alone, beside the methods of a comparison, and the sentence with which a comparison begins."""

from __future__ import annotations

import torch

from imperfed.alone import AloneModel
from imperfed.alone.logistic import Logistic
from imperfed.alone.trained_network import NetworkAlone
from imperfed.core.labels import Candidates
from imperfed.experiments.auto import reference as alone_reference
from imperfed.experiments.auto.alone_search import OwnModel, OwnModels, families, judged_together
from imperfed.experiments.auto.reference import alone_scores
from imperfed.experiments.comparison import ALONE, AloneReference, Line, brought
from imperfed.experiments.config import resolve
from imperfed.experiments.experiment import load_data
from tests.experiments.auto.conftest import federation


def line(method: str, *sites: float) -> Line:
    return Line(method, (sum(sites) / len(sites),), (), 1.0, None, by_site=(sites,))


def test_the_first_sentence_compares_with_the_best_alone():
    alone, network = line(ALONE, 0.6, 0.7, 0.65, 0.6), line("local-only", 0.5, 0.5, 0.5, 0.5)
    gain = brought([line("cc", 0.7, 0.8, 0.74, 0.72), line("pooled", 1.0, 1.0, 1.0, 1.0), network, alone])
    assert gain.startswith("Federating brought 10.2 points over the best that sites do alone: cc 74.0 % against 63.7 %")
    assert "not clear" in brought([line("cc", 0.7, 0.6, 0.7, 0.55), alone])
    assert brought([line("cc", 0.3, 0.4, 0.3, 0.3), alone]).startswith("Federating cost 31.2 points")
    assert not brought([line("cc", 0.3, 0.4), line("pooled", 0.3, 0.4)])


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
    assert row.by_site == (tuple(site["accuracy"][0] for site in scores.values()),)


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
