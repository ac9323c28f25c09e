"""A site's files are read once: what was kept is the same as what was read, and other files are read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from imperfed.core.federation import Attribute
from imperfed.core.labels import KINDS, Labels
from imperfed.data.site_files import SiteFiles
from imperfed.data.whole_federation import taken_apart
from imperfed.flower.site import rows_cache
from imperfed.flower.site.rows_cache import read_once
from tests.support.rehearsal import raw


def held(kind: type[Labels]) -> SiteFiles:
    return taken_apart(raw(kind))[1][1]


def counted(files: SiteFiles) -> tuple[Callable[[], SiteFiles], list[int]]:
    """A reader of these files, and a list that grows when they are read."""
    reads: list[int] = []

    def read() -> SiteFiles:
        reads.append(1)
        return files

    return read, reads


def assert_alike(one: object, other: object) -> None:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, Labels) and isinstance(other, Labels):
        assert type(one) is type(other)
        assert one.classes == other.classes
        assert_alike(one.values, other.values)
    elif isinstance(one, tuple) and isinstance(other, tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_alike(mine, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("bare", [False, True], ids=["all parts", "no test rows"])
def test_what_was_kept_is_what_was_read(kind: type[Labels], bare: bool, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("a\n1\n")
    files = replace(held(kind), ids=tuple(f"'{k}\u00e9,\n" for k in range(20)))
    more = {"attribute": Attribute("age", ("old", "y\u00f6ung"), 3), "test_group": torch.arange(40), "scales": True}
    files = replace(files, test=None, truth=None) if bare else replace(files, **more)  # type: ignore[arg-type]
    read, reads = counted(files)
    files = replace(files, digest=rows_cache.digest_of(files))  # which is added when they are read
    for _ in range(3):
        again = read_once(tmp_path / "state", (source,), "", read)
        for field in fields(files):
            assert_alike(getattr(again, field.name), getattr(files, field.name))
    assert len(reads) == 1


def test_files_that_changed_are_read_again_and_one_copy_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"1")
    read, reads = counted(held(KINDS["exact"]))
    state, sources = tmp_path / "state", (folder,)
    read_once(state, sources, "as the declaration says", read)
    read_once(state, sources, "as another declaration says", read)
    assert len(reads) == 2
    (folder / "b.png").write_bytes(b"2")
    read_once(state, sources, "as another declaration says", read)
    os.utime(folder / "a.png", ns=(1, 1))
    read_once(state, sources, "as another declaration says", read)
    assert len(reads) == 4
    assert len(list(state.glob(rows_cache.PATTERN))) == 1
    rows_cache.forget(state)
    assert not list(state.iterdir())


def test_a_copy_that_is_damaged_or_cannot_be_written_costs_time_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("a\n1\n")
    read, reads = counted(held(KINDS["exact"]))
    read_once(tmp_path / "state", (source,), "", read)
    (kept,) = (tmp_path / "state").glob(rows_cache.PATTERN)
    kept.write_bytes(kept.read_bytes()[:100])
    assert read_once(tmp_path / "state", (source,), "", read).ids == held(KINDS["exact"]).ids
    assert len(reads) == 2
    (tmp_path / "file").write_text("")
    read_once(tmp_path / "file" / "state", (source,), "", read)
    assert len(reads) == 3


def test_a_bit_that_changed_in_the_copy_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    """One bit of a number made 40 into 1.7e11, and the model another one."""
    source, state = tmp_path / "rows.csv", tmp_path / "state"
    source.write_text("a\n1\n")
    files = held(KINDS["exact"])
    read, reads = counted(files)
    read_once(state, (source,), "", read)
    (kept,) = state.glob(rows_cache.PATTERN)
    whole = kept.read_bytes()
    for n, at in enumerate(range(3, len(whole), len(whole) // 40)):
        changed = bytearray(whole)
        changed[at] ^= 16
        kept.write_bytes(bytes(changed))
        again = read_once(state, (source,), "", read)
        assert_alike(again.x, files.x)
        assert again.ids == files.ids
        assert len(reads) == n + 2, at
