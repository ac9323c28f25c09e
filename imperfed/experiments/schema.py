"""A JSON schema of experiment files, with which an editor completes and explains settings and marks mistakes."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from imperfed.experiments.config import Config, settings_of
from imperfed.experiments.descriptions import descriptions
from imperfed.experiments.setting_sections import CHOSEN, GENERATORS, options

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
"""The draft that TOML editors understand; references and `$defs` are not needed here."""
PARTS = {name: f"run.{name}" for name in ("method", "objective", *CHOSEN)} | {
    section: choice.setting for section, choice in GENERATORS.items()
}
"""The sections whose settings depend on what is chosen by name, and the setting that names it."""


def file_schema(config: Config, any_parts: bool) -> dict[str, Any]:
    """Return the schema of files with the parts (method, repair ...) of this one, and its values as the defaults.

    With `any_parts` the sections of parts take any settings, since a schema cannot follow what a file chooses by name.
    """
    chosen = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    chosen |= {"objective": config.method.objective} | config.generators()
    sections = {name: _section(part) for name, part in chosen.items() if part is not None}
    if any_parts:
        described = {name: f"Settings of what {by} names." for name, by in PARTS.items()}
        sections |= {name: {"type": "object", "description": text} for name, text in described.items()}
    return {"$schema": DRAFT_4, "type": "object", "properties": sections, "additionalProperties": False}


def _section(part: Any) -> dict[str, Any]:
    """Return the schema of a section: each key with its type, its value here as the default, and its description."""
    described, values = descriptions(type(part)), settings_of(part)
    fields = [
        (key, Annotated[kind, Meta(description=described.get(key))], values[key])
        for key, kind in options(type(part)).items()
    ]
    about = {"__doc__": inspect.cleandoc(type(part).__doc__ or "")}
    struct = msgspec.defstruct("section", fields, namespace=about, forbid_unknown_fields=True)
    schema: dict[str, Any] = msgspec.json.schema(struct)["$defs"]["section"]
    return {key: value for key, value in schema.items() if key not in ("title", "required")}
