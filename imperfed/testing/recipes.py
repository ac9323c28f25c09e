"""The clauses about training recipes: whatever a run chooses, it trains the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.local_training import Local
from imperfed.testing.cases import Case
from imperfed.testing.clauses import start
from imperfed.testing.toy import (
    LOCAL,
    Watched,
    as_images,
    differences,
    everything,
    network,
    one_by_one,
    step_by_step,
    world,
)

RECIPES: dict[str, Local] = {
    "adam": replace(LOCAL, optimizer="adam", lr=0.01),
    "adamw": replace(LOCAL, optimizer="adamw", lr=0.01, weight_decay=0.1),
    "cosine": replace(LOCAL, schedule="cosine", warmup=1),
    "step": replace(LOCAL, schedule="step", decay_every=1, decay=0.5),
    "clip": replace(LOCAL, clip=0.2),
    "augment": replace(LOCAL, augment="crop, flip"),
    "all": replace(LOCAL, optimizer="adamw", lr=0.01, schedule="cosine", warmup=1, clip=0.2, augment="flip, crop"),
}
"""What is checked, by the name of its part; "all" is several parts together."""
ROUNDING = 5e-5
"""How far backends may be apart after three rounds: statistics over few rows enlarge what rounding does."""


def recipes_of(case: Case) -> list[str]:
    """Return the recipes that the method leaves to the run."""
    fixed = case.algorithm.fixed_recipe
    parts = {"adamw": {"optimizer"}, "adam": {"optimizer"}, "cosine": {"schedule"}, "step": {"schedule"}}
    parts |= {"clip": {"clip"}, "augment": {"augment"}, "all": {"optimizer", "schedule", "clip", "augment"}}
    return [name for name in RECIPES if case.trains and not parts[name] & fixed.keys()]


def follow(case: Case, recipe: str, **settings: Any) -> Watched:
    """Return an engine whose three rounds follow a recipe, over images where it augments them."""
    chosen: dict[str, Any] = {"local": RECIPES[recipe], "rounds": 3} | settings
    if RECIPES[recipe].augment:
        chosen |= {"data": as_images(world(case.kind)), "net": network(images=True)}
    return start(case, **chosen)


def backends_follow_a_recipe_alike(case: Case, recipe: str) -> None:
    """Check that worker processes compute the same bits, and the program that a GPU replays the same numbers."""
    ordinary = everything(follow(case, recipe).go())
    assert differences(ordinary, everything(follow(case, recipe, local=LOCAL).go())), "the recipe changes nothing"
    assert not differences(everything(follow(case, recipe, workers=2).go()), ordinary)
    loop = everything(follow(case, recipe, make_backend=one_by_one).go())
    program = follow(case, recipe, make_backend=step_by_step).go()
    assert isinstance(program.backend, CudaGraphBackend)
    assert program.backend.not_captured is None
    assert not differences(everything(program), loop, ROUNDING)
    assert not differences(ordinary, loop, ROUNDING)


def resuming_a_recipe_makes_no_difference(case: Case, recipe: str) -> None:
    """Check that a run that is stopped and resumed computes the same bits."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "state.safetensors")
        follow(case, recipe).go(path, stop_after=2)
        rest = follow(case, recipe)
        rest.state.restore(path)
    assert not differences(everything(rest.go()), everything(follow(case, recipe).go()))


def every_recipe_is_followed(case: Case) -> None:
    """Check that optimizers, schedules, clipping and augmentation that the method allows train the same everywhere."""
    for recipe in recipes_of(case):
        backends_follow_a_recipe_alike(case, recipe)
        resuming_a_recipe_makes_no_difference(case, recipe)
