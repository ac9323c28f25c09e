"""Whoever has no key, an expired one or someone else's, and other users of a site's machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import time
from pathlib import Path

import httpx

from benchmarks.drill.actors import Actor, command, read
from benchmarks.drill.consortium import SITES, Consortium
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import make_keys

HONEST = ("north", "west")
"""The sites of these runs that do not lie."""
LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
LOCAL_CALLS = ("control/list-runs", "control/register-node", "control/start-run", "fleet/activate-node")
NO_ROUND = "0 (before round 1)"
CONNECTIONS, BODIES, MEGABYTES = 1050, 30, 59
AHEAD = 60
"""Seconds by which a site's clock is fast."""
FAST_CLOCK = f"""
import datetime, time

real, now = datetime.datetime, time.time

class Kind(type):
    def __instancecheck__(cls, other):
        return isinstance(other, real)

class Fast(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds={AHEAD})

datetime.datetime, time.time = Fast, lambda: now() + {AHEAD}
"""
"""A sitecustomize.py: a process cannot have a clock of its own, so its Python has."""


def idle_strangers(drill: Consortium, port: int, run: str, serving: Actor) -> list[socket.socket]:
    """Open connections and leave them idle; the rounds must go on."""
    done = len(re.findall("^round .*/", read(serving.out), re.MULTILINE))
    idle, toll = [], drill.toll(run, *HONEST)
    for _ in range(CONNECTIONS):
        with contextlib.suppress(OSError):
            idle.append(socket.create_connection(("localhost", port), timeout=5))
    goes_on = serving.until(rf"^round {done + 1}/\d+")
    drill.tell(
        f"{CONNECTIONS:,} idle connections of a stranger, kept open",
        "the run stood still",
        f"the rounds go on ({goes_on})",
        f"{len(idle)} opened",
        toll.rounds(),
        toll.state(),
    )
    return idle


def large_bodies(drill: Consortium, port: int, run: str, serving: Actor) -> None:
    """Send large bodies without a certificate; SuperLink must not grow."""
    context = ssl.create_default_context(cafile=str(drill.keys / "site-west" / "ca.crt"))
    before, sent, toll = serving.resident("flower-superlink"), 0, drill.toll(run, *HONEST)
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {MEGABYTES * 10**6}\r\n\r\n".encode()
    for _ in range(BODIES):
        with contextlib.suppress(OSError):
            plain = socket.create_connection(("localhost", port), timeout=5)
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                tls.sendall(head)
                for _ in range(MEGABYTES):
                    tls.sendall(bytes(10**6))
                    sent += 10**6
    drill.tell(
        f"{BODIES} bodies of {MEGABYTES} MB without a certificate",
        "SuperLink: 146 MB before, 1,864 MB after",
        f"SuperLink: {before} MB before, {serving.resident('flower-superlink')} MB after",
        f"refused after {sent // 10**6} MB in all",
        toll.rounds(),
        toll.state(),
    )


def local_user(drill: Consortium, run: str, site: Actor) -> None:
    """Look for ports on which a site's processes listen, and for files that others may read."""
    toll = drill.toll(run, *HONEST)
    lines = [line.split() for name in ("tcp", "tcp6") for line in read(Path(f"/proc/net/{name}")).splitlines()[1:]]
    listening = {words[9] for words in lines if words[3] == LISTENS}
    ports = {inode for pid in site.pids() for inode in sockets(pid) if inode in listening}
    state = site.out.with_suffix("")
    readable = [p for p in (state, *state.rglob("*")) if p.exists() and p.stat().st_mode & 0o077]
    told = f"{len(ports)} ports to ask at; {len(readable)} files and folders open to others"
    before = "SuperNode's port gave out tasks, and the model with them"
    fault = "a local user looks for a way to a site's tasks"
    drill.tell(fault, before, "nothing", told, toll.rounds(), toll.state())


def local_caller(drill: Consortium, run: str, serving: Actor) -> None:
    """Call SuperLink on loopback as another user of the coordinator's machine would, past the gate."""
    toll = drill.toll(run, *HONEST)
    words = command(serving.pids("flower-superlink")[0])
    near = f"https://localhost:{words[words.index('--port') + 1]}"
    verify = ssl.create_default_context(cafile=str(drill.keys / "coordinator" / "ca.crt"))
    head = {"content-type": "application/protobuf"}
    with httpx.Client(verify=verify, headers=head) as client:
        answers = [client.post(f"{near}/v1/{call}", content=b"") for call in LOCAL_CALLS]
    told = sorted({f"{one.status_code} {one.text}" for one in answers})
    fault = "a local user calls the coordinator's SuperLink on loopback"
    before = "anyone on the machine could submit a run that the sites answered"
    seen = f"{len(answers)} calls, each answered: {'; '.join(told)}"
    drill.tell(fault, before, seen, "nothing", toll.rounds(), toll.state())


def sockets(pid: int) -> list[str]:
    """Return the inodes of a process's sockets."""
    with contextlib.suppress(OSError):
        held = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        return [name.removeprefix("socket:[").removesuffix("]") for name in held if name.startswith("socket:[")]
    return []


def strangers_fail(drill: Consortium) -> None:
    """Try keys of another consortium, a second process with one key, a fast clock, and expired certificates."""
    port = free_port()
    serving = drill.serve("third", port, "--sites", "north,west")
    serving.until("^serving")
    unknown_key(drill, port, serving)
    one_key_twice(drill, port)
    fast_clock(drill, port, serving)
    serving.end()
    expired(drill)


def unknown_key(drill: Consortium, port: int, serving: Actor) -> None:
    """Join with keys that were not made together with the coordinator's."""
    make_keys(drill.home / "others", ["north"], ["localhost"], days=1)
    stranger = drill.home / "others" / "site-north"
    shutil.copy(drill.keys / "site-north" / "ca.crt", stranger)
    joining = drill.join("third", "north", port, keys=stranger, state="stranger")
    code = joining.ended()
    seen = [line for line in read(serving.out).splitlines() if "north has connected" in line]
    refused = serving.said(r"^no connection with .*")
    told = f"{seen or 'it does not connect'}: “{refused}”"
    toll = drill.toll("third")
    drill.tell("an unregistered key", "held as well", told, f"{joining.last()} (code {code})", NO_ROUND, toll.state())


def one_key_twice(drill: Consortium, port: int) -> None:
    """Join twice with one key, from two state folders."""
    first = drill.join("third", "north", port)
    first.until("^joined ")
    second = drill.join("third", "north", port, state="north-again")
    told = second.until(r".*(?:another|connected|registered|in use).*")
    alive = "goes on" if first.popen.poll() is None else "HAS ENDED"
    toll, both = drill.toll("third", "north", "north-again"), f"{told}; the first {alive}"
    drill.tell("two `imperfed join` with one key", "no reason was given", "nothing", both, NO_ROUND, toll.state())
    for actor in (first, second):
        actor.kill_now()


def fast_clock(drill: Consortium, port: int, serving: Actor) -> None:
    """Join with a clock that is ahead."""
    custom = drill.home / "fast-clock"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(FAST_CLOCK)
    path = {"PYTHONPATH": f"{custom}:{os.environ['PYTHONPATH']}"}
    late = drill.join("third", "west", port, env=path)
    told = late.until(r".*clock of this machine.*")
    late.kill_now()
    toll = drill.toll("third", "west")
    seen = "admitted" if "west has connected" in read(serving.out) else "nothing"
    drill.tell(f"a clock {AHEAD} s fast", "never joined, and no reason was given", seen, told, NO_ROUND, toll.state())


def expired(drill: Consortium) -> None:
    """Serve and join with certificates that are out of date."""
    make_keys(drill.home / "old", SITES, ["localhost"], days=1e-5)
    time.sleep(2)
    site = drill.join("fourth", "north", free_port(), keys=drill.home / "old" / "site-north")
    server = drill.serve("fourth", free_port(), "--keys", drill.home / "old" / "coordinator")
    codes = server.ended(), site.ended()
    words = [f"{actor.last()} (code {code})" for actor, code in zip((server, site), codes, strict=True)]
    drill.tell("an expired certificate", "held as well", *words, NO_ROUND, "none: neither has begun")
