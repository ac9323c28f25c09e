"""What of a run comes from other distributions than imperfed, and what of it is missing where the run is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from imperfed.core.errors import UsageError
from imperfed.core.loading import import_path, load_object
from imperfed.core.registry import plugins_of
from imperfed.experiments.config import CHOSEN, Config

KEY = "plug-ins"
"""The key of `env.json` under which they are recorded."""


def plugins_in(config: Config) -> list[dict[str, str]]:
    """Return where every part of a run that is not imperfed's own comes from: import path, distribution, version."""
    return [{"path": path, **_distribution(path)} for path in dict.fromkeys(_paths(config))]


def _paths(config: Config) -> Iterator[str]:
    """Yield the import paths of the parts that are not imperfed's own."""
    parts = [config.method, config.method.objective, *(getattr(config, part) for part in CHOSEN)]
    for part in [*parts, *config.generators().values()]:
        if part is not None and not type(part).__module__.startswith("imperfed."):
            yield import_path(type(part))
    if ":" in config.model.name:
        yield config.model.name
    for group, name in (("models", config.model.name), ("datasets", config.run.data)):
        yield from (plugin.path for plugin in plugins_of(group) if plugin.name == name)


def _distribution(path: str) -> dict[str, str]:
    """Return the distribution that an import path belongs to; empty for a module that no distribution holds."""
    names = metadata.packages_distributions().get(path.partition(":")[0].partition(".")[0], [])
    return {"distribution": names[0], "version": metadata.version(names[0])} if names else {}


def missing_plugin(environment: Mapping[str, Any]) -> UsageError | None:
    """Return an error that names the first plug-in of a run that cannot be imported here; None if all can."""
    for plugin in environment.get(KEY, []):
        path, distribution = plugin["path"], plugin.get("distribution")
        origin = f" of {distribution} {plugin['version']}" if distribution else ""
        try:
            load_object("plug-in", path)
        except UsageError as error:
            why = error.__cause__ or error
            advice = "install it" if distribution else "run from the folder that holds it"
            return UsageError(f"needs {path}{origin}, which cannot be imported here: {why}; {advice}")
    return None
