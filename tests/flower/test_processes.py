"""Flower's processes, one by one: how they start, what they say, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.flower.processes.child import Child, alone, free_port, listening, module, task_secret, wait_until
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.keys import CoordinatorKeys, make_keys
from imperfed.flower.processes.own_calls import HEADER, NOT_ALLOWED, own_word
from imperfed.flower.processes.parent_watch import SECRET_FILE
from imperfed.flower.processes.superlink import ListenConfig, SuperLink

HERE = Path(__file__).parent


def with_mark(mark: str) -> list[int]:
    """All processes of this test, by a variable that their environment has."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environ = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in environ and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def test_what_is_started_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that is killed takes its processes along."""
    mark = f"IMPERFED_TEST={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    port = free_port()
    words = ["--insecure", "--isolation", "process", "--port", str(port), SECRET_FILE, str(task_secret(tmp_path))]
    link = module("parent_watch", "flower-superlink", *words)
    script = (
        "import time; from pathlib import Path; from imperfed.flower.processes.child import Child;"
        f"Child('superlink', {link!r}, Path({str(tmp_path)!r})).start(); time.sleep(60)"
    )
    parent = Child("parent", [*module("parent_watch")[:1], "-c", script], tmp_path).start()
    wait_until(lambda: listening(port), parent, 30)
    assert parent.popen is not None
    os.kill(parent.popen.pid, signal.SIGKILL)
    parent.popen.wait()
    for _ in range(100):
        if not with_mark(mark):
            break
        threading.Event().wait(0.1)
    assert with_mark(mark) == []


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    words = ["--insecure", "--port", "nonsense", SECRET_FILE, str(task_secret(tmp_path))]
    child = Child("superlink", module("parent_watch", "flower-superlink", *words), tmp_path)
    with pytest.raises(ImperfedError, match=r"superlink ended before it was ready: .*--port.* \(see .*superlink.log\)"):
        wait_until(lambda: False, child.start(), 30)


def test_a_process_that_does_not_listen_to_reason_is_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imperfed.flower.processes.child.STOPPING", 0.3)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = Child("deaf", [*module("parent_watch")[:1], "-c", deaf], tmp_path).start()
    wait_until(lambda: "up" in child.said(), child, 10)
    child.stop()
    assert not child.alive


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        alone(tmp_path / "lock", "the run"),
        pytest.raises(UsageError, match="the run: another process"),
        alone(tmp_path / "lock", "the run"),
    ):
        pass
    with alone(tmp_path / "lock", "the run"):
        pass


def test_without_keys_only_on_loopback(tmp_path: Path) -> None:
    for kind in (ListenConfig, CoordinatorAddress):
        with pytest.raises(UsageError, match="--insecure"):
            kind("192.0.2.1", 1, None)
        assert kind("192.0.2.1", 1, None, insecure=True).host == "192.0.2.1"
        assert kind("localhost", 1, None).keys is None


def test_a_site_without_a_key_is_named(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["a"], ["h"], days=1)
    with pytest.raises(DataError, match="no key for b"):
        ListenConfig("127.0.0.1", 0, CoordinatorKeys.read(tmp_path / "keys" / "coordinator")).keys_of(["a", "b"])


def test_nobody_there() -> None:
    assert CoordinatorAddress("127.0.0.1", free_port(), None).knock() == "Connection refused"


def test_superlink_answers_the_coordinators_own_calls_only(tmp_path: Path) -> None:
    """Another user of the machine reaches its port, but does not know the secret."""
    home = tmp_path / "flower"
    with SuperLink(home, ListenConfig("127.0.0.1", 0, None), ["a"], "imperfed.flower.apps:server") as link:
        assert link.control.nodes() == {}
        for path in ("/v1/control/list-runs", "/v1/control/start-run", "/v1/fleet/register-node", "/docs", "/health"):
            for headers in ({}, {HEADER: ""}, {HEADER: "0" * 64}):
                reply = httpx.post(f"http://{link.near}{path}", content=b"", headers=headers)
                assert (reply.status_code, reply.content) == (403, NOT_ALLOWED)
        flower = {"content-type": "application/protobuf"}
        for call in ("acquire-task", "pull-messages", "push-messages", "get-nodes", "create-task", "pull-object"):
            reply = httpx.post(f"http://{link.near}/v1/runtime/{call}", content=b"", headers=flower)
            assert reply.status_code in (401, 403), (call, reply.status_code, reply.text)
        assert httpx.post(f"http://{link.near}/v1/runtime/../control/list-runs", content=b"").status_code == 403
        assert link.door is not None
        passed = httpx.post(f"http://127.0.0.1:{link.door.port}/v1/fleet/register-node", content=b"")
        assert passed.status_code not in (403, 404)
    assert own_word(home / "task-secret") != (home / "task-secret").read_bytes().hex()
