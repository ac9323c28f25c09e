"""Public inputs: a share of the test inputs that the server may see, taken from a user's data only where used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from imperfed.data.sources import sources
from imperfed.experiments.config import Config
from imperfed.results.data_facts import DataFacts


def without_unused_public(configs: Sequence[Config]) -> list[Config]:
    """Return the settings of runs on the same data, which leave all test rows to tests if no method uses such inputs.

    All runs are tested on the same rows. Built-in datasets are split as their published figures are, whatever the
    method.
    """
    if any(config.method.uses_public or config.run.data in sources() for config in configs):
        return list(configs)
    return [replace(config, split=replace(config.split, public=0.0)) for config in configs]


def about_public(config: Config, facts: DataFacts) -> str:
    """Return the line of a run's log about its public inputs."""
    name, rows = config.run.title, facts.public_rows
    if not rows:
        return "public inputs: none" + ("" if config.method.uses_public else f"; {name} uses none")
    taken = f"public inputs: {rows} from {facts.public_from}"
    if config.method.uses_public:
        return f"{taken}; {name} uses them, and they are not tested on"
    return f"{taken}, though {name} uses none; public=0 leaves them to the tests"
