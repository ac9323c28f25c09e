"""A repair that computes on a GPU, against the CPU; and what happens where the GPU cannot hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from imperfed.cli.typed_words import configs
from imperfed.core.components import Repair, RepairResult
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Exact
from imperfed.engine import conversation
from imperfed.engine.conversation import repair_labels
from imperfed.experiments import run_data
from imperfed.experiments.device import Hardware
from imperfed.experiments.run_data import as_trained, load_data
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.posterior import PosteriorRepair

GPU = torch.device("cuda", 0)
RAW = PosteriorRepair(features="raw")


def noisy(rows: int = 300, images: bool = False, clean: bool = True) -> Federation:
    """Four sites with rows of four classes, a fifth of whose labels are wrong, and clean rows at the server."""
    draw = torch.Generator().manual_seed(0)
    inputs = 64 if images else 8

    def drawn(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.randint(4, (n,), generator=draw)
        x = 2 * torch.eye(4, inputs)[y] + torch.randn(n, inputs, generator=draw)
        return x.view(n, 1, 8, 8) if images else x, y

    (x, y), (x_clean, y_clean) = drawn(4 * rows), drawn(160)
    wrong = torch.rand(len(y), generator=draw) < 0.2
    given = torch.where(wrong, (y + 1) % 4, y)
    names, starts = tuple("abcd"), tuple(range(0, 4 * rows + 1, rows))
    trusted = Trusted(x_clean, Exact(y_clean, 4)) if clean else None
    ids = tuple(map(str, range(len(y))))
    return Federation("made up", x, Exact(given, 4), starts, names, names, ids, x[:0], trusted=trusted)


CASES: dict[str, tuple[Repair, Callable[[], Federation]]] = {
    "posterior": (replace(RAW, insist=True), lambda: noisy(clean=False)),
    "posterior, clean rows": (RAW, noisy),
    "posterior, hog": (PosteriorRepair(insist=True), lambda: noisy(images=True)),
    "fb-nll": (FBNLL(), noisy),
    "fb-nll, groups": (FBNLL(groups=2, features="pca", M=4), noisy),
    "fb-nll, paper": (FBNLL(phase1="paper", M=4, groups=2), noisy),
    "fb-nll, tasks": (FBNLL(known_tasks=(0, 0, 1, 1), phase1="off"), noisy),
}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_decides_as_the_cpu_does(case: str) -> None:
    repair, data = CASES[case]
    (there, found), (here, wanted) = (
        repair_labels(repair, data(), device=device) for device in (GPU, conversation.CPU)
    )
    assert torch.equal(there.labels.values, here.labels.values)
    assert there.labels.values.device.type == "cpu"
    assert (there.groups, found.notes, found.sent, found.reason) == (
        here.groups,
        wanted.notes,
        wanted.sent,
        wanted.reason,
    )
    for one, other in zip(found.decisions, wanted.decisions, strict=True):
        assert one.noise == pytest.approx(other.noise, abs=1e-6)
        torch.testing.assert_close(one.confidence, other.confidence, rtol=0, atol=1e-5)
        if other.posterior is not None:
            assert one.posterior is not None
            torch.testing.assert_close(one.posterior, other.posterior, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_these_cases_change_labels(case: str) -> None:
    repair, data = CASES[case]
    repaired, _ = repair_labels(repair, data())
    changed = (repaired.labels.values != data().labels.values).sum()
    assert 20 < changed < 700


def test_a_gpu_that_is_too_small_leaves_the_repair_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = conversation.carried_out

    def carried_out(repair: Repair, federation: Federation, device: torch.device) -> object:
        if device.type == "cuda":
            raise torch.cuda.OutOfMemoryError("too little")
        return whole(repair, federation, device)

    monkeypatch.setattr(conversation, "carried_out", carried_out)
    repaired, found = repair_labels(RAW, noisy(), device=GPU)
    here, wanted = repair_labels(RAW, noisy())
    assert torch.equal(repaired.labels.values, here.labels.values)
    assert found.notes == (
        "repair posterior: on the CPU, since the GPU has too little memory for it",
        *wanted.notes,
    )


def test_a_run_on_a_gpu_repairs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs({"data": "digits", "repair": "posterior", "noise": "uniform"})("fedavg", 0)
    where: list[torch.device] = []

    def repair_labels(
        repair: Repair, federation: Federation, wanted: type[Exact], device: torch.device
    ) -> tuple[Federation, RepairResult | None]:
        where.append(device)
        return replace(federation), None

    monkeypatch.setattr(run_data, "repair_labels", repair_labels)
    monkeypatch.setattr(Hardware, "of", lambda run: Hardware(GPU, "tf32"))
    as_trained(config, load_data(config))
    assert where == [GPU]
