"""Fixtures of the tests of the gate: what stands behind it, the keys, and gates that are open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imperfed.flower.processes import gate as gate_module
from imperfed.flower.processes.gate import Gate, Seldom
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.keys import CoordinatorKeys, make_keys
from tests.support.gate import Upstream


@pytest.fixture(scope="module")
def recorder() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def upstream(recorder: Upstream) -> Upstream:
    recorder.seen.clear()
    return recorder


@pytest.fixture
def lines_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have logged, this one may log."""
    monkeypatch.setattr(gate_module.log, "filters", [Seldom()])


@pytest.fixture(scope="module")
def door(recorder: Upstream) -> Iterator[GatewayServer]:
    upstream = recorder
    opened = GatewayServer(Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None), "127.0.0.1", 0).open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("consortium") / "keys"
    make_keys(out, ["a", "b"], ["127.0.0.1"], days=1)
    return out


@pytest.fixture
def guarded(upstream: Upstream, keys: Path) -> Iterator[GatewayServer]:
    """A gate that only site a may pass: the key of b is not among the coordinator's any more."""
    own = CoordinatorKeys.read(keys / "coordinator")
    gate = Gate(f"http://127.0.0.1:{upstream.server_port}", ca=None)
    opened = GatewayServer(gate, "127.0.0.1", 0, replace(own, sites={"a": own.sites["a"]})).open()
    yield opened
    opened.close()
