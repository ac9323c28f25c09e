"""Keys and certificates of a consortium, made in one step: one folder for the coordinator, one for each site.

coordinator/    ca.crt, server.crt, server.key    proves the coordinator's identity to the sites
                sites/NAME.pub                    the public keys of the sites, by name
site-NAME/      ca.crt                            verifies the coordinator's certificate
                client.crt, client.key            lets the site connect to the coordinator at all, over TLS
                key                               proves the site's identity to the coordinator (ECDSA, P-384)
                secret                            shared by all sites, unknown to the coordinator: for digests of labels

The authority's own key is never written, so nobody can issue a second certificate that the sites would trust.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from imperfed.core.errors import DataError, UsageError
from imperfed.data.files.site_names import name_trouble

LOOPBACK = ("localhost", "127.0.0.1")  # the gate and the coordinator's own processes connect to SuperLink there
SECRET_BYTES = 32


@dataclass(frozen=True)
class CoordinatorKeys:
    """The coordinator's folder, read and checked."""

    path: Path
    sites: dict[str, bytes]
    expires: datetime

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.path / "server.crt"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.path / "server.key"

    @classmethod
    def read(cls, path: Path) -> CoordinatorKeys:
        """Read a folder that `make_keys` wrote; raise an error if a file is missing or has expired."""
        for name in ("ca.crt", "server.crt", "server.key"):
            if not (path / name).is_file():
                raise DataError(f"{path} has no {name}; `imperfed keys` makes a folder `coordinator` to give here")
        sites = {file.stem: file.read_bytes() for file in sorted((path / "sites").glob("*.pub"))}
        return cls(path, sites, in_date(path / "server.crt"))


@dataclass(frozen=True)
class SiteKeys:
    """One site's folder, read and checked."""

    path: Path
    expires: datetime

    @property
    def ca(self) -> Path:
        """The certificate that verifies the coordinator's."""
        return self.path / "ca.crt"

    @property
    def key(self) -> Path:
        """The site's private key."""
        return self.path / "key"

    @property
    def client_certificate(self) -> Path:
        """The certificate without which the coordinator does not talk to anyone."""
        return self.path / "client.crt"

    @property
    def client_key(self) -> Path:
        """The private key of that certificate."""
        return self.path / "client.key"

    def tls(self) -> ssl.SSLContext:
        """Return how to connect: trusting this coordinator only, and showing the site's certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_certificate, self.client_key)
        return context

    @property
    def secret(self) -> Path:
        """The secret that all sites share and the coordinator does not know."""
        return self.path / "secret"

    @classmethod
    def read(cls, path: Path) -> SiteKeys:
        """Read a folder that `make_keys` wrote; raise an error if a file is missing or has expired."""
        for name in ("ca.crt", "client.crt", "client.key", "key", "secret"):
            if not (path / name).is_file():
                raise DataError(f"{path} has no {name}; `imperfed keys` makes a folder `site-NAME` to give here")
        return cls(path, min(in_date(path / "ca.crt"), in_date(path / "client.crt")))


def in_date(path: Path) -> datetime:
    """Return when a certificate expires; raise an error if it has expired or is not a certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is not a certificate ({error})") from error
    expires = certificate.not_valid_after_utc
    if expires < datetime.now(UTC):
        raise DataError(f"{path} expired on {expires:%Y-%m-%d %H:%M} UTC; make new ones with `imperfed keys`")
    return expires


def make_keys(out: Path, sites: Sequence[str], hosts: Sequence[str], days: float) -> datetime:
    """Write all keys and certificates of a consortium to a new folder; return when the certificates expire."""
    _refuse(out, sites, hosts, days)
    begins = datetime.now(UTC) - timedelta(minutes=5)  # clocks may differ a little
    expires = datetime.now(UTC) + timedelta(days=days)
    authority, ca = _authority(begins, expires)
    issuer = Issuer(authority, ca, begins, expires)
    server, certificate = issuer.issue("imperfed coordinator", ExtendedKeyUsageOID.SERVER_AUTH, hosts)
    secret = secrets.token_bytes(SECRET_BYTES)
    coordinator = out / "coordinator"
    for folder in (out, coordinator):
        folder.mkdir(parents=True, mode=0o700)
    _write(coordinator / "ca.crt", _pem(ca))
    _write(coordinator / "server.crt", _pem(certificate))
    _write(coordinator / "server.key", _private(server))
    for name in sites:
        key, (client, shown) = _new_key(), issuer.issue(name, ExtendedKeyUsageOID.CLIENT_AUTH)
        _write(coordinator / "sites" / f"{name}.pub", _public_ssh(key))
        _write(out / f"site-{name}" / "ca.crt", _pem(ca))
        _write(out / f"site-{name}" / "client.crt", _pem(shown))
        _write(out / f"site-{name}" / "client.key", _private(client))
        _write(out / f"site-{name}" / "key", _private_ssh(key))
        _write(out / f"site-{name}" / "secret", secret.hex().encode())
    return expires


def _refuse(out: Path, sites: Sequence[str], hosts: Sequence[str], days: float) -> None:
    if out.exists():
        raise UsageError(f"{out} exists, and keys are never overwritten: choose another folder, or move this one away")
    if not sites or len(set(sites)) < len(sites):
        raise UsageError("--sites takes the sites' names with commas between them, each once")
    for name in sites:
        if trouble := name_trouble(name):
            raise UsageError(f"--sites has {trouble}; choose another name")
    if not hosts or not all(hosts):
        raise UsageError("--host takes the coordinator's name or address, as the sites will write it")
    if not days > 0:
        raise UsageError(f"--days must be above 0; got {days:g}")


def _authority(begins: datetime, expires: datetime) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    key, name = _new_key(), _name("imperfed consortium")
    builder = _certificate(name, name, key, begins, expires)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(certificates=True), critical=True)
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return key, builder.add_extension(identity, critical=False).sign(key, SHA384())


@dataclass(frozen=True)
class Issuer:
    """The authority of a consortium, while its key exists."""

    authority: EllipticCurvePrivateKey
    ca: x509.Certificate
    begins: datetime
    expires: datetime

    def issue(
        self, name: str, purpose: x509.ObjectIdentifier, hosts: Sequence[str] = ()
    ) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        """Return a key and its certificate, good for one purpose; `hosts`: of a server."""
        key = _new_key()
        builder = _certificate(_name(name), self.ca.subject, key, self.begins, self.expires)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys([*hosts, *LOOPBACK])])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key())
        return key, builder.add_extension(issuer, critical=False).sign(self.authority, SHA384())


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, begins: datetime, expires: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begins).not_valid_after(expires)


def _usage(certificates: bool) -> x509.KeyUsage:
    unused = dict.fromkeys(
        ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"], False
    )
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        decipher_only=False,
        **unused,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        try:
            return x509.DNSName(host)
        except ValueError:
            raise UsageError(f"{host!r} is neither a host name in ASCII letters nor an address") from None


def _new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP384R1())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _private(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _private_ssh(key: EllipticCurvePrivateKey) -> bytes:
    """Return a private key in OpenSSH format, the only one SuperNode reads."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def _public_ssh(key: EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read."""
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
