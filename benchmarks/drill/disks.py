"""Bits that flip on a disk, and files that change during a run."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.drill.actors import Actor, read, shortened
from benchmarks.drill.consortium import Consortium, failures
from imperfed.flower.processes.child import free_port

FEWER = 7
"""Rows that a site's file has lost when it comes back."""


def disks_fail(drill: Consortium) -> None:
    """Stop a run; flip a bit in the checkpoint and in a site's state, change another site's file; go on."""
    port = free_port()
    serving = drill.serve("disks", port)
    actors = drill.join_all("disks", port)
    serving.until(r"^round 3/")
    for actor in (serving, *actors.values()):
        actor.kill_now()
    run = drill.folder("disks")
    flip(run / "checkpoints" / "last.safetensors")
    for state in sorted((drill.home / "disks-south").glob("*/state-*.safetensors"))[1:]:
        flip(state)
    rows = drill.data / "sites" / "west.csv"
    whole = rows.read_text()
    rows.write_text("\n".join(whole.splitlines()[:-FEWER]) + "\n")
    resumed = Actor(drill.home, "disks-resumed", "resume", run)
    actors = drill.join_all("disks", port)
    refused = resumed.until(r".*west began this run with.*")
    actors["west"].end()
    rows.write_text(whole)
    actors["west"] = drill.join("disks", "west", port)
    code = resumed.ended()
    for actor in actors.values():
        actor.ended()
    log, own = read(run / "log.txt"), read(drill.home / "disks-south" / "log.txt")
    went_on = re.search(r"resumed after round (\d+)", log)
    back = re.findall(r".*goes back to the checkpoint before it", log)
    state = re.findall(r".*going on from the state after round \d+", own)
    drill.tell(
        "one bit flipped in the checkpoint",
        "the run died, or its models were others",
        first(back),
        f"ends with code {code}",
        f"{3 - int(went_on[1]) if went_on else '?'} (done again)",
        drill.toll("disks", "north").at_the_end(),
    )
    lost = drill.toll("disks", "south")
    seen, rounds = first(state), len(failures(run, "south"))
    drill.tell("one bit flipped in a site's state", "not noticed", "nothing", seen, rounds, lost.at_the_end())
    drill.tell(
        f"{FEWER} rows fewer in a site's file",
        "accepted, not noticed",
        shortened(refused),
        "back with its file as it was",
        len(failures(run, "west")),
        drill.toll("disks", "west").at_the_end(),
    )


def first(lines: list[str]) -> str:
    """Return the first of these lines."""
    return shortened(lines[0]) if lines else "NOTHING"


def flip(path: Path, at: int = -9) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 16
    path.write_bytes(content)
