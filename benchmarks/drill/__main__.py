"""Run the drill, or the scenes named; `--fill PAGE` writes the table of the last results into a page."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.drill.actors import Actor, read
from benchmarks.drill.asking import rows_change_on_disk, too_much_is_asked
from benchmarks.drill.consortium import Consortium
from benchmarks.drill.coordinators import coordinator_fails, curious_coordinator, what_cannot_be
from benchmarks.drill.disks import disks_fail
from benchmarks.drill.endings import endings_fail
from benchmarks.drill.false_claims import claims_are_false
from benchmarks.drill.hidden import updates_are_hidden
from benchmarks.drill.links import links_fail
from benchmarks.drill.printed import filled, keep, show
from benchmarks.drill.slow_links import connections_stall, lines_are_slow
from benchmarks.drill.strangers import strangers_fail
from benchmarks.drill.wrong_answers import sites_fail

SCENES: dict[str, Callable[[Consortium], None]] = {
    "sites": sites_fail,
    "strangers": strangers_fail,
    "curious": curious_coordinator,
    "hidden": updates_are_hidden,
    "asking": too_much_is_asked,
    "coordinator": coordinator_fails,
    "cannot": what_cannot_be,
    "claims": claims_are_false,
    "links": links_fail,
    "stalled": connections_stall,
    "slow": lines_are_slow,
    "disks": disks_fail,
    "copies": rows_change_on_disk,
    "endings": endings_fail,
}
INSIDE = "--inside"


def counted() -> dict[str, int]:
    """Return what the kernel counted in this namespace: packets over loopback, and attempts to reach anything else."""
    found = {f"packets over {line.split(':')[0].strip()}": int(line.split()[2]) for line in devices()}
    names, values = (line.split() for line in read(Path("/proc/net/snmp")).splitlines()[:2])
    found["attempts to reach another network"] = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    sixth = dict(line.split() for line in read(Path("/proc/net/snmp6")).splitlines())
    found["the same by IPv6"] = int(sixth.get("Ip6OutNoRoutes", 0))
    return found


def devices() -> list[str]:
    """Return the network devices of this namespace."""
    return read(Path("/proc/net/dev")).splitlines()[2:]


def play(scene: str) -> bool:
    """Do one scene with keys and files of its own; return whether it came to its end."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="drill-") as home:
        drill = Consortium(Path(home))
        try:
            SCENES[scene](drill)
        except Exception:
            traceback.print_exc()
            for actor in Actor.all:
                print(f"--- {actor.out.stem}, code {actor.popen.poll()}:\n{read(actor.out)[-1500:]}")
            return False
        finally:
            for actor in Actor.all:
                actor.kill_now()
            Actor.all.clear()
    seconds = time.monotonic() - began
    show(drill.rows)
    keep(scene, drill.rows, seconds, counted())
    print(f"{scene}: {SCENES[scene].__doc__} {seconds:.0f} s.", flush=True)
    return True


def main() -> int:
    """Play the scenes inside a new network namespace."""
    words = sys.argv[1:]
    if words[:1] == ["--fill"]:
        page = Path(words[1])
        page.write_text(filled(page.read_text(encoding="utf-8"), list(SCENES)), encoding="utf-8")
        return 0
    if INSIDE not in words:
        command = [sys.executable, "-m", "benchmarks.drill", INSIDE, *words]
        inside = [
            "unshare",
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            'ip link set lo up && exec "$@"',
            "drill",
            *command,
        ]
        return subprocess.call(inside)
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    chosen = [word for word in words if word != INSIDE] or list(SCENES)
    done = [play(scene) for scene in chosen]
    print(f"{sum(done)} of {len(done)} scenes, with {len(devices())} network device: {counted()}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect_ex(("192.0.2.1", 53))
    print(f"after one attempt on purpose: {counted()['attempts to reach another network']}")
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
