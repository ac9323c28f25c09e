"""The only module that touches what Flower does not promise to keep.

`from imperfed.flower.processes.adapter import ControlHttpClient` looks the name up in the table below and imports its
module only then, which keeps a site's own process light. A test tries every name with the installed Flower.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from flwr.app import Message

NAMES = {
    "build_fab_from_files": "flwr.cli.build",
    "install_from_fab": "flwr.cli.install",
    "fab_to_proto": "flwr.common.serde",
    "user_config_to_proto": "flwr.common.serde",
    "ListNodesRequest": "flwr.proto.control_pb2",
    "ListRunsRequest": "flwr.proto.control_pb2",
    "RegisterNodeRequest": "flwr.proto.control_pb2",
    "StartRunRequest": "flwr.proto.control_pb2",
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2",
    "AcquireTaskRequest": "flwr.proto.runtime_pb2",
    "TaskType": "flwr.supercore.constant",
    "ControlHttpClient": "flwr.supercore.control",
    "Fab": "flwr.supercore.fab",
    "RuntimeVersionHttpInterceptor": "flwr.supercore.interceptors",
    "public_key_to_bytes": "flwr.supercore.primitives.asymmetric",
    "make_simple_http_retry_invoker": "flwr.supercore.retry",
    "RuntimeHttpClient": "flwr.supercore.runtime",
    "run_serverapp": "flwr.superlink.runtime.run_serverapp",
    "FleetHttpClient": "flwr.supernode.fleet_http_client",
    "NodeAuthHttpInterceptor": "flwr.supernode.node_auth_http_interceptor",
    "Run": "flwr.supercore.run",
    "TaskIdentity": "flwr.supercore.task_identity",
    "get_all_nested_objects": "flwr.supercore.inflatable.inflatable_object",
    "inflate_object_from_contents": "flwr.supercore.inflatable.inflatable_utils",
}
"""Where Flower keeps a name now."""
MODULES = {
    "inflatable_utils": "flwr.supercore.inflatable.inflatable_utils",
    "run_clientapp": "flwr.supernode.runtime.run_clientapp",  # its package has a function so named
    "start_client_internal": "flwr.supernode.start_client_internal",
}
"""Modules in which something is changed."""


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"{__name__} has no {name!r}")
    return getattr(import_module(NAMES[name]), name)


def home(name: str) -> ModuleType:
    """A module of Flower in which something is changed."""
    return import_module(MODULES[name])


def identify(run: int, node: int) -> None:
    """Who creates messages in this process; Flower's own processes are told so when they start."""
    identity = __getattr__("TaskIdentity")
    identity.task_id, identity.run_id, identity.node_id = 1, run, node


def delivered(message: Message, number: str) -> Message:
    """A message as the other end gets it: cut into the objects that Flower sends, put together again, and numbered."""
    parts = __getattr__("get_all_nested_objects")(message)
    objects = {name: part.deflate() for name, part in parts.items()}
    there = __getattr__("inflate_object_from_contents")(message.object_id, objects)
    assert isinstance(there, Message)
    there.metadata.__dict__["_message_id"] = number
    return there
