"""Runs from Python: the same as those of the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import imperfed
from imperfed.core.errors import UsageError
from tests.support.terminal import arrays, done, products, write

pytestmark = pytest.mark.usefixtures("no_page")

FEW = {"rounds": 2, "steps": 5, "workers": 1, "partition": "iid"}


def test_a_run_is_that_of_the_command_line(tmp_path: Path) -> None:
    data = str(write(tmp_path / "mine.npz"))
    result = imperfed.run("pfedpll", data=data, out=tmp_path / "api", **FEW)
    words = [word for key, value in FEW.items() for word in ("--set", f"{key}={value}")]
    assert products(result.folder) == products(done("run", "pfedpll", "--data", data, *words, "--out", tmp_path).folder)
    assert result.summary.personal.n == 8


def test_models_predict_and_labels_are_a_table(tmp_path: Path) -> None:
    data = str(write(tmp_path / "mine.npz"))
    result = imperfed.run("pfedpll", data=data, out=tmp_path / "out", **FEW | {"rounds": 10, "steps": 20, "lr": 0.1})
    x = torch.from_numpy(arrays()["x"])
    net = result.model("site-2")
    with torch.no_grad():
        logits = net((x - x.mean(0)) / x.std(0))
    assert not net.training
    assert float((logits.argmax(1).numpy() == arrays()["y"]).mean()) > 0.8
    probability = result.predict(x, "site-2")  # rows as they come: scaled as the training rows were
    assert float((probability.argmax(1).numpy() == arrays()["y"]).mean()) > 0.8
    assert torch.allclose(probability.sum(1), torch.ones(len(x)))
    assert torch.equal(result.predict(arrays()["x"], "site-2"), probability)
    with pytest.raises(UsageError, match=r"found float32 of shape \(4,\), expected numbers, one row per example"):
        result.predict(x[0], "site-2")
    with pytest.raises(UsageError, match=r"rows of shape \[4\], \[n, \.\.\.\]; got \[40, 3\]"):
        result.predict(x[:, :3], "site-2")
    table = result.labels("site-2")
    assert table.column_names == ["id", "given", "suggested", "confidence", "reason"]
    assert len(table) == result.summary.sites[2].train


def test_wrong_names_are_errors_that_can_be_caught(tmp_path: Path) -> None:
    data = str(write(tmp_path / "mine.npz"))
    with pytest.raises(UsageError, match="Did you mean 'steps'"):
        imperfed.run("cc", data=data, out=tmp_path / "out", stepz=3)
    assert not (tmp_path / "out").exists()
    result = imperfed.run("cross-entropy", data=data, out=tmp_path / "out", **FEW)
    with pytest.raises(UsageError, match="Did you mean 'site-0'"):
        result.model("site_0")
    with pytest.raises(UsageError, match="inferred no labels"):
        result.labels("site-0")
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = imperfed.runn


def test_the_package_imports_at_once() -> None:
    code = "import imperfed, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"
    assert all(getattr(imperfed, name) for name in imperfed.__all__)
