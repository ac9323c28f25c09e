"""Figures class by class and a fitted confidence, from runs to their products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import confusion_matrix

import imperfed
from imperfed.api.result import RunResult
from imperfed.core.temperatures import TEMPERATURES, likelihoods
from imperfed.data.held_out import hold_out
from imperfed.evaluation.temperature import UNFITTED, most_likely
from imperfed.experiments import experiment
from imperfed.experiments.run_data import load_data
from imperfed.report import write_report
from imperfed.results.folder import RunFolder

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "sites": 3,
    "candidates": "flip",
    "rounds": 4,
    "steps": 10,
    "workers": 1,
    "device": "cpu",
    "progress": False,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[float, RunResult]:
    """A run whose sites hold rows out, and one whose sites do not."""
    out = tmp_path_factory.mktemp("runs")
    return {
        share: imperfed.run("fedavg+proden", out=out, validation=share, keep_best=False, **SETTINGS)
        for share in (0.0, 0.2)
    }


def on_test_rows(result: RunResult) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of each site's model for its own test rows, and their truth."""
    oracle = load_data(RunFolder(result.folder).config()).oracle
    with torch.no_grad():
        logits = [result.model(site)(x) for site, x in zip(result.sites, oracle.test_x, strict=True)]
    return torch.cat(logits), torch.cat(oracle.test_y)


def test_the_summary_counts_every_test_row_once(runs: dict[float, RunResult]) -> None:
    result = runs[0.2]
    found, (logits, y) = result.summary.predictions, on_test_rows(result)
    assert found is not None
    assert found.n == len(y) == result.summary.personal.n
    assert [list(row) for row in found.confusion] == confusion_matrix(y, logits.argmax(1), labels=range(10)).tolist()


def test_the_temperature_is_that_of_the_rows_held_out(runs: dict[float, RunResult]) -> None:
    result = runs[0.2]
    config = RunFolder(result.folder).config()
    held = hold_out(load_data(config), 0.2, config.run.data_seed).federation.validation
    assert held is not None
    with torch.no_grad():
        pairs = [(result.model(site)(held.at(k)[0]), held.at(k)[1]) for k, site in enumerate(result.sites)]
    calibration = result.summary.calibration
    assert calibration is not None
    assert calibration.temperature == most_likely([likelihoods(*pair) for pair in pairs])
    assert calibration.temperature in TEMPERATURES
    assert calibration.temperature != 1  # otherwise this test shows nothing
    assert calibration.rows == held.starts[-1]
    assert calibration.test is not None
    logits, y = on_test_rows(result)
    sure = torch.softmax(logits / calibration.temperature, 1).amax(1)
    assert calibration.test.confidence == pytest.approx(float(sure.mean()), abs=1e-6)
    assert calibration.test.right == pytest.approx(float((logits.argmax(1) == y).double().mean()))


def test_predictions_have_the_temperature_and_the_same_classes(runs: dict[float, RunResult]) -> None:
    x = load_data(RunFolder(runs[0.2].folder).config()).oracle.test_x[0]
    for result in runs.values():
        with torch.no_grad():
            logits = result.model("site-0")(x)
        probability = result.predict(x, site="site-0")
        torch.testing.assert_close(probability, torch.softmax(logits / result.summary.temperature, 1))
        assert torch.equal(probability.argmax(1), logits.argmax(1))
    assert runs[0.0].summary.temperature == 1


def test_a_fit_brings_confidence_and_truth_together(runs: dict[float, RunResult]) -> None:
    plain, cooled = (runs[share].summary.calibration for share in (0.0, 0.2))
    assert plain is not None
    assert cooled is not None
    assert plain.test is not None
    assert cooled.test is not None
    assert cooled.test.error < plain.test.error
    assert plain.temperature is None
    assert plain.sentence().endswith("; not adjusted, since no rows are held out (split.validation)")


def test_labels_say_what_a_confidence_is_worth(runs: dict[float, RunResult]) -> None:
    for result in runs.values():
        text = (result.folder / "labels" / "README.txt").read_text()
        labels = result.summary.labels
        assert labels is not None
        assert labels.accuracy is not None
        assert f"{100 * labels.mean_confidence:.0f} % sure. {100 * labels.accuracy:.0f} % are right" in text
        assert result.summary.calibration is not None
        assert f"{result.summary.calibration.sentence()}." in text
        confidence = result.labels()["confidence"].to_numpy()
        assert confidence.mean() == pytest.approx(labels.mean_confidence, abs=1e-5)


def test_suggestions_do_not_depend_on_the_temperature(
    runs: dict[float, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "fit_confidence", lambda engine: UNFITTED)
    plain = imperfed.run("fedavg+proden", out=tmp_path, validation=0.2, keep_best=False, **SETTINGS).labels()
    fitted = runs[0.2].labels()
    assert fitted["suggested"] == plain["suggested"]
    assert fitted["confidence"] != plain["confidence"]


def test_the_report_shows_both(runs: dict[float, RunResult]) -> None:
    page = write_report(RunFolder(runs[0.2].folder)).read_text()
    for words in (
        "Class by class",
        "Confusion matrix",
        "Lowest recall",
        "Confidence of the predictions",
        "calibration error",
    ):
        assert words in page
    assert 'id="reliability-' in page
    assert 'id="confusion-' in page
