"""An answer that does not leave the site."""

from __future__ import annotations

from imperfed.engine.failures import Failure


class WithheldError(Exception):
    """Says why the site does not answer; the failure is sent instead."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure
