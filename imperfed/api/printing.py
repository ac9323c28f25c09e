"""What the command line prints, as text."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

from imperfed.cli.screen import console

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100


def printed(show: Callable[[Console], None]) -> str:
    """Return as text, without colours, what is shown on a console."""
    text = StringIO()
    show(console(file=text, width=WIDTH, no_color=True))
    return text.getvalue().rstrip()
