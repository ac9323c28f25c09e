"""All rows in one place: the reference that privacy forbids, trained with as many steps as all sites together.

symbol    where it lives              does it travel
w         server["w"]                 nowhere: there is one site
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from imperfed.core.algorithm import Algorithm


@dataclass(frozen=True)
class Pooled(Algorithm):
    """Centralised training: one site holds all rows."""

    name: ClassVar[str] = "pooled"
    pools_data: ClassVar[bool] = True
