"""`imperfed audit` of candidate sets: those that miss the true class come first, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import imperfed
from imperfed.core.errors import UsageError
from imperfed.core.federation import Federation
from imperfed.label_audit.audit_settings import audit_config
from imperfed.repairs.posterior import PosteriorRepair, SetPosterior, set_posterior
from tests.repairs.test_set_posterior import GIVEN, RIGHT, made
from tests.support.mislabelled import WRONG, birds, in_sets
from tests.support.terminal import imperfed as typed


@pytest.fixture(scope="module", autouse=True)
def _fewer_fits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_posterior, "FITS", 2)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_sets(tmp_path_factory.mktemp("files") / "birds")


@pytest.fixture(scope="module")
def audited(folder: Path) -> imperfed.AuditResult:
    return imperfed.audit(folder, folder.parent / "audit")


def test_sets_without_their_class_come_first(audited: imperfed.AuditResult) -> None:
    rows = audited.labels("north").to_pylist()
    worst = sorted(range(len(rows)), key=lambda i: -rows[i]["suspicion"])[: len(WRONG["north"])]
    assert sorted(worst) == list(WRONG["north"])
    true = birds("north")["true"]
    assert [rows[i]["suggested"] for i in worst] == [true[i] for i in worst]
    assert {row["decision"] for row in audited.labels().to_pylist()} == {"keep"}
    assert rows[1]["given"] == "finch|robin"
    assert rows[0]["reason"].startswith("a class outside is more probable; the most probable candidate is ")


def test_findings_and_page_speak_of_sets(audited: imperfed.AuditResult) -> None:
    said, page = str(audited), audited.report.read_text()
    assert "candidate sets miss the true class" in said
    assert "north: 2" in said
    assert "Nothing is changed: candidate sets are ranked, not repaired" in said
    assert "repair would" not in page
    assert "without the true class, estimated" in page
    assert "wrong, estimated" not in page
    assert "blank: none" in page
    assert all(
        row["id"] in page for row in json.loads((audited.folder / "audit.json").read_text())["sites"][0]["worst"]
    )
    north, south = audited.summary.sites
    assert (north.suspects, north.changes, north.unlike) == (len(WRONG["north"]), 0, None)
    assert north.noise > 0.15 > 0.03 > south.noise
    assert audited.summary.sets
    assert (audited.summary.contradicted, audited.summary.level) == (None, None)
    with pytest.raises(UsageError, match="candidate sets are ranked by an audit, and not repaired"):
        audited.repaired()


def test_how_many_rows_of_a_class_have_a_set_without_it(audited: imperfed.AuditResult) -> None:
    for label in audited.summary.sites[0].labels:
        rows = [i for i, name in enumerate(birds("north")["true"]) if name == label.label]
        lacking = sum(i in WRONG["north"] for i in rows) / len(rows)
        assert label.missed == pytest.approx(lacking, abs=0.05)
        assert label.wrong is None


def test_the_command_prints_no_word_of_a_repair(folder: Path, tmp_path: Path) -> None:
    said = typed("audit", folder, "--out", tmp_path / "out")
    assert said.code == 0
    assert "candidate sets" in said.out
    assert "would change" not in said.out
    assert "number of candidate sets that miss the true class" in said.out
    assert "wrong" not in said.out.partition("└")[0]
    assert typed("repair", folder, "--out", tmp_path / "new").code == 2


def test_features_that_say_nothing_are_not_trusted(tmp_path: Path) -> None:
    federation = made(GIVEN)
    blank = Federation(**{**vars(federation), "x": federation.x * 0 + 1})
    result = imperfed.audit(blank, tmp_path / "out")
    assert not result.summary.trusted
    assert "hardly tell the classes apart" in str(result)


def test_sets_that_miss_nothing_have_no_suspects(tmp_path: Path) -> None:
    result = imperfed.audit(made(RIGHT), tmp_path / "out")
    assert result.summary.suspects == 0
    assert result.summary.noise < 0.01
    assert "<svg" not in result.report.read_text()  # a picture of nothing
    assert "noisiest site" not in result.report.read_text()
    assert "For no row a class outside the set is more probable" in result.report.read_text()


def test_sets_of_a_named_dataset_are_asked_for_by_their_setting() -> None:
    assert isinstance(audit_config("lost", {"candidates": "given"}).repair, SetPosterior)
    assert type(audit_config("lost", {}).repair) is PosteriorRepair
