"""One of Flower's commands, tied to its parent: `python -m imperfed.flower.processes.parent_watch COMMAND ARGS`.

The command ends when its parent does, however that ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

from imperfed.flower.processes.own_calls import admit_own_calls_only
from imperfed.flower.processes.superlink_patches import guard_trees, let_sites_only_answer, take_whole_messages

LOOK = 0.5  # seconds
SECRET_FILE = "--superexec-auth-secret-file"
"""SuperLink's option that names the file with the secret of the coordinator's own processes."""


def end_with(parent: int) -> None:
    """Send this process SIGTERM as soon as its parent has ended, however it ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="tether", daemon=True).start()


def main() -> None:
    """Run the Flower command named by the first argument, in this process."""
    end_with(os.getppid())
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "flower-superlink":
        admit_own_calls_only(Path(sys.argv[sys.argv.index(SECRET_FILE) + 1]))
        guard_trees()
        take_whole_messages()
        let_sites_only_answer()
    [command] = metadata.entry_points(group="console_scripts", name=sys.argv[0])
    command.load()()


if __name__ == "__main__":
    main()
