"""The base of everything that `summary.json`, `leak.json` and `audit.json` hold."""

from __future__ import annotations

import json
from typing import ClassVar, Self

import msgspec


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a summary: immutable; reading refuses unknown keys."""


class WholeFile(Part, frozen=True):
    """A part that is a file of its own."""

    in_ascii: ClassVar[bool] = True
    """Whether other characters are escaped in the file."""

    def to_json(self) -> str:
        """Return the text of the file; raise an error for a number that JSON cannot hold."""
        return json.dumps(msgspec.to_builtins(self), indent=2, allow_nan=False, ensure_ascii=self.in_ascii)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of the file; raise `ValueError` if it is cut short or does not hold these fields."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a summary of this version of imperfed: {error}") from error
