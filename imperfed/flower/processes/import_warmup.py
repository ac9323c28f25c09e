"""What a forked process had to import, its parent imports afterwards, so that the next fork has it from the start."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path


class ImportWarmup:
    """Imports in the parent what a forked process had to import, so that the next fork has it from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = set(sys.modules)

    def write(self) -> None:
        """Write what was imported; called in the child, at its end."""
        new = "".join(f"{name}\n" for name in sys.modules if name not in self.known)
        with suppress(OSError), self.path.with_suffix(f".{os.getpid()}").open("w") as file:
            file.write(new)

    def learn(self, child: int) -> None:
        """Import what a child imported; called in the parent, when the child has ended."""
        path = self.path.with_suffix(f".{child}")
        with suppress(OSError):
            for name in path.read_text().split():
                with suppress(Exception):  # names that cannot be imported alone
                    import_module(name)
            path.unlink()
        self.known = set(sys.modules)
