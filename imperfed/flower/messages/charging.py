"""Whatever goes wrong while one site's answer is read or checked is that site's failure, and no one else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from imperfed.core.errors import DataError
from imperfed.core.foreign_text import printable
from imperfed.engine.failures import Failure, Misshapen
from imperfed.engine.validate import REFUSED
from imperfed.flower.messages.payload import RefusedError

T = TypeVar("T")


def charged(read: Callable[[], T | Failure]) -> T | Failure:
    """Return what `read` makes of a site's answer; however it fails, that is the failure of the site."""
    try:
        return read()
    except Exception as error:  # whatever another machine sent, the others' answers are read all the same
        return Misshapen(REFUSED + why_refused(error))


def why_refused(error: Exception) -> str:
    """Return in words what is wrong with what a site sent."""
    known = isinstance(error, RefusedError | DataError)
    return printable(str(error) if known else f"it cannot be read ({error!r})")
