"""Figures of labels that were repaired, suspected or filled in, against the truth."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from imperfed.evaluation.model_figures import figure, mean_average_precision, share


@dataclass(frozen=True)
class RepairFigures:
    """Shares of wrong labels before and after a repair, and of changed labels; None for a share of nothing."""

    noise_before: float | None
    noise_after: float | None
    changed: float | None
    precision: float | None
    """The share of changed labels that were wrong."""
    recall: float | None
    """The share of wrong labels that were changed."""
    damage: float | None
    """The share of correct labels that were changed."""

    @classmethod
    def of(cls, given: Tensor, suggested: Tensor, truth: Tensor) -> RepairFigures:
        """Compare labels before and after a repair with the true ones."""
        wrong, changed = given != truth, suggested != given
        return cls(
            noise_before=share(wrong),
            noise_after=share(suggested != truth),
            changed=share(changed),
            precision=share(wrong[changed]),
            recall=share(changed[wrong]),
            damage=share(changed[~wrong]),
        )


@dataclass(frozen=True)
class SuspectFigures:
    """How well suspicions single out wrong labels; None for a share of nothing."""

    wrong: float
    """The share of labels that are wrong."""
    precision: float | None
    """The share of suspects that are wrong."""
    recall: float | None
    """The share of wrong labels that are suspects."""
    average_precision: float | None
    """Of the ranking by suspicion."""
    n: int

    @classmethod
    def of(cls, suspicion: Tensor, suspects: Tensor, wrong: Tensor) -> SuspectFigures:
        """Compare suspicions and suspects (a mask) with the labels that are wrong (a mask)."""
        return cls(
            wrong=float(wrong.double().mean()),
            precision=share(wrong[suspects]),
            recall=share(suspects[wrong]),
            average_precision=figure(mean_average_precision(suspicion[:, None], wrong[:, None].long())),
            n=len(wrong),
        )


@dataclass(frozen=True)
class FillingFigures:
    """How well missing labels were filled in."""

    accuracy: float
    """The share that is correct with a threshold of 0.5."""
    always_absent: float
    """The share that would be correct if every missing label were taken as absent."""
    auroc: float | None
    """The mean over classes; None if no class has both present and absent labels among them."""
    n: int
    """The number of filled-in labels whose truth is known."""
