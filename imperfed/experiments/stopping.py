"""Whether the runs of this process were asked to stop by another one, which started them."""

from __future__ import annotations

from typing import Protocol


class Stop(Protocol):
    """Something that is up or not, and that another process puts up."""

    def is_set(self) -> bool:
        """Return whether it is up."""


_stopping: Stop


def stop_with(flag: Stop) -> None:
    """Let this process stop, after the round that it is in, as soon as a flag is up."""
    global _stopping
    _stopping = flag


def stop_is_wanted() -> bool:
    """Return whether this process was asked to stop after the round that it is in."""
    return _stopping.is_set()
