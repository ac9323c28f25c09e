"""Runs the tasks of a SuperLink or a SuperNode, each in a process forked from this one.

Replaces `flower-superexec`, which Flower leaves to us under `--isolation process`, for two reasons. Flower starts a new
interpreter for every message, which spends 2 s importing torch before it trains for a tenth of that; a fork has torch
already. And at a site, whatever application a run comes with, the one that runs is this package's own, as installed
there: a coordinator cannot send code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

from flwr.app import Context, Message

from imperfed.flower.processes.adapter import (
    _SUPEREXEC_AUTH_METHODS,
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
    TaskType,
    home,
    make_simple_http_retry_invoker,
    run_serverapp,
)
from imperfed.flower.processes.child import BEAT
from imperfed.flower.processes.flower_patches import ImportWarmup, pull_soon
from imperfed.flower.processes.parent_watch import end_with

POLL = 0.2  # seconds
FIRST_MESSAGE = "query.hello"


def carry_out(kind: TaskType, address: str, ca: bytes | None, token: str, app: Any) -> None:
    """Run one task to its end; Flower's function exits by SystemExit."""
    end_with(os.getppid())
    if kind is TaskType.SERVER_APP:
        run_serverapp(address, Queue(), token, insecure=ca is None, certificates=ca)
        return
    clientapp = home("run_clientapp")
    # What came with the run is neither unpacked nor imported.
    own = in_time(app)
    vars(clientapp).update(install_from_fab=lambda *_, **__: None, get_load_client_app_fn=lambda **_: lambda *run: own)
    clientapp.run_clientapp(address, token, insecure=ca is None, certificates=ca)


def in_time(app: Callable[[Message, Context], Message]) -> Callable[[Message, Context], Message]:
    """Return an application whose process ends when a message has expired: its answer would not be taken any more.

    Only the first message of all may take longer: files that are read once need not be read again.
    """

    def answer(message: Message, context: Context) -> Message:
        if message.metadata.message_type != FIRST_MESSAGE:
            signal.setitimer(signal.ITIMER_REAL, message.metadata.ttl)
        return app(message, context)

    return answer


def fork(warmup: ImportWarmup, kind: TaskType, address: str, ca: bytes | None, token: str, app: Any) -> None:
    """Run one task in its own process."""
    if os.fork():
        return
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        carry_out(kind, address, ca, token, app)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        warmup.write()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # skip cleanup: what was inherited must not be closed twice


def reap(warmup: ImportWarmup) -> None:
    """Reap the children that have ended, and import what they imported."""
    with contextlib.suppress(ChildProcessError):
        while child := os.waitpid(-1, os.WNOHANG)[0]:
            warmup.learn(child)


def main() -> None:
    """Ask for tasks and run them until this process is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["serverapp", "clientapp"])
    parser.add_argument("address")
    parser.add_argument("app", help="module:object, loaded before the first task")
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--secret", type=Path, required=True, help="file with what allows to ask for tasks")
    args = parser.parse_args()
    end_with(os.getppid())
    pull_soon()
    module, _, name = args.app.partition(":")
    app = getattr(importlib.import_module(module), name)
    kind = TaskType.SERVER_APP if args.kind == "serverapp" else TaskType.CLIENT_APP
    ca = args.ca.read_bytes() if args.ca else None
    client = RuntimeHttpClient.from_server_address(
        args.address,
        insecure=ca is None,
        root_certificates=ca,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(
                master_secret=args.secret.read_bytes(), protected_methods=_SUPEREXEC_AUTH_METHODS
            ),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    home_folder = Path(os.environ["FLWR_HOME"])
    warmup = ImportWarmup(home_folder / "imported")
    while True:
        (home_folder / BEAT).touch()
        reply = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        if reply.HasField("task") and reply.token:
            fork(warmup, kind, args.address, ca, reply.token, app)
        reap(warmup)
        time.sleep(POLL)


if __name__ == "__main__":
    main()
