"""A site's session with the coordinator, which the next session ends if it was cut off."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import httpx

from imperfed.flower.processes.adapter import DeactivateNodeRequest
from imperfed.flower.processes.child import CUT_OFF

SEEN = 3.0  # seconds in which the coordinator, which looks for its sites from time to time, notices that it is over


def sign_off(client: Any) -> None:
    """End this site's session that was cut off, if there was one; `client`: how the site talks to the coordinator.

    On its own the coordinator would take a minute to notice that the session is over; until then it would refuse the
    site and wait for an answer that cannot come. This is done when the next session is ready to start, so that there is
    little time for a round to pass without the site.
    """
    if not (node := os.environ.get(CUT_OFF)):
        return
    with contextlib.suppress(httpx.HTTPError):  # the coordinator does not know the session
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))
        time.sleep(SEEN)
