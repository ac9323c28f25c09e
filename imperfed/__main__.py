"""`python -m imperfed` and the `imperfed` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line, or say where it runs."""
    if not hasattr(os, "fork"):
        sys.exit("error: imperfed runs on Linux: its workers are forked; on Windows, use the Linux subsystem (WSL)")
    from imperfed.cli.app import main as command_line

    command_line()


if __name__ == "__main__":
    main()
