"""The only module that touches Flower's private interfaces, which may change with any version.

`from imperfed.flower.processes.adapter import ControlHttpClient` looks the name up in the table below and imports its
module only then, which keeps a site's own process light. A test tries every name against the installed Flower.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flwr.app import Message

NAMES = {
    "build_fab_from_files": "flwr.cli.build",
    "install_from_fab": "flwr.cli.install",
    "fab_to_proto": "flwr.common.serde",
    "user_config_to_proto": "flwr.common.serde",
    "message_from_proto": "flwr.common.serde",
    "message_to_proto": "flwr.common.serde",
    "HEARTBEAT_DEFAULT_INTERVAL": "flwr.common.constant",
    "ListNodesRequest": "flwr.proto.control_pb2",
    "ListRunsRequest": "flwr.proto.control_pb2",
    "RegisterNodeRequest": "flwr.proto.control_pb2",
    "StartRunRequest": "flwr.proto.control_pb2",
    "ActivateNodeRequest": "flwr.proto.fleet_pb2",
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2",
    "PullMessagesRequest": "flwr.proto.fleet_pb2",
    "PushMessagesRequest": "flwr.proto.fleet_pb2",
    "RegisterNodeFleetRequest": "flwr.proto.fleet_pb2",
    "UnregisterNodeFleetRequest": "flwr.proto.fleet_pb2",
    "SendNodeHeartbeatRequest": "flwr.proto.heartbeat_pb2",
    "ConfirmMessageReceivedRequest": "flwr.proto.message_pb2",
    "ObjectTree": "flwr.proto.message_pb2",
    "PullObjectRequest": "flwr.proto.message_pb2",
    "Node": "flwr.proto.node_pb2",
    "AcquireTaskRequest": "flwr.proto.runtime_pb2",
    "PullAppMessagesRequest": "flwr.proto.runtime_pb2",
    "PushAppMessagesRequest": "flwr.proto.runtime_pb2",
    "TaskType": "flwr.supercore.constant",
    "ControlHttpClient": "flwr.supercore.control",
    "FlowerError": "flwr.supercore.error",
    "ApiErrorCode": "flwr.supercore.error",
    "push_messages": "flwr.superlink.servicer.fleet.fleet_handlers",
    "Fab": "flwr.supercore.fab",
    "HeartbeatSender": "flwr.supercore.heartbeat",
    "remove_content_from_message": "flwr.app.message",
    "InMemoryObjectStore": "flwr.supercore.object_store.in_memory_object_store",
    "InMemoryLinkState": "flwr.server.superlink.linkstate.in_memory_linkstate",
    "generate_key_pairs": "flwr.supercore.primitives.asymmetric",
    "RunNotRunningException": "flwr.supercore.run",
    "get_object_id": "flwr.supercore.inflatable.inflatable_object",
    "get_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "pull_objects": "flwr.supercore.inflatable.inflatable_utils",
    "ObjectPushError": "flwr.supercore.inflatable.inflatable_utils",
    "push_object_contents_from_iterable": "flwr.supercore.inflatable.inflatable_utils",
    "make_pull_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "make_push_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "SuperExecAuthHttpInterceptor": "flwr.supercore.interceptors.http",
    "RuntimeVersionHttpInterceptor": "flwr.supercore.interceptors",
    "public_key_to_bytes": "flwr.supercore.primitives.asymmetric",
    "ProtobufClient": "flwr.supercore.protobuf.client",
    "make_simple_http_retry_invoker": "flwr.supercore.retry",
    "RuntimeHttpClient": "flwr.supercore.runtime",
    "_SUPEREXEC_AUTH_METHODS": "flwr.supercore.superexec.run_superexec",
    "create_app": "flwr.superlink.main",
    "run_serverapp": "flwr.superlink.runtime.run_serverapp",
    "FleetHttpClient": "flwr.supernode.fleet_http_client",
    "NodeAuthHttpInterceptor": "flwr.supernode.node_auth_http_interceptor",
    "Run": "flwr.supercore.run",
    "TaskIdentity": "flwr.supercore.task_identity",
    "get_all_nested_objects": "flwr.supercore.inflatable.inflatable_object",
    "iterate_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "inflate_object_from_contents": "flwr.supercore.inflatable.inflatable_utils",
}
"""The module in which Flower keeps each name."""


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"{__name__} has no {name!r}")
    return getattr(import_module(NAMES[name]), name)


def identify(run: int, node: int) -> None:
    """Set who creates messages in this process; Flower's own processes are given this when they start."""
    identity = __getattr__("TaskIdentity")
    identity.task_id, identity.run_id, identity.node_id = 1, run, node


def objects_of(message: Message) -> dict[str, bytes]:
    """Return the objects into which Flower cuts a message, by their ids."""
    return {name: part.deflate() for name, part in __getattr__("get_all_nested_objects")(message).items()}


def inflated(root: str, objects: dict[str, bytes]) -> Message:
    """Return the message that these objects make up."""
    message = __getattr__("inflate_object_from_contents")(root, objects)
    assert isinstance(message, Message)
    return message


def numbered(message: Message, number: str) -> Message:
    """Return the same message with this number, which is not among the objects into which it is cut."""
    message.metadata.__dict__["_message_id"] = number
    return message


def delivered(message: Message, number: str) -> Message:
    """Return a message as the other end receives it: split into the objects Flower sends, reassembled and numbered."""
    return numbered(inflated(message.object_id, objects_of(message)), number)
