"""Searches that are quick: of what sites fit alone, the fastest family only."""

from __future__ import annotations

import pytest

from imperfed.alone.logistic import Logistic


def try_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches and references fit logistic regressions alone."""
    for user in ("reference", "search"):
        monkeypatch.setattr(f"imperfed.experiments.auto.{user}.families", lambda *_: [Logistic()])
