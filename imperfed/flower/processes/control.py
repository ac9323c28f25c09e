"""The coordinator's calls to its own SuperLink, over loopback: admit sites, submit a run, ask for its status."""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from imperfed.flower.processes.adapter import (
    ControlHttpClient,
    Fab,
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    RuntimeVersionHttpInterceptor,
    StartRunRequest,
    build_fab_from_files,
    fab_to_proto,
    install_from_fab,
    public_key_to_bytes,
    user_config_to_proto,
)
from imperfed.flower.processes.own_calls import OwnCall

Settings = dict[str, str | int | float | bool]

APPLICATION = """
[project]
name = "imperfed"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "imperfed"

[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "{site}"

[tool.flwr.app.config]
{settings}
"""


@dataclass(frozen=True)
class Status:
    """The status of a run."""

    ended: bool
    completed: bool
    details: str


class Control:
    """SuperLink's control interface, which answers the coordinator's own processes only."""

    def __init__(self, address: str, ca: Path | None, secret: Path) -> None:
        self.client = ControlHttpClient.from_server_address(
            address,
            insecure=ca is None,
            root_certificates=ca.read_bytes() if ca else None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="CLI"), OwnCall(secret)],
        )

    def nodes(self) -> dict[str, tuple[int, bool]]:
        """Return the registered sites by name: node id, and whether they are online."""
        registered = self.client.ListNodes(ListNodesRequest()).nodes_info
        return {node.name: (node.node_id, node.status == "online") for node in registered}

    def admit(self, name: str, key: bytes) -> int:
        """Admit a site by its public key; return its node id."""
        known = public_key_to_bytes(load_ssh_public_key(key))
        for node in self.client.ListNodes(ListNodesRequest()).nodes_info:
            if node.public_key == known:
                return int(node.node_id)
        return int(self.client.RegisterNode(RegisterNodeRequest(public_key=known, name=name)).node_id)

    def submit(self, server: str, site: str, settings: Settings) -> int:
        """Start a run of two installed applications (`module:object`) with these settings; return its number."""
        fab = application(server, site, settings)
        with contextlib.redirect_stdout(io.StringIO()):
            install_from_fab(fab, skip_prompt=True)  # beforehand, or Flower prints into the application's output
        sent = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        reply = self.client.StartRun(StartRunRequest(fab=sent, override_config=user_config_to_proto(settings)))
        return int(reply.run_id)

    def status(self, run: int) -> Status:
        """Return the status of a run."""
        status = self.client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return Status(status.status == "finished", status.sub_status == "completed", status.details)

    def ready(self) -> bool:
        """Return whether SuperLink answers."""
        try:
            self.client.ListNodes(ListNodesRequest())
        except httpx.HTTPError:
            return False
        return True


def application(server: str, site: str, settings: Settings) -> bytes:
    """Return the bundle that Flower distributes with a run: the names of installed modules, and no code."""
    lines = "\n".join(f"{key} = {empty(value)}" for key, value in settings.items())
    text = APPLICATION.format(server=server, site=site, settings=lines)
    bundle: bytes = build_fab_from_files({"pyproject.toml": text.encode()})[0]
    return bundle


def empty(value: str | int | float | bool) -> str:
    """Return an empty value of the same type; the real values are passed separately from the application."""
    return {str: '""', bool: "false", int: "0", float: "0.0"}[type(value)]
