"""A file put into a folder of generators is all that a new one takes: it is listed, shown, configured and used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from imperfed.data import partitions
from imperfed.data.corruption import annotations, candidates, noise
from tests.support.terminal import Said, done, imperfed, strict, summary

HEAD = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
"""
PARTITION = """
from imperfed.data.partitions.base import RowPartition

@dataclass(frozen=True)
class Stripes(RowPartition):
    '''Rows in stripes, one after the other.'''

    name: ClassVar[str] = "stripes"
    width: int = 1  # w, rows of a stripe

    def divide(self, rows, sites, generator):
        return [np.flatnonzero(np.arange(rows.count) // self.width % sites == k) for k in range(sites)]
"""
CANDIDATES = """
from imperfed.data.corruption.candidates.base import ClassSets, with_truth

@dataclass(frozen=True)
class Followers(ClassSets):
    '''The true class and those that follow it.'''

    name: ClassVar[str] = "followers"
    followers: int = 1  # how many

    def draw(self, y, classes, generator):
        sets = np.zeros((len(y), classes), dtype=np.bool_)
        for step in range(self.followers + 1):
            sets[np.arange(len(y)), (y + step) % classes] = True
        return with_truth(sets, y)
"""
NOISE = """
from imperfed.data.corruption.noise.base import Noise

@dataclass(frozen=True)
class Shifted(Noise):
    '''Every label is that of another class, a step further.'''

    name: ClassVar[str] = "shifted"
    shift: int = 1  # s, classes

    def corrupt(self, y, classes, own, generator):
        return (y + self.shift) % classes
"""
ANNOTATION = """
from imperfed.data.corruption.annotations.base import MaskedAnnotation

@dataclass(frozen=True)
class LeftOut(MaskedAnnotation):
    '''Every site annotates all classes but one.'''

    name: ClassVar[str] = "left-out"
    left_out: int = 0  # the class that nobody annotates

    def masks(self, classes, sites, generator):
        masks = np.ones((sites, len(classes)), dtype=np.bool_)
        masks[:, self.left_out] = False
        return masks
"""


@dataclass(frozen=True)
class New:
    """A generator nobody has heard of."""

    package: ModuleType
    catalogue: Any
    listed_as: str
    text: str
    name: str
    choice: str
    key: str
    value: int


KINDS = {
    "partition": New(partitions, partitions.partitions, "partitions", PARTITION, "stripes", "partition", "width", 5),
    "candidates": New(
        candidates,
        candidates.candidate_generators,
        "candidates",
        CANDIDATES,
        "followers",
        "candidates",
        "followers",
        2,
    ),
    "noise": New(noise, noise.noises, "noise", NOISE, "shifted", "noise", "shift", 2),
    "annotation": New(
        annotations,
        annotations.annotation_patterns,
        "annotations",
        ANNOTATION,
        "left-out",
        "annotates",
        "left_out",
        1,
    ),
}


@pytest.fixture
def new(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[New]:
    """The generator, in a file that its package finds as it finds its own."""
    kind = KINDS[request.param]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "dropped_in.py").write_text(HEAD + kind.text)
    monkeypatch.setattr(kind.package, "__path__", [*kind.package.__path__, str(folder)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # the cached catalogue watches its own folders only
    kind.catalogue.cache_clear()
    yield kind
    sys.modules.pop(f"{kind.package.__name__}.dropped_in", None)
    kind.catalogue.cache_clear()


def file_of(folder: Path, several: bool) -> Path:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, (60, 4)) if several else np.arange(60) % 4
    np.savez(folder / "mine.npz", x=draw.normal(size=(60, 3)), y=y)
    return folder / "mine.npz"


def run(new: New, folder: Path, *words: str) -> Said:
    method = "masked-bce" if new.choice == "annotates" else "fedavg"
    data = file_of(folder, several=new.choice == "annotates")
    even = () if new.choice == "partition" else ("--set", "partition=iid")
    quick = ("--rounds", "1", "--workers", "1", "--set", "steps=2", "--set", "test=0.2", "--set", "candidates=flip")
    if new.choice == "candidates":
        quick = quick[:-2]
    chosen = [part for word in words for part in ("--set", word)]
    return imperfed("run", method, "--data", data, "--out", folder / "runs", *quick, *even, *chosen)


def shown(facts: dict[str, Any], new: New, folder: Path) -> Any:
    """What the run's results tell of the generator."""
    if new.choice == "candidates":
        return facts["sets"], facts["mean_size"]
    if new.choice == "noise":
        return facts["noise"], facts["noise_rates"]
    if new.choice == "annotates":
        return facts["annotates"], [sum(of_class) for of_class in facts["annotated_rows"]]
    table = parquet.read_table(folder / "split.parquet").to_pydict()
    return {int(row) // 5 % 4 == int(site.removeprefix("site-")) for row, site in zip(*table.values(), strict=True)}


EXPECTED = {
    "partition": {True},
    "candidates": ("followers", 3.0),
    "noise": ("shifted", [1.0] * 4),
    "annotates": ("left-out", [48, 0, 48, 48]),
}


@pytest.mark.parametrize("new", KINDS, indirect=True)
def test_a_file_in_the_folder_is_listed_shown_configured_and_used(new: New, tmp_path: Path) -> None:
    assert new.name in [entry["name"] for entry in strict(done("list", new.listed_as, "--json").out)]
    page = done("show", new.name).out
    assert f"{new.key} = " in page
    assert "dropped_in.py" in page
    said = run(new, tmp_path, f"{new.choice}={new.name}", f"{new.key}={new.value}")
    assert said.code == 0, said.err
    assert f"{new.key} = {new.value}" in (said.folder / "config.toml").read_text()
    assert shown(summary(said.folder)["facts"], new, said.folder) == EXPECTED[new.choice]
    unnamed = run(new, tmp_path, f"{new.key}={new.value}")
    assert unnamed.code == 2
    assert f"{new.choice} = {new.name}" in unnamed.err


def test_nothing_of_it_is_left_behind() -> None:
    for kind in KINDS.values():
        assert kind.name not in kind.catalogue()
