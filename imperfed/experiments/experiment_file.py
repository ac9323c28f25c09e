"""The TOML file of an experiment."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from imperfed.core.errors import UsageError


def read(path: Path) -> dict[str, Any]:
    """Return the sections of an experiment file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file ({error})") from error
