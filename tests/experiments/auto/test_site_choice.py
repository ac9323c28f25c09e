"""The weight of a site's mixture: a common one, from which a site departs only if its own rows say so clearly."""

from __future__ import annotations

import torch

from imperfed.core.labels import Annotated, Candidates, Exact, Positives
from imperfed.core.temperatures import likelihoods
from imperfed.evaluation.temperature import most_likely
from imperfed.experiments.auto.site_choice import common_option, mixture_table, own_option, sums_of


def choose(tables: list[torch.Tensor]) -> list[int]:
    common = common_option([sums_of(table) for table in tables])
    return [own_option(table, common) for table in tables]


def table(rows: int, better: int, by: float, noise: float = 0.0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows)
    values = noise * torch.randn(rows, 3, generator=draw)
    values[:, better] += by
    return values


def test_a_few_rows_do_not_move_a_site():
    assert choose([table(200, 0, 0.5, 0.1), table(4, 2, 0.05, 1.0)]) == [0, 0]


def test_clear_rows_do():
    assert choose([table(400, 0, 0.5, 0.1), table(50, 2, 0.5, 0.1)]) == [0, 2]


def test_without_rows_the_federated_model_is_kept():
    assert choose([torch.zeros(0, 3), torch.zeros(0, 3)]) == [2, 2]


def test_a_mixture_beats_two_models_that_err_in_turn():
    labels = Exact(torch.tensor([0, 0, 1, 1]), 2)
    one = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    other = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    assert int(mixture_table(labels, one, other).sum(0).argmax()) == 2


def test_an_overconfident_network_is_cooled():
    labels = Exact(torch.tensor([0, 1, 1, 1]), 2)
    logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]])
    assert most_likely([likelihoods(logits, labels)]) > 4


def test_the_likelihood_of_every_kind():
    p = torch.tensor([[0.5, 0.3, 0.2]])
    log = lambda value: torch.tensor([value]).log()  # noqa: E731
    torch.testing.assert_close(Exact(torch.tensor([1]), 3).log_likelihood(p), log(0.3))
    either = torch.tensor([[True, True, False]])
    torch.testing.assert_close(Candidates(either, 3).log_likelihood(p), log(0.8))
    torch.testing.assert_close(Positives(either, 3).log_likelihood(p), log(0.15) / 2)
    marks = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    torch.testing.assert_close(Annotated(marks, 3).log_likelihood(p), log(0.35) / 2)
