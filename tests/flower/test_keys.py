"""Keys of a consortium: what is in the folders, who may read them, and what is refused."""

from __future__ import annotations

import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from imperfed.core.errors import DataError, UsageError
from imperfed.flower.processes.keys import CoordinatorKeys, SiteKeys, make_keys


def shake_hands(keys: Path, site: str, host: str) -> str | None:
    """The reason why a site does not believe the coordinator under a host's name; None if it does."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys / "coordinator" / "server.crt", keys / "coordinator" / "server.key")
    client = ssl.create_default_context(cafile=str(keys / f"site-{site}" / "ca.crt"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    done = set()
    while len(done) < 2:
        for side in (asking, serving):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return None


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("consortium") / "keys"
    make_keys(out, ["north", "south"], ["fed.example.org", "192.0.2.7"], days=30)
    return out


def test_each_party_gets_what_it_needs_and_no_more(keys: Path) -> None:
    files = {str(f.relative_to(keys)) for f in keys.rglob("*") if f.is_file()}
    coordinator = {"ca.crt", "server.crt", "server.key", "sites/north.pub", "sites/south.pub"}
    sites = {
        f"site-{s}/{f}" for s in ("north", "south") for f in ("ca.crt", "client.crt", "client.key", "key", "secret")
    }
    assert files == {f"coordinator/{f}" for f in coordinator} | sites


def test_only_the_owner_may_read(keys: Path) -> None:
    for path in [keys, *keys.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_sites_key_is_the_one_the_coordinator_lets_in(keys: Path) -> None:
    read = CoordinatorKeys.read(keys / "coordinator")
    assert list(read.sites) == ["north", "south"]
    private = load_ssh_private_key(SiteKeys.read(keys / "site-north").key.read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    assert isinstance(private.curve, SECP384R1)
    assert private.public_key() == load_ssh_public_key(read.sites["north"])
    assert private.public_key() != load_ssh_public_key(read.sites["south"])


def test_all_sites_share_a_secret_that_is_not_the_coordinators(keys: Path) -> None:
    secret = SiteKeys.read(keys / "site-north").secret.read_bytes()
    assert len(bytes.fromhex(secret.decode())) == 32
    assert SiteKeys.read(keys / "site-south").secret.read_bytes() == secret
    assert all(secret not in f.read_bytes() for f in (keys / "coordinator").rglob("*") if f.is_file())


@pytest.mark.parametrize("host", ["fed.example.org", "192.0.2.7", "localhost", "127.0.0.1"])
def test_sites_believe_the_coordinator_under_its_names(keys: Path, host: str) -> None:
    assert shake_hands(keys, "south", host) is None


def test_sites_believe_nobody_else(keys: Path, tmp_path: Path) -> None:
    assert "mismatch" in str(shake_hands(keys, "south", "elsewhere.example.org"))
    make_keys(tmp_path / "other", ["south"], ["fed.example.org"], days=30)
    (tmp_path / "other" / "site-south" / "ca.crt").write_bytes((keys / "site-south" / "ca.crt").read_bytes())
    assert shake_hands(tmp_path / "other", "south", "fed.example.org") is not None


def test_expiry_is_as_asked_and_an_expired_folder_is_refused(tmp_path: Path) -> None:
    expires = make_keys(tmp_path / "keys", ["a"], ["h"], days=1e-6)
    assert abs(expires - datetime.now(UTC)) < timedelta(seconds=10)
    threading.Event().wait(1.1)  # certificates count whole seconds
    for read, folder in ((CoordinatorKeys.read, "coordinator"), (SiteKeys.read, "site-a")):
        with pytest.raises(DataError, match=r"expired on .* UTC; make new ones"):
            read(tmp_path / "keys" / folder)
    assert "expired" in str(shake_hands(tmp_path / "keys", "a", "h"))


def test_nothing_is_overwritten(keys: Path) -> None:
    before = {f: f.read_bytes() for f in keys.rglob("*") if f.is_file()}
    with pytest.raises(UsageError, match="never overwritten"):
        make_keys(keys, ["west"], ["h"], days=30)
    assert before == {f: f.read_bytes() for f in keys.rglob("*") if f.is_file()}


@pytest.mark.parametrize(
    ("sites", "hosts", "days", "message"),
    [
        (["a", "a"], ["h"], 1, "each once"),
        ([], ["h"], 1, "each once"),
        (["../a"], ["h"], 1, "cannot be the name of a file"),
        (["a", "scale"], ["h"], 1, "'scale', which is the name of another file of a run"),
        (["a"], [], 1, "--host"),
        (["a"], ["höst"], 1, "ASCII"),
        (["a"], ["h"], 0, "--days"),
    ],
)
def test_what_is_refused(tmp_path: Path, sites: list[str], hosts: list[str], days: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_keys(tmp_path / "keys", sites, hosts, days)
    assert not (tmp_path / "keys").exists()


def test_a_folder_with_something_missing(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no server\.crt|no ca\.crt"):
        CoordinatorKeys.read(tmp_path)
    with pytest.raises(DataError, match=r"no client\.crt"):
        SiteKeys.read(keys / "coordinator")
    (tmp_path / "ca.crt").write_text("no certificate")
    for name in ("client.crt", "client.key", "key", "secret"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="not a certificate"):
        SiteKeys.read(tmp_path)
