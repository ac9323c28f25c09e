"""The versions of Flower that these modules support."""

from __future__ import annotations

from importlib import metadata

from imperfed.core.errors import UsageError

OLDEST, FIRST_UNKNOWN = (1, 41), (1, 43)
WANTED = "flwr >= 1.41, < 1.43 (pip install 'imperfed[flower]')"


def supported(version: str) -> bool:
    """Return whether a version of Flower is supported."""
    major, minor, *_ = (int(part) if part.isdecimal() else 0 for part in [*version.split("."), "0", "0"])
    return OLDEST <= (major, minor) < FIRST_UNKNOWN


def check_version() -> None:
    """Refuse a Flower that is missing or of an unsupported version."""
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise UsageError(f"real sites need {WANTED}; it is not installed") from None
    if not supported(version):
        raise UsageError(f"real sites need {WANTED}; flwr {version} is installed")
