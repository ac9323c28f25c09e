"""`imperfed.inspect` of files and of data in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imperfed.api.declared import ARGUMENTS, read_tables, split_keywords
from imperfed.api.handed_over import FORMS, is_in_memory
from imperfed.census.inspect import Inspection, inspected
from imperfed.census.inspect import inspect as inspect_files
from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Federation


def inspection_of(data: Any, keywords: Mapping[str, Any]) -> Inspection:
    """Return the report about files, or about rows in memory, of which nothing is written."""
    if other := [key for key in keywords if key not in ARGUMENTS]:
        raise unknown("argument of inspect", other[0], ARGUMENTS)
    described, settings = split_keywords(keywords, is_in_memory(data))
    if settings:
        key = next(iter(settings))
        raise UsageError(f"{key}=...: a setting of runs; inspect takes what describes the data, so leave it out")
    if isinstance(data, str | os.PathLike):
        return inspect_files(Path(data))
    if isinstance(data, Federation) or not is_in_memory(data):
        kind = type(data).__name__
        forms = FORMS.removesuffix(" or a Federation").replace(", {site: torch", " or {site: torch")
        raise UsageError(f"data: cannot inspect a value of type {kind}; hand over a path, {forms}")
    rows = read_tables(data, described)
    return inspected(rows.reading, rows.guessed, lambda step: step.call(described))
