"""A page about a run that is under way, served to this machine: read-only, and nothing but this one run."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from imperfed.core.errors import ImperfedError, UsageError
from imperfed.live.run_status import RunStatus
from imperfed.report import rendered

PATIENCE = 10.0
"""Seconds in which a request must have come."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass
class LivePage:
    """The server of the page. Whoever is not on this machine needs the token."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        RunStatus.of(self.folder)  # a wrong folder is refused at once
        try:
            self.server = ThreadingHTTPServer((self.host, self.port), partial(PageHandler, self))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {self.host}:{self.port} ({error.strerror}); choose another --port"
            ) from error
        self.server.daemon_threads = True

    @property
    def address(self) -> str:
        """What to open in a browser."""
        host, port = self.server.server_address[:2]
        return f"http://{host!s}:{port}/" + ("" if is_local(self.host) else f"?token={self.token}")

    def run(self) -> None:
        """Serve until Ctrl-C."""
        with self.server:
            self.server.serve_forever()

    def admits(self, sender: str, asked: str, given: str) -> bool:
        """Return whether a request may be answered; `asked`: the host that it names, `given`: its token.

        A browser on this machine says which host the page is from. Where that is no name of this machine, another page
        has made its own name point here to read the answer.
        """
        return (is_local(sender) and is_local(asked)) or self.knows(given)

    def knows(self, given: str) -> bool:
        """Return whether this is the token."""
        return hmac.compare_digest(given.encode(), self.token.encode())


def is_local(host: str) -> bool:
    """Return whether an address is of this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class PageHandler(BaseHTTPRequestHandler):
    """Answers GET requests for two paths: the page, and its figures."""

    timeout = PATIENCE
    server_version = "imperfed"

    def __init__(self, page: LivePage, *request: Any) -> None:
        self.page = page
        super().__init__(*request)

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if not self.page.admits(self.client_address[0], self.host(), self.given_token(asked.query)):
            self.send_error(HTTPStatus.FORBIDDEN, "open the address that `imperfed watch` printed")
            return
        if asked.path not in ANSWERS:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, answer = ANSWERS[asked.path]
        try:
            body = answer(self.page.folder).encode()
        except (ImperfedError, OSError, ValueError):  # a file is being written, or was removed
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the run's files cannot be read just now")
            return
        self.reply(kind, body)

    def host(self) -> str:
        """Return the host that the request names, without its port; this machine where it names none."""
        try:
            return urlsplit(f"//{self.headers.get('Host') or 'localhost'}").hostname or ""
        except ValueError:
            return ""

    def given_token(self, query: str) -> str:
        """Return the token of the address, or the one that the browser kept from it."""
        try:
            kept = SimpleCookie(self.headers.get("Cookie", "")).get("token")
        except CookieError:  # of another server on this machine: browsers keep cookies by host, for all its ports
            kept = None
        return parse_qs(query).get("token", [kept.value if kept else ""])[0]

    def reply(self, kind: str, body: bytes) -> None:
        """Send a whole answer."""
        self.send_response(HTTPStatus.OK)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.page.knows(self.given_token(urlsplit(self.path).query)):
            self.send_header("Set-Cookie", f"token={self.page.token}; HttpOnly; SameSite=Strict")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is for the address."""


@cache
def page_text() -> str:
    """Return the page, which has no figures of its own."""
    return rendered("imperfed.live", "live.html", {"title": "imperfed: a run under way", "about": (), "contents": ()})


def figures_of(folder: Path) -> str:
    """Return what the page shows of a run, as JSON."""
    return json.dumps(RunStatus.of(folder).plain())


ANSWERS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "/": ("text/html; charset=utf-8", lambda folder: page_text()),
    "/status.json": ("application/json", figures_of),
}
