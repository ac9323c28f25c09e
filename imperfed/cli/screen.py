"""Where commands print: the console, the progress of runs, and JSON alone on stdout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from imperfed.experiments.progress import Show


def console(stderr: bool = False, **options: Any) -> Console:
    """Return a console that prints names and paths unchanged: no markup, no emoji codes, no line broken in a path.

    `options`: further ones of rich's `Console`.
    """
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True, markup=False, emoji=False, highlight=False, **options)


def printed(show: Callable[[Console], None], width: int = 100) -> str:
    """Return as text, without colours, what is shown on a console of this width."""
    text = StringIO()
    show(console(file=text, width=width, no_color=True))
    return text.getvalue().rstrip()


def progress(json: bool = False) -> Show:
    """Return what shows progress: on stderr where stdout is for JSON."""
    from imperfed.experiments.progress import Show

    return Show(console(stderr=json))


def stdout_for(json: bool) -> AbstractContextManager[None]:
    """Keep stdout for JSON, or leave it as it is."""
    from imperfed.cli.streams import stdout_to_stderr

    return stdout_to_stderr() if json else nullcontext()
