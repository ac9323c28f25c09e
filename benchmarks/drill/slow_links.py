"""A line whose connections stall, one that is too slow for a piece of a message, and a forwarder without a target."""

from __future__ import annotations

import re

from benchmarks.drill.actors import read
from benchmarks.drill.consortium import LARGE, SITES, Consortium, failures
from benchmarks.drill.links import Forwarder
from imperfed.flower.processes.child import free_port

RATE = 800_000
"""Bytes per second of a slow line, on which a piece of 5 MiB takes 6.6 s: Flower gives each call 5 s."""


def lines_are_slow(drill: Consortium) -> None:
    """Throttle a line that carries a large model; join through a forwarder too early."""
    pieces_are_slow(drill)
    nothing_behind_it(drill)


def connections_stall(drill: Consortium) -> None:
    """Carry nothing any more on the connections that a site has, and leave them open; new ones work."""
    port = free_port()
    serving = drill.serve("stalled", port)
    line = Forwarder(port)
    actors = {n: drill.join("stalled", n, line.port if n == "north" else port) for n in SITES}
    serving.until(r"^round 2/")
    line.stall()
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    run, toll = drill.folder("stalled"), drill.toll("stalled", *SITES)
    again = re.findall(r"asking [^:]*north[^:]* again after .*", read(run / "messages.txt"))
    drill.tell(
        "all connections of a site stall, and stay open",
        "SuperNode never came back",
        f"{again[0] if again else 'nothing'}; code {code}",
        f"{line.stalled} connections stalled, and {line.open} were made since; “{actors['north'].last()}”",
        len(failures(run, "north")),
        toll.at_the_end(),
    )


def pieces_are_slow(drill: Consortium) -> None:
    """Let one site have a model of several pieces over a slow line."""
    port = free_port()
    settings = ["--model", LARGE, "--set", "local.steps=2", "--set", "batch=16"]
    serving = drill.serve("slow", port, rounds=2, method="fedavg", settings=[*settings, "--set", "run.objective=cc"])
    line = Forwarder(port)
    line.rate = RATE
    actors = {n: drill.join("slow", n, line.port if n == "west" else port) for n in SITES}
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    run, toll = drill.folder("slow"), drill.toll("slow", *SITES)
    took = re.findall(r"round \d+: west answered after (\S+) s", read(run / "messages.txt"))
    others = re.findall(r"round \d+: north answered after (\S+) s", read(run / "messages.txt"))
    drill.tell(
        f"a model of 12 MB over a line of {RATE / 1e6:g} MB/s: every piece takes more than 5 s",
        "uploads began again for ever",
        f"answers after {', '.join(took) or 'NEVER'} s, the others' after {', '.join(others)} s; code {code}",
        f"{line.carried / 1e6:.0f} MB over its line; “{actors['west'].last()}”",
        len(failures(run, "west")),
        toll.at_the_end(),
    )


def nothing_behind_it(drill: Consortium) -> None:
    """Join through a forwarder before the coordinator is there, then with a damaged first packet."""
    port = free_port()
    line = Forwarder(port)
    actors = {"north": drill.join("early", "north", line.port)}
    actors["north"].until(r"^no answer at .*")
    told = actors["north"].said(r"^no answer at .*")
    serving = drill.serve("early", port, rounds=3)
    serving.until("^serving")
    actors |= {n: drill.join("early", n, port) for n in SITES if n != "north"}
    code = serving.ended()
    codes = [actor.ended() for actor in actors.values()]
    drill.tell(
        "`join` through a forwarder with no coordinator behind it yet",
        "`join` ended: “does not speak TLS”",
        f"the run ends with code {code}",
        f"“{told}”; ends with code {codes[0]}",
        len(failures(drill.folder("early"), "north")),
        drill.toll("early", *SITES).at_the_end(),
    )
