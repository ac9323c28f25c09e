"""Runs from Python, with the settings, folders and figures of the command line.

result = imperfed.run("pfedpll", data="digits", rounds=5, **{"labels.candidates": "flip"})
result.summary.personal.mean
result.predict("site-0", x)
result.labels("site-0").to_pandas()
imperfed.open("runs/...")  # the result of a run that has ended
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.labels import KINDS
from imperfed.core.network import Network
from imperfed.data.scale import Scale
from imperfed.experiments.config import resolve
from imperfed.experiments.experiment import Watch, load_net, start
from imperfed.results.folder import RunFolder
from imperfed.results.predict import as_inputs, check_inputs
from imperfed.results.summary import Summary

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: its folder and its figures, and on request its models and labels."""

    folder: Path
    summary: Summary

    def predict(self, site: str, x: Any) -> Tensor:
        """Return the probability of each class for new rows [n, ...], an array or tensor like the run's own data.

        The columns of a table are in the order of training, and are standardised here. Images of uint8, [n, h, w] or
        [n, channels, h, w], are divided by 255 as in training; numbers of other types are used unchanged. Where classes
        do not exclude one another (annotated labels), it is the probability that each is present.
        """
        try:
            array = x.numpy(force=True) if isinstance(x, Tensor) else np.asarray(x)
            inputs = as_inputs(array, RunFolder(self.folder).config().run.data, "x")
            check_inputs(inputs, self.summary, "x")
        except (DataError, TypeError, ValueError) as error:
            raise UsageError(f"predict: {error}") from error
        model, scaled = self.model(site), self._scale()(inputs)
        with torch.no_grad():
            logits = torch.cat([model(part) for part in scaled.split(1024)])
        return KINDS[self.summary.facts.labels].probabilities(logits)

    def model(self, site: str) -> Network:
        """Return the network with which a site predicts. It takes inputs as in training: tables standardised."""
        self._check(site)
        folder = RunFolder(self.folder)
        summary = self.summary
        return load_net(folder, folder.config(), site, summary.input, len(summary.classes), summary.features).module

    def labels(self, site: str) -> pyarrow.Table:
        """Return the labels given for a site's training rows and those inferred, as columns."""
        from pyarrow import parquet

        self._check(site)
        if self.summary.labels is None:
            raise UsageError(f"{self.summary.method} inferred no labels in this run")
        return parquet.read_table(self.folder / "labels" / f"{site}.parquet")

    def _scale(self) -> Scale:
        """Return how inputs were standardised."""
        path = self.folder / "models" / "scale.safetensors"
        if path.exists():
            return Scale(**RunFolder(self.folder).load_model("scale"))
        if self.summary.standardised:
            raise DataError(f"{path}: no such file, but the run standardised its inputs; put it back")
        return Scale.none()

    def _check(self, site: str) -> None:
        sites = [row.site for row in self.summary.sites]
        if site not in sites:
            raise unknown("site", site, sites)


def run(method: str, data: str = "digits", out: str | Path = "runs", **settings: Any) -> RunResult:
    """Train one method on a dataset or a file, in a new folder below `out`; settings are those of `--set`."""
    folder, summary = start(resolve(words={"method": method, "data": data, **settings}), Path(out), Watch())
    return RunResult(folder.path, summary)


def open(folder: str | Path) -> RunResult:
    """Return the result of a run that has ended, from its folder."""
    summary = RunFolder.open(Path(folder)).summary()
    if summary is None:
        raise UsageError(f"{folder}: this run has not ended; continue with: imperfed resume {folder}")
    return RunResult(Path(folder), summary)
