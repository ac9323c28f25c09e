"""Every site alone: the reference that shows what federation gains.

symbol    where it lives              does it travel
w_k       personal weights            never
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imperfed.core.algorithm import Algorithm


@dataclass(frozen=True)
class LocalOnly(Algorithm):
    """Training at every site alone: no weight leaves its site, and nothing is merged."""

    name: ClassVar[str] = "local-only"

    def is_personal(self, name: str) -> bool:
        return True
