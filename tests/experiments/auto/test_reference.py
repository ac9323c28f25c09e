"""What sites reach alone, beside the methods of a comparison, and the sentence with which a comparison begins."""

from __future__ import annotations

from imperfed.alone.logistic import Logistic
from imperfed.experiments.auto import reference as alone_reference
from imperfed.experiments.auto.reference import alone_scores
from imperfed.experiments.comparison import ALONE, AloneReference, Line, brought
from imperfed.experiments.config import resolve
from imperfed.experiments.experiment import load_data


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
