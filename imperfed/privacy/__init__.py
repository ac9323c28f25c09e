"""Every `PrivacyMechanism` defined in a file of this folder, and those of plug-ins. Adding one needs no other edit."""

from __future__ import annotations

from functools import cache

from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.registry import Registry, components


@cache
def mechanisms() -> Registry[type[PrivacyMechanism]]:
    """Return all mechanisms by name."""
    return components(__name__, __path__, privacy=PrivacyMechanism)
