"""Real sites that read their rows when a batch needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from torch import Tensor

pytest.importorskip("flwr")

from imperfed.core.labels import Candidates
from imperfed.core.lazy import LazyRows
from imperfed.data.site_files import SiteFiles
from imperfed.flower.messages.local_grid import Node
from tests.flower.test_mishaps import everybody
from tests.flower.test_same_rows import Filed
from tests.support.rehearsal import Alone, assert_same, raw, scaled


@dataclass(eq=False)
class Kept:
    """Rows of a site, and how often some of them were read."""

    x: Tensor
    name: str
    reads: int = 0

    @property
    def identity(self) -> str:
        return self.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def read(self, rows: Tensor) -> Tensor:
        self.reads += 1
        return self.x[rows]


class Unread(Filed):
    """Sites whose rows are lazy."""

    def node(self, holding: SiteFiles) -> Node:
        self.sources = [*getattr(self, "sources", []), Kept(holding.x, holding.name)]
        return super().node(replace(holding, x=LazyRows.of(self.sources[-1])))


def test_lazy_rows_at_sites_give_the_numbers_of_rows_in_memory(tmp_path: Path) -> None:
    whole = Alone(everybody(), scaled(raw(Candidates))).go()
    apart = Unread(everybody(), raw(Candidates), tmp_path).start().go()
    assert_same(whole, apart)
    assert all(source.reads > 1 for source in apart.sources)
