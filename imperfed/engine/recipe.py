"""Whether a training recipe fits the method, the data and the number of rounds."""

from __future__ import annotations

from imperfed.core.errors import DataError, UsageError
from imperfed.core.exchange import WeightedGradient
from imperfed.core.federation import Federation
from imperfed.engine.local_training import Local
from imperfed.engine.site import RunSpec

PARTS = {"optimizer": ("optimizer",), "schedule": ("schedule", "warmup"), "clip": ("clip",), "augment": ("augment",)}
"""The parts of a recipe that not every method leaves to the run, and the settings of `local` that choose them."""
USUAL = Local()


def refuse_misfit_recipe(spec: RunSpec, federation: Federation) -> None:
    """Refuse, before training, a recipe that could not be followed."""
    algorithm, local = spec.algorithm, spec.local
    fixed = dict(algorithm.fixed_recipe)
    if any(isinstance(exchange, WeightedGradient) for exchange in algorithm.exchanges(0)):
        fixed |= dict.fromkeys(("optimizer", "clip", "augment"), "here it makes no local steps")
    for part, reason in fixed.items():
        for key in PARTS[part]:
            usual, chosen = (getattr(recipe, key) for recipe in (USUAL, local))
            if chosen != usual:
                raise UsageError(
                    f"local.{key}={chosen} is not for {algorithm.name}: {reason}; leave local.{key} at {usual!r}"
                )
    if local.warmup >= spec.rounds and local.warmup:
        raise UsageError(
            f"local.warmup is {local.warmup}, but the run has {spec.rounds} rounds, so that local.lr would never be "
            "reached; set fewer rounds of warm-up"
        )
    if local.augment and federation.x.ndim != 4:
        raise DataError(
            f"local.augment={local.augment} changes images (channels, height, width), but an input of "
            f"{federation.name} has the shape {tuple(federation.x.shape[1:])}; leave local.augment empty"
        )
