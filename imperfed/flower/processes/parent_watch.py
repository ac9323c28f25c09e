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

from imperfed.flower.processes.flower_patches import look_often, pull_soon, show_certificate
from imperfed.flower.processes.keys import SiteKeys
from imperfed.flower.processes.pulse import LinkSpeed, Pulse, end_without, watch_calls
from imperfed.flower.processes.session import sign_off

AUTH = "--auth-supernode-private-key"
"""The option before the key of a site, in whose folder its certificate is."""
LOOK = 0.5  # seconds


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
    [command] = metadata.entry_points(group="console_scripts", name=sys.argv[0])
    run = command.load()
    is_site = sys.argv[0] == "flower-supernode"
    if is_site:
        if AUTH in sys.argv:
            show_certificate(SiteKeys.read(Path(sys.argv[sys.argv.index(AUTH) + 1]).parent).tls())
        pulse = Pulse()
        look_often(pulse.tick)
        pull_soon()
        sign_off(sys.argv)
        pulse.tick()
        watch_calls(pulse, LinkSpeed())
        end_without(pulse)
    run()
    if is_site:  # it returns only after an error, and a thread of its own would keep the process, which is of no use
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
