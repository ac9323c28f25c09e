"""Wrong labels are found and corrected before the search, if the features bear them out and nobody minds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import imperfed
from imperfed.alone import alone_models
from imperfed.core.labels import Exact
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.experiments.auto import work
from imperfed.experiments.auto.label_check import CheckedLabels, check_labels
from imperfed.experiments.auto.reference import alone_predictors, as_given
from imperfed.experiments.auto.request import AutoRequest
from imperfed.results.auto_summary import AutoSummary, Gain, LabelCheck, SiteMixture
from tests.experiments.auto.conftest import federation

ROWS = 150


def noisy(share: float = 0.4) -> tuple[FederatedData, torch.Tensor]:
    """Return two sites, of which the first has so many wrong labels, and the right ones."""
    own, draw = federation("exact", rows=ROWS), torch.Generator().manual_seed(1)
    y = own.labels.values
    wrong = (torch.rand(len(y), generator=draw) < share) & (torch.arange(len(y)) < ROWS)
    labels = Exact(torch.where(wrong, (y + 1 + torch.randint(2, y.shape, generator=draw)) % 3, y), 3)
    facts = {"labels": "exact", "rows": [ROWS, ROWS], "test_rows": []}
    return FederatedData(replace(own, labels=labels), Oracle(None, (), ()), facts, Scale.none()), y


def checked(data: FederatedData, budget: float = 5.0, **words: str) -> CheckedLabels:
    return check_labels(AutoRequest({}, words, budget), data)


def test_wrong_labels_are_corrected_before_the_search() -> None:
    data, truth = noisy()
    found = checked(data)
    given = int((data.federation.labels.values != truth).sum())
    left = int((found.at_sites.federation.labels.values != truth).sum())
    assert given > 40
    assert left < given / 4
    assert found.check.corrected > given / 2
    assert found.request.base.run.repair == found.check.repair == "posterior"
    assert found.request.base.repair is not None
    assert "tell the classes apart" in found.check.sentence()


def test_labels_that_are_right_stay_as_they_are() -> None:
    data, truth = noisy(0.0)
    found = checked(data)
    assert torch.equal(found.at_sites.federation.labels.values, truth)
    assert found.check.corrected == 0
    assert found.check.sentence() == ""
    assert found.check.words.startswith("few or none are clearly wrong (")
    assert found.request.base.repair is None


def test_noise_that_features_do_not_bear_out_stays() -> None:
    data, _ = noisy()
    blind = replace(data, federation=replace(data.federation, x=torch.randn(2 * ROWS, 3)))
    found = checked(blind)
    assert torch.equal(found.at_sites.federation.labels.values, data.federation.labels.values)
    assert "stay as they are" in found.check.words
    assert found.request.base.repair is None


@pytest.mark.parametrize(
    ("words", "budget", "why"),
    [
        ({"repair": "none"}, 5.0, "no repair is wanted (repair = none)"),
        ({}, 0.001, "300 rows are too many to look at their labels within this budget"),
    ],
)
def test_labels_are_not_looked_at(words: dict[str, str], budget: float, why: str) -> None:
    data, _ = noisy()
    found = checked(data, budget, **words)
    assert found.check == LabelCheck(words=why)
    assert torch.equal(found.at_sites.federation.labels.values, data.federation.labels.values)


def test_sets_of_candidates_are_not_looked_at() -> None:
    data, _ = noisy()
    sets = replace(data, federation=federation("candidates", rows=ROWS))
    assert checked(sets).check.words.endswith("are not repaired, only labels that name one class")


def test_a_repair_that_is_asked_for_is_made_and_counted() -> None:
    found = checked(noisy()[0], 0.001, repair="posterior")
    assert found.check.corrected > 0


def test_a_site_alone_has_its_labels_as_given() -> None:
    data, _ = noisy()
    config = checked(data).request.base
    given = as_given(config, data)
    assert torch.equal(given.federation.labels.values, data.federation.labels.values)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST", 2)
    monkeypatch.setattr(alone_models()["forest"], "grid", classmethod(lambda cls, *_: (cls(trees=5),)))
    monkeypatch.setattr(alone_models()["boosting"], "grid", classmethod(lambda cls, *_: (cls(rounds=3),)))
    monkeypatch.setattr(alone_models()["network"], "grid", classmethod(lambda cls, *_: ()))


@pytest.mark.usefixtures("_few")
def test_the_first_lines_say_so(tmp_path: Path) -> None:
    result = imperfed.run(data=noisy()[0].federation, out=tmp_path, rounds=2, workers=1, progress=False, device="cpu")
    auto = result.summary.auto
    assert auto is not None
    assert auto.label_check.corrected > 0
    assert auto.label_check.sentence() in auto.sentence()
    assert auto.sentence() in result.report.read_text()
    assert auto.gain is not None
    assert auto.gain.labels == "with the corrected labels"  # there are no test rows
    assert result.summary.repair is not None
    assert 'repair = "posterior"' in (result.folder / "config.toml").read_text()
    log = (result.folder / "log.txt").read_text()
    assert "labels (" in log
    assert "public inputs: none; auto uses none" in log


@pytest.mark.usefixtures("_few")
def test_models_alone_learn_from_the_labels_as_given() -> None:
    data, truth = noisy(0.9)
    config = checked(data, repair="none").request.base
    x = data.federation.x[:ROWS]
    one, _ = alone_predictors(config, as_given(config, data), 1.0)
    assert float((one(x).argmax(1) == truth[:ROWS]).float().mean()) < 0.5


def told(rows: str, labels: str, weight: float) -> str:
    site, check = SiteMixture("a", weight, "forest"), LabelCheck("posterior", 40, 100, "they tell the classes apart")
    gain = Gain("accuracy", 0.9, 0.7, 0.1, 0.3, 50, rows, labels)
    auto = AutoSummary("fedavg", "mlp", {}, 3, True, 1, 9, (3,), 0.2, 1.0, (), (site,), gain, label_check=check)
    return auto.sentence()


def test_the_sentence_names_the_labels_of_either_side() -> None:
    said = told("test rows", "with their labels as given", 1.0)
    assert said.startswith(
        "Federating brought 20.0 points over the best that sites do alone with their labels as given"
    )
    assert said.endswith("Before the search 40 of 100 labels (40 %) were corrected (they tell the classes apart).")
    alone = told("test rows", "with their labels as given", 0.0)
    assert "Sites do best alone" not in alone  # the labels were corrected by all sites together
    assert "Every site is given the model that it fits to its own rows, with the corrected labels." in alone
