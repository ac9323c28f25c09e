"""Before round 1 every site does once what its rounds will need; what cannot work ends the run, with a name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates, Exact
from imperfed.data.site_files import SiteFiles
from imperfed.engine.site import SiteRuntime
from imperfed.experiments.config import Config
from imperfed.flower.coordinator import flower_backend
from imperfed.flower.coordinator.flower_backend import FlowerBackend
from imperfed.flower.messages.payload import RefusedError
from imperfed.testing.toy import differences
from tests.support.rehearsal import Apart, raw, settled


def kinds(apart: Apart) -> set[str]:
    return {message.metadata.message_type for way, message in apart.grid.sent if way == "down"}


def test_a_site_that_cannot_do_one_step_ends_the_run_before_round_1(tmp_path: Path) -> None:
    apart = Apart(settled("pfedpll"), raw(Candidates), tmp_path)
    real = apart.place

    def with_few_classes(config: Config, declaration: str) -> SiteFiles:
        files = real(apart.holdings[2]).files(config, declaration)
        if "query.ready" in kinds(apart):
            raise RefusedError("the network cannot be built here")
        return files

    apart.place = lambda h: replace(real(h), files=with_few_classes) if h.name == "site2" else real(h)  # type: ignore
    with pytest.raises(UsageError, match=r"failed at site2: the network cannot be built here. Nothing was trained"):
        apart.start()
    assert kinds(apart) == {"query.hello", "query.ready"}


def test_another_version_ends_the_run_before_round_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_backend, "__version__", "0.0.1")
    with pytest.raises(
        UsageError, match=r"failed at site0: it has imperfed .*, and the coordinator 0.0.1; install one"
    ):
        Apart(settled("pfedpll"), raw(Candidates), tmp_path).start()


def test_it_is_one_step_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    real = SiteRuntime.train

    def counted(runtime: SiteRuntime, *words: object) -> object:
        steps.append(runtime.spec.local.steps)
        return real(runtime, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(SiteRuntime, "train", counted)
    apart = Apart(settled("pfedpll"), raw(Candidates), tmp_path).start()
    assert steps == [1, 1, 1, 1]
    assert {path.name for path in tmp_path.glob("site*/run/*")} == {"agreement.json", "asked"}
    with monkeypatch.context() as patch:
        patch.setattr(FlowerBackend, "rehearse", lambda backend: {})
        other = Apart(settled("pfedpll"), raw(Candidates), tmp_path / "other").start().go()
    apart.go()
    assert not differences(apart.engine.state.server, other.engine.state.server)


def test_a_resumed_run_does_not_try_again(tmp_path: Path) -> None:
    Apart(settled("pfedpll"), raw(Candidates), tmp_path).start().go(rounds=1)
    again = Apart(settled("pfedpll"), raw(Candidates), tmp_path).start()
    assert "query.ready" not in kinds(again)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_ends_the_run_before_round_1(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg"), raw(Exact), tmp_path)
    real = apart.place
    apart.place = lambda h: replace(real(h), device="cuda" if h.name == "site1" else "cpu")  # type: ignore
    with pytest.raises(UsageError, match=r"failed at site1: device = cuda: this machine has no GPU"):
        apart.start()
