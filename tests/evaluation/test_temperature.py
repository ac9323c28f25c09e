"""The temperature fitted on rows held out: what it makes of each kind of labels, and what it leaves as it is."""

from __future__ import annotations

import pytest
import torch

from imperfed.core.labels import KINDS, Annotated, Candidates, Exact, Labels, Positive, Positives
from imperfed.core.temperatures import TEMPERATURES, likelihoods
from imperfed.evaluation.prediction_counts import PredictionCounts, calibration_error
from imperfed.evaluation.temperature import (
    NOT_HELD_OUT,
    SAY_NOTHING,
    UNFITTED,
    Temperature,
    fitted,
    most_likely,
)


def made(n: int, heat: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits that are `heat` times too large, and classes drawn from the right probabilities."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 4, generator=draw)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=draw).flatten()
    return heat * logits, y


@pytest.mark.parametrize("heat", [0.5, 1.0, 4.0])
def test_the_right_temperature_is_found(heat: float) -> None:
    logits, y = made(3000, heat)
    assert most_likely([likelihoods(logits, Exact(y, 4))]) == heat
    draw = torch.Generator().manual_seed(1)
    sets = torch.eye(4, dtype=torch.bool)[y] | (torch.rand(len(y), 4, generator=draw) < 0.3)
    assert most_likely([likelihoods(logits, Candidates(sets, 4))]) == heat


def test_annotated_cells_find_it_too() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 3, generator=draw)
    marks = torch.bernoulli(torch.sigmoid(logits), generator=draw).to(torch.int8)
    marks[torch.rand(2000, 3, generator=draw) < 0.4] = -1
    assert most_likely([likelihoods(3 * logits, Annotated(marks, 3))]) == 3


def test_sites_add_up() -> None:
    parts = [made(300, 4.0, seed) for seed in range(3)]
    told = [likelihoods(logits, Exact(y, 4)) for logits, y in parts]
    logits, y = (torch.cat(one) for one in zip(*parts, strict=True))
    assert most_likely(told) == most_likely([likelihoods(logits, Exact(y, 4))]) == 4
    assert [len(one) for one in told] == [len(TEMPERATURES)] * 3


def test_a_fit_lowers_the_calibration_error_on_other_rows() -> None:
    logits, y = made(400, 6.0)
    temperature = most_likely([likelihoods(logits, Exact(y, 4))])
    other, truth = made(2000, 6.0, seed=5)
    errors = [
        calibration_error(PredictionCounts.of_rows(torch.softmax(other / t, 1), other.argmax(1), truth).bins)
        for t in (1.0, temperature)
    ]
    assert errors[1] < 0.05 < 0.2 < errors[0]


@pytest.mark.parametrize("kind", [Exact, Candidates, Annotated])
def test_predictions_stay(kind: type[Labels]) -> None:
    logits = made(500, 3.0)[0]
    for t in TEMPERATURES:
        plain, cooled = kind.probabilities(logits), kind.probabilities(logits / t)
        names = list("abcd")
        assert kind.predicted(cooled, names) == kind.predicted(plain, names)


@pytest.mark.parametrize("kind", [Candidates, Annotated])
def test_suggested_labels_stay_and_are_less_sure(kind: type[Labels]) -> None:
    logits, y = made(200, 1.0)
    draw = torch.Generator().manual_seed(2)
    extra = torch.rand(200, 4, generator=draw) < 0.4
    hot = torch.eye(4, dtype=torch.bool)[y]
    labels: Labels = Candidates(hot | extra, 4)
    if kind is Annotated:
        labels = Annotated(torch.where(extra, -1, hot.to(torch.int8)).to(torch.int8), 4)
    belief = labels.consistent(labels.probabilities(logits))
    cooled = labels.tempered(belief, 4.0)
    assert torch.equal(labels.tempered(belief, 1.0), belief)
    torch.testing.assert_close(cooled, labels.consistent(labels.probabilities(logits / 4)), atol=1e-5, rtol=1e-4)
    one, other = (labels.label_table(list(map(str, range(200))), list("abcd"), p, None) for p in (belief, cooled))
    assert one["suggested"] == other["suggested"]
    assert sum(other["confidence"]) < sum(one["confidence"])
    if kind is Candidates:
        assert not cooled[~labels.values].any()  # what a set rules out stays out


def test_a_belief_that_is_certain_stays_so() -> None:
    certain = torch.tensor([[1.0, 1e-30]])
    open_to_both = Candidates(torch.ones(1, 2, dtype=torch.bool), 2)
    assert float(open_to_both.tempered(certain, 2.0)[0, 0]) > 0.99999
    unknown = Annotated(torch.full((1, 2), -1, dtype=torch.int8), 2)
    assert unknown.tempered(certain, 2.0).tolist()[0] == [pytest.approx(1, abs=1e-3), pytest.approx(0, abs=1e-3)]


def test_where_it_cannot_be_fitted_it_says_why() -> None:
    told = [likelihoods(*_pair(made(50, 4.0)))]
    assert fitted(told, Exact, 50).value == 4
    assert (fitted(told, Exact, 50).rows, fitted(told, Exact, 50).reason) == (50, "")
    assert fitted([], Exact, 0).reason == NOT_HELD_OUT
    for kind in (Positives, Positive):
        assert "never say that a class is absent" in fitted(told, kind, 50).reason
        assert fitted(told, kind, 50).value == 1
    everything = likelihoods(torch.randn(5, 4), Candidates(torch.ones(5, 4, dtype=torch.bool), 4))
    assert fitted([everything], Candidates, 5) == Temperature(1.0, 0, SAY_NOTHING)
    assert Temperature(1.0, reason=NOT_HELD_OUT) == UNFITTED
    assert {name for name, kind in KINDS.items() if kind.uncalibrated} == {"positive", "positives"}


def test_nothing_speaks_against_one() -> None:
    assert most_likely([]) == 1
    assert most_likely([[0.0] * len(TEMPERATURES)]) == 1


def _pair(rows: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, Labels]:
    return rows[0], Exact(rows[1], 4)
