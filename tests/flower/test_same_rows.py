"""A site that comes back with other rows is refused, by the coordinator and by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from imperfed.core.errors import DataError, QuorumError
from imperfed.core.labels import Candidates
from imperfed.data.site_files import SiteFiles
from imperfed.engine.failures import Crashed
from imperfed.flower.messages.local_grid import Node
from imperfed.flower.site.handlers import make_app
from imperfed.flower.site.rows_cache import digest_of, read_once
from imperfed.flower.site.runtime import ROWS, RowsAtFirst, keyed
from imperfed.flower.site.sealed_words import read_sealed
from tests.flower.test_mishaps import SITE, everybody
from tests.support.rehearsal import AT_ONCE, Alone, Apart, assert_same, raw, scaled


class Filed(Apart):
    """Sites whose files are read as those of `imperfed join` are, with a digest."""

    def node(self, holding: SiteFiles) -> Node:
        known = replace(holding, digest=digest_of(holding))
        return Node(make_app(lambda config: self.place(known)), {"name": holding.name})


def other(holding: SiteFiles) -> SiteFiles:
    """As many rows, one of them another."""
    x = holding.x.clone()
    x[3, 0] += 1e-3
    return replace(holding, x=x)


def told(folder: Path) -> str:
    return (folder / "run" / "messages.txt").read_text()


OTHER = "site2 began this run with 31 rows, and now has 31 other rows: put the file back, or start another run"


def test_digests_change_no_number(tmp_path: Path) -> None:
    whole = Alone(everybody(), scaled(raw(Candidates))).go()
    apart = Filed(everybody(), raw(Candidates), tmp_path).start().go()
    assert_same(whole, apart)
    kept = read_sealed(tmp_path / "site2" / "run" / ROWS, RowsAtFirst)
    assert kept == RowsAtFirst(31, digest_of(apart.holdings[SITE]))


def test_a_site_that_left_is_asked_again_under_the_same_node(tmp_path: Path) -> None:
    apart = Filed(everybody(), raw(Candidates), tmp_path).start()
    apart.go(rounds=1)
    node = apart.grid.nodes.pop(100 + SITE)
    apart.server.transport.look()
    apart.grid.nodes[100 + SITE] = apart.node(other(apart.holdings[SITE]))
    apart.server.transport.look()
    assert f"node 102 (site2) is not admitted: {OTHER}" in told(tmp_path)
    del apart.grid.nodes[100 + SITE]
    apart.server.transport.look()
    apart.grid.nodes[100 + SITE] = node
    apart.server.transport.look()
    assert "site2 has reconnected, with 31 rows" in told(tmp_path)


def test_a_resumed_run_refuses_other_rows(tmp_path: Path) -> None:
    Filed(everybody(), raw(Candidates), tmp_path).start().go(rounds=1)
    later = Filed(everybody(), raw(Candidates), tmp_path)
    later.grid.nodes[100 + SITE] = later.node(other(later.holdings[SITE]))
    later.start(replace(AT_ONCE, back=0.01))
    assert f"node 102 is not admitted: {OTHER}" in told(tmp_path)


def test_a_file_that_changes_while_its_site_is_connected_is_refused_by_the_site(tmp_path: Path) -> None:
    apart = Filed(everybody(), raw(Candidates), tmp_path).start()
    apart.go(rounds=1)
    apart.grid.nodes[100 + SITE] = apart.node(other(apart.holdings[SITE]))
    apart.go(rounds=3)
    assert Crashed(OTHER) in [report.failures.get(SITE) for report in apart.reports]


def test_a_site_that_is_unlike_the_others_leaves_nothing_behind(tmp_path: Path) -> None:
    first = Apart(everybody(), raw(Candidates), tmp_path)
    h = first.holdings[SITE]
    first.grid.nodes[100 + SITE] = first.node(replace(h, x=h.x[:, :3]))
    with pytest.raises(DataError, match=r"site2: its shape of an input \(\(3,\)\) differ from the other sites'"):
        first.start()
    Apart(everybody(), raw(Candidates), tmp_path).start().go()


def test_the_first_site_is_not_the_measure_of_all(tmp_path: Path) -> None:
    apart = Apart(everybody(), raw(Candidates), tmp_path)
    h = apart.holdings[0]
    apart.grid.nodes[100] = apart.node(replace(h, x=h.x[:, :3]))
    with pytest.raises(DataError, match="site0: its shape of an input"):
        apart.start()


def test_a_run_that_has_not_begun_may_begin_with_other_rows(tmp_path: Path) -> None:
    first = Apart(everybody(), raw(Candidates), tmp_path)
    first.grid.nodes[100].online = False
    with pytest.raises(QuorumError):
        first.start(replace(AT_ONCE, gather=0.05))
    later = Filed(everybody(), raw(Candidates), tmp_path).start()
    later.go(rounds=1)
    assert not later.reports[0].failures


def test_the_digest_of_a_file_is_kept_with_its_rows(tmp_path: Path) -> None:
    holding = Apart(everybody(), raw(Candidates), tmp_path).holdings[SITE]
    source = tmp_path / "rows.csv"
    source.write_text("1")
    first, again = (read_once(tmp_path, (source,), "", lambda: holding) for _ in range(2))
    assert first.digest == again.digest == digest_of(holding)
    assert digest_of(other(holding)) != first.digest
    labels = holding.labels.between(0, len(holding.x))
    labels.values[0] = ~labels.values[0]
    assert digest_of(replace(holding, labels=labels)) != first.digest
    assert digest_of(replace(holding, ids=holding.ids[::-1])) != first.digest
    assert digest_of(replace(holding, test=None)) != first.digest
    assert keyed(first.digest, b"secret") not in {first.digest, keyed(first.digest, b"other"), ""}
    assert keyed("", b"secret") == ""
