"""The base of everything that `summary.json` and `audit.json` hold."""

from __future__ import annotations

from msgspec import Struct


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a summary: immutable; reading refuses unknown keys."""
