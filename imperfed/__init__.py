"""imperfed: federated learning from imperfect labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imperfed.api.auditing import AuditResult, audit
    from imperfed.api.comparing import Comparison, compare
    from imperfed.api.leaking import leak
    from imperfed.api.result import RunResult
    from imperfed.api.runs import inspect, load, resume, run
    from imperfed.core.algorithm import Algorithm
    from imperfed.core.federation import Federation
    from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Positive, Positives
    from imperfed.core.objective import Objective
    from imperfed.examples import example

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Annotated",
    "AuditResult",
    "Candidates",
    "Comparison",
    "Exact",
    "Federation",
    "Labels",
    "Objective",
    "Positive",
    "Positives",
    "RunResult",
    "__version__",
    "audit",
    "compare",
    "example",
    "inspect",
    "leak",
    "load",
    "resume",
    "run",
]
_HOMES = {
    "imperfed.api.auditing": ("AuditResult", "audit"),
    "imperfed.api.comparing": ("Comparison", "compare"),
    "imperfed.api.leaking": ("leak",),
    "imperfed.api.result": ("RunResult",),
    "imperfed.api.runs": ("inspect", "load", "resume", "run"),
    "imperfed.core.algorithm": ("Algorithm",),
    "imperfed.core.federation": ("Federation",),
    "imperfed.core.labels": ("Annotated", "Candidates", "Exact", "Labels", "Positive", "Positives"),
    "imperfed.core.objective": ("Objective",),
    "imperfed.examples": ("example",),
}
"""The modules of the names above, which are imported on first use: they need torch, which takes long to import."""


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that the package offers."""
    return sorted(__all__)
