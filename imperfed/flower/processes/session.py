"""A site's session at the coordinator, and how the next one ends it if it was cut off."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from imperfed.flower.processes.adapter import (
    DeactivateNodeRequest,
    FleetHttpClient,
    NodeAuthHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from imperfed.flower.processes.child import CUT_OFF

SEEN = 3.0  # seconds in which the coordinator, who looks twice a second, sees that the session is over


def sign_off(words: list[str]) -> None:
    """End the session of this site that was cut off, if there was one; `words`: of the SuperNode to be started.

    The coordinator would take a minute to see by itself that it is over, refuse the site for so long, and wait for an
    answer that cannot come any more. This is done when all is ready for the next session, so that a round has
    little time to pass without the site.
    """
    if not (node := os.environ.get(CUT_OFF)):
        return
    address, ca, key = (
        words[words.index(name) + 1] for name in ("--superlink", "--root-certificates", "--auth-supernode-private-key")
    )
    private = load_ssh_private_key(Path(key).read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)  # SuperNode takes no other
    signs = NodeAuthHttpInterceptor(private, private.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with (
        contextlib.suppress(httpx.HTTPError),  # it knows no such session
        FleetHttpClient.from_server_address(address, False, ca, [version, signs]) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))
        time.sleep(SEEN)
