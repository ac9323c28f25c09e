"""What is changed in Flower's own modules: that it is still there to be changed, and what comes of it."""

from __future__ import annotations

import importlib
import os
import signal
import ssl
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.protobuf import client

from imperfed.flower.processes import executor, flower_patches


def test_a_supernode_looks_for_messages_often(monkeypatch: pytest.MonkeyPatch) -> None:
    supernode = importlib.import_module("flwr.supernode.start_client_internal")
    monkeypatch.setattr(supernode, "time", time)
    monkeypatch.setattr(flower_patches, "LOOK", 0.01)
    flower_patches.look_often()
    began = time.monotonic()
    supernode.time.sleep(3)
    assert time.monotonic() - began < 1


def test_sleep_is_all_that_a_supernode_uses_of_time() -> None:
    supernode = importlib.import_module("flwr.supernode.start_client_internal")
    text = Path(str(supernode.__file__)).read_text()
    used = {line.split("time.")[1].split("(")[0] for line in text.splitlines() if " time." in line and "(" in line}
    assert used == {"sleep"}


def test_a_piece_that_is_not_there_is_asked_for_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = dict(inflatable_utils.pull_objects.__kwdefaults__ or {})
    monkeypatch.setattr(inflatable_utils.pull_objects, "__kwdefaults__", usual)
    flower_patches.pull_soon()
    tries: list[str] = []

    def pull(name: str) -> bytes:
        tries.append(name)
        if len(tries) == 1:
            raise inflatable_utils.ObjectUnavailableError(name)
        return b"piece"

    began = time.monotonic()
    assert inflatable_utils.pull_objects(["a"], pull) == {"a": b"piece"}
    assert time.monotonic() - began < 0.8


def test_a_supernode_shows_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []
    monkeypatch.setattr(client, "httpx", SimpleNamespace(Client=lambda verify, **_: used.append(verify)))
    monkeypatch.setattr(client.ProtobufClient, "__init__", client.ProtobufClient.__init__)
    tls = ssl.create_default_context()
    flower_patches.show_certificate(tls)
    for insecure in (False, True):
        client.ProtobufClient.from_server_address("127.0.0.1:1", insecure, None, [])
    assert used == [tls, False]


def test_a_parent_learns_what_its_child_had_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needed_later.py").write_text("value = 7\n")
    lessons = flower_patches.ImportWarmup(tmp_path / "imported")
    if (child := os.fork()) == 0:
        importlib.import_module("needed_later")
        lessons.write()
        os._exit(0)
    os.waitpid(child, 0)
    assert "needed_later" not in sys.modules
    lessons.learn(child)
    assert sys.modules.pop("needed_later").value == 7
    assert list(tmp_path.glob("imported*")) == []


def test_a_site_carries_out_its_own_application_whatever_a_run_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    clientapp: ModuleType = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    assert {"install_from_fab", "get_load_client_app_fn", "run_clientapp"} <= vars(clientapp).keys()
    loaded: list[Any] = []
    message: Any = SimpleNamespace(metadata=SimpleNamespace(ttl=1000.0, message_type="train"))

    def as_flower_does(address: str, token: str, insecure: bool, certificates: bytes | None) -> None:
        clientapp.install_from_fab(b"whatever was sent", skip_prompt=True)
        load = clientapp.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        loaded.append(load("publisher/evil", "1.0.0", "hash"))

    for name in ("install_from_fab", "get_load_client_app_fn"):
        monkeypatch.setattr(clientapp, name, getattr(clientapp, name))  # to be put back afterwards
    monkeypatch.setattr(clientapp, "run_clientapp", as_flower_does)
    monkeypatch.setattr(executor, "end_with", lambda parent: None)
    executor.carry_out(TaskType.CLIENT_APP, "127.0.0.1:1", None, "token", lambda message, context: "own")
    [app] = loaded
    assert app(message, None) == "own"
    signal.setitimer(signal.ITIMER_REAL, 0.0)
