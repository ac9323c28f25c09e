"""Sums over sites that lie at several ranks: each adds up its own, and nothing but the sums is brought together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from imperfed.engine.backends.distributed.rank_answers import RankAnswers
from imperfed.engine.backends.distributed.site_holder import SiteHolder
from imperfed.engine.population import Share

ANSWERS = {
    4: {"w": torch.tensor([1.0, 2]), "c": torch.tensor([[10.0, 20], [30, 40]])},
    7: {"w": torch.tensor([3.0, 5]), "c": torch.tensor([[1.0, 2], [3, 4]])},
    9: {"w": torch.tensor([-2.0, 8]), "c": torch.tensor([[0.0, 1], [0, 1]])},
}
STACKED = {name: torch.stack([answer[name] for answer in ANSWERS.values()]) for name in ("w", "c")}


def holder(*sites: int) -> SiteHolder:
    """What a rank holds after an exchange in which these sites of it answered."""
    net = SimpleNamespace(row=torch.zeros(1))
    population = SimpleNamespace(runtime=SimpleNamespace(net=net), share=Share(sites, ()))
    made = SiteHolder(population, None)  # type: ignore[arg-type]
    made.answers = {k: ANSWERS[k] for k in sites}
    return made


RANKS = (holder(7), holder(9, 4))


def answers(asked: list[tuple[str, ...]]) -> RankAnswers:
    """The answers of all three sites, at two ranks; `asked` notes what was brought together or added up."""

    def gather(name: str, sites: tuple[int, ...]) -> Tensor:
        asked.append(("rows", name))
        found = {k: t for rank in RANKS for k, t in rank.rows(name, sites).items()}
        return torch.stack([found[k] for k in sites])

    def add_up(names: tuple[str, ...], sites: tuple[int, ...], weights: Tensor, size: int) -> Tensor:
        asked.append(("sums", *names))
        parts = [rank.partial_sum(names, sites, weights, size) for rank in RANKS]
        return parts[0] + parts[1]

    forms = {name: (t.shape[1:], t.dtype) for name, t in STACKED.items()}
    return RankAnswers((4, 7, 9), forms, gather, add_up)


def test_each_rank_adds_up_its_own_sites_with_their_own_weights() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, -1.0]])
    first = RANKS[0].partial_sum(("w",), (4, 7, 9), weights, 2)
    second = RANKS[1].partial_sum(("w",), (4, 7, 9), weights, 2)
    assert first.dtype == second.dtype == torch.float64
    assert first.tolist() == [[0.75, 1.25], [0, 0]]
    assert second.tolist() == [[0.0, 3], [3, -6]]
    both = RANKS[1].partial_sum(("c", "w"), (9,), torch.tensor([[2.0]]), 6)
    assert both.tolist() == [[0, 2, 0, 2, -4, 16]]  # one name after the other


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [[0.5, 0.3, 0.2], [1.0, 2.0, 3.0]]])
def test_a_weighted_sum_is_that_of_one_process_and_fetches_no_answer(weights: list[float]) -> None:
    asked: list[tuple[str, ...]] = []
    given = torch.tensor(weights)
    found = answers(asked).weighted_sums(("w", "c"), given)
    torch.testing.assert_close(found["w"], given @ STACKED["w"])
    torch.testing.assert_close(found["c"], torch.tensordot(given, STACKED["c"], 1))
    assert found["c"].dtype == torch.float32
    assert asked == [("sums", "w", "c")]


def test_what_was_looked_at_is_summed_here() -> None:
    asked: list[tuple[str, ...]] = []
    here = answers(asked)
    assert torch.equal(here["w"], STACKED["w"])
    assert torch.equal(here["w"], STACKED["w"])
    given = torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(here.weighted_sums(("c", "w"), given)["w"], given @ STACKED["w"])
    assert asked == [("rows", "w"), ("sums", "c")]
    with pytest.raises(KeyError):
        here["z"]


def test_some_of_the_sites_keep_their_order() -> None:
    asked: list[tuple[str, ...]] = []
    all_three = answers(asked)
    assert len(all_three["w"]) == 3
    two = all_three.only(torch.tensor([2, 0]))
    assert two.sites == (9, 4)
    assert torch.equal(two["w"], STACKED["w"][[2, 0]])
    assert torch.equal(two["c"], STACKED["c"][[2, 0]])
    found = two.weighted_sums(("w",), torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(found["w"], torch.tensor([0.25, 3.5]))
    assert asked == [("rows", "w"), ("rows", "c")]


def test_answers_without_numbers_have_sums_without_numbers() -> None:
    empty = RankAnswers((4, 7), {"buffers": (torch.Size([0]), torch.float32)}, None, None)  # type: ignore[arg-type]
    assert empty.weighted_sums(("buffers",), torch.ones(2))["buffers"].shape == (0,)
    assert empty.weighted_sums(("buffers",), torch.ones(3, 2))["buffers"].shape == (3, 0)
