"""Confusion and reliability of predictions, against scikit-learn and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from imperfed.core.labels import Annotated, Candidates, Positives
from imperfed.data.oracle import Oracle
from imperfed.evaluation.evaluator import Evaluator
from imperfed.evaluation.prediction_counts import PredictionCounts, calibration_error, in_bins, pooled
from imperfed.evaluation.temperature import Temperature
from imperfed.results.prediction_figures import CalibrationSummary, PredictionSummary, Reliability

NAMES = ("flu", "sepsis", "measles", "cold", "mumps")


def rows(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits that lean to the truth, and the truth; class 2 is never predicted, class 4 never true."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (n,), generator=draw)
    logits = torch.randn(n, 5, generator=draw) + 2 * torch.eye(5)[y]
    logits[:, 2] = -9.0
    return logits, y


def counted(logits: torch.Tensor, y: torch.Tensor) -> PredictionCounts:
    return PredictionCounts.of_rows(torch.softmax(logits, 1), logits.argmax(1), y)


def test_class_by_class_as_scikit_learn_counts() -> None:
    parts = [rows(60), rows(40, 1)]
    summary = PredictionSummary.of(pooled([counted(*part) for part in parts]), NAMES)
    assert summary is not None
    logits, y = (torch.cat(one) for one in zip(*parts, strict=True))
    assert summary.n == 100
    assert [list(row) for row in summary.confusion] == confusion_matrix(y, logits.argmax(1), labels=range(5)).tolist()
    expected = precision_recall_fscore_support(y, logits.argmax(1), labels=range(5), zero_division=math.nan)
    for c, one in enumerate(summary.classes):
        precision, recall, _, support = (figures[c] for figures in expected)
        assert one.support == support
        for ours, theirs in ((one.recall, recall), (one.precision, precision)):
            assert (ours is None and math.isnan(theirs)) or ours == pytest.approx(theirs)
    assert summary.classes[2].precision is None
    assert summary.classes[4].recall is None
    assert all(isinstance(n, int) for row in summary.confusion for n in row)


def test_what_is_never_predicted_is_said() -> None:
    logits, y = rows(100)
    summary = PredictionSummary.of(counted(logits, y), NAMES)
    assert summary is not None
    missed = int((y == 2).sum())
    assert summary.sentences() == [f"never predicted: measles ({missed} test rows)", "no test rows of: mumps"]
    assert summary.worst()[0].name == "measles"
    assert "mumps" not in [one.name for one in summary.worst()]
    wrong = logits.argmax(1)[y == 2].bincount(minlength=5)
    assert summary.taken_for("measles") == NAMES[int(wrong.argmax())]


def test_a_class_without_test_rows_is_not_missed() -> None:
    confusion = torch.tensor([[9, 1, 0], [5, 2, 0], [0, 0, 0]])
    summary = PredictionSummary.of(PredictionCounts(confusion, torch.zeros(10, 3)), ("flu", "sepsis", "gout"))
    assert summary is not None
    assert summary.sentences() == ["no test rows of: gout"]
    assert [summary.taken_for(name) for name in ("flu", "sepsis", "gout")] == ["sepsis", "flu", ""]


def test_rows_that_all_sites_share_count_once() -> None:
    (logits, y), (other, _) = rows(50), rows(50, 1)
    both = pooled([counted(logits, y), counted(other, y)], same_rows=True)
    assert both is not None
    summary, reliability = PredictionSummary.of(both, NAMES), Reliability.of(both)
    assert summary is not None
    assert reliability is not None
    assert (summary.n, reliability.n) == (50, 50)
    assert [one.support for one in summary.classes] == y.bincount(minlength=5).tolist()
    shares = [float((one.argmax(1) == y).double().mean()) for one in (logits, other)]
    assert reliability.right == pytest.approx(sum(shares) / 2)
    assert pooled([]) is None


def test_the_calibration_error_by_hand() -> None:
    confidence = torch.tensor([0.95, 0.85, 0.9, 0.55, 0.6, 1.0], dtype=torch.float64)
    right = torch.tensor([True, False, True, False, True, True])
    bins = in_bins(confidence, right)
    # (0.8, 0.9]: 0.85 wrong, 0.9 right; (0.9, 1]: 0.95 and 1 right; (0.5, 0.6]: 0.55 wrong, 0.6 right
    assert bins[:, 0].tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 2, 2]
    expected = (2 / 6) * abs(0.5 - 0.575) + (2 / 6) * abs(0.5 - 0.875) + (2 / 6) * abs(1.0 - 0.975)
    assert calibration_error(bins) == pytest.approx(expected)
    found = Reliability.of(PredictionCounts(None, bins))
    assert found is not None
    assert (found.n, found.right) == (6, pytest.approx(4 / 6))
    assert found.confidence == pytest.approx(4.85 / 6)
    assert [(b.low, b.high, b.n) for b in found.bins] == [(0.5, 0.6, 2), (0.8, 0.9, 2), (0.9, 1.0, 2)]
    assert [(b.confidence, b.right) for b in found.bins] == [
        (pytest.approx(0.575), 0.5),
        (pytest.approx(0.875), 0.5),
        (pytest.approx(0.975), 1.0),
    ]
    assert math.isnan(calibration_error(torch.zeros(10, 3)))
    assert in_bins(torch.tensor([0.0]), torch.tensor([True]))[0, 0] == 1


def test_cells_count_where_a_row_may_have_several_classes() -> None:
    probability = torch.tensor([[0.9, 0.2, 0.6], [0.4, 0.7, 0.9]])
    y = torch.tensor([[1, 1, 0], [0, -1, 1]], dtype=torch.int8)
    counts = PredictionCounts.of_cells(probability, y, torch.tensor([True, True, False]))
    assert counts.confusion is None
    found = Reliability.of(counts)
    assert found is not None
    assert (found.n, found.right, found.confidence) == (3, pytest.approx(2 / 3), pytest.approx((0.9 + 0.8 + 0.6) / 3))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_an_evaluator_counts_own_test_rows(temperature: float) -> None:
    parts = [rows(30), rows(20, 1)]
    oracle = Oracle(None, tuple(logits for logits, _ in parts), tuple(y for _, y in parts))
    counts = Evaluator(oracle).predictions(lambda k: lambda x: x, Candidates, temperature)
    assert counts is not None
    assert counts.confusion is not None
    logits, y = (torch.cat(one) for one in zip(*parts, strict=True))
    assert counts.confusion.tolist() == confusion_matrix(y, logits.argmax(1), labels=range(5)).tolist()
    sure = torch.softmax(logits / temperature, 1).amax(1).double()
    assert float(counts.bins[:, 1].sum()) == pytest.approx(float(sure.sum()), rel=1e-6)
    shared = Evaluator(Oracle(None, (logits, logits), (y, y), one_test=True))
    once = shared.predictions(lambda k: lambda x: x, Candidates, 1.0)
    assert once is not None
    assert once.confusion is not None
    assert float(once.confusion.sum()) == 50
    asked: list[int] = []
    alike = shared.predictions(lambda k: asked.append(k) or (lambda x: x), Candidates, 1.0, alike=True)  # type: ignore[func-returns-value]
    assert alike is not None
    assert alike.confusion is not None
    assert asked == [0]
    no_sites = Evaluator(Oracle(None, (), (), logits, y, one_test=True))
    assert no_sites.predictions(lambda k: lambda x: x, Candidates, 1.0, alike=True) is None
    assert torch.equal(alike.confusion, once.confusion)


def test_positives_are_counted_where_every_row_has_one_class() -> None:
    logits, y = rows(30)
    hot = torch.eye(5, dtype=torch.int8)[y]
    counts = Evaluator(Oracle(None, (logits,), (hot,))).predictions(lambda k: lambda x: x, Positives, 1.0)
    assert counts is not None
    assert counts.confusion is not None
    assert counts.confusion.tolist() == confusion_matrix(y, logits.argmax(1), labels=range(5)).tolist()
    several = hot.clone()
    several[0] = 1
    assert Evaluator(Oracle(None, (logits,), (several,))).predictions(lambda k: lambda x: x, Positives, 1.0) is None
    nothing = hot.clone()
    nothing[0] = 0
    assert Evaluator(Oracle(None, (logits,), (nothing,))).predictions(lambda k: lambda x: x, Positives, 1.0) is None
    annotated = Evaluator(Oracle(None, (logits,), (hot,)), torch.tensor([[True, True, True, True, False]]))
    cells = annotated.predictions(lambda k: lambda x: x, Annotated, 1.0)
    assert cells is not None
    assert cells.confusion is None
    assert float(cells.bins[:, 0].sum()) == 30 * 4


def test_what_a_confidence_is_worth_in_words() -> None:
    counts = PredictionCounts(None, in_bins(torch.full((100,), 0.96), torch.arange(100) < 63))
    unfitted = CalibrationSummary.of(Temperature(1.0, reason="no rows are held out (split.validation)"), counts)
    assert unfitted.temperature is None
    assert unfitted.sentence() == (
        "confidence on the test rows: 96 % on average, and 63 % of predictions are right (n = 100 cells, calibration "
        "error 33.0 points); not adjusted, since no rows are held out (split.validation)"
    )
    assert CalibrationSummary.of(Temperature(2.0, 40), None).sentence() == (
        "confidence of the models: adjusted on the labels of 40 rows held out (temperature 2); how often they are "
        "right was not measured"
    )
