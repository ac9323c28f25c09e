"""Messages between ranks: what arrives is what was sent, and nothing that a stranger sends is carried out."""

from __future__ import annotations

import json
import math
import os
import pickle
import socket
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.core.federation import HeldOut
from imperfed.core.labels import Exact
from imperfed.core.labels.validity import Validity
from imperfed.core.lazy import OPENED, LazyRows, read
from imperfed.core.network import Network
from imperfed.engine.backends.distributed.crossing import UnreadableMessageError
from imperfed.engine.backends.distributed.group import ASKED, GONE, open_sockets, watch
from imperfed.engine.backends.distributed.packing import packed, unpacked
from imperfed.engine.population import Share
from imperfed.models import zoo
from imperfed.models.tabular import mlp_ple
from tests.support.own_parts import Net


def back(value: Any) -> Any:
    return unpacked(packed(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, 1, -0.0, 1e-300, math.inf, "\x00é\U0001f600\udcff", b"\x00\xff"],
        {1: ("a", [()]), ("b", 2): {3, 4}, None: frozenset({5})},
        OrderedDict(b=1, a=2),
        range(3, 9, 2),
        torch.Size([2, 0]),
        torch.bfloat16,
        torch.device("cuda", 1),
        Validity(0.5, 3.0),
        Share((1, 2), ()),
    ],
)
def test_values_arrive_as_they_were(value: Any) -> None:
    arrived = back(value)
    assert arrived == value
    assert type(arrived) is type(value)


def test_nothing_but_a_number_arrives_for_what_is_none() -> None:
    assert math.isnan(back(math.nan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_tensors_arrive_bit_for_bit(dtype: torch.dtype) -> None:
    t = (torch.arange(24).view(4, 6) % 7).to(dtype)
    sent = [t, t.T, t[1:3, ::2], t[0, 0], t[:0]]
    for there, here in zip(back(sent), sent, strict=True):
        assert there.dtype is dtype
        assert there.shape == here.shape
        assert torch.equal(there, here)


def test_a_view_is_sent_without_what_it_is_a_view_of() -> None:
    assert len(packed(torch.zeros(1 << 20)[5:7])) < 200


def test_what_is_one_object_arrives_as_one() -> None:
    x, share = torch.ones(2), Share((0,), ())
    held = back([x, x, share, share, HeldOut(x, Exact(torch.tensor([0, 1]), 2), (0, 2))])
    assert held[0] is held[1] is held[4].x
    assert held[2] is held[3]


def test_what_is_worked_out_when_needed_is_not_sent() -> None:
    share = Share((3,), ())
    assert share.among((3, 4)) == (3,)
    assert "_held" in vars(share)
    assert set(vars(back(share))) == {"sites", "tested"}


def networks() -> Iterator[tuple[tuple[int, ...], Network]]:
    """Yield networks with every kind of layer that imperfed has, with the shape of their inputs."""
    yield (1, 28, 28), zoo.lenet5((1, 28, 28), 3)
    yield (3, 32, 32), zoo.resnet((3, 32, 32), 3, (1, 1, 1, 1), "group")
    yield (3, 32, 32), zoo.cnn((3, 32, 32), 3, "batch")
    yield (4,), mlp_ple(torch.linspace(0, 1, 6).repeat(4, 1), 3, 8, 1)


def test_networks_compute_the_same() -> None:
    for shape, network in networks():
        x = torch.rand(2, *shape)
        assert torch.equal(back(network.eval())(x), network(x))


@pytest.mark.parametrize(
    "module",
    [nn.GRU(3, 4, batch_first=True), nn.TransformerEncoderLayer(4, 2, 8, activation=torch.relu), Net(5)],
    ids=lambda module: type(module).__name__,
)
def test_modules_with_functions_shared_weights_and_of_ones_own_arrive(module: nn.Module) -> None:
    module.tied = next(module.parameters())  # type: ignore[assignment]
    there = back(module.eval())
    assert there.tied is next(there.parameters())
    assert [name for name, _ in there.named_parameters()] == [name for name, _ in module.named_parameters()]
    for a, b in zip(there.parameters(), module.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.requires_grad


@dataclass
class Touching:
    """Something that leaves a trace when it is unpickled."""

    path: str

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def forged(text: Any, forms: Any = ()) -> bytearray:
    header = json.dumps([list(forms), text]).encode()
    return bytearray(len(header).to_bytes(8, "little") + header)


def test_a_pickle_is_not_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(UnreadableMessageError):
        unpacked(bytearray(pickle.dumps(Touching(str(trace)))))
    assert not trace.exists()


@pytest.mark.parametrize(
    "text",
    [
        ["object", "subprocess:Popen", ["args", "true"]],
        ["object", "pathlib:Path"],
        ["object", "imperfed.core.errors:os"],
        ["object", "no.such.module:Class"],
        ["named", "imperfed.engine.population:Share", 1],
        ["function", "os:system"],
        ["function", "torch:load"],
        ["function", "torch.nn.functional:torch"],
        ["dtype", "load"],
        ["tensor", 7],
        ["again", 0],
        ["eval", "1"],
        [],
    ],
    ids=str,
)
def test_what_no_rank_would_send_is_refused(text: Any) -> None:
    with pytest.raises(UnreadableMessageError, match="a message of another rank"):
        unpacked(forged(text))


@pytest.mark.parametrize("forms", [[["float32", [1 << 60]]], [["float32", [-4]]], [["nothing", [1]]], [["int64", [3]]]])
def test_tensors_are_no_longer_than_what_was_sent(forms: Any) -> None:
    with pytest.raises(UnreadableMessageError):
        unpacked(forged(["tensor", 0], forms) + bytearray(16))


def test_nothing_of_an_object_is_called_when_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise AssertionError

    share = packed(Share((1,), ()))
    monkeypatch.setattr(Share, "__init__", refuse)
    monkeypatch.setattr(Share, "__post_init__", refuse, raising=False)
    assert unpacked(share).sites == (1,)


class Local(nn.Module):
    """A network that holds a function of a test."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function


@dataclass
class Foreign:
    """A class that has nothing to do with imperfed."""

    x: Tensor

    @cached_property
    def double(self) -> Tensor:
        return 2 * self.x


class _Source:
    """Two rows of three numbers."""

    name, identity, shape = "a folder of images", "1", (2, 3)

    def read(self, rows: Tensor) -> Tensor:
        return torch.arange(6.0).view(2, 3)[rows]


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(UsageError, match=r"the function .*<lambda> is held by an object; make it a method"):
        packed(Local(lambda x: x))
    with pytest.raises(UsageError, match=r"the function load is held"):
        packed(Local(torch.load))
    with pytest.raises(UsageError, match=r"is of tests\.engine\.test_rank_messages\.Foreign\); define its class"):
        packed(Foreign(torch.ones(1)))
    with pytest.raises(UsageError, match=r"is of abc.ABCMeta\)"):
        packed(Exact)


def test_lazy_rows_arrive_without_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    x = LazyRows.of(_Source())[torch.tensor([1, 0, 1])]
    there = back(x)
    assert there.shape == x.shape
    with pytest.raises(DataError, match="a folder of images: this rank does not find the files"):
        read(there)
    monkeypatch.setitem(OPENED, "1", _Source())
    assert torch.equal(read(there), read(x))


def test_a_message_shows_nothing_that_could_write_to_a_terminal() -> None:
    with pytest.raises(ImperfedError) as caught:
        unpacked(forged(["function", "\x1b[31m:x"]))
    assert "\x1b" not in str(caught.value)


def test_the_system_watches_the_connections_of_a_group() -> None:
    before = open_sockets()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        watch([number for name, number in open_sockets().items() if name not in before])
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * GONE
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            assert one.getsockopt(socket.IPPROTO_TCP, option) == ASKED
        one.send(b"x")  # it is still open
