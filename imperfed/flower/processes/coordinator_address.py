"""The coordinator as a site reaches it: whether it answers, whether it is the right one, and what time it has."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.flower.processes.child import NEAR
from imperfed.flower.processes.keys import SiteKeys

CLOCK = b"/clock"
"""The path at which the gate itself answers; from its date a site learns how far its own clock is off."""
KNOCK = 10.0  # seconds
NOT_ACCEPTED = "it ends the connection: it is busy, or does not accept this site's certificate"
LONGEST_HEAD = 8192  # bytes
AHEAD, BEHIND = 5.0, 305.0  # seconds by which the time of a signature may differ from SuperLink's
ROUNDED = 1.5  # seconds by which the time in an answer may be late: it has no fractions, and travelled
OTHER_PROTOCOLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
OUT_OF_DATE = (9, 10)  # OpenSSL: not yet valid, expired


@dataclass(frozen=True)
class CoordinatorAddress:
    """The coordinator's address, and the keys to use there."""

    host: str
    port: int
    keys: SiteKeys | None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.keys is None and not self.insecure and self.host not in NEAR:
            raise UsageError(
                f"without keys anyone on the way to {self.host} can read and change what is sent: give --keys with "
                "the folder you were given, or --insecure"
            )

    @property
    def address(self) -> str:
        """Host and port as one string."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def knock(self) -> str:
        """Return why nothing answers now; empty if the coordinator does. Raise an error if another server does."""
        try:
            self._ask()
        except ssl.SSLCertVerificationError as error:
            clock = ", by the clock of this machine" if error.verify_code in OUT_OF_DATE else ""
            raise DataError(
                f"the server at {self.address} cannot prove that it is the coordinator: {error.verify_message}{clock}; "
                "nothing was sent"
            ) from error
        except ssl.SSLError as error:
            if "ALERT" in (error.reason or ""):
                return NOT_ACCEPTED
            if error.reason not in OTHER_PROTOCOLS:  # cut off or damaged on the way, such as by a forwarder
                return f"the connection was lost while it was made: {error.reason or error}"
            raise ImperfedError(f"{self.address} does not speak TLS ({error.reason}); nothing was sent") from error
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def wrong_clock(self) -> str:
        """Return by how much this machine's clock differs from the coordinator's, if that is why a site is refused."""
        try:
            ahead = clock_ahead(self._ask(), time.time())
        except OSError:
            return ""
        if ahead is None or -BEHIND < ahead < AHEAD - ROUNDED:
            return ""
        far = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        return (
            f"the clock of this machine is {far} the coordinator's ({self.address}), which therefore takes what the "
            "site signs for invalid: set the clock, for example by NTP"
        )

    def _ask(self) -> bytes:
        """Return the head of the gate's answer to the question what time it is."""
        with socket.create_connection((self.host, self.port), timeout=KNOCK) as plain:
            if self.keys is None:
                return _head(plain)
            with self.keys.tls().wrap_socket(plain, server_hostname=self.host) as tls:
                try:
                    return _head(tls)
                except TimeoutError:
                    raise
                except OSError as error:  # in TLS 1.3 a certificate is looked at after the client is done
                    raise ConnectionResetError(None, NOT_ACCEPTED) from error


def _head(connection: socket.socket) -> bytes:
    connection.sendall(b"GET " + CLOCK + b" HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD:
        if not (piece := connection.recv(LONGEST_HEAD)):
            raise ConnectionResetError(None, NOT_ACCEPTED)
        head += piece
    return head


def clock_ahead(head: bytes, now: float) -> float | None:
    """Return by how many seconds `now` is later than the date in the head of an answer; None if it has no date."""
    for line in head.decode("latin-1").splitlines():
        name, _, value = line.partition(":")
        if name.lower() == "date":
            try:
                return now - parsedate_to_datetime(value.strip()).timestamp()
            except ValueError:
                return None
    return None
