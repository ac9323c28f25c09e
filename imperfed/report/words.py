"""Numbers formatted for readers. Fractions become per cent here."""

from __future__ import annotations

from collections.abc import Sequence

NAMES = {"auroc": "AUROC", "p@1": "P@1", "p@3": "P@3", "p@5": "P@5", "map": "mAP", None: "figure"}
MEANINGS = {
    "w": "shared weights",
    "buffers": "shared buffers (running means and variances)",
    "annotated": "number of rows annotated for each class",
    "validation": "score on the rows held out, and its weight",
}


def per_cent(fraction: float | None) -> str:
    """Format a fraction in per cent; a dash for None."""
    return "\N{EN DASH}" if fraction is None else f"{100 * fraction:.2f}\N{NO-BREAK SPACE}%"


def count(number: float) -> str:
    """Format a whole number with thousands separators."""
    return f"{number:,.0f}"


def short(number: int) -> str:
    """Format a count for a small cell."""
    return str(number) if number < 10_000 else f"{number / 1000:.0f}k"


def amount(bytes: float) -> str:
    """Format bytes in the decimal unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if bytes < 999.5:
            return f"{bytes:.3g}\N{NO-BREAK SPACE}{unit}"
        bytes /= 1000
    return f"{bytes:,.3g}\N{NO-BREAK SPACE}TB"


def many(number: int, one: str, several: str = "") -> str:
    """Format a count with the noun that is counted."""
    return f"{count(number)} {one if number == 1 else several or one + 's'}"


def product(shape: Sequence[int]) -> str:
    """Format a shape; that of a single number is 1."""
    return " \N{MULTIPLICATION SIGN} ".join(map(count, shape)) or "1"


def named(metric: str | None) -> str:
    """Return the name of a metric as written in a sentence."""
    return NAMES.get(metric, metric or "")


def named_over_sites(figure: str) -> str:
    """Return the name of a figure that says over what it is a mean, such as "auroc, mean over sites"."""
    metric, comma, over = figure.partition(",")
    return f"{named(metric)}{comma}{over}"


def in_rounds(rounds: Sequence[int]) -> str:
    """Describe when something happened: in which round, or how often."""
    if not rounds:
        return ""
    return f"round {rounds[0]}" if len(rounds) == 1 else f"{len(rounds)} times, rounds {rounds[0]} to {rounds[-1]}"
