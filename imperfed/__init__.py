"""imperfed: federated learning from imperfect labels.

Begin with a table of which one column says the site, and one (or several) the label:

    import imperfed

    print(imperfed.inspect(table, label="diagnosis", site="hospital"))   what the sites hold, which methods fit
    result = imperfed.run("fedavg", table, label="diagnosis", site="hospital", rounds=20)
    print(result)                                                         figures, site by site
    result.predict(new_rows)                                              columns are matched by name

    imperfed.run("auto", table, ..., budget=1)       search for the best model, one minute long
    imperfed.compare(["fedavg", "scaffold"], table, ...)                  on the same splits, beside each site alone
    imperfed.audit(table, ...)                       which labels are probably wrong

Instead of a table: {site: table}, {site: (x, labels)} with arrays, or a path as on the command line. Without data,
`imperfed.example("hospitals")` writes files to try these calls on. All methods: `imperfed list` on the command line.
"""

from __future__ import annotations

import os
import sys
import warnings
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

if not hasattr(os, "fork"):
    raise ImportError("imperfed runs on Linux: its workers are forked; on Windows, use the Linux subsystem (WSL)")
if not sys.platform.startswith("linux"):
    warnings.warn(f"imperfed was tried on Linux only; this is {sys.platform}", stacklevel=2)


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that the package offers."""
    return sorted(__all__)
