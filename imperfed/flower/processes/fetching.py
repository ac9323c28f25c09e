"""What a site fetches from the coordinator, measured before it is read: bodies, objects, and what they unfold to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import httpx

from imperfed.core.errors import ImperfedError
from imperfed.flower.messages.parcel import Parcel
from imperfed.flower.messages.payload import PIECE, RefusedError
from imperfed.flower.messages.stored_reply import MOST_OBJECTS, Unfolded, measure_record
from imperfed.flower.processes import adapter

LONGEST_BODY = 16 * 2**20
"""The most bytes of one response; an object has a little more than 5 MiB."""
TOGETHER = 8
"""Objects that are fetched at the same time."""
SOON = {"initial_backoff": 0.1, "backoff_cap": 2.0}  # seconds between two tries to fetch an object; in Flower 1 to 10


class BoundedBody(httpx.SyncByteStream):
    """The body of a response, which ends with an error if it is too long."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[bytes]:
        length = 0
        for part in self.stream:
            length += len(part)
            if length > LONGEST_BODY:
                raise ImperfedError(f"the coordinator's response has more than {LONGEST_BODY} bytes")
            yield part

    def close(self) -> None:
        """Close the response."""
        self.stream.close()


def bound(response: httpx.Response) -> None:
    """Let a response end with an error if it is too long, or could unfold to anything: before its body is read."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ImperfedError("the coordinator's response is compressed, which was not asked for")
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = BoundedBody(response.stream)


def fetch(parcel: Parcel, pull: Callable[[str], bytes], most: int) -> None:
    """Fetch all objects of a message; raise `RefusedError` if it takes more than so many bytes or is not well made."""
    if parcel.whole:
        measure_record(parcel.record, most)
        return
    names = parcel.names()
    if len(names) > (allowed := MOST_OBJECTS + most // PIECE):
        raise RefusedError(f"it has {len(names)} parts, and at most {allowed} are read")
    waiting, taken = iter(names), 0
    while batch := list(islice(waiting, TOGETHER)):
        for name, content in adapter.pull_objects(batch, pull, **SOON).items():
            if adapter.get_object_id(content) != name:
                raise RefusedError(f"an object of it is not the one that was announced: {name}")
            parcel.objects[name] = content
            taken += len(content)
        if taken > most:
            raise RefusedError(f"it takes more than {most} bytes")
    try:
        Unfolded(parcel.objects, most).message(parcel.tree.object_id)
    except RefusedError:
        raise
    except Exception as error:  # whatever the coordinator sent, the site goes on
        raise RefusedError(f"it cannot be read ({error!r})") from error
