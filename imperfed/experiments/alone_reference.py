"""What sites reach alone, beside the methods of a comparison."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from imperfed.data.federate import FederatedData
from imperfed.experiments.auto.reference import alone_models
from imperfed.experiments.comparison_line import Line
from imperfed.experiments.config import Config
from imperfed.experiments.federating_gain import ALONE, RowFigures


@dataclass
class AloneReference:
    """What sites reach alone, seed by seed."""

    means: list[float] = field(default_factory=list)
    by_row: dict[int, Callable[[], RowFigures]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    given: str = ""
    left_out: str = ""
    """Why nothing could be measured."""

    def add(self, config: Config, load: Callable[[Config], FederatedData]) -> None:
        """Measure models that sites fit alone on the data of one seed, where that can be done."""
        began, data = time.perf_counter(), load(config)
        fitted = alone_models(config, data)
        if isinstance(fitted, str):
            self.left_out = fitted
            return
        figures = RowFigures.of(*fitted)
        known = [value for n, value_of in figures.sites if math.isfinite(value := value_of(torch.arange(n)))]
        if known:
            self.means.append(statistics.fmean(known))
            self.by_row[config.run.seed] = lambda: figures
        self.seconds.append(time.perf_counter() - began)
        self.given = data.federation.labels.kind

    def lines(self) -> list[Line]:
        """Return the line of a table, which says why there are no figures if nothing could be measured."""
        if not self.means:
            return [Line(ALONE, (), (), math.nan, None, why_blank=self.left_out or "no figure could be computed")]
        seconds = statistics.fmean(self.seconds)
        by_row = dict(self.by_row)
        line = Line(ALONE, tuple(self.means), (), seconds, None, given=self.given, by_row=by_row, seeds=tuple(by_row))
        return [line]
