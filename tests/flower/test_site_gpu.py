"""A site's GPU: nothing uses it before the process that answers, the log names it, and answers agree with a CPU's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from imperfed.core.labels import Candidates, Exact
from imperfed.flower.site.runtime import LocalSite, hardware_of
from imperfed.testing.cases import Case, cases
from imperfed.testing.toy import differences
from tests.flower.test_same import spelled
from tests.support.rehearsal import Apart, raw, settled

WATCHED = """
import torch

def used(*words, **named):
    raise AssertionError("the GPU was looked at, and a forked process cannot use it any more")

torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = torch.cuda.current_device = used
from imperfed.flower import apps
from imperfed.flower.processes import site_node
apps.prepare()
print("not looked at")
"""


def test_the_process_that_forks_leaves_the_gpu_alone() -> None:
    """CUDA cannot be used in a process whose parent has used it."""
    found = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False)
    assert found.stdout == "not looked at\n", found.stderr


def test_the_log_says_where_a_site_computes(tmp_path: Path) -> None:
    Apart(settled("fedavg"), raw(Exact), tmp_path).start()
    for k in range(4):
        assert f" site{k} computes on cpu\n" in (tmp_path / f"site{k}" / "log.txt").read_text()


def test_products_are_not_rounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    place = Apart(settled("fedavg"), raw(Exact), tmp_path)
    assert hardware_of(place.place(place.holdings[0])).precision == "float32"
    assert not torch.backends.cudnn.allow_tf32


def both(method: str, kind: type, folder: Path, **words: object) -> list[Apart]:
    """The same run with sites on the CPU and on the GPU."""
    runs = []
    for device in ("cpu", "cuda"):
        apart = Apart(settled(method, **words), raw(kind), folder / device)
        real = apart.place

        def place(holding: object, real: object = real, device: str = device) -> LocalSite:
            return replace(real(holding), device=device)  # type: ignore[operator, no-any-return]

        apart.place = place  # type: ignore[method-assign]
        runs.append(apart.start().go())
    return runs


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")


@gpu
@pytest.mark.parametrize("case", [case for case in cases() if not case.algorithm.pools_data], ids=str)
def test_every_method_agrees_up_to_rounding(case: Case, tmp_path: Path) -> None:
    cpu, cuda = both(spelled(case), case.kind, tmp_path)
    for mine, theirs in zip(cpu.engine.state.servers, cuda.engine.state.servers, strict=True):
        assert not differences(mine, theirs, tolerance=1e-3)


@gpu
@pytest.mark.parametrize(
    ("method", "kind", "words"),
    [
        ("fedavg", Exact, {"local.optimizer": "adam"}),
        ("fedavg", Exact, {"split.validation": 0.3}),
        ("pfedpll", Candidates, {"split.validation": 0.3}),
    ],
)
def test_settings_agree_up_to_rounding(method: str, kind: type, words: dict[str, object], tmp_path: Path) -> None:
    cpu, cuda = both(method, kind, tmp_path, **words)
    assert not differences(cpu.engine.state.server, cuda.engine.state.server, tolerance=1e-3)


@gpu
def test_a_private_update_leaves_the_gpu(tmp_path: Path) -> None:
    words = {"privacy": "site", "privacy.noise": 1.0, "model.name": "mlp"}
    _, cuda = both("fedavg", Exact, tmp_path, **words)
    assert not any(report.failures for report in cuda.reports)
