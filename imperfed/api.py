"""Runs from Python: the settings, the folder and the figures of the command line.

result = imperfed.run("pfedpll", data="digits", rounds=5, **{"labels.candidates": "flip"})
result.summary["personal"]["mean"]
result.predict("site-0", x)
result.labels("site-0").to_pandas()
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from imperfed.config import resolve
from imperfed.errors import UsageError, unknown
from imperfed.experiment import Watch, load_net, start
from imperfed.folder import Record, RunFolder
from imperfed.labels import KINDS
from imperfed.network import Network

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: its folder and its figures, and on request its models and labels."""

    folder: Path
    summary: Record

    def predict(self, site: str, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """The probability of each class for new rows [n, ...] as they come: those of a table are standardised first.

        Where classes do not exclude one another (annotated labels), it is the probability that each is present.
        """
        from imperfed.data.scale import Scale

        x, shape = torch.as_tensor(x), self.summary["input"]
        fixed = shape[:1] if self.summary["features"] else shape  # sparse rows may have more slots, or fewer
        if x.ndim != 1 + len(shape) or list(x.shape[1 : 1 + len(fixed)]) != fixed:
            raise UsageError(f"predict takes rows of shape {shape}, [n, ...]; got {list(x.shape)}")

        scaled = (self.folder / "models" / "scale.safetensors").exists()
        scale = Scale(**RunFolder(self.folder).load_model("scale")) if scaled else lambda x: x
        with torch.no_grad():
            return KINDS[self.summary["facts"]["labels"]].probabilities(self.model(site)(scale(x).float()))

    def model(self, site: str) -> Network:
        """The network with which a site predicts. It takes inputs as it was trained on: tables standardised."""
        self._check(site)
        folder = RunFolder(self.folder)
        shape, classes = tuple(self.summary["input"]), len(self.summary["classes"])
        return load_net(folder, folder.config(), site, shape, classes, self.summary["features"]).module

    def labels(self, site: str) -> pyarrow.Table:
        """What a site's training rows were given and what was worked out, as columns."""
        from pyarrow import parquet

        self._check(site)
        if not self.summary["labels"]:
            raise UsageError(f"{self.summary['method']} worked out no labels in this run")
        return parquet.read_table(self.folder / "labels" / f"{site}.parquet")

    def _check(self, site: str) -> None:
        sites = [row["site"] for row in self.summary["sites"]]
        if site not in sites:
            raise unknown("site", site, sites)


def run(method: str, data: str = "digits", out: str | Path = "runs", **settings: Any) -> RunResult:
    """Train one method on a dataset or a file, in a new folder below `out`; settings as `--set` takes them."""
    folder, summary = start(resolve(words={"method": method, "data": data, **settings}), Path(out), Watch())
    return RunResult(folder.path, summary)
