"""The parts of a run that a call hands over as objects: method, objective, model, and whatever else settings name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from imperfed.algorithms import catalogue, objectives
from imperfed.api.handed_over import is_table
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.loading import blaming, import_path, is_importable
from imperfed.core.objective import Objective
from imperfed.experiments.config import settings_of
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.setting_sections import CHOSEN, GENERATORS, Catalogue, options
from imperfed.models.own import OBJECT, ModelObject
from imperfed.results.folder import RunFolder

FORMS = "package.module:Class, an instance or a class"


@dataclass(frozen=True)
class PartArgument:
    """An argument that takes a name, an instance or a class."""

    setting: str
    """The setting that names the part."""
    section: str
    """The section of its settings."""
    known: Catalogue


PARTS: dict[str, PartArgument] = {
    "method": PartArgument("run.method", "method", catalogue),
    "objective": PartArgument("run.objective", "objective", objectives),
    **{part: PartArgument(f"run.{part}", part, known) for part, known in CHOSEN.items()},
    **{c.key: PartArgument(c.setting, section, c.known) for section, c in GENERATORS.items()},
}
ARGUMENTS = (*PARTS, "model")
"""The arguments that take objects."""
OPTIONAL = ARGUMENTS[1:]


def split_objects(keywords: Mapping[str, Any]) -> tuple[Objects, dict[str, Any]]:
    """Return the parts that are objects, and the other keywords; None is the same as leaving an argument out."""
    keywords = {key: value for key, value in keywords.items() if key not in OPTIONAL or value is not None}
    taken = {key: value for key, value in keywords.items() if key in ARGUMENTS and not isinstance(value, str)}
    objects = NO_OBJECTS
    for argument, value in taken.items():
        objects |= _model(value) if argument == "model" else _part(argument, value)
    if isinstance(method := taken.get("method"), Algorithm):
        objects |= _inner_objective(method, "objective" in keywords)
    return objects, {key: value for key, value in keywords.items() if key not in taken}


def title_of(method: Any) -> str:
    """Return the title of a method in a comparison: its name, and the settings that differ from their defaults."""
    if isinstance(method, str):
        return method
    cls = _class_of("methods", method)
    name = cls.name if "name" in vars(cls) and cls.name not in catalogue() else _name("method", cls)
    if isinstance(method, type):
        return name
    changed = [f"{f.name}={v}" for f in fields(method) if (v := getattr(method, f.name)) != f.default and _plain(v)]
    title = f"{name}({', '.join(changed)})" if changed else name
    inner = getattr(method, "objective", None)
    return title if inner is None or inner == cls().objective else f"{title}+{title_of(inner)}"


# -- one part ----------------------------------------------------------------------------------------------------------


def _part(argument: str, value: Any) -> Objects:
    """Return a part that was handed over, as settings name it."""
    cls = _class_of(argument, value)
    name, section = _name(argument, cls), _section(argument, cls)
    settings = {} if isinstance(value, type) else _settings(argument, value)
    return Objects(
        {PARTS[argument].setting: name},
        {f"{section}.{key}": setting for key, setting in settings.items()},
        {name: cls} if ":" in name else {},
    )


def _inner_objective(method: Algorithm, another: bool) -> Objects:
    """Return the objective that a method was made with; `another`: whether the call chooses one as well."""
    name, default = type(method).__name__, type(method)().objective
    if method.objective is None and default is not None:
        raise UsageError(f"method: {name}(objective=None) has no objective; leave it out, or choose one")
    if another and method.objective != default:
        raise UsageError(f"objective=...: {name} was made with an objective already; leave one of them out")
    if another or method.objective is None:
        return NO_OBJECTS
    inner = _part("objective", method.objective)
    # An objective that the method has anyway stays unnamed, so that the run is the one of the method's name.
    return replace(inner, names={}) if type(default) is type(method.objective) else inner


def _section(argument: str, cls: type[Any]) -> str:
    """Return the section of a part's settings; an objective may be handed over as the method."""
    return "objective" if issubclass(cls, Objective) else PARTS[argument].section


def _class_of(argument: str, value: Any) -> type[Any]:
    """Return the class of a part; refuse what is no such part, and classes that runs cannot rely on."""
    part = PARTS["method" if argument == "methods" else argument]
    kinds, cls = part.known().kinds, value if isinstance(value, type) else type(value)
    if not issubclass(cls, kinds):
        kind = " or ".join(kind.__name__ for kind in kinds)
        got = f"the class {cls.__name__}" if cls is value else f"a value of type {cls.__name__}"
        fix = "; data come after the method, or by name: data=..." if argument == "method" and is_table(value) else ""
        raise UsageError(f"{argument}: expected the name of {_a(part.section)}, {FORMS} of {kind}; got {got}{fix}")
    if inspect.isabstract(cls):
        raise UsageError(
            f"{argument}: {cls.__name__} does not define {', '.join(sorted(vars(cls)['__abstractmethods__']))}"
        )
    if "__dataclass_params__" not in vars(cls) or not vars(cls)["__dataclass_params__"].frozen:
        raise UsageError(f"{argument}: {cls.__name__} is no frozen dataclass; write @dataclass(frozen=True) above it")
    if not isinstance(getattr(cls, "name", None), str):
        raise UsageError(f"{argument}: {cls.__name__} has no name; add a line such as name: ClassVar[str] = 'mine'")
    with blaming(f"{argument}: {cls.__name__}() must work without arguments; give every setting a default"):
        cls()
    with blaming(f"{argument}: {cls.__name__} has a setting whose type cannot be read; annotate it with a plain type"):
        options(cls)
    return cls


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _name(argument: str, cls: type[Any]) -> str:
    """Return the name in the catalogue; the import path of a class that is not in it."""
    name: str = cls.name
    return name if PARTS[argument].known().get(name) is cls else import_path(cls)


def _settings(argument: str, value: Any) -> dict[str, Any]:
    """Return the settings of an instance; refuse whatever cannot be recorded."""
    cls = type(value).__name__
    if more := vars(value).keys() - {field.name for field in fields(value)}:
        raise UsageError(
            f"{argument}: {cls} holds {sorted(more)[0]!r} besides its settings; make it a field, or keep it in the "
            "memory that hooks are given"
        )
    settings = settings_of(value)
    for key, setting in settings.items():
        if not _plain(setting):
            raise UsageError(
                f"{argument}: {cls}.{key} holds a value of type {type(setting).__name__}, which cannot be recorded; "
                "settings are numbers, text, true or false, or tuples of these"
            )
    return settings


def _plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_plain, value))
    return isinstance(value, str | int | float)


def _model(value: Any) -> Objects:
    """Return a model as settings name it, and the model itself unless it can be imported by this name."""
    if not isinstance(value, nn.Module) and not callable(value):
        raise UsageError(
            "model: expected the name of a model, package.module:function, an nn.Module or a function that makes one; "
            f"got a value of type {type(value).__name__}"
        )
    if is_importable(value):
        return Objects({"model.name": import_path(value)})
    model = ModelObject(value)
    return Objects({"model.name": f"{OBJECT}{model.path}"}, model=model)


# -- a run that is opened again ----------------------------------------------------------------------------------------


def objects_again(folder: RunFolder, arguments: Mapping[str, Any]) -> Objects:
    """Return the parts of a run that are handed over again; refuse others than it began with."""
    recorded, model = folder.settings(), None
    classes: dict[str, type[Any]] = {}
    for argument, value in arguments.items():
        if argument not in ARGUMENTS:
            raise UsageError(f"{argument}=...: no such argument; known: {', '.join(ARGUMENTS)}")
        record, _, key = ("model.name" if argument == "model" else PARTS[argument].setting).partition(".")
        name = str(recorded.get(record, {}).get(key, ""))
        if argument == "model":
            model = _model_again(folder, name, value)
        else:
            classes |= _class_again(argument, name, value, recorded)
    return Objects(classes=classes, model=model)


def _model_again(folder: RunFolder, name: str, value: Any) -> ModelObject | None:
    if not name.startswith(OBJECT):
        raise UsageError(f"model=...: the model of {folder.path} is {name!r}, which is found by name; leave it out")
    if isinstance(value, str):
        raise UsageError("model: expected the object that was handed over; got a value of type str")
    _model(value)
    return ModelObject(value)


def _class_again(
    argument: str, name: str, value: Any, recorded: Mapping[str, Mapping[str, Any]]
) -> dict[str, type[Any]]:
    """Return the class of a part by its recorded name; it may have moved to another module since."""
    cls = _class_of(argument, value)
    if cls.__name__ != name.rpartition(":")[2].rpartition(".")[2] and _name(argument, cls) != name:
        was = f"is {name!r}" if name else "is not set"
        raise UsageError(f"{argument}: {cls.__name__} was handed over, but the {argument} of this run {was}")
    if isinstance(value, type):
        return {name: cls}
    before = recorded.get(_section(argument, cls), {})
    for key, setting in _settings(argument, value).items():
        then, now = before.get(key), list(setting) if isinstance(setting, tuple) else setting
        if then != now:
            raise UsageError(f"{argument}: {cls.__name__} has {key}={now!r}, but the run was made with {key}={then!r}")
    inner = getattr(value, "objective", None)
    own = str(recorded.get("run", {}).get("objective", ""))
    return {name: cls} | (_class_again("objective", own, inner, recorded) if inner is not None and own else {})
