"""FB-NLL as a repair of a federation, and a run with it from settings to products."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Candidates, Exact
from imperfed.engine.conversation import repair_labels
from imperfed.experiments.resolving import resolve
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from imperfed.repairs.fb_nll import FBNLL
from imperfed.results.summary import Summary
from tests.support.crowd import CLASSES, rows

COUNTS = [[30, 20, 0, 0], [0, 0, 25, 20], [25, 35, 0, 0], [0, 0, 15, 40]]
REPAIR = FBNLL(groups=2, M=3, rank=3, features="raw")


def federation(label: int | None = None) -> Federation:
    """Four sites of two tasks; `label`: what the rows of class b were labelled at site 0."""
    draw = torch.Generator().manual_seed(0)
    y = torch.cat([torch.arange(4).repeat_interleave(torch.tensor(counts)) for counts in COUNTS])
    told = y.clone()
    if label is not None:
        told[30:50] = label
    starts = (0, 50, 95, 155, 210)
    clean = torch.arange(4).repeat(30)
    trusted = Trusted(rows(clean, draw), Exact(clean, 4))
    ids = tuple(map(str, range(len(y))))
    names = ("site-0", "site-1", "site-2", "site-3")
    x = rows(y, draw)
    return Federation("crowd", x, Exact(told, 4), starts, names, CLASSES, ids, x[:0], trusted=trusted).check()


def test_groups_and_labels_are_mended() -> None:
    given = federation(label=3)
    mended, repair_result = repair_labels(REPAIR, given)
    assert mended.groups == (0, 1, 0, 1)
    assert torch.equal(mended.labels.values, federation().labels.values)
    assert torch.equal(repair_result.given, given.labels.values)
    assert torch.equal(repair_result.decided, mended.labels.values)
    assert repair_result.reason[30] == "all rows of its label look like b"
    assert repair_result.reason[0] == "kept as given"
    assert repair_result.noise == (pytest.approx(0.4, abs=0.03), *(pytest.approx(0, abs=0.05),) * 3)
    assert repair_result.notes[0] == "repair fb-nll: 20 of 210 labels corrected"
    assert torch.equal(given.labels.values, federation(label=3).labels.values)  # what is given is not changed


def test_all_that_leaves_a_site_are_directions_and_scores() -> None:
    _, repair_result = repair_labels(REPAIR, federation())
    counts = {"changed": (), "noise": ()}
    assert repair_result.sent == {"V": (12, 3), "r": (4,), "V_classes": (2, 12, 1)} | counts
    assert repair_result.up == 4 * (4 * (12 * 3 + 4) + 8 * 12) + 4 * 16
    _, shy = repair_labels(replace(REPAIR, groups=1, phase1="off"), federation())
    assert (shy.sent, shy.up) == (counts, 4 * 16)


def test_without_correction_the_labels_stay_and_no_clean_rows_are_needed() -> None:
    given = replace(federation(label=3), trusted=None)
    mended, repair_result = repair_labels(replace(REPAIR, correct=False), given)
    assert mended.groups == (0, 1, 0, 1)
    assert mended.labels is given.labels
    assert repair_result.noise == (None,) * 4
    assert torch.equal(repair_result.decided, repair_result.given)


def test_groups_are_the_same_bit_for_bit_whatever_the_labels() -> None:
    talks = [repair_labels(REPAIR, federation(label))[0].groups for label in (None, 0, 2, 3)]
    assert len(set(talks)) == 1


def test_pca_uses_directions_that_the_server_sends() -> None:
    repair = replace(REPAIR, features="pca")
    assert repair.exchanges(CLASSES, trusted=True)[0].name == "basis"
    mended, _ = repair_labels(repair, federation(label=3))
    assert mended.groups == (0, 1, 0, 1)
    assert torch.equal(mended.labels.values, federation().labels.values)


def test_bad_settings_are_refused() -> None:
    for bad in ({"groups": 0}, {"gate": 0.0}, {"gate": 1.5}):
        with pytest.raises(UsageError):
            FBNLL(**bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"split\.trusted"):
        repair_labels(REPAIR, replace(federation(), trusted=None))
    with pytest.raises(UsageError, match="known_tasks must name a task for each of 4 classes; got 3"):
        repair_labels(replace(REPAIR, known_tasks=(0, 1, 1)), federation())
    sets = Candidates(torch.ones(210, 4, dtype=torch.bool), 4)
    with pytest.raises(UsageError, match="corrects exact labels; the sites hold candidates"):
        repair_labels(REPAIR, replace(federation(), labels=sets))


WORDS = {
    "method": "fedavg",
    "data": "digits",
    "repair": "fb-nll",
    "partition": "tasks",
    "sites": "4",
    "trusted": "0.15",
    "noise": "class-dependent",
    "groups": "2",
    "rounds.rounds": "2",
    "workers": "1",
}


def test_a_run_with_a_repair(tmp_path: Path) -> None:
    from pyarrow import parquet

    folder, summary = start(resolve(words=WORDS), tmp_path, Watch())
    repair = summary.repair
    assert repair is not None
    assert repair.figures is not None
    assert repair.adjusted_rand_index == 1
    assert repair.figures.noise_before == pytest.approx(0.4, abs=0.01)
    assert repair.figures.noise_after is not None
    assert repair.figures.noise_after < 0.06
    assert set(repair.sent) == {"V", "r", "V_classes", "changed", "noise"}
    assert summary.facts.noise == "class-dependent"
    table = parquet.read_table(folder.path / "labels" / "site-2.parquet").to_pydict()
    assert list(table) == ["id", "given", "suggested", "confidence", "reason", "noise estimate"]
    assert len(table["id"]) == summary.sites[2].train
    assert table["noise estimate"][0] == pytest.approx(0.4, abs=0.08)
    assert sorted(p.stem for p in (folder.path / "models").iterdir()) == ["site-0", "site-1", "site-2", "site-3"]
    log = (folder.path / "log.txt").read_text()
    assert "repair fb-nll: groups of the sites [0, 0, 1, 1]" in log
    report = (folder.path / "report.html").read_text()
    assert "Repair of labels" in report
    assert "It formed 2 groups of sites" in report
    assert Summary.from_json((folder.path / "summary.json").read_text()) == summary


def test_the_repair_is_part_of_the_settings(tmp_path: Path) -> None:
    config = resolve(words=WORDS | {"gate": "0.1"})
    assert "[repair]" in config.toml()
    assert isinstance(config.repair, FBNLL)
    assert config.repair.gate == 0.1
