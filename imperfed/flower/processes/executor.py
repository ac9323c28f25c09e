"""Runs the tasks of the coordinator's SuperLink, each in a process forked from this one.

Replaces `flower-superexec`, which Flower leaves to us under `--isolation process`: Flower starts a new interpreter for
every task, which spends 2 s importing torch; a fork has torch already.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from queue import Queue

from imperfed.flower.processes.adapter import (
    _SUPEREXEC_AUTH_METHODS,
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
    TaskType,
    make_simple_http_retry_invoker,
    run_serverapp,
)
from imperfed.flower.processes.parent_watch import end_with

POLL = 0.2  # seconds between two questions for a task
BUSY = 3.0  # while one is carried out


def carry_out(address: str, ca: bytes | None, token: str) -> None:
    """Run one task to its end; Flower's function exits by SystemExit."""
    end_with(os.getppid())
    run_serverapp(address, Queue(), token, insecure=ca is None, certificates=ca)


def fork(address: str, ca: bytes | None, token: str) -> None:
    """Run one task in its own process."""
    if os.fork():
        return
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        carry_out(address, ca, token)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # skip cleanup: what was inherited must not be closed twice


def reap() -> bool:
    """Reap the children that have ended; return whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main() -> None:
    """Ask for tasks and run them until this process is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("app", help="module:object, loaded before the first task")
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--secret", type=Path, required=True, help="file with what allows to ask for tasks")
    args = parser.parse_args()
    end_with(os.getppid())
    importlib.import_module(args.app.partition(":")[0])
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
    while True:
        reply = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if reply.HasField("task") and reply.token:
            fork(args.address, ca, reply.token)
        time.sleep(BUSY if reap() else POLL)


if __name__ == "__main__":
    main()
