import numpy as np
import pytest
import torch

from imperfed.algorithms.fedalc import FedALC
from imperfed.algorithms.fedalc.correlations import WEIGHTS, Pairs
from imperfed.algorithms.fedaws import FedAwS
from tests.support.positive_labels import SETS, C, Hand, apart, run, split, spread
from tests.support.transcription import double, near

RATES = {"lr_theta": 0.6, "lr_w": 0.25}


def weights(kind: str) -> np.ndarray:
    s = apart()
    return {"counts": s, "sigma": s / len(SETS), "normalised": (C - 1) * s / s.sum(1, keepdims=True)}[kind]


@double()
@pytest.mark.parametrize("one_pass", [False, True], ids=["copies", "one pass"])
@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_three_rounds_of_unequal_clients_with_one_absent(kind: str, neighbours: int, one_pass: bool):
    g, size = weights(kind), 0.02 if kind == "counts" else 0.1
    e = run(FedALC(lam=1.0, lr_server=size, weights=kind, neighbours=neighbours, one_pass=one_pass, **RATES))
    hand = Hand(*split(e), **RATES)
    hand.server = lambda W: size * spread(W, lambda d, u, v: g[u, v] * max(0.0, 1 - d) ** 2, neighbours or C - 1)
    e.go()
    for report in e.reports:
        hand.round(report.who)
    for mine, expected in zip(split(e), (hand.A, hand.W), strict=True):
        near(torch.from_numpy(mine), expected, 1e-7)


def test_the_collected_labels_are_the_examples_label_sets():
    e = run(FedALC())
    pairs = Pairs.from_tree(e.state.server, "pairs/")
    assert pairs.total == len(SETS)
    assert pairs.apart(0, C).tolist() == apart().tolist()


@double()
def test_with_weights_of_one_it_is_fedaws(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(WEIGHTS, "counts", lambda pairs, a, b: torch.ones(b - a, len(pairs.n)))
    how = {"lam": 2.0, "lr_server": 0.1, "neighbours": 2, **RATES}
    runs = [run(method).go() for method in (FedALC(weights="counts", **how), FedAwS(**how))]
    torch.testing.assert_close(runs[0].state.server["w"], runs[1].state.server["w"], rtol=0, atol=1e-12)


def test_without_the_servers_step_it_is_fedaws_without_it_to_the_bit():
    runs = [run(method).go() for method in (FedALC(lam=0.0, **RATES), FedAwS(lam=0.0, **RATES))]
    assert torch.equal(runs[0].state.server["w"], runs[1].state.server["w"])


def test_the_counts_of_some_classes_are_those_between_them():
    draw = torch.Generator().manual_seed(0)
    example, label = (torch.randint(n, (200,), generator=draw) for n in (40, 12))
    pairs, classes = Pairs.of(example, label, 12), torch.tensor([1, 4, 5, 10])
    some = pairs.among(classes)
    assert torch.equal(some.both(0, 4), pairs.both(0, 12)[classes][:, classes])
    assert torch.equal(some.both(2, 4), some.both(0, 4)[2:])
    assert torch.equal(some.n, pairs.n[classes])
    assert some.total == pairs.total


def test_with_classes_drawn_it_runs_on_their_counts():
    e = run(FedALC(lam=1.0, lr_server=0.1, neighbours=1, drawn=C - 1, **RATES)).go()
    whole = run(FedALC(lam=1.0, lr_server=0.1, neighbours=1, **RATES)).go()
    assert not torch.equal(e.state.server["w"], whole.state.server["w"])
