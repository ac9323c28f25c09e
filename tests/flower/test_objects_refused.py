"""Objects that live in one process are refused by real sites, which import what they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from imperfed.api.parts import split_objects
from imperfed.core.errors import UsageError
from imperfed.experiments.resolving import resolve
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.results.folder import RunFolder
from tests.support.own_parts import HalfWay, Net, wide


@dataclass(frozen=True)
class Here(HalfWay):
    """Will not be found under its import path."""

    name: ClassVar[str] = "here"


Here.__qualname__ = "nowhere.<locals>.Here"
NOTHING = cast(Any, None)


def coordinator(**keywords: Any) -> Coordinator:
    objects, words = split_objects({"method": "fedavg", **keywords})
    return Coordinator(NOTHING, resolve(words=words, objects=objects), NOTHING, ["a", "b"], RunFolder(Path("run")))


@pytest.mark.parametrize("part", [{"method": Here()}, {"model": Net(3)}])
def test_what_sites_cannot_import_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"every real site imports the parts of its run, and .*:(nowhere|Net)"):
        coordinator(**part)


def test_importable_objects_travel_by_path() -> None:
    settings = coordinator(method=HalfWay(share=0.2), model=wide).config.toml()
    assert 'method = "tests.support.own_parts:HalfWay"' in settings
    assert 'name = "tests.support.own_parts:wide"' in settings
