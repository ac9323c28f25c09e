import sys
from itertools import combinations

import pytest
import torch

from imperfed.algorithms.fedalc import FedALC, FedALCFixed
from imperfed.algorithms.fedalc.correlations import Pairs
from imperfed.algorithms.fedalc.label_collection import drawn_labels, noisy
from imperfed.core.errors import UsageError
from imperfed.engine.local_training import plan
from imperfed.engine.seeds import generator
from tests.support.positive_labels import HELD, SETS, run


def answers(seed: int = 0, hashed: str = "embedding") -> list[dict[str, torch.Tensor]]:
    e = run(FedALC(hashed=hashed), seed=seed)
    spec, population = e.population.spec, e.population
    replies = []
    for k in range(len(HELD)):
        p = plan(spec.algorithm, spec.objective, spec.local, len(HELD[k][1]), generator(0, 0, k, "x"))
        down = population.down(k, spec.algorithm.opening()[0])
        replies.append(spec.algorithm.collect(population.runtime.context(population.site(k), down, p)))
    return replies


@pytest.mark.parametrize("hashed", ["embedding", "input"])
def test_an_example_has_one_digest_at_all_its_sites(hashed: str):
    told = answers(hashed=hashed)
    tags = {}
    for (_, rows), answer in zip(HELD, told, strict=True):
        for e, tag in zip(rows, answer["example tag"], strict=True):
            tags.setdefault(e, set()).add(bytes(tag))
    assert all(len(mine) == 1 for mine in tags.values())
    assert len(set.union(*tags.values())) == len(SETS)


def test_what_is_sent_depends_on_a_key_that_the_server_lacks():
    one, other = answers(0), answers(1)  # the key follows from the seed in one process
    assert not torch.equal(one[0]["label tag"], other[0]["label tag"])
    assert torch.equal(one[3]["label tag"][:1], one[4]["label tag"][:1])  # both hold label 3
    assert not torch.equal(one[0]["label tag"][:1], one[1]["label tag"][:1])


def test_digests_of_examples_depend_on_the_key_as_well():
    """Their inputs are the same whatever the seed: without the key the server could try inputs that it has."""
    one, other = answers(0, "input"), answers(1, "input")
    assert len(one) == len(other) == len(HELD)
    for a, b in zip(one, other, strict=True):
        assert not (a["example tag"] == b["example tag"]).all(1).any()


def test_the_counts_do_not_depend_on_what_is_digested():
    one, other = (run(FedALC(hashed=hashed)).state.server for hashed in ("embedding", "input"))
    assert torch.equal(one["pairs/together"], other["pairs/together"])


def test_no_feature_and_no_name_is_sent():
    assert {name: (t.dtype, t.shape) for name, t in answers()[1].items()} == {
        "example tag": (torch.uint8, (3, 32)),
        "label tag": (torch.uint8, (3, 32)),
        "row tag": (torch.uint8, (1, 32)),
        "row": (torch.int64, (1,)),
    }


def test_an_example_counts_with_so_many_labels_at_most_drawn_at_random():
    example = torch.tensor([4, 2, 4, 4, 2, 7, 4])
    label = torch.tensor([3, 0, 1, 0, 1, 2, 3])  # (4, 3) is said twice
    draw, seen = torch.Generator().manual_seed(0), set()
    for _ in range(30):
        kept = {tuple(pair) for pair in torch.stack(drawn_labels(example, label, 2, 5, draw), 1).tolist()}
        assert kept >= {(2, 0), (2, 1), (7, 2)}
        mine = frozenset(kept - {(2, 0), (2, 1), (7, 2)})
        assert len(mine) == 2
        seen.add(mine)
    assert seen == {frozenset(pairs) for pairs in combinations([(4, 0), (4, 1), (4, 3)], 2)}


def test_noise_has_the_size_of_what_one_example_can_change():
    C, most = 60, 3
    pairs = Pairs.of(torch.arange(60_000), torch.arange(60_000) % C, C)  # 1000 of each, none together
    made = noisy(pairs, 2.0, most, torch.Generator().manual_seed(0))
    both = made.both(0, C)
    assert torch.equal(both, both.T)
    assert (both <= torch.minimum(made.n[:, None], made.n[None])).all()
    assert (both >= 0).all()
    assert float((made.n - 1000).std()) == pytest.approx(2.0 * 6**0.5, rel=0.3)  # sqrt(3 + 3)
    off = both[~torch.eye(C, dtype=torch.bool)]
    assert float((off == 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert float(off[off > 0].square().mean().sqrt()) == pytest.approx(2.0 * 6**0.5, rel=0.1)


@pytest.mark.parametrize("method", [FedALC, FedALCFixed])
def test_noise_needs_accounting(method: type, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UsageError, match=r"install imperfed\[dp\]"):
        method(noise=1.0)
    method(noise=0.0)


@pytest.mark.parametrize("kind", [FedALC, FedALCFixed])
def test_the_account_of_a_private_run(kind: type):
    pytest.importorskip("dp_accounting")
    method = kind(noise=4.0, most=2)
    e = run(method, rounds=1).go()
    account = method.figures(e.state.server)
    assert account["epsilon"] == pytest.approx(0.926342, abs=1e-6)
    assert account["delta"] == 1e-5
    assert any("differentially private" in note for note in e.reports[0].notes)
    assert type(method)().figures({}) == {}
