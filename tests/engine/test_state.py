"""Checkpoints: whole or not at all, exact, and refused where they do not belong."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, ServerContext, SiteSetup
from imperfed.core.errors import DataError
from imperfed.core.exchange import Updates
from imperfed.core.labels import Exact
from imperfed.engine.shared_memory import shared
from imperfed.engine.state import nbytes
from imperfed.testing.toy import Plain, Watched, differences, engine, everything, world

SCENE = world(Exact)


@dataclass(frozen=True)
class Remembering(Algorithm):
    """Averaging with a memory at the server, and one at every site on which its answer depends."""

    name: ClassVar[str] = "remembering"

    def init_server(self, w: Tensor, sites: int) -> Tree:
        return {"rounds": torch.zeros(1)}

    def init_site(self, site: SiteSetup) -> Tree:
        return {"moved": torch.zeros(site.layout.shared)}

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        moved = done.memory["moved"] + done.net.w - done.down["w"]
        return {"w": done.down["w"] + moved}, {"moved": moved}

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        return super().merge(server, updates, context) | {"rounds": server["rounds"] + 1}


def fresh(rounds: int = 4) -> Watched:
    return engine(Remembering(), Plain(), SCENE, rounds=rounds, participation=0.5, checkpoint_every=2)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint after round 2."""
    path = tmp_path / "deep" / "er" / "state.safetensors"
    assert fresh().run(lambda report: None, lambda: True, path) is False
    return path


def test_a_checkpoint_brings_everything_back(saved: Path) -> None:
    whole, part = fresh().go(), fresh()
    part.state.restore(saved)
    assert part.state.round == 1
    server = {"server 0/w", "server 0/buffers", "server 0/rounds"}
    assert part.state.flat().keys() == server | {"personal", "memory/moved", "rows/p"}
    part.go()
    assert [report.round for report in part.reports] == [1, 2, 3]
    assert not differences(everything(part), everything(whole))


def test_checkpoints_come_as_often_as_asked_and_at_the_end(tmp_path: Path) -> None:
    e, when = fresh(5), []
    path = tmp_path / "c.safetensors"
    e.state.save = lambda path: when.append(e.state.round)  # type: ignore[method-assign]
    e.go(path)
    assert when == [2, 4, 5]


def test_a_crash_while_writing_leaves_the_old_checkpoint(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int) -> None:
        raise OSError("no space left")

    old = saved.read_bytes()
    e = fresh().go()
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="no space left"):
            e.state.save(saved)
    assert saved.read_bytes() == old
    e.state.save(saved)
    assert saved.read_bytes() != old
    assert {p.name for p in saved.parent.iterdir()} == {saved.name, f"before-{saved.name}"}


@pytest.mark.parametrize("place", [0.3, 0.6, 0.95])
def test_a_flipped_bit_is_noticed_and_the_checkpoint_before_it_is_used(tmp_path: Path, place: float) -> None:
    path, whole = tmp_path / "last.safetensors", fresh().go()
    e = fresh()
    e.run(lambda report: e.state.save(path), lambda: e.state.round == 2, path)
    flip(path, place)
    rest = fresh()
    note = rest.state.restore(path)
    assert "last.safetensors: " in note
    assert "goes back to the checkpoint before it" in note
    assert rest.state.round == 2  # written twice in that round
    assert (tmp_path / "damaged-last.safetensors").exists()
    rest.go(path)
    assert not differences(everything(rest), everything(whole))


def test_a_flipped_bit_without_an_older_checkpoint_is_an_error_with_the_file(saved: Path) -> None:
    flip(saved, 0.95)
    refuse(saved, "damaged: its checksum is wrong")


def test_a_damaged_word_is_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    assert content.count(b'"round":"1"') == 1
    saved.write_bytes(content.replace(b'"round":"1"', b'"round":"0"'))
    refuse(saved, "damaged: its checksum is wrong")


def flip(path: Path, place: float) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_a_torn_file_is_an_error_and_changes_nothing(saved: Path, cut: int) -> None:
    saved.write_bytes(saved.read_bytes()[:cut])
    refuse(saved, "not a readable checkpoint")


def test_files_that_are_no_checkpoints_are_errors(saved: Path) -> None:
    refuse(saved.parent / "nowhere.safetensors", "not a readable checkpoint")
    refuse(saved.parent, "not a readable checkpoint")
    tensors = load_file(saved)
    save_file(tensors, saved)
    refuse(saved, "not a readable checkpoint")
    save_file(tensors, saved, {"round": "soon"})
    refuse(saved, "not a readable checkpoint")


def test_a_checkpoint_of_another_run_is_an_error(saved: Path) -> None:
    tensors = load_file(saved)
    less = {name: t for name, t in tensors.items() if name != "memory/moved"}
    for other in (
        tensors | {"more": torch.zeros(1)},
        less,
        tensors | {"server 0/w": torch.zeros(3)},
        tensors | {"server 0/w": tensors["server 0/w"].double()},
    ):
        save_file(other, saved, {"round": "1"})
        refuse(saved, "belongs to another configuration")


def refuse(path: Path, why: str) -> None:
    e = fresh()
    before = everything(e)
    with pytest.raises(DataError, match=why) as caught:
        e.state.restore(path)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 3
    assert e.state.round == 0
    assert not differences(everything(e), before)


def test_restored_memory_reaches_the_workers(saved: Path) -> None:
    whole = fresh().go()
    e = engine(Remembering(), Plain(), SCENE, rounds=4, participation=0.5, workers=2)
    e.state.restore(saved)
    e.go()
    assert not differences(everything(e), everything(whole))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int8, torch.bool])
def test_shared_memory_is_a_copy_of_the_same_kind(dtype: torch.dtype) -> None:
    original = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    copy = shared(original)
    assert torch.equal(copy, original)
    assert copy.dtype == dtype
    copy.zero_()
    assert original.any()
    assert shared(original[:0]).shape == (0, 3)


def test_the_size_of_a_message_is_in_bytes() -> None:
    assert nbytes({"a": torch.zeros(3, 2), "b": torch.zeros((), dtype=torch.float64), "c": torch.zeros(0)}) == 24 + 8
