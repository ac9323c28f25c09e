"""A site's session with the coordinator, which the next session ends if it was cut off."""

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

SEEN = 3.0  # seconds in which the coordinator, which polls twice a second, notices that the session is over


def sign_off(words: list[str]) -> None:
    """End this site's session that was cut off, if there was one; `words`: the arguments of the SuperNode to start.

    On its own the coordinator would take a minute to notice that the session is over; until then it would refuse the
    site and wait for an answer that cannot come. This is done when the next session is ready to start, so that there is
    little time for a round to pass without the site.
    """
    if not (node := os.environ.get(CUT_OFF)):
        return
    address, ca, key = (
        words[words.index(name) + 1] for name in ("--superlink", "--root-certificates", "--auth-supernode-private-key")
    )
    private = load_ssh_private_key(Path(key).read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)  # SuperNode takes no other
    signature = NodeAuthHttpInterceptor(private, private.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with (
        contextlib.suppress(httpx.HTTPError),  # the coordinator does not know the session
        FleetHttpClient.from_server_address(address, False, ca, [version, signature]) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))
        time.sleep(SEEN)
