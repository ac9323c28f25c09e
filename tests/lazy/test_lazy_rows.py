"""A tensor of rows that reads them when an operation needs them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from imperfed.core import lazy
from imperfed.core.errors import UsageError
from imperfed.core.lazy import LazyRows, blocks, read
from imperfed.engine.gathering import gathered, in_parts

X = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(0))


class Given:
    """Rows in memory that count how many of them have been read."""

    identity = "given"

    def __init__(self, x: Tensor, name: str = "given") -> None:
        self.x, self.name, self.shape, self.reads = x, name, tuple(x.shape), 0

    def read(self, rows: Tensor) -> Tensor:
        self.reads += len(rows)
        return self.x[rows]


def test_rows_are_chosen_cut_and_joined_without_reading_them() -> None:
    one, two = Given(X), Given(X + 1)
    x, y = LazyRows.of(one), LazyRows.of(two)
    pairs: list[tuple[Tensor, Tensor]] = [
        (x[2:5], X[2:5]),
        (x[::3], X[::3]),
        (x[torch.tensor([3, 1])], X[[3, 1]]),
        (x[torch.arange(10) > 4], X[5:]),
        (x[:0], X[:0]),
        *zip(x.split(4), X.split(4), strict=True),
        *zip(x.split([4, 6]), X.split([4, 6]), strict=True),
        (torch.cat([x[5:], y[:2], x[:2]]), torch.cat([X[5:], X[:2] + 1, X[:2]])),
        (torch.cat([y[3:], torch.cat([x[5:], y[:2]])[4:]]), torch.cat([X[3:] + 1, X[9:], X[:2] + 1])),
        (x.then(lambda t: 2 * t)[3:], 2 * X[3:]),
    ]
    assert all(isinstance(part, LazyRows) and part.shape == expected.shape for part, expected in pairs)
    assert one.reads == two.reads == 0
    assert all(torch.equal(read(part), expected) for part, expected in pairs)
    assert one.reads > 0


def test_everything_else_reads_what_it_needs_and_no_more() -> None:
    given = Given(X)
    x, weight = LazyRows.of(given), torch.randn(5, 3, 3, 3, requires_grad=True)
    batch = x.index_select(0, torch.tensor([7, 7, 1]))
    assert type(batch) is Tensor
    assert torch.equal(batch, X[[7, 7, 1]])
    assert torch.equal(x[-1], X[-1])
    assert x.new_zeros(3).tolist() == [0, 0, 0]
    assert given.reads == 4
    assert torch.equal(x.flatten(1), X.flatten(1))
    assert (x.numpy() == X.numpy()).all()
    gradients = [torch.autograd.grad(torch.conv2d(t, weight).sum(), weight)[0] for t in (x, X)]
    assert torch.equal(*gradients)


def test_rows_of_a_device_are_read_in_host_memory_and_go_there() -> None:
    given, there = Given(X), torch.device("meta")
    lazy = LazyRows.of(given).then(lambda t: 2 * t)
    moved = lazy.to(there)
    parts = [
        moved,
        moved[2:5],
        moved.split(4)[0],
        torch.cat([moved, moved[:2]]),
        moved[torch.arange(3)],
        moved.detach(),
    ]
    assert all(isinstance(part, LazyRows) and part.device == there for part in parts)
    assert given.reads == 0
    assert [read(part).device for part in parts] == [there] * len(parts)
    assert moved.index_select(0, torch.tensor([1])).device == there
    assert moved.then(lambda t: t + 1).device == there
    back = moved.to("cpu")
    assert torch.equal(read(back), 2 * X)
    assert lazy.to("cpu") is lazy
    assert torch.equal(lazy.to(torch.float64), (2 * X).double())  # other numbers need the rows


def test_what_would_need_too_much_memory_or_change_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "MOST", 4 * X.numel() - 1)
    x = LazyRows.of(Given(X, "photos"))
    with pytest.raises(UsageError, match=r"photos: clone needs 10 rows at once.*lazy = false"):
        x.clone()
    assert torch.equal(x[:9].clone(), X[:9])
    with pytest.raises(UsageError, match="never changed, but add_ would"):
        x.add_(1)
    monkeypatch.setattr(lazy, "BLOCK", 3 * 4 * 48)
    assert [len(block) for block in blocks(x)] == [3, 3, 3, 1]
    assert torch.equal(torch.cat([*blocks(x)]), X)


def test_batches_are_read_ahead() -> None:
    given = Given(X)
    wanted = [*torch.arange(10).split(2)]
    batches = gathered(LazyRows.of(given), wanted)
    assert torch.equal(next(batches), X[:2])
    batches.close()  # waits for what is being read
    assert given.reads == 8  # three batches ahead
    assert torch.equal(torch.cat([*gathered(LazyRows.of(given), wanted)]), X)
    assert [len(part) for part in in_parts(LazyRows.of(given))] == [10]
