"""Who may pass the gate: with keys, the sites of the consortium and no one else, and neither side is taken in."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.core.errors import ImperfedError
from imperfed.flower.processes import contact, supernode
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.gateway import GatewayServer
from imperfed.flower.processes.keys import SiteKeys, make_keys
from tests.support.gate import PULL, Upstream, post, speak, unheard

pytest_plugins = ["tests.support.gate_fixtures"]
pytestmark = pytest.mark.usefixtures("lines_left")


def test_over_tls(guarded: GatewayServer, keys: Path) -> None:
    assert speak(guarded, post(PULL)) == b""  # plain text is not answered
    tls = SiteKeys.read(keys / "site-a").tls()
    assert speak(guarded, post(PULL), tls).startswith(b"HTTP/1.1 200")
    assert speak(guarded, post("/v1/control/list-runs"), tls).startswith(b"HTTP/1.1 404")
    with pytest.raises(ssl.SSLCertVerificationError):
        speak(guarded, post(PULL), ssl.create_default_context())


def stranger(keys: Path) -> ssl.SSLContext:
    """Someone who knows the coordinator and has no certificate."""
    return ssl.create_default_context(cafile=str(keys / "site-a" / "ca.crt"))


def test_without_a_certificate_nothing_is_heard(guarded: GatewayServer, upstream: Upstream, keys: Path) -> None:
    assert unheard(guarded, post(PULL, b"x" * 2**20), stranger(keys))
    assert upstream.seen == []


def test_tls_itself_asks_for_the_certificate(guarded: GatewayServer) -> None:
    """What comes without one must not get as far as HTTP, where it would be refused as well."""
    tls = guarded.server.config.ssl
    assert tls is not None
    assert tls.verify_mode == ssl.CERT_REQUIRED


def test_a_certificate_of_another_authority_is_refused(
    guarded: GatewayServer, upstream: Upstream, keys: Path, tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", ["a"], ["127.0.0.1"], days=1)
    other = SiteKeys.read(tmp_path / "keys" / "site-a")
    tls = stranger(keys)
    tls.load_cert_chain(other.client_certificate, other.client_key)
    assert unheard(guarded, post(PULL), tls)
    assert upstream.seen == []


def test_a_site_that_is_not_the_coordinators_any_more_is_refused(
    guarded: GatewayServer, upstream: Upstream, keys: Path
) -> None:
    assert unheard(guarded, post(PULL), SiteKeys.read(keys / "site-b").tls())
    assert upstream.seen == []


def test_a_site_is_told_that_its_certificate_is_not_accepted(
    guarded: GatewayServer, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path / "keys", ["a"], ["127.0.0.1"], days=1)
    shutil.copy(keys / "site-a" / "ca.crt", tmp_path / "keys" / "site-a")
    own, other = (SiteKeys.read(folder / "site-a") for folder in (keys, tmp_path / "keys"))
    assert CoordinatorAddress("127.0.0.1", guarded.port, own).knock() == ""
    monkeypatch.setattr(supernode, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(contact, "REFUSED_FOR", 0.05)
    way, told = CoordinatorAddress("127.0.0.1", guarded.port, other), list[str]()
    joining = supernode.SuperNode(way, tmp_path / "home", {"name": "a"}, "app", told.append)
    with pytest.raises(ImperfedError, match="does not accept this site's certificate: the coordinator must serve"):
        joining._come_in(lambda: False)
    assert "it ends the connection" in told[0]


def test_a_site_cannot_pose_as_the_coordinator(keys: Path) -> None:
    site = SiteKeys.read(keys / "site-a")
    posing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    posing.load_cert_chain(site.client_certificate, site.client_key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), timeout=5)
        server, _ = listening.accept()
        threading.Thread(target=lambda: shaking(posing, server), daemon=True).start()
        with client, pytest.raises(ssl.SSLCertVerificationError):
            SiteKeys.read(keys / "site-b").tls().wrap_socket(client, server_hostname="127.0.0.1")


def shaking(posing: ssl.SSLContext, server: socket.socket) -> None:
    with contextlib.suppress(OSError), server:
        posing.wrap_socket(server, server_side=True)
