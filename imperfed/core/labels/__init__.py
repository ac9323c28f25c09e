"""What a site may know about its examples: kinds of labels, each a class in its own file.

A kind defines everything about itself: how its labels are stored and checked, read from a user's file and written to a
label file, counted and described. Other packages call these methods, and name a kind only where they need exactly that
one, such as an objective that learns from it. A new kind is a file in this folder with a class that sets `kind`.

True labels never appear here: they are in `imperfed.data.oracle`.
"""

from __future__ import annotations

from imperfed.core.labels.annotated import Annotated
from imperfed.core.labels.base import Labels
from imperfed.core.labels.candidates import Candidates
from imperfed.core.labels.counts import ClassCounts
from imperfed.core.labels.exact import Exact
from imperfed.core.labels.label_cells import Cells, UnreadableError
from imperfed.core.labels.memberships import Memberships
from imperfed.core.labels.one_class import OneClass
from imperfed.core.labels.positive import Positive
from imperfed.core.labels.positives import Positives
from imperfed.core.labels.probabilities import Probabilities
from imperfed.core.labels.validity import Validity
from imperfed.core.registry import discover

KINDS: dict[str, type[Labels]] = discover(__name__, __path__, (Labels,), key="kind")
"""Every kind by name."""

__all__ = [
    "KINDS",
    "Annotated",
    "Candidates",
    "Cells",
    "ClassCounts",
    "Exact",
    "Labels",
    "Memberships",
    "OneClass",
    "Positive",
    "Positives",
    "Probabilities",
    "UnreadableError",
    "Validity",
]
