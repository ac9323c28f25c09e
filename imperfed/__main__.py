"""`python -m imperfed` and the `imperfed` command."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line."""
    from imperfed.cli.app import main as command_line

    if "LOCAL_RANK" in os.environ:  # torchrun
        from imperfed.experiments.ranks import as_one_of_several, several

        if several():
            as_one_of_several(command_line)
            return
    command_line()


if __name__ == "__main__":
    main()
