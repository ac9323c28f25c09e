"""What sites remember on disk: the numbers of memory, touched only by sites on duty, and safe against a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, SiteSetup
from imperfed.core.errors import DataError, DiskFullError, UsageError
from imperfed.core.federation import HeldOut
from imperfed.core.labels import Exact
from imperfed.core.labels.validity import Validity
from imperfed.engine import sites_on_disk
from imperfed.engine.sites_on_disk import NOWHERE, RecordForm, SitesOnDisk
from imperfed.testing.toy import Plain, Watched, differences, engine, world

MANY = 400
SCENE = world(Exact, (12, 20, 31, 26))
CROWD = world(Exact, (4,) * MANY)


@dataclass(frozen=True)
class Stateful(Algorithm):
    """A head of its own at every site, a memory on which its answer depends, and a number drawn for the site."""

    name: ClassVar[str] = "stateful"

    def is_personal(self, name: str) -> bool:
        return name.startswith("head.")

    def init_site(self, site: SiteSetup) -> Tree:
        return {"moved": torch.zeros(site.layout.shared), "times": torch.tensor(site.n), "drawn": torch.rand(())}

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        moved = done.memory["moved"] + done.net.w[: len(done.down["w"])] - done.down["w"]
        return {"w": done.down["w"] + moved}, {"moved": moved, "times": done.memory["times"] + 1}


def run(data: Any = SCENE, **rounds: Any) -> Watched:
    return engine(Stateful(), Plain(), data, **({"rounds": 6, "participation": 0.5, "checkpoint_every": 2} | rounds))


def remembered(e: Watched) -> Tree:
    """Return all that a run remembers, wherever it lies, and every site's model."""
    tree = {f"server/{name}": t.clone() for name, t in e.state.server.items()} | e.state.rows
    for k in range(len(e.population.sizes)):
        personal, memory = e.state.kept_at(k)
        tree |= {f"{k}/personal": personal.clone()} | {f"{k}/{name}": t.clone() for name, t in memory.items()}
        tree |= {f"{k}/model {name}": t for name, t in e.model(k).items()}
    return tree


@pytest.mark.parametrize("workers", [1, 2])
def test_where_it_lies_changes_no_number(tmp_path: Path, workers: int) -> None:
    here, there = run(workers=workers).go(), run(workers=workers, site_memory=0).go(tmp_path / "c" / "c.safetensors")
    assert here.state.disk is None
    assert there.state.disk is not None
    assert (tmp_path / "c" / "sites.bin").stat().st_size > 0
    assert not differences(remembered(here), remembered(there))
    assert [r.personal for r in here.reports] == [r.personal for r in there.reports]


def test_without_a_folder_it_lies_in_a_file_without_a_name() -> None:
    assert not differences(remembered(run().go()), remembered(run(site_memory=0).go()))


def test_only_sites_on_duty_are_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, not seconds: of 400 sites, a round reads and writes the four on duty."""
    seen: dict[str, list[int]] = {"first": [], "read": [], "write": []}
    for name in ("read", "write"):
        plain = getattr(SitesOnDisk, name)

        def counted(self: SitesOnDisk, k: int, *more: Any, plain: Any = plain, name: str = name) -> Any:
            seen[name].append(k)
            return plain(self, k, *more)

        monkeypatch.setattr(SitesOnDisk, name, counted)
    init_site = Stateful.init_site

    def counting(self: Stateful, site: SiteSetup) -> Tree:
        seen["first"].append(site.index)
        return init_site(self, site)

    monkeypatch.setattr(Stateful, "init_site", counting)
    e = run(CROWD, participation=4 / MANY, site_memory=0, evaluate_every=100)
    assert set(seen["first"]) == {0}  # for the form of a record
    assert not seen["read"]
    for round in range(3):
        for sites in seen.values():
            sites.clear()
        report = e.round(round)
        assert len(report.who) == 4
        assert sorted(seen["write"]) == list(report.who)
        assert set(seen["read"]) == set(report.who)
        assert set(seen["first"]) <= set(report.who)
    assert e.state.disk is not None
    assert e.state.disk.end == len((e.state.disk.slots != NOWHERE).nonzero()) <= 12
    e.close()


def test_a_resumed_run_ends_as_one_without_interruption(tmp_path: Path) -> None:
    whole = run(site_memory=0).go(tmp_path / "whole.safetensors")
    path = tmp_path / "cut" / "c.safetensors"
    run(site_memory=0).go(path, stop_after=2)
    again = run(site_memory=0)
    assert again.state.restore(path) == ""
    assert not differences(remembered(again.go(path)), remembered(whole))


KILLED = """
import os, sys
from pathlib import Path
from tests.engine.test_sites_on_disk import run
e = run(site_memory=0, workers=int(sys.argv[2]))
e.run(lambda report: None, lambda: e.state.round == 5 and os.kill(os.getpid(), 9), Path(sys.argv[1]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path, workers: int) -> None:
    """Killed after round 5, with a checkpoint after round 4: what sites wrote in round 5 does not count."""
    path = tmp_path / "killed" / "c.safetensors"
    ended = subprocess.run([sys.executable, "-c", KILLED, path, str(workers)], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL
    again = run(site_memory=0, workers=workers)
    again.state.restore(path)
    assert again.state.round == 4
    assert not differences(remembered(again.go(path)), remembered(run().go()))


def test_the_checkpoint_before_the_last_one_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    run(site_memory=0, checkpoint_every=1).go(path, stop_after=5)
    path.write_bytes(path.read_bytes()[:-1])
    again = run(site_memory=0, checkpoint_every=1)
    assert "goes back to the checkpoint before it" in again.state.restore(path)
    assert again.state.round == 4
    assert not differences(remembered(again.go(path)), remembered(run().go()))


def test_a_damaged_record_is_found_and_the_run_goes_back(tmp_path: Path) -> None:
    path, records = tmp_path / "c.safetensors", tmp_path / "sites.bin"
    e = run(site_memory=0, checkpoint_every=1).go(path, stop_after=5)
    assert e.state.disk is not None
    only_last = set(e.state.disk.named[-1].tolist()) - set(e.state.disk.named[0].tolist())
    with records.open("r+b") as file:
        file.seek(only_last.pop() * e.state.disk.form.size + 100)
        file.write(b"\xff")
    again = run(site_memory=0, checkpoint_every=1)
    assert "sites.bin: record" in again.state.restore(path)
    assert again.state.round == 4
    assert not differences(remembered(again.go(path)), remembered(run().go()))
    records.unlink()
    with pytest.raises(DataError, match=r"sites\.bin: no such file"):
        run(site_memory=0).state.restore(path)


def test_slots_are_used_again(tmp_path: Path) -> None:
    e = run(site_memory=0, rounds=40, checkpoint_every=1, evaluate_every=100).go(tmp_path / "c.safetensors")
    assert e.state.disk is not None
    assert e.state.disk.end <= 3 * len(e.population.sizes)  # one now, and what two checkpoints name


def judged(scores: Sequence[float], **more: Any) -> Watched:
    """Return a run whose rounds get these scores on rows that its sites hold out."""
    federation, oracle = SCENE
    sites = len(federation.sites)
    held = HeldOut(federation.x[:sites], federation.labels.between(0, sites), tuple(range(sites + 1)))
    e = run((replace(federation, validation=held), oracle), rounds=len(scores), **more)
    told = iter(scores)
    e.backend.validate = lambda _: dict.fromkeys(range(sites), Validity(next(told), 1.0))  # type: ignore[method-assign]
    return e


def test_the_best_round_brings_back_what_sites_remembered_then(tmp_path: Path) -> None:
    scores = (0.1, 0.5, 0.9, *[0.2] * 9)
    here, there = judged(scores).go(), judged(scores, site_memory=0, checkpoint_every=1).go(tmp_path / "c.safetensors")
    for e in (here, there):
        assert e.return_to_best() == 3
    assert not differences(remembered(here), remembered(there))


def test_a_full_disk_is_said_before_any_site_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sites_on_disk.os, "posix_fallocate", full)
    with pytest.raises(DiskFullError, match=r"sites\.bin"):
        run(site_memory=0).go(tmp_path / "c.safetensors")


def test_a_record_is_what_was_written() -> None:
    record = {
        "a": torch.arange(3, dtype=torch.int64),
        "b": torch.tensor(True),
        "none": torch.empty(0),
        "c": torch.randn(2, 3),
    }
    form = RecordForm.of(record)
    back = form.views(form.pack(record))
    assert not differences(back, record)
    assert all(back[name].shape == t.shape and back[name].dtype == t.dtype for name, t in record.items())


def test_sites_must_remember_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stateful, "init_site", lambda self, site: {"n": torch.zeros(1 + site.index)})
    e = run(site_memory=0)
    with pytest.raises(UsageError, match="those of sites 0 and 2 differ"):
        e.state.kept_at(2)


def numbers(folder: Path) -> SitesOnDisk:
    """Two sites that remember five numbers each."""
    disk = SitesOnDisk.of(2, lambda k: {"n": torch.full((5,), float(k))})
    disk.folder = folder
    return disk


def settled(disk: SitesOnDisk, value: float) -> set[int]:
    """Let both sites remember a number, write a checkpoint, and return the slots that it names."""
    disk.make_room((0, 1))
    for k in (0, 1):
        disk.write(k, {"n": torch.full((5,), value + k)})
    disk.keep_all()
    disk.settle(())
    return set(disk.slots.tolist())


def test_a_run_that_went_back_keeps_two_checkpoints_again(tmp_path: Path) -> None:
    before = numbers(tmp_path)
    first, second = settled(before, 1.0), settled(before, 2.0)
    again = numbers(tmp_path)
    again.go_back(tmp_path, before.slots)
    again.slots.copy_(before.slots)
    assert again.read(1)["n"].tolist() == [3.0] * 5
    third = settled(again, 3.0)
    assert not third & (first | second)  # either may be the checkpoint before it
    fourth = settled(again, 4.0)
    assert set(again.free) == first | second
    assert settled(again, 5.0) <= first | second
    assert set(again.free) == (first | second | third) - set(again.slots.tolist())
    assert again.end == len(first | second | third | fourth)
    for disk in (before, again):
        disk.close()


def test_a_system_that_takes_a_few_bytes_at_a_time_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: write(file, data[:5], start))
    monkeypatch.setattr(os, "preadv", lambda file, into, start: read(file, [into[0][:3]], start))
    disk = numbers(tmp_path)
    settled(disk, 7.0)
    assert [disk.read(k)["n"].tolist() for k in (0, 1)] == [[7.0] * 5, [8.0] * 5]
    with disk.path.open("r+b") as file:
        file.truncate(2 * disk.form.size - 1)
    with pytest.raises(DataError, match="record 1 is damaged"):
        disk.read(1)
    disk.close()
