"""Components that work with any algorithm: label repairs before it, attacks on it, defences around its merge.

Like algorithms, they are frozen dataclasses whose fields are settings, found by their `name` in their package.
"""

from __future__ import annotations

from imperfed.core.components.attack import (
    Adversaries,
    Attack,
    AttackedFederation,
    UpdateAttack,
    apply_attack,
    draw_adversaries,
)
from imperfed.core.components.defence import Defence
from imperfed.core.components.repair import LabelDecision, Repair, RepairResult, RepairVerdict

__all__ = [
    "Adversaries",
    "Attack",
    "AttackedFederation",
    "Defence",
    "LabelDecision",
    "Repair",
    "RepairResult",
    "RepairVerdict",
    "UpdateAttack",
    "apply_attack",
    "draw_adversaries",
]
