"""A site that is killed, one that answers wrongly in every round, one that cuts a request, and strangers meanwhile."""

from __future__ import annotations

import re
import socket
import time

from benchmarks.drill.actors import read
from benchmarks.drill.consortium import SETTINGS, SITES, Consortium, Toll, failures
from benchmarks.drill.rogue import FAULTS, FIGURES
from benchmarks.drill.strangers import idle_strangers, large_bodies, local_caller, local_user
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import SiteKeys

NAME, NEWLINE = "first", b"\r\n"


def sites_fail(drill: Consortium) -> None:
    """Kill one site mid-round and restart it; let another answer nonsense; leave the third alone."""
    port = free_port()
    alone = ["--set", "rounds.quorum=0.3"]  # a round counts with the one site that is neither away nor lying
    serving = drill.serve(NAME, port, settings=[*SETTINGS, *alone])
    actors = {name: drill.join(NAME, name, port, rogue=name == "south") for name in SITES}
    serving.until(r"^round 2/")
    answered = cut_a_request(drill, port)
    gate = serving.until(r"^.*the sender disconnected.*")  # before strangers use up the lines of the log
    kept_open = idle_strangers(drill, port, NAME, serving)
    large_bodies(drill, port, NAME, serving)
    local_user(drill, NAME, actors["west"])
    local_caller(drill, NAME, serving)
    serving.until(r"^round 3/")
    killed = actors["north"].kill()
    began = time.monotonic()
    actors["north"] = drill.join(NAME, "north", port)
    code = serving.ended()
    if code == 0:
        for actor in actors.values():
            actor.ended()
    for connection in kept_open:
        connection.close()
    run = drill.folder(NAME)
    missed, back = failures(run, "north"), re.findall(r"^joined .*", read(actors["north"].out), re.MULTILINE)
    own = len(list(drill.home.glob(f"{NAME}-north/*/report.html"))) == 1
    drill.tell(
        f"kill -9 of a site ({killed} processes), restarted",
        "held as well",
        f"{missed[0] if missed else 'every round has its answer'}; the run ends with code {code}",
        f"{back[1] if len(back) > 1 else 'NOT BACK'} again; the run ended {time.monotonic() - began:.0f} s later",
        len(missed),
        "none" if own and "is not there" not in read(run / "log.txt") else "LOST",
    )
    nonsense(drill)
    lies(drill)
    drill.tell(
        "a request cut in half at the gate",
        "held as well",
        f"{gate}; the run ends with code {code}",
        answered,
        len(failures(run, "west")),  # the site that sent it
        "none" if code == 0 else "LOST",
    )


def nonsense(drill: Consortium) -> None:
    """Report how the wrong answers of one site were handled."""
    log, kept = read(drill.folder(NAME) / "log.txt"), read(drill.home / f"{NAME}-south" / "log.txt")
    whole = list(drill.home.glob(f"{NAME}-south/*/report.html")) and "is not there" not in log
    for when, wrong in FAULTS.items():
        said = re.findall(rf"{when}: south failed: .*", log)
        own = re.search(rf"train {when}: (received \d+ bytes, sent \d+)", kept)
        told = f"its log: {own[1] if own else 'NOTHING'}"
        drill.tell(
            wrong.fault, wrong.before, said[0] if said else "NOTHING", told, len(said), "none" if whole else "LOST"
        )


def lies(drill: Consortium) -> None:
    """Report how rows and figures that cannot be were handled."""
    run = drill.folder(NAME)
    counted_as = re.findall(r"south has \d+ of .*", read(run / "log.txt"))
    refused = re.findall(r"south: its metrics were refused: .*", read(run / "messages.txt"))
    drill.tell(
        "10^12 rows claimed at hello",
        "the global model was the attacker's",
        counted_as[0] if counted_as else "NOTHING",
        "its log",
        len(failures(run, "south")) - len(FAULTS),
        Toll(drill, NAME, ("west",)).at_the_end(),
    )
    when, fault = FIGURES
    seen = refused[0] if refused else "NOTHING"
    state = Toll(drill, NAME, SITES).at_the_end()
    drill.tell(
        f"{fault} ({when})", "taken as said", seen, "its log", len(re.findall(f"{when}: .* failed", seen)), state
    )


def cut_a_request(drill: Consortium, port: int) -> str:
    """Send half a request through the gate, then nothing; the gate must keep serving. Return what it answered."""
    context = SiteKeys.read(drill.keys / "site-west").tls()
    plain = socket.create_connection(("localhost", port))
    with context.wrap_socket(plain, server_hostname="localhost") as half:
        half.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nhalf")
        half.settimeout(2)
        try:
            return f"“{half.recv(200).split(NEWLINE)[0].decode()}”"
        except TimeoutError:
            return "no answer; the connection ends"
