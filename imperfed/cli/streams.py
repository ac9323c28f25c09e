"""The standard streams: stdout is kept for JSON where a command prints JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send to stderr whatever is printed to stdout, by other processes as well, which inherit its file descriptor."""
    sys.stdout.flush()
    stdout, stderr = 1, 2
    kept = os.dup(stdout)
    os.dup2(stderr, stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, stdout)
        os.close(kept)
