"""States on a site's disk: whole or not at all, whenever the process is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.flower.messages.payload import RefusedError
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.store import FIRST, Store


def never() -> dict[str, torch.Tensor]:
    raise AssertionError("a fresh state was asked for")


def test_states_are_kept_by_exchange(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    assert store.load(FIRST, lambda: {"fresh": torch.ones(1)}).keys() == {"fresh"}
    store.save((0, 1), {"w": torch.arange(3.0)[1:], "n": torch.tensor(7)})
    store.save((11, 0), {"w": torch.zeros(2)})
    kept = store.load((0, 1), never)
    assert kept["w"].tolist() == [1.0, 2.0]
    assert kept["n"].item() == 7
    assert store.load((11, 0), never)["w"].tolist() == [0.0, 0.0]


def test_a_state_that_is_not_there_is_an_error_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run: the state after round 4 is missing"):
        Store(tmp_path / "run").load((3, 0), never)


def test_old_states_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ((0, 0), (1, 0), (1, 1), (2, 0)):
        store.save(key, {"w": torch.ones(1)})
    store.keep("mended", {"y": torch.ones(1)})
    store.forget_before((1, 1))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "mended.safetensors",
        "state-000001-1.safetensors",
        "state-000002-0.safetensors",
    ]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save((0, 0), {"w": torch.ones(100)})
    path = tmp_path / "state-000000-0.safetensors"
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(DataError, match=r"state-000000-0.safetensors: not a readable state"):
        store.load((0, 0), never)


def test_a_flipped_bit_is_noticed_and_the_state_before_it_is_used(tmp_path: Path) -> None:
    store, told = Store(tmp_path), list[str]()
    store.save((0, 0), {"w": torch.ones(100)})
    store.save((1, 0), {"w": torch.zeros(100)})
    path = tmp_path / "state-000001-0.safetensors"
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)
    assert store.load((1, 0), never, told.append)["w"].sum() == 100
    why = "not a readable state (damaged: its checksum is wrong)"
    assert told == [f"{path}: {why}; going on from the state after round 1"]
    store.drop("state-000000-0")
    with pytest.raises(DataError, match=r"state-000001-0.safetensors: not a readable state \(damaged"):
        store.load((1, 0), never)


def test_a_process_that_is_killed_leaves_whole_states(tmp_path: Path) -> None:
    """A child writes the same states over and over, numbered; every one that is there is whole at every kill."""
    store, seen = Store(tmp_path), set()
    for attempt in range(8):
        child = os.fork()
        if child == 0:
            for turn in range(10**6):
                store.save((turn % 3, 0), {"w": torch.full((60_000,), float(attempt * 10**6 + turn))})
        time.sleep(0.02 + 0.013 * attempt)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for round in range(3):
            if (tmp_path / f"state-{round:06}-0.safetensors").exists():
                w = store.load((round, 0), never)["w"]
                assert w.shape == (60_000,)
                assert w.min() == w.max()
                seen.add(float(w[0]))
    assert len(seen) > 3
    store.save((0, 0), {"w": torch.ones(1)})  # what the killed left behind is in nobody's way
    assert store.load((0, 0), never)["w"].tolist() == [1.0]


@pytest.mark.parametrize("name", ["", "../elsewhere", "a/b", ".hidden", "a b"])
def test_a_run_whose_name_is_no_name_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    place = LocalSite("site", lambda config, declaration: never(), tmp_path)  # type: ignore[arg-type, return-value]
    with pytest.raises(RefusedError, match="cannot be the name of a run"):
        place.store(name)
