"""Replies that are not what Flower makes of a message."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from flwr.app import Message

from imperfed.flower.messages.local_grid import Forged
from imperfed.flower.messages.stored_reply import head
from imperfed.flower.processes import adapter


def obj(kind: str, children: list[str], body: bytes) -> bytes:
    return f"{kind} {','.join(children)} {len(body)}".encode() + b"\0" + body


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def rebuilt(reply: Message, kind: str, change: Callable[[list[str], bytes], tuple[list[str], bytes]]) -> Forged:
    """Change the objects of one kind in a reply, and all names above them."""
    objects, new = adapter.objects_of(reply), dict[str, bytes]()

    def rebuild(name: str) -> str:
        found, children, start = head(objects[name])
        body, renamed = objects[name][start:], {child: rebuild(child) for child in children}
        for old, other in renamed.items():
            body = body.replace(old.encode(), other.encode())
        children = list(renamed.values())
        if found == kind:
            children, body = change(children, body)
        content = obj(found, children, body)
        new[name_of(content)] = content
        return name_of(content)

    return Forged(rebuild(reply.object_id), new)
