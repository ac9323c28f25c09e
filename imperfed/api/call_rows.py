"""The rows of a call: a name or a path, tables and arrays in memory, or a ready `Federation`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from imperfed.api.declared import MemoryData, read_again, read_tables, split_keywords
from imperfed.api.handed_over import FORMS, is_in_memory
from imperfed.core.errors import DataError, UsageError
from imperfed.core.federation import Federation
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE, read_declaration
from imperfed.data.files.memory import IN_MEMORY
from imperfed.data.own_files import federate_ready
from imperfed.experiments.config import Config
from imperfed.experiments.starting import InMemory
from imperfed.results.folder import RunFolder

Rows = MemoryData | Federation


def prepared(data: Any, keywords: Mapping[str, Any]) -> tuple[Rows | None, str, dict[str, Any]]:
    """Return the rows in memory, what `run.data` says, and the settings."""
    in_memory = is_in_memory(data)
    if not (in_memory or isinstance(data, Federation | str | os.PathLike)):
        raise UsageError(
            f"data: cannot read a value of type {type(data).__name__}; hand over the name of a dataset, a path, {FORMS}"
        )
    described, settings = split_keywords(keywords, in_memory)
    if in_memory:
        return read_tables(data, described), IN_MEMORY, settings
    if isinstance(data, Federation):
        return data, IN_MEMORY, settings
    return None, os.fspath(data), settings


def loaded(rows: Rows | None, config: Config) -> tuple[FederatedData | None, InMemory | None]:
    """Return the rows as a run takes them, and what its folder keeps about them."""
    if rows is None:
        return None, None
    if isinstance(rows, Federation):
        return _for_networks(rows), InMemory()
    federated = rows.federate(config)
    return federated, InMemory(rows.declaration, rows.index())


def again(folder: RunFolder, data: Any, further: Mapping[str, Any], config: Config) -> FederatedData:
    """Return the rows of a run that began with rows in memory, which are handed over once more."""
    if config.run.data != IN_MEMORY:
        raise UsageError(f"data=...: the rows of {folder.path} are read from {config.run.data}; leave it out")
    if isinstance(data, Federation):
        return _for_networks(data)
    declaration = replace(read_declaration(folder.path / FILE), folder=Path(), in_memory=True)
    return read_again(declaration, data, further).federate(config)


def _for_networks(federation: Federation) -> FederatedData:
    """Return a federation that the caller made, of inputs that networks take."""
    if federation.x.dtype != torch.float32:
        raise DataError(f"{federation.name}: the inputs are {federation.x.dtype}; networks take torch.float32")
    return federate_ready(federation)


def guessed(rows: Rows | None) -> tuple[str, ...]:
    """Return one sentence for everything that was guessed about the columns."""
    return rows.guessed if isinstance(rows, MemoryData) else ()
