"""The folder that an export writes: the model, a description for programs, and a model card for people."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed import __version__
from imperfed.api.result import RunResult
from imperfed.core.atomic import new_folder
from imperfed.core.errors import UsageError, unknown
from imperfed.core.labels import KINDS
from imperfed.export.delivered_model import DeliveredModel
from imperfed.export.export_formats import FORMATS, INPUT, OUTPUT
from imperfed.export.input_columns import input_columns
from imperfed.export.model_card import model_card
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import read_mixture
from imperfed.results.predict import own_model, whose

TRIED = 3
"""The rows with which a program is traced; it then takes any number of them."""


@dataclass(frozen=True)
class ExportedFiles:
    """Where an export lies."""

    folder: Path
    model: Path

    @property
    def all(self) -> list[Path]:
        """Every file of it."""
        return sorted(self.folder.iterdir())


def export_model(result: RunResult, out: Path, format: str = "onnx", site: str = "") -> ExportedFiles:
    """Write the model of a site, or the one that all share, into a new folder, with its description and its card."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if out.exists():
        raise UsageError(f"{out} already exists; choose another folder with --out")
    site = whose(result, site, "--site")
    model, description = delivered(result, site), describe(result, site)
    suffix, write = FORMATS[format]
    with new_folder(out) as folder:
        write(model, example(result), description, folder / f"model.{suffix}")
        (folder / "model.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        card = model_card(result.summary, site, description, f"model.{suffix}")
        (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    return ExportedFiles(out, out / f"model.{suffix}")


def delivered(result: RunResult, site: str) -> DeliveredModel:
    """Return all that stands between a site's rows and its predictions."""
    summary, network = result.summary, copy.deepcopy(result.model(site))  # its parameters are views of one row
    mixture = read_mixture(RunFolder(result.folder), site)
    return DeliveredModel(result.scale(), network, KINDS[summary.facts.labels], summary.temperature, mixture)


def describe(result: RunResult, site: str) -> dict[str, Any]:
    """Return what a program must know to call the model."""
    summary = result.summary
    several = KINDS[summary.facts.labels].several
    return {
        "made by": f"imperfed {__version__}",
        "method": summary.title,
        "data": summary.data,
        "site": site,
        "shared": not own_model(result, site),
        "input": {
            "name": INPUT,
            "type": "float32",
            "shape": ["rows", *summary.input],
            "columns": input_columns(RunFolder(result.folder)),
            "blanks": "NaN" if len(result.scale().fill) else "not allowed",
            "scaling": "inside the model" if summary.standardised else "none",
        },
        "output": {
            "name": OUTPUT,
            "type": "float32",
            "shape": ["rows", len(summary.classes)],
            "classes": list(summary.classes),
            "meaning": "each class is present with its own probability" if several else "probabilities sum to 1",
        },
    }


def example(result: RunResult) -> Tensor:
    """Return inputs of the right shape: zeros, which are valid as sparse inputs too."""
    return torch.zeros(TRIED, *result.summary.input)
