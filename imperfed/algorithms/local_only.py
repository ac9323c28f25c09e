"""Every site alone: the reference that shows what federation gains.

symbol    where it lives              does it travel
w_k       personal weights            never
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from imperfed.core.algorithm import Algorithm


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Training at every site alone: no weight leaves its site, and nothing is merged."""

    name: ClassVar[str] = "local-only"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = {}

    def is_personal(self, name: str) -> bool:
        return True
