"""A gate is asked, and what it lets through is written down."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from imperfed.flower.processes.gateway import GatewayServer

PULL = "/v1/fleet/pull-messages"


class Upstream(ThreadingHTTPServer):
    """Stands where SuperLink stands and writes down everything that reaches it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream
    status = 200

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if self.parse_request():
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {k.lower(): v for k, v in self.headers.items()}
            self.server.seen.append((self.requestline, headers, body))
            self.send_response(self.status)
            self.send_header("content-type", "application/protobuf")
            self.send_header("flwr-note", "kept")
            self.send_header("set-cookie", "dropped")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[::-1])

    def log_message(self, *args: object) -> None:
        pass


def speak(door: GatewayServer, text: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Everything the gate answers to these bytes until it closes or falls silent."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", door.port), timeout=5)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
    with connection:
        connection.sendall(text)
        connection.settimeout(0.4)
        heard = b""
        try:
            while piece := connection.recv(65536):
                heard += piece
        except TimeoutError:
            pass
        return heard


def unheard(door: GatewayServer, text: bytes, tls: ssl.SSLContext) -> bool:
    """Whether the gate ends a connection, or answers nothing."""
    with contextlib.suppress(OSError):
        return speak(door, text, tls) == b""
    return True


def post(path: str, body: bytes = b"hello", extra: str = "", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: gate\r\nContent-Length: {len(body)}\r\n{extra}Connection: close\r\n\r\n"
    return head.encode("latin-1") + body
