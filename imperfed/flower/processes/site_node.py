"""A site's node: it asks the coordinator for messages and sends the answers, until it is stopped or cut off.

`python -m imperfed.flower.processes.site_node --superlink HOST:PORT --app MODULE:OBJECT (--insecure | --keys FOLDER)`;
`imperfed join` starts it, and starts it again when it has ended.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import ssl
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Error, Message

from imperfed.core.atomic import append_lines
from imperfed.core.errors import ImperfedError
from imperfed.flower.messages.parcel import Parcel, opened
from imperfed.flower.processes import adapter
from imperfed.flower.processes.answering import APP_FAILED, AnsweringProcess
from imperfed.flower.processes.child import HEARD, TAKEN
from imperfed.flower.processes.fleet import Fleet, FleetClient, NotTaken, session
from imperfed.flower.processes.keys import SiteKeys
from imperfed.flower.processes.parent_watch import end_with
from imperfed.flower.processes.pulse import LinkSpeed, Pulse, end_without
from imperfed.flower.processes.session import sign_off
from imperfed.flower.processes.supernode import SITE
from imperfed.flower.site.site_folder import LOG, MOST_BYTES

QUICK = 0.1  # seconds; an empty answer that came sooner was not held back by the gate
PAUSE = 0.5  # seconds after several of them


@dataclass(frozen=True)
class Identity:
    """How a site shows who it is."""

    key: EllipticCurvePrivateKey
    tls: ssl.SSLContext | None
    registers: bool
    """Whether the key is the site's own invention, since there are no keys."""

    @classmethod
    def of(cls, keys: SiteKeys | None) -> Identity:
        """Return the identity that keys give; without any, one of its own."""
        if keys is None:
            return cls(adapter.generate_key_pairs()[0], None, True)
        private = load_ssh_private_key(keys.key.read_bytes(), None)
        assert isinstance(private, EllipticCurvePrivateKey)  # SuperLink takes no other
        return cls(private, keys.tls(), False)

    @property
    def public(self) -> bytes:
        """The public key as SuperLink knows it."""
        known: bytes = adapter.public_key_to_bytes(self.key.public_key())
        return known


def converse(
    fleet: Fleet,
    answering: AnsweringProcess,
    pulse: Pulse,
    taken: Callable[[], object],
    note: Callable[[str], object] = lambda line: None,
) -> None:
    """Answer message after message; `taken` is called after every answer that the coordinator has taken.

    `note`: adds a line to the site's log.
    """
    quick = 0
    while True:
        pulse.tick()
        began = time.monotonic()
        try:
            found = fleet.receive()
        except adapter.RunNotRunningException:
            continue
        if found is None:
            quick = quick + 1 if time.monotonic() - began < QUICK else 0
            if quick > 1:
                time.sleep(PAUSE)
            continue
        quick, began = 0, time.monotonic()
        if isinstance(found, NotTaken):
            note(found.why)
            answer = untaken(found, fleet.node.node_id)
        else:
            answer = answering.answer(found, fleet.node.node_id, pulse.tick)
        reply(fleet, answer, time.monotonic() - began, taken)


def reply(fleet: Fleet, answer: Parcel, seconds: float, taken: Callable[[], object]) -> None:
    """Send one answer; if it is not taken, say so in the log and go on."""
    try:
        fleet.send(answer, seconds)
    except (httpx.HTTPStatusError, adapter.RunNotRunningException, adapter.ObjectPushError) as error:
        print(f"an answer was not taken: {error!r}", flush=True)
    else:
        taken()


def untaken(message: NotTaken, node: int) -> Parcel:
    """Return an answer that says why a message was not taken."""
    record = message.parcel.record
    adapter.identify(record.metadata.run_id, node)
    return Parcel.of(Message(Error(APP_FAILED, message.why), reply_to=opened(record)))


def log_line(path: Path, line: str) -> None:
    """Add a line to the site's own log."""
    append_lines(path, [f"{datetime.now().isoformat(timespec='seconds')} {line}"])


def stop(number: int, frame: FrameType | None) -> None:
    """End by SystemExit, so that the session is signed off."""
    if number == signal.SIGINT:
        give_up("the coordinator does not know this session any more")
    raise SystemExit(0)


def give_up(why: str) -> None:
    """End with a reason that `imperfed join` reports."""
    print(f"\nExit Code: 1\n{why}\n", flush=True)
    raise SystemExit(1)


def main() -> None:
    """Load everything, fork the process that answers, and talk to the coordinator."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--superlink", required=True)
    parser.add_argument("--app", required=True, help="module:object, loaded before the first message")
    parser.add_argument("--keys", type=Path)
    parser.add_argument("--keeps-fork", action="store_true", help="answer all messages in one process")
    parser.add_argument("--insecure", action="store_true")
    args = parser.parse_args()
    path, _, name = args.app.partition(":")
    module = importlib.import_module(path)
    getattr(module, "prepare", lambda: None)()
    home = Path(os.environ["FLWR_HOME"])
    answering = AnsweringProcess.start(getattr(module, name), home, args.keeps_fork)
    end_with(os.getppid())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    identity, pulse = Identity.of(SiteKeys.read(args.keys) if args.keys else None), Pulse()
    client = FleetClient(args.superlink, identity.tls, identity.key, pulse, LinkSpeed(), (home / HEARD).touch)
    try:
        sign_off(client)
        pulse.tick()
        end_without(pulse)
        most = int(json.loads(os.environ[SITE]).get("most_bytes", MOST_BYTES)) if SITE in os.environ else MOST_BYTES
        with session(client, identity.public, identity.registers, most) as fleet:
            print(f"SuperNode ID: {fleet.node.node_id}", flush=True)
            note = partial(log_line, home.parent / LOG)
            converse(fleet, answering, pulse, (home / TAKEN).touch, note)
    except (ImperfedError, httpx.HTTPError) as error:
        give_up(str(error) or repr(error))


if __name__ == "__main__":
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a thread of its own would keep the process
