"""imperfed: federated learning from imperfect labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imperfed.api.runs import RunResult, open, run

__all__ = ["RunResult", "__version__", "open", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `run`, `open` and `RunResult` on first use: they need torch, which takes long to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from imperfed.api import runs as api

    return getattr(api, name)
