"""Which rank holds which sites."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from imperfed.core.labels import Exact
from imperfed.engine.backends.distributed import dealing
from imperfed.engine.backends.distributed.dealing import ANY, balanced, deal, place_the_rest, site_costs
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.cases import cases
from imperfed.testing.clauses import start
from imperfed.testing.toy import LOCAL, world


def test_sites_of_unequal_cost_are_dealt_as_evenly_as_they_can_be() -> None:
    costs = torch.tensor([[7.0, 5, 4, 4, 3, 1]])
    homes, load = balanced(costs, 2)
    assert float(load.max()) == 12
    for rank in range(2):
        assert sum(float(costs[0, k]) for k in range(6) if homes[k] == rank) == float(load[0, rank])


def test_sites_that_are_on_duty_together_are_at_different_ranks() -> None:
    pairs = [(0, 3), (1, 2), (4, 5), (0, 3), (1, 5)]
    work = torch.zeros(len(pairs), 6)
    for t, pair in enumerate(pairs):
        work[t, list(pair)] = 1.0
    homes, load = balanced(work, 2)
    assert all(homes[a] != homes[b] for a, b in pairs)
    assert torch.equal(load, torch.ones(len(pairs), 2))


def test_sites_that_are_never_on_duty_are_spread_by_their_cost() -> None:
    work = torch.tensor([[0.0, 2, 2, 0, 0, 0]])
    homes, _ = balanced(work, 2)
    assert [homes[k] for k in (0, 3, 4, 5)] == [ANY] * 4
    costs = [3.0, 2, 2, 1, 1, 1]
    place_the_rest(homes, costs, 2)
    assert sorted(sum(costs[k] for k in range(6) if homes[k] == rank) for rank in range(2)) == [5, 5]


@pytest.mark.parametrize("cells", [1 << 24, 1])
def test_every_site_has_one_rank_and_the_first_is_at_rank_0(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "CELLS", cells)  # one: a single round is looked at
    engine = start(next(case for case in cases() if case.trains))
    sites, longer = deal(engine.population, 3, 2)
    assert 0 in sites[0]
    assert sorted(k for home in sites for k in home) == [0, 1, 2, 3]
    assert all(sites)
    assert longer >= 1
    engine.close()


def test_steps_are_measured_only_where_they_have_unequally_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.trains and "prepare" not in case.algorithm.overridden)
    measured = {12: 1.0, 31: 3.0}  # seconds, by the rows of the site
    monkeypatch.setattr(dealing, "_seconds_per_step", lambda whole, k: measured.pop(whole.sizes[k]))
    engine = start(case)  # 12, 20, 31 and 26 rows
    assert site_costs(engine.population) == [5.0] * 4
    assert len(measured) == 2
    engine.close()
    engine = start(case, local=replace(LOCAL, batch=31))
    assert site_costs(engine.population) == pytest.approx([5.0, 5 * (1 + 2 * 8 / 19), 15.0, 5 * (1 + 2 * 14 / 19)])
    assert not measured
    engine.close()


class Listed(tuple[int, ...]):
    """Sites in which none is looked for: of very many, looking through all takes hours."""

    def __contains__(self, site: object) -> bool:
        raise AssertionError


def test_what_sites_hold_is_cut_out_in_one_pass() -> None:
    federation, oracle = world(Exact)
    some, own = Listed((0, 3)), Evaluator(oracle).of_sites(Listed((0, 3)), common=False)
    assert federation.of_sites(some).sizes() == [n if k in (0, 3) else 0 for k, n in enumerate(federation.sizes())]
    assert [len(x) > 0 for x in own.oracle.test_x] == [k in (0, 3) for k in range(len(federation.sites))]
