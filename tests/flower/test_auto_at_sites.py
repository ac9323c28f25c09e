"""`auto` with real sites: the search, the choice and the models of one process, from figures alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from imperfed.alone import alone_models
from imperfed.data.federate import FederatedData
from imperfed.data.oracle import Oracle
from imperfed.data.scale import Scale
from imperfed.experiments import experiment
from imperfed.experiments.auto import run as auto_run
from imperfed.experiments.auto import work
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.experiment import Watch
from imperfed.flower.coordinator.auto_run import AutoRun
from imperfed.flower.coordinator.serving import searched_settings
from imperfed.flower.messages.payload import unpack
from imperfed.flower.site import site_results
from imperfed.results.folder import RunFolder
from imperfed.results.summary import Summary
from imperfed.testing.toy import differences
from tests.experiments.auto.conftest import federation
from tests.support.rehearsal import Apart

WORDS = {"method": "auto", "rounds": 4, "workers": 1, "device": "cpu", "data": "toy"}


@dataclass
class Both:
    """The same search in one process and with real sites."""

    here: RunFolder
    summary: Summary
    apart: Apart
    there: RunFolder
    served: Summary

    def own(self, site: str) -> RunFolder:
        """What a real site has of the run."""
        return RunFolder(self.apart.folder / site / "run")


def toy(kind: str, rows: int = 40) -> FederatedData:
    """Two sites with test rows of their own."""
    whole = federation(kind, sites=4, rows=rows)
    cut = 2 * rows
    here = replace(
        whole, x=whole.x[:cut], labels=whole.labels.between(0, cut), starts=(0, rows, cut), sites=("s0", "s1"),
        ids=whole.ids[:cut],
    )  # fmt: skip
    x = tuple(whole.x[cut + k * rows : cut + (k + 1) * rows] for k in range(2))
    y = tuple((part.argmax(1) if kind != "annotated" else (part > 1).to(whole.labels.values.dtype)) for part in x)
    facts = {"labels": kind, "rows": [rows, rows], "test_rows": [rows, rows]}
    facts |= dict.fromkeys(("common_test_rows", "rows_left_out", "public_rows"), 0)
    return FederatedData(here, Oracle(None, x, y), facts, Scale.none())


@pytest.fixture(scope="module", params=["exact", "candidates", "annotated"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    path, data = tmp_path_factory.mktemp("auto"), toy(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "MOST", 4)
        patch.setattr(work, "RUNGS", (1, 3, 9))
        patch.setattr(alone_models()["forest"], "grid", classmethod(lambda cls: (cls(trees=5),)))
        patch.setattr(alone_models()["boosting"], "grid", classmethod(lambda cls: (cls(rounds=3),)))
        for room in (experiment, site_results):
            patch.setattr(room, "write_report", lambda folder: folder.write("report.html", ""))
        asked = AutoRequest.of(None, WORDS)
        assert asked is not None
        here, summary = auto_run.start(asked, path / "here", Watch(), data)
        apart = Apart(searched_settings(asked), data, path, scales=False)
        coordinator = apart.coordinator()
        coordinator.folder.write("config.toml", asked.base.toml())
        served = AutoRun(coordinator, asked).run(Watch())
        yield Both(here, summary, apart, coordinator.folder, served)


def test_the_choice_is_that_of_one_process(both: Both) -> None:
    here, there = both.summary.auto, both.served.auto
    assert here is not None
    assert there is not None
    for part in ("method", "model", "settings", "rounds", "temperature", "trials", "rungs", "sites", "combinations"):
        assert getattr(there, part) == getattr(here, part), part
    assert len(here.trials) == 4
    assert here.gain is not None
    assert there.gain is not None
    assert (there.gain.delivered, there.gain.alone, there.gain.n) == (here.gain.delivered, here.gain.alone, here.gain.n)
    assert there.gain.low <= there.gain.delivered - there.gain.alone <= there.gain.high
    assert both.served.personal == both.summary.personal
    assert json.loads((both.there.path / "trials.json").read_text())["method"] == here.method


def test_every_site_has_the_models_of_one_process(both: Both) -> None:
    for site in ("s0", "s1"):
        own = both.own(site)
        for file in (f"models/{site}.safetensors", f"alone/{site}.safetensors"):
            mine = own.load_tensors(own.path / file)
            name = file if (both.here.path / file).exists() else "models/global.safetensors"
            assert not differences(mine, both.here.load_tensors(both.here.path / name)), file
        labels = f"labels/{site}.parquet"
        assert (own.path / labels).exists() == (both.here.path / labels).exists()
        if (own.path / labels).exists():
            assert (own.path / labels).read_bytes() == (both.here.path / labels).read_bytes()


def test_a_site_keeps_what_it_needs_and_nothing_else(both: Both) -> None:
    for k, site in enumerate(("s0", "s1")):
        own = both.own(site)
        summary = own.summary()
        assert summary is not None
        assert summary.auto is not None
        assert [one.site for one in summary.auto.sites] == [site]
        assert summary.sites[0].value == both.summary.sites[k].value
        assert not list(own.path.glob("search-*"))
        assert not list((own.path / "trials").glob("*"))
        assert not (both.there.path / "alone").exists()
        assert not (both.there.path / "labels").exists()


def test_only_figures_and_weights_leave_a_site(both: Both) -> None:
    for way, message in both.apart.grid.sent:
        payload = unpack(message.content)
        if way == "up" and message.metadata.message_type not in ("train", "query.hello"):
            assert not any(payload.trees.values()), message.metadata.message_type
