"""Where a run computes and how exactly, from its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from imperfed.cli.typed_words import configs
from imperfed.core.errors import UsageError
from imperfed.experiments import device
from imperfed.experiments.config import RunConfig
from imperfed.experiments.device import Hardware
from imperfed.experiments.parallel import ParallelRuns

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What torch is told here holds for the whole process."""
    cudnn = torch.backends.cudnn
    names = ("allow_tf32", "benchmark", "benchmark_limit", "deterministic")
    before, products = {name: getattr(cudnn, name) for name in names}, torch.get_float32_matmul_precision()
    yield
    for name, value in before.items():
        setattr(cudnn, name, value)
    torch.set_float32_matmul_precision(products)


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, **settings: object) -> Hardware:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Hardware.of(RunConfig(**settings))  # type: ignore[arg-type]


def test_auto_is_the_gpu_where_there_is_one_and_products_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_a_gpu(monkeypatch) == Hardware(GPU, "tf32")
    assert on_a_gpu(monkeypatch, device="cpu") == Hardware(torch.device("cpu"), "float32")
    assert on_a_gpu(monkeypatch, precision="float32", compile=True) == Hardware(GPU, "float32", compiled=True)
    assert on_a_gpu(monkeypatch, deterministic=True) == Hardware(GPU, "tf32", deterministic=True)


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"precision": "tf32"}, {"compile": True}])
def test_settings_of_a_gpu_are_refused_on_a_cpu(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="settings for a GPU"):
        Hardware.of(RunConfig(device="cpu", **settings))  # type: ignore[arg-type]


def test_a_cpu_is_deterministic_in_any_case() -> None:
    assert Hardware.of(RunConfig(device="cpu", deterministic=True)).described() == {
        "device": "cpu",
        "precision": "float32",
    }


@pytest.mark.parametrize(
    ("place", "tf32", "tries", "fixed"),
    [
        (Hardware(GPU, "float32"), False, False, False),
        (Hardware(GPU, "tf32"), True, False, False),
        (Hardware(GPU, "bf16", compiled=True), True, True, False),
        (
            Hardware(GPU, "tf32", compiled=True, deterministic=True),
            True,
            False,
            True,
        ),  # the fastest is not always the same
    ],
)
def test_what_torch_is_told(place: Hardware, tf32: bool, tries: bool, fixed: bool) -> None:
    place.prepare()
    cudnn = torch.backends.cudnn
    assert (cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic) == (tf32, tries, fixed)
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")


@pytest.mark.parametrize(("processes", "wanted", "workers"), [(1, 0, 8), (3, 0, 2), (20, 0, 1), (3, 5, 5)])
def test_processes_side_by_side_divide_the_cores(
    processes: int, wanted: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "cores", lambda: 8)
    monkeypatch.setattr(device, "ProcessBackend", lambda population, on_duty, workers: workers)
    monkeypatch.setattr(device, "_side_by_side", 1)
    device.share_cores(processes)
    population: Any = None
    assert Hardware.of(RunConfig(device="cpu")).local_backend(population, 4, wanted) == workers


def side_by_side(number: int) -> int:
    return device._side_by_side


def test_processes_of_a_comparison_know_how_many_they_are(tmp_path: Path) -> None:
    like = configs({"data": "digits"})("fedavg", 0)
    with ParallelRuns(3) as processes:
        found = [future.result() for future in processes.begun(3, side_by_side, [(0,), (1,)], like, tmp_path)]
    assert found == [3, 3]
    assert device._side_by_side == 1
