"""The cache on disk of decoded rows: its limit, what it is named after, and what it never returns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from imperfed.core.errors import DataError
from imperfed.core.lazy import LazyRows
from imperfed.data.lazy.decoded import DecodedRows, share_room


class Squares(DecodedRows):
    """Ten units of three rows; counts how often a unit is decoded."""

    dtype = torch.float32

    def __init__(self, identity: str = "squares") -> None:
        super().__init__(identity, identity, torch.arange(3, 33, 3), (4,))
        self.decoded: list[int] = []

    def decode(self, unit: int) -> Tensor:
        self.decoded.append(unit)
        return torch.arange(3 * unit, 3 * unit + 3).square().float()[:, None].expand(3, 4)


ROWS = torch.tensor([29, 0, 1, 15, 0])
EXPECTED = ROWS.square().float()[:, None].expand(5, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "imperfed" / "rows"


def kept(source: Squares, limit: int = 10**6) -> Squares:
    share_room([LazyRows.of(source)], limit)
    return source


def test_what_is_decoded_once_is_found_by_other_processes_too() -> None:
    first, again, none = kept(Squares()), kept(Squares()), Squares()
    for source in (first, first, again, none, none):
        assert torch.equal(source.read(ROWS), EXPECTED)
    assert first.decoded == [0, 5, 9]
    assert again.decoded == []
    assert none.decoded == 2 * [0, 5, 9]


def test_no_more_is_kept_than_the_limit_allows(cache: Path) -> None:
    limit = 10 * 16  # bytes: ten rows, so the first three units
    source = kept(Squares(), limit)
    for _ in range(2):
        assert torch.equal(source.read(torch.arange(30)), torch.arange(30).square().float()[:, None].expand(30, 4))
    assert source.decoded == [*range(10), *range(3, 10)]
    assert sum(path.stat().st_size for path in cache.glob("*.rows")) == 9 * 16 <= limit
    one, two = Squares("one"), Squares("two")
    share_room([torch.cat([LazyRows.of(one), LazyRows.of(two)])], 40 * 16)
    assert [len(source.store.ends) for source in (one, two) if source.store is not None] == [6, 6]
    assert sum(path.stat().st_size for path in cache.glob("*.rows")) <= 40 * 16
    assert not [*cache.glob("squares*")]  # the one that has not been used for longest makes room
    kept(Squares("tiny"), 3)
    assert not [*cache.glob("*.rows")]


def test_a_lower_limit_removes_what_a_higher_one_allowed_of_the_same_rows(cache: Path) -> None:
    kept(Squares())
    kept(Squares(), 15 * 16)
    assert sum(path.stat().st_size for path in cache.glob("*.rows")) == 15 * 16
    assert len([*cache.glob("*.sums")]) == 1


def test_what_was_left_half_written_is_decoded_again(cache: Path) -> None:
    source = kept(Squares())
    source.read(torch.arange(30))
    path = next(cache.glob("*.rows"))
    with path.open("r+b") as file:
        file.seek(16 * 16)
        file.write(b"\1" * 4)  # in row 16, which is of unit 5
    again = kept(Squares())
    assert torch.equal(again.read(ROWS), EXPECTED)
    assert again.decoded == [5]


def test_a_full_disk_is_said_before_anything_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"no room for 0\.0 GB of decoded rows .*lower inputs\.cache"):
        kept(Squares())
