"""The names of settings: a key is completed by its section, and one that no part of the run has is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imperfed.core.errors import UsageError, unknown
from imperfed.experiments.setting_sections import CHOSEN, GENERATORS, options


def full_name(word: str, schemas: Mapping[str, type[Any]]) -> str:
    """Return a key as section.key; the section may be omitted where only one has such a key."""
    if word == "model":
        return "model.name"
    known = [f"{section}.{key}" for section, schema in schemas.items() for key in options(schema)]
    if word in known:
        return word
    matches = [name for name in known if name.partition(".")[2] == word]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"setting {word!r} could be {' or '.join(matches)}: say which")
    _refuse_of_another_generator(word, schemas)
    keys = {name.partition(".")[2] if "." not in word else name for name in known}
    raise unknown("setting", word, keys, _listed_by(schemas))


def _listed_by(schemas: Mapping[str, type[Any]]) -> str:
    """Return the command that lists the settings of every run, of the method, and of an objective chosen for it."""
    method, objective = schemas["method"], schemas.get("objective")
    if objective is None or type(method().objective) is objective:
        return f"imperfed show {method.name}"
    return f"imperfed show {method.name} and imperfed show {objective.name}"


def _refuse_of_another_generator(word: str, schemas: Mapping[str, type[Any]]) -> None:
    """Refuse a setting of a generator that was not chosen, and say which generator has it."""
    for section, choice in GENERATORS.items():
        if holders := choice.holders(word.removeprefix(f"{section}.")):
            raise UsageError(
                f"setting {word!r} belongs to {choice.key} = {' or '.join(holders)}, but {choice.key} is "
                f"{schemas[section].name} here: choose it, or leave the setting out"
            )


def refuse_unknown(flat: Mapping[str, Any], schemas: Mapping[str, type[Any]]) -> None:
    """Refuse settings whose section or key no part of the run has."""
    for name in flat:
        section, _, key = name.partition(".")
        if section not in schemas:
            raise unknown("section", section, schemas)
        if key not in options(schemas[section]):
            _refuse_of_another_generator(name, schemas)
            command = f"imperfed show {schemas[section].name}" if section in CHOSEN else _listed_by(schemas)
            raise unknown(f"setting in [{section}]", key, options(schemas[section]), command)
