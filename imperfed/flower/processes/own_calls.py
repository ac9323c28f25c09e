"""SuperLink's interfaces on loopback answer the coordinator's own processes only, which know a secret.

Flower asks for none: whoever reaches SuperLink's port could register a key, stop a run, or submit one that the sites
would answer, and every user of the coordinator's machine reaches it. What the tasks of a run call has secrets of
Flower's own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx

from imperfed.flower.processes import adapter
from imperfed.flower.processes.holding import Receive, Scope, Send

HEADER = "imperfed-own"
GUARDED_BY_FLOWER = "/v1/runtime/"
NOT_ALLOWED = b"only the coordinator's own processes may call this"


def own_word(secret: Path) -> str:
    """Return what shows that a call is the coordinator's own; the secret in the file does not follow from it."""
    return hmac.new(secret.read_bytes(), b"own calls", hashlib.sha256).hexdigest()


class OwnCall:
    """An interceptor of Flower's clients, by which a call is known as the coordinator's own."""

    def __init__(self, secret: Path) -> None:
        self.word = own_word(secret)

    def intercept(self, context: Any, call_next: Callable[[Any], httpx.Response]) -> httpx.Response:
        """Add the word to a request."""
        context.request.headers[HEADER] = self.word
        return call_next(context)


class OwnCallsOnly:
    """An ASGI application before another, which lets through what shows the word, and what Flower guards itself."""

    def __init__(self, app: Callable[..., Any], word: str) -> None:
        self.app, self.word = app, word.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan" or self.admits(scope):
            await self.app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(NOT_ALLOWED)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": NOT_ALLOWED})

    def admits(self, scope: Scope) -> bool:
        """Return whether a request may pass."""
        shown = dict(scope["headers"]).get(HEADER.encode(), b"")
        by_flower: bool = scope["type"] == "http" and scope["path"].startswith(GUARDED_BY_FLOWER)
        return by_flower or hmac.compare_digest(shown, self.word)


def admit_own_calls_only(secret: Path) -> None:
    """Let the SuperLink of this process refuse everyone else."""
    main, word = import_module(adapter.NAMES["create_app"]), own_word(secret)
    create = main.create_app

    def guarded(*words: Any, **named: Any) -> Any:
        app = create(*words, **named)
        app.add_middleware(OwnCallsOnly, word=word)
        return app

    vars(main)["create_app"] = guarded
