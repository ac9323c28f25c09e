"""The list of a site's most suspicious rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from imperfed.label_audit.audit_summary import Suspect

MOST = 50
"""How many suspects are listed for a site."""
Columns = dict[str, list[object]]
"""The columns of a label file."""


def worst(columns: Columns, suspects: Sequence[bool]) -> tuple[Suspect, ...]:
    """Return the suspects among a site's rows, the most suspicious first."""
    rows = zip(*(columns[name] for name in Suspect.__struct_fields__), strict=True)
    found = [Suspect(*row) for row in compress(rows, suspects)]
    return tuple(sorted(found, key=lambda suspect: -suspect.suspicion)[:MOST])
