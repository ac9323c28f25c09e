"""The settings of an audit: those of a run, as far as they concern the data and the repair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from imperfed.algorithms import reference
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates, Exact
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.setting_sections import GENERATORS
from imperfed.repairs.posterior import PosteriorRepair, SetPosterior

AUDIT = "audit"
"""What stands in place of a method's name where sites are asked to judge their labels."""
SECTIONS = ("split", "labels", "repair", *GENERATORS)
"""The sections of settings that concern an audit."""
SETS = {"candidates", "labels.candidates"}
"""The setting that asks for candidate sets."""
OF_RUN = ("run.data", "run.data_seed")
"""The settings of section `run` that do."""


def audit_config(data: str, settings: Mapping[str, Any]) -> Config:
    """Return the settings by which data are loaded and judged: no row is kept for tests, all labels are judged."""
    sets = not SETS.isdisjoint(settings)  # of a named dataset, which may have both
    always = {
        "method": reference(Candidates if sets else Exact).name,
        "repair": PosteriorRepair.name,
        "data": data,
        "split.test": 0,
        "split.public": 0,
    }
    config = resolve(words=always | dict(settings))
    usual = resolve(words=always).flat()
    for name, value in config.flat().items():
        concerned = name.partition(".")[0] in SECTIONS or name in OF_RUN
        if not concerned and usual.get(name) != value:
            raise UsageError(f"{name} = {value}: an audit trains no model; leave it out")
    return replace(config, repair=SetPosterior(**asdict(config.repair))) if sets and config.repair else config
