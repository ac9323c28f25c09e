"""The findings that the sites of FedPSL's experiments annotate (its tables I and III)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imperfed.data.corruption.annotations.listed import ClassLists

FOUR_SITES = (
    "Infiltration, Effusion, Atelectasis; Effusion, Atelectasis, Nodule; Atelectasis, Nodule, Consolidation; "
    "Nodule, Consolidation, Pneumothorax"
)


@dataclass(frozen=True)
class TableOne(ClassLists):
    """FedPSL's table I: four sites, six findings, three per site."""

    name: ClassVar[str] = "table-1"

    def text(self) -> str:
        return FOUR_SITES


@dataclass(frozen=True)
class TableThree(ClassLists):
    """FedPSL's table III: table I and two sites with one class each, which ChestX-ray14 does not have."""

    name: ClassVar[str] = "table-3"

    def text(self) -> str:
        return f"{FOUR_SITES}; Tuberculosis; COVID-19"


@dataclass(frozen=True)
class OneClassSites(ClassLists):
    """FedPSL's table III for ChestX-ray14 alone: cardiomegaly and emphysema at the sites with one class."""

    name: ClassVar[str] = "one-class"

    def text(self) -> str:
        return f"{FOUR_SITES}; Cardiomegaly; Emphysema"
