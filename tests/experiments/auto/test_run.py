"""Whole runs of `auto` on tiny federations: what is written, that it repeats, and that it goes on after a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix

import imperfed
from imperfed.alone import alone_models
from imperfed.core.components import Attack
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates
from imperfed.experiments.auto import run as auto_run
from imperfed.experiments.auto import work
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.ranks import start_ranks, stop_ranks
from imperfed.experiments.run_data import load_data
from imperfed.experiments.watch import Interrupted, Watch
from imperfed.results.auto_summary import AutoSummary, Gain, SiteMixture
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import read_mixture, save_mixture
from tests.experiments.auto.conftest import federation
from tests.support.terminal import write

SMALL = {"rounds": 3, "workers": 1, "progress": False, "device": "cpu"}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(work, "MOST", 4)
    monkeypatch.setattr(alone_models()["forest"], "grid", classmethod(lambda cls, *_: (cls(trees=5),)))
    monkeypatch.setattr(alone_models()["boosting"], "grid", classmethod(lambda cls, *_: (cls(rounds=3),)))


@pytest.mark.parametrize("kind", ["exact", "candidates", "annotated", "positives"])
def test_every_kind_of_labels_goes_from_rows_to_a_report(kind: str, tmp_path: Path):
    data = federation(kind)
    result = imperfed.run(data=data, out=tmp_path, **SMALL)
    auto = result.summary.auto
    assert auto is not None
    assert len(auto.trials) == 4
    assert {site.alone for site in auto.sites} <= set(alone_models())
    assert auto.gain is not None
    assert auto.gain.rows == "rows held out"
    assert auto.sentence() in result.report.read_text()
    assert sum(site.train for site in result.summary.sites) == len(data.labels)  # refitted on all rows
    probability = result.predict(data.x[:5], site="s1")
    assert probability.shape == (5, 3)
    assert torch.isfinite(probability).all()
    assert json.loads((result.folder / "trials.json").read_text())["method"] == auto.method


def test_the_same_seed_leads_to_the_same_choice(tmp_path: Path):
    one, other = (imperfed.run(data=federation("exact"), out=tmp_path / name, **SMALL) for name in "ab")
    assert one.summary.auto == other.summary.auto
    x = torch.randn(4, 3)
    assert torch.equal(one.predict(x, site="s0"), other.predict(x, site="s0"))


def test_what_was_chosen_is_run_over_ranks_and_infers_the_same_labels(tmp_path: Path) -> None:
    alone = imperfed.run(data=federation("candidates"), out=tmp_path / "alone", **SMALL)
    start_ranks(2)
    try:
        apart = imperfed.run(data=federation("candidates"), out=tmp_path / "ranks", **SMALL)
    finally:
        stop_ranks()
    assert "2 ranks hold 1 + 1 sites" in (apart.folder / "log.txt").read_text()
    assert apart.summary.auto is not None
    assert any(site.alone and site.weight < 1 for site in apart.summary.auto.sites)  # needs the rows of all sites
    ours, theirs = apart.labels(), alone.labels()
    assert ours["suggested"] == theirs["suggested"]
    np.testing.assert_allclose(ours["confidence"].to_numpy(), theirs["confidence"].to_numpy(), atol=1e-5)


def test_a_site_predicts_with_its_mixture(tmp_path: Path):
    result = imperfed.run(data=federation("exact"), out=tmp_path, **SMALL)
    folder, x = RunFolder(result.folder), torch.randn(6, 3)
    mixture = read_mixture(folder, "s0")
    assert mixture is not None
    for weight in (0.0, 0.5, 1.0):
        mixture = replace(mixture, weight=weight, temperature=2.0, mixture_temperature=0.5)
        save_mixture(folder, "s0", mixture)
        network = result.model("s0")(result.scale()(x)).detach()
        own = mixture.alone.probabilities(result.scale()(x))
        mixed = weight * torch.softmax(network / mixture.temperature, 1) + (1 - weight) * own
        expected = torch.softmax(mixed.log() / mixture.mixture_temperature, 1)
        torch.testing.assert_close(result.predict(x, site="s0"), expected)


def test_figures_class_by_class_are_those_of_the_mixtures(tmp_path: Path):
    result = imperfed.run(data=write(tmp_path / "mine.npz"), out=tmp_path, partition="iid", sites=2, **SMALL)
    folder = RunFolder(result.folder)
    oracle = load_data(folder.config()).oracle
    predicted = []
    for site, x in zip(result.sites, oracle.test_x, strict=True):
        mixture = read_mixture(folder, site)
        assert mixture is not None
        with torch.no_grad():
            predicted.append(mixture.beside(result.model(site), Candidates)(x).argmax(1))
    found, calibration = result.summary.predictions, result.summary.calibration
    assert found is not None
    truth = torch.cat(oracle.test_y)
    expected = confusion_matrix(truth, torch.cat(predicted), labels=range(3)).tolist()
    assert [list(row) for row in found.confusion] == expected
    assert calibration is not None
    assert result.summary.auto is not None
    assert calibration.temperature == result.summary.auto.mixture_temperature
    assert calibration.rows == result.summary.auto.held_out_rows > 0
    assert calibration.test is not None
    assert calibration.test.n == len(truth)


def test_a_search_that_was_stopped_begins_again(tmp_path: Path):
    request = AutoRequest.of(None, {"method": "auto", "data": "digits", "rounds": 1, "workers": 1, "device": "cpu"})
    assert request is not None
    with pytest.raises(Interrupted, match="imperfed resume"):
        auto_run.start(request, tmp_path, Watch(stop=lambda: True))
    (folder,) = tmp_path.iterdir()
    assert not (folder / "trials.json").exists()
    again = AutoRequest.read(json.loads((folder / "auto.json").read_text()))
    assert again == request


def test_a_refit_that_was_stopped_goes_on(tmp_path: Path):
    data = federation("exact")
    whole = imperfed.run(data=data, out=tmp_path / "whole", **SMALL)
    (tmp_path / "cut").mkdir()
    folder = tmp_path / "cut" / whole.folder.name
    whole.folder.rename(folder)
    (folder / "summary.json").unlink()
    resumed = imperfed.resume(folder, data=data, progress=False)
    assert resumed.summary.auto == whole.summary.auto


def test_a_refit_whose_checkpoint_is_damaged_says_that_it_goes_back(tmp_path: Path):
    data = federation("exact")
    whole = imperfed.run(data=data, out=tmp_path, **SMALL)
    last = RunFolder(whole.folder).checkpoint
    shutil.copy(last, last.with_name(f"before-{last.name}"))
    last.write_bytes(last.read_bytes()[:-1])
    (whole.folder / "summary.json").unlink()
    resumed = imperfed.resume(whole.folder, data=data, progress=False)
    assert resumed.summary.auto == whole.summary.auto
    assert "the run goes back to the checkpoint before it" in (whole.folder / "log.txt").read_text()


def test_a_part_that_no_import_finds_is_used_to_the_end(tmp_path: Path):
    @dataclass(frozen=True)
    class Idle(Attack):
        """Rewrites nothing."""

        name: ClassVar[str] = "idle"
        adversaries: int = 1

        def rewrite(self, x, labels, attribute, classes):
            return x, labels, "nothing"

    result = imperfed.run(data=federation("exact"), out=tmp_path, attack=Idle(), **SMALL)
    assert result.summary.auto is not None
    assert result.report.exists()


def test_what_cannot_be_searched_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="partition = label"):
        imperfed.run(data="bibtex", out=tmp_path, progress=False)
    with pytest.raises(UsageError, match="runs by itself"):
        imperfed.compare(["auto", "fedavg"], "digits", out=tmp_path, progress=False)
    with pytest.raises(UsageError, match="budget bounds the search"):
        imperfed.run("fedavg", out=tmp_path, progress=False, budget=1)


def told(low: float, high: float, weight: float = 1.0, federated: bool = True) -> str:
    gain = Gain("accuracy", 0.8 + (low + high) / 2, 0.8, low, high, 100, "test rows")
    return AutoSummary(
        "m", "mlp", {}, 3, federated, 5, 9, (3,), 0.2, 1.0, (), (SiteMixture("a", weight, "forest"),), gain
    ).sentence()


def test_the_sentence_says_what_federating_brought():
    assert told(0.01, 0.05).startswith("Federating brought 3.0 points")
    assert "not clear" in told(-0.01, 0.05)
    assert told(-0.05, -0.01).startswith("Federating cost 3.0 points")
    assert told(0.0, 0.0, weight=0.0).startswith("Sites do best alone")
    assert told(0.01, 0.05, federated=False).startswith("Sites do best alone")


def test_a_model_object_needs_the_name_of_a_method(tmp_path: Path):
    with pytest.raises(UsageError, match=r"model: auto compares models .* name a method for this object"):
        imperfed.run(data=federation("exact"), out=tmp_path, model=torch.nn.Linear(3, 3), **SMALL)
    assert not list(tmp_path.iterdir())
