"""Messages between ranks as bytes: a JSON text that says how an object is made up, and the numbers of its tensors.

Nothing is unpickled. An object is read by setting its attributes: none of its code runs, and its class is imperfed's
own, is derived from one of these, or is a module of torch. So what a stranger sends can at worst be a wrong message of
this kind, and name a module that is installed at the receiver.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from imperfed.core.errors import ImperfedError
from imperfed.core.foreign_text import printable
from imperfed.core.lazy import LazyRows, NamedSource
from imperfed.core.loading import import_path, is_importable
from imperfed.engine.backends.distributed.crossing import (
    UnreadableMessageError,
    cannot_cross,
    class_at,
    dtype_called,
    function_at,
    function_path,
    may_cross,
    strange,
)

PLAIN = (type(None), bool, int, float, str)
ALIGNED = 64
"""Tensors begin at multiples of so many bytes."""
SHOWN = 60
"""The most characters of a value that a message shows."""


def packed(words: Any) -> bytearray:
    """Return an object as bytes; raise `UsageError` if a part of it cannot cross to another process."""
    writer = _Writer()
    text = writer.written(words)
    forms = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in writer.tensors]
    header = json.dumps([forms, text], separators=(",", ":")).encode()
    content = bytearray(len(header).to_bytes(8, "little") + header)
    for t in writer.tensors:
        content += bytes(-len(content) % ALIGNED)
        if t.numel():
            content += t.reshape(-1).view(torch.uint8).numpy().data
    return content


def unpacked(content: bytearray) -> Any:
    """Return the object that `packed` was given; its tensors share the memory of these bytes."""
    try:
        end = 8 + int.from_bytes(content[:8], "little")
        forms, text = json.loads(content[8:end])
        tensors = []
        for name, shape in forms:
            dtype, at = dtype_called(name), end + -end % ALIGNED
            count = torch.Size(shape).numel()
            empty = torch.empty(0, dtype=dtype)
            flat = torch.frombuffer(content, dtype=dtype, count=count, offset=at) if count else empty
            tensors.append(flat.reshape(shape))
            end = at + count * dtype.itemsize
        return _Reader(tensors).read(text)
    except ImperfedError:
        raise
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}")
        raise UnreadableMessageError(f"a message of another rank cannot be read ({reason})") from error


class _Writer:
    """Takes an object apart. What occurs twice is written once, so that it is one object at the receiver as well."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.known: dict[int, tuple[str, int]] = {}
        self.kept: list[Any] = []
        """What was written, so that no other object gets its number while this one writes."""
        self.objects = 0

    def written(self, value: Any) -> Any:
        """Return a value as JSON has it: a plain one as it is, and every other one as a list that begins with a kind.

        Lists and dictionaries are values, of which a copy is as good; objects and tensors are not.
        """
        if type(value) in PLAIN:
            return value
        if id(value) in self.known:
            return [*self.known[id(value)]]
        kind = type(value)
        if kind is list or kind is tuple or kind is set or kind is frozenset:
            return [kind.__name__, *map(self.written, value)]
        if kind is dict or kind is OrderedDict:
            return [kind.__name__, *((self.written(k), self.written(v)) for k, v in value.items())]
        if kind is Tensor or kind is nn.Parameter:
            return self.tensor(value)
        if kind is torch.Size or kind is range:
            return [kind.__name__, *((value.start, value.stop, value.step) if kind is range else value)]
        if kind is torch.dtype or kind is torch.device:
            return [kind.__name__, str(value).removeprefix("torch.")]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        if kind is bytes:
            return ["bytes", value.hex()]
        if isinstance(value, LazyRows):
            sources = tuple(NamedSource(source.name, source.identity, tuple(source.shape)) for source in value.sources)
            return ["lazy", self.written(sources), self.written(value.at), self.written(value.steps)]
        if isinstance(value, FunctionType | BuiltinFunctionType):
            return ["function", function_path(value)]
        if not may_cross(kind) or not is_importable(kind):
            raise cannot_cross(f"{printable(repr(value), SHOWN)} is of {kind.__module__}.{kind.__qualname__}")
        if hasattr(kind, "__struct_fields__"):
            fields = [(name, self.written(getattr(value, name))) for name in kind.__struct_fields__]
            return ["struct", import_path(kind), *fields]
        if isinstance(value, tuple):
            return ["named", import_path(kind), *map(self.written, value)]
        return self.object(value)

    def tensor(self, t: Tensor) -> Any:
        """Note a tensor; a view becomes a tensor of its own."""
        self.kept.append(t)
        self.known[id(t)] = "tensor", len(self.tensors)
        self.tensors.append(t.detach().cpu().contiguous())
        if isinstance(t, nn.Parameter):
            self.known[id(t)] = "again", self.objects
            self.objects += 1
            return ["parameter", len(self.tensors) - 1, t.requires_grad]
        return ["tensor", len(self.tensors) - 1]

    def object(self, value: Any) -> Any:
        """Return the class of an object and its attributes, without those that are worked out when needed."""
        self.kept.append(value)
        self.known[id(value)] = "again", self.objects
        self.objects += 1
        state = value.__getstate__() if isinstance(value, nn.Module) else vars(value)
        cached = {n for base in type(value).__mro__ for n, v in vars(base).items() if isinstance(v, cached_property)}
        return [
            "object",
            import_path(type(value)),
            *((n, self.written(v)) for n, v in state.items() if n not in cached),
        ]


class _Reader:
    """Puts together again what a `_Writer` has taken apart."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.objects: list[Any] = []

    def read(self, text: Any) -> Any:
        """Return the value that was written so."""
        if not isinstance(text, list):
            return text
        kind, *parts = text
        return READERS[kind](self, parts)

    def sequence(self, parts: list[Any]) -> Any:
        """Return the values of a list."""
        return [self.read(part) for part in parts]

    def mapping(self, parts: list[Any]) -> Any:
        """Return names and values."""
        return {self.read(key): self.read(value) for key, value in parts}

    def parameter(self, parts: list[Any]) -> nn.Parameter:
        """Return a parameter of a network."""
        number, learns = parts
        self.objects.append(nn.Parameter(self.tensors[number], requires_grad=bool(learns)))
        parameter: nn.Parameter = self.objects[-1]
        return parameter

    def object(self, parts: list[Any]) -> Any:
        """Return an object with these attributes, of which nothing was called; but torch's modules take them over."""
        path, *state = parts
        kind = class_at(path)
        value = object.__new__(kind)
        self.objects.append(value)
        attributes = {name: self.read(part) for name, part in state}
        if issubclass(kind, nn.Module):
            value.__setstate__(attributes)
        else:
            vars(value).update(attributes)
        return value

    def struct(self, parts: list[Any]) -> Any:
        """Return one of the records of which a summary is made."""
        path, *values = parts
        kind = class_at(path)
        if not hasattr(kind, "__struct_fields__"):
            raise strange(path)
        return kind(**{name: self.read(part) for name, part in values})

    def named(self, parts: list[Any]) -> Any:
        """Return a tuple with names."""
        path, *values = parts
        kind = class_at(path)
        if not issubclass(kind, tuple):
            raise strange(path)
        return tuple.__new__(kind, self.sequence(values))


READERS: dict[str, Callable[[_Reader, list[Any]], Any]] = {
    "list": _Reader.sequence,
    "tuple": lambda reader, parts: tuple(reader.sequence(parts)),
    "set": lambda reader, parts: set(reader.sequence(parts)),
    "frozenset": lambda reader, parts: frozenset(reader.sequence(parts)),
    "dict": _Reader.mapping,
    "OrderedDict": lambda reader, parts: OrderedDict(reader.mapping(parts)),
    "Size": lambda reader, parts: torch.Size(parts),
    "range": lambda reader, parts: range(*parts),
    "dtype": lambda reader, parts: dtype_called(parts[0]),
    "device": lambda reader, parts: torch.device(parts[0]),
    "bytes": lambda reader, parts: bytes.fromhex(parts[0]),
    "tensor": lambda reader, parts: reader.tensors[parts[0]],
    "parameter": _Reader.parameter,
    "again": lambda reader, parts: reader.objects[parts[0]],
    "function": lambda reader, parts: function_at(parts[0]),
    "object": _Reader.object,
    "named": _Reader.named,
    "struct": _Reader.struct,
    "lazy": lambda reader, parts: LazyRows(*reader.sequence(parts)),
    "path": lambda reader, parts: Path(parts[0]),
}
"""How each kind of value is read."""
