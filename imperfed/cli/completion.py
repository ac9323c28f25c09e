"""What the shell offers for names and settings when Tab is pressed, from the cached catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from imperfed.cli.catalogue_cache import CachedCatalogue


def methods(incomplete: str) -> list[str]:
    """Offer methods; after `method+`, objectives."""
    method, plus, _ = incomplete.rpartition("+")
    entries = _catalogue().lists["algorithms"]
    return [f"{method}{plus}{entry['name']}" for entry in entries if not plus or entry["is"] == "objective"]


def served(incomplete: str) -> list[str]:
    """Offer what real sites can be asked for: methods, and an audit of their labels."""
    return ["audit", *methods(incomplete)]


def several_methods(incomplete: str) -> list[str]:
    """Offer methods, each after a comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in methods(last)]


def lists() -> list[str]:
    """Offer the names of the lists."""
    return list(_catalogue().lists)


def datasets() -> list[str]:
    """Offer the built-in datasets."""
    return _catalogue().names("datasets")


def models() -> list[str]:
    """Offer the built-in models."""
    return _catalogue().names("models")


def examples() -> list[str]:
    """Offer the example federations."""
    return _catalogue().names("examples")


def studies() -> list[str]:
    """Offer the papers' tables."""
    return _catalogue().names("studies")


def benchmarks() -> list[str]:
    """Offer the kinds of the benchmark."""
    return ["candidates", "fairness", "missing", "noisy", "positives"]


def any_name() -> list[str]:
    """Offer the names of all lists that `imperfed show` knows."""
    catalogue = _catalogue()
    return sorted({name for what in catalogue.lists if what != "labels" for name in catalogue.names(what)})


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """Offer `key=` for every setting that the methods on the command line have in common."""
    # The option parser puts aside what came before an option without its value, so that no parameter holds it.
    words = [context.params.get(key) or "" for key in ("what", "method", "methods")] + context.args
    keys = shared_settings(_catalogue(), [name.strip() for word in words for name in word.split(",")])
    return [f"{key}=" for key in (keys if "." in incomplete else short(keys))]


def shared_settings(catalogue: CachedCatalogue, names: Sequence[str]) -> list[str]:
    """Return the settings that all named methods have, as section.key; without a known name, those of every method."""
    known = [name for name in names if name.partition("+")[0] in catalogue.settings] or list(catalogue.settings)
    first, *others = [own_settings(catalogue, name) for name in known]
    return [key for key in first if all(key in other for other in others)]


def own_settings(catalogue: CachedCatalogue, name: str) -> list[str]:
    """Return the settings of one method, or of `method+objective`."""
    method, plus, objective = name.partition("+")
    keys = catalogue.settings[method]
    if not plus:
        return keys
    of_objective = [key for key in catalogue.settings.get(objective, []) if key.startswith("objective.")]
    return [key for key in keys if not key.startswith("objective.")] + of_objective


def short(keys: Sequence[str]) -> list[str]:
    """Return the keys without their sections where only one section has such a key."""
    counts = Counter(key.partition(".")[2] for key in keys)
    return [own if counts[own := key.partition(".")[2]] == 1 else key for key in keys]


def _catalogue() -> CachedCatalogue:
    from imperfed.cli.catalogue_cache import read_catalogue  # `--help` does without it

    return read_catalogue()
