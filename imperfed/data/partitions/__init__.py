"""Which site gets which rows: every `Partition` in a file of this folder, and of plug-ins.

Adding one needs no other edit.
"""

from __future__ import annotations

from functools import cache

from imperfed.core.registry import Registry, components
from imperfed.data.partitions.base import Partition


@cache
def partitions() -> Registry[type[Partition]]:
    """Return all partitions by name."""
    return components(__name__, __path__, partitions=Partition)
