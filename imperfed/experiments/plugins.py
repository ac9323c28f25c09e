"""What of a run comes from other distributions than imperfed, and what of it is missing where the run is opened."""

from __future__ import annotations

from collections.abc import Container, Mapping
from importlib import metadata
from typing import Any

from imperfed.core.errors import UsageError
from imperfed.core.loading import import_path, is_importable, load_object
from imperfed.core.registry import plugins_of
from imperfed.experiments.config import Config
from imperfed.experiments.setting_sections import CHOSEN, GENERATORS

KEY = "plug-ins"
"""The key of `env.json` under which they are recorded."""
OBJECT = "object"
"""The key of a plug-in that only the caller can hand over again; its value is the argument."""


def plugins_in(config: Config) -> list[dict[str, str]]:
    """Return where every part of a run that is not imperfed's own comes from: import path, distribution, version."""
    entries = [_entry(part, value) for part, value in parts_of(config).items() if not _is_built_in(value)]
    if (model := config.model.handed_over) is not None:
        entries.append({"path": model.path, **_distribution(model.path), OBJECT: "model", "repr": model.describe()})
    elif ":" in config.model.name:
        entries.append({"path": config.model.name, **_distribution(config.model.name)})
    for group, name in (("models", config.model.name), ("datasets", config.run.data)):
        paths = [plugin.path for plugin in plugins_of(group) if plugin.name == name]
        entries += [{"path": path, **_distribution(path)} for path in paths]
    return [entry for n, entry in enumerate(entries) if entry not in entries[:n]]


def parts_of(config: Config) -> dict[str, Any]:
    """Return the objects that a run is made of besides its model, by the arguments that choose them."""
    parts: dict[str, Any] = {"method": config.method, "objective": config.method.objective}
    parts |= {part: getattr(config, part) for part in CHOSEN}
    parts |= {GENERATORS[section].key: generator for section, generator in config.generators().items()}
    return {part: value for part, value in parts.items() if value is not None}


def refuse_what_stays_here(config: Config, why: str) -> None:
    """Refuse parts of a run that another process cannot import; `why`: what needs other processes, in words."""
    path = next((import_path(type(part)) for part in parts_of(config).values() if not is_importable(type(part))), "")
    if config.model.handed_over is not None:
        path = config.model.handed_over.path
    if path:
        raise UsageError(f"{why}, and {path} exists only here; put it in a module and name it as package.module:name")


def _entry(part: str, value: Any) -> dict[str, str]:
    path = import_path(type(value))
    return {"path": path, **_distribution(path), **({} if is_importable(type(value)) else {OBJECT: part})}


def _is_built_in(value: Any) -> bool:
    return type(value).__module__.startswith("imperfed.")


def _distribution(path: str) -> dict[str, str]:
    """Return the distribution that an import path belongs to; empty for a module that no distribution holds."""
    names = metadata.packages_distributions().get(path.partition(":")[0].partition(".")[0], [])
    return {"distribution": names[0], "version": metadata.version(names[0])} if names else {}


def missing_plugin(environment: Mapping[str, Any], handed_over: Container[str] = ()) -> UsageError | None:
    """Return an error that names the first plug-in of a run that cannot be imported here; None if all can.

    `handed_over`: the import paths of those that were handed over again. A model that was not says so itself.
    """
    for plugin in environment.get(KEY, []):
        path, distribution, part = plugin["path"], plugin.get("distribution"), plugin.get(OBJECT)
        if path in handed_over or part == "model":
            continue
        origin = f" of {distribution} {plugin['version']}" if distribution else ""
        try:
            load_object("plug-in", path)
        except UsageError as error:
            if part:
                return UsageError(
                    f"needs its {part}, which was handed over as an object of class {path}; hand it over again in "
                    f"Python: imperfed.load(folder, {part}=...) or imperfed.resume(folder, {part}=...)"
                )
            why = error.__cause__ or error
            advice = "install it" if distribution else "run from the folder that holds it"
            return UsageError(f"needs {path}{origin}, which cannot be imported here: {why}; {advice}")
    return None
