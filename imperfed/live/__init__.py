"""A run while it is under way: `imperfed status` in a terminal, `imperfed watch` as a page that renews itself."""

from __future__ import annotations

from imperfed.live.live_server import LivePage
from imperfed.live.run_status import RunStatus

__all__ = ["LivePage", "RunStatus"]
