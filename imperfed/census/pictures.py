"""The pictures of an inspection: labels by site, and the distributions of inputs by site."""

from __future__ import annotations

from pathlib import Path

from imperfed.census.inspect import Inspection
from imperfed.census.picture import draw
from imperfed.census.value_picture import draw_values

LABELS, VALUES = "sites x classes", "input values"
KEYS = {"picture": LABELS, "values_picture": VALUES}


def draw_all(inspection: Inspection, path: Path) -> dict[str, Path]:
    """Write the pictures, the labels to `path` and the input values beside it; return what was drawn where."""
    draw(inspection.census, path)
    drawn = {LABELS: path}
    if inspection.values[0].numbers:
        drawn[VALUES] = path.with_name(f"{path.stem}-values.png")
        draw_values(inspection.values, drawn[VALUES])
    return drawn


def paths(drawn: dict[str, Path]) -> dict[str, str | None]:
    """Return where pictures were drawn, for a JSON document; None for those that were not."""
    return {key: str(drawn[what]) if what in drawn else None for key, what in KEYS.items()}
