"""What the report says: its figures and sentences, and the parts that come and go."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import imperfed
from imperfed.core.errors import DataError
from imperfed.report.run_files import events, read_run
from imperfed.report.words import amount, count, in_rounds, many, per_cent, product
from tests.support.made_run import CLASSES, make, text
from tests.support.own_parts import HalfWay
from tests.support.terminal import write

# -- what it says ------------------------------------------------------------------------------------------------------


def test_headline(tmp_path: Path) -> None:
    page = text(make(tmp_path))
    assert "pfedpll on felines objective lcp 2 sites 3 rounds seed 3 seed of the data 5" in page
    assert "accuracy, mean over sites 60.00 % n = 50 test rows at 2 sites" in page
    assert "weighted by test rows 66.00 % n = 50" in page
    assert "worst site 50.00 % north, n = 10" in page
    assert "global model 62.50 % common test set, n = 80" in page
    assert "on their own test rows, n = 50; global model on the common test set, n = 80." in page
    assert "not finished" not in page


def test_labels_against_chance(tmp_path: Path) -> None:
    page = text(make(tmp_path))
    assert "Of 4 training rows, 3 had their label resolved correctly (75.00 %)" in page
    assert "picking a candidate at random would get 58.33 % right." in page
    assert "did not help" not in page


def test_says_so_when_the_method_did_not_help(tmp_path: Path) -> None:
    page = text(make(tmp_path, lambda s: s["labels"].update(accuracy=0.5)))
    assert "58.33 % right. The method did not help: it is no better than chance." in page


def test_table_of_sites(tmp_path: Path) -> None:
    page = text(make(tmp_path))
    assert "site training rows test rows accuracy labels resolved north 3 10 50.00 % 66.67 % south 1 40 70.00 %" in page
    assert "--share: 66.67%" in (next(tmp_path.iterdir()) / "report.html").read_text()


def test_candidate_sets_in_words(tmp_path: Path) -> None:
    def change(s: dict[str, Any]) -> None:
        s["labels"]["mistaken"] = [[0, 7, 1], [20, 0, 3], [2, 4, 0]]
        s["facts"]["counts"] = [[9, 1], [0, 80], [3, 5]]

    page = text(make(tmp_path, change))
    assert (
        "came with the data. They hold 2.00 of 3 classes on average, 1 at least and 3 at most; 25.00 % of n = 4" in page
    )
    pairs = re.findall(r"“(\S+)[^”]*” mistaken for “(\S+)[^”]*”: (\d+) of (\d+) rows \(([\d.]+) %\)", page)
    assert [" ".join(p[2:]) for p in pairs] == ["20 80 25.00", "7 10 70.00", "4 8 50.00", "3 80 3.75", "2 8 25.00"]
    assert pairs[0][:2] == ("lynx", "cat")


def test_set_sizes_and_confidence_come_from_the_label_files(tmp_path: Path) -> None:
    run = read_run(make(tmp_path))
    assert run.labels is not None
    assert run.labels.sizes.tolist() == [1, 2, 2, 3]
    np.testing.assert_array_equal(run.labels.confidence, [0.8] * 4)


@pytest.mark.parametrize(("sure", "words"), [(0.8, "overconfident by 5.00"), (0.55, "underconfident by 20.00")])
def test_confidence_against_truth(tmp_path: Path, sure: float, words: str) -> None:
    page = text(make(tmp_path, lambda s: s["labels"].update({"mean_confidence": sure})))
    told = f"Mean confidence is {100 * sure:.2f} %, n = 4; 75.00 % are correct, so the method is {words} points."
    assert told in page


def test_data_in_words(tmp_path: Path) -> None:
    page = text(make(tmp_path))
    assert "4 training rows at 2 sites, from 1 to 3 each, and 50 test rows." in page
    assert "A common test set of 80 rows belongs to no site." in page
    assert "6 unlabelled public inputs from the official test set. 9 rows of the data belong to no site." in page
    assert f"Of 3 classes, 2 are held by some site. No site holds a training row of {CLASSES[2]}." in page


def test_rows_at_the_server_are_told(tmp_path: Path) -> None:
    page = text(make(tmp_path, lambda s: s["facts"].update(trusted_rows=1234)))
    assert "The server holds 1,234 labelled rows of its own, which no site has. 9 rows of the data" in page


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ({"round": 2, "seconds": 3.21}, "rounds to 62.5 % 2 global model, 3.2 s of training"),
        ({"round": None, "seconds": None}, "rounds to 62.5 % not reached global model"),
    ],
)
def test_time_to_a_target(when: dict[str, Any], told: str, tmp_path: Path) -> None:
    assert told in text(make(tmp_path, lambda s: s.update(target={"value": 0.625, "of": "global model"} | when)))


def test_what_left_the_sites(tmp_path: Path) -> None:
    page = text(make(tmp_path))
    assert "4.5 kB in 3 rounds, 1.5 kB per round. Down to them: 12 kB, 4 kB per round." in page
    assert "w 40 shared weights scores 2 \N{MULTIPLICATION SIGN} 7 loss 1" in page
    assert "pooled for training" not in page


def test_gathered_rows_are_named(tmp_path: Path) -> None:
    folder = make(tmp_path)
    folder.append([{"round": 3, "site": "pooled", "metric": "train/loss", "value": 1.0}])
    assert "rows were pooled for training" in text(folder)


def test_nothing_left(tmp_path: Path) -> None:
    folder = make(tmp_path, lambda s: s.update(sent={}))
    kept = [r for r in folder.records() if not r["metric"].startswith(("bytes/", "sent/"))]
    folder.write("metrics.jsonl", "".join(json.dumps(r) + "\n" for r in kept))
    page = text(folder)
    assert "Nothing left the sites." in page
    assert "sent by each site" not in page


def test_failures_first_each_once_at_most_twenty(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for r in range(1, 24):
        folder.log(f"round {r}: 2 of 2 sites answered, loss 0.1234")
        folder.log(f"round {r}: note {r}")
    for r in (4, 9):
        folder.log(f"round {r}: south failed: out of <memory>")
    folder.log("resumed after round 2")
    page = text(folder)
    assert "Failures and notes south failed: out of <memory> (2 times, rounds 4 to 9) note 1 (round 1) note 2" in page
    assert "note 19 (round 19) and 5 further entries in log.txt" in page
    assert "note 20" not in page
    assert "0.1234" not in page


def test_lines_that_continue_a_log_line_are_passed_over() -> None:
    assert events(["2026-01-01T00:00:00 failed: why", "  File x, round 3: no"]) == [("failed: why", [])]


def test_settings_and_environment(tmp_path: Path) -> None:
    folder = make(tmp_path)
    assert "threads per worker 1" in text(folder)
    assert "seconds since the run was last started 12.3" in text(folder)
    page = html.unescape((folder.path / "report.html").read_text())
    assert f'<pre tabindex="0">{(folder.path / "config.toml").read_text()}</pre>' in page


# -- parts that come and go --------------------------------------------------------------------------------------------


def test_unfinished(tmp_path: Path) -> None:
    folder = make(tmp_path, None, rounds=2)
    with (folder.path / "metrics.jsonl").open("a") as f:
        f.write('{"round": 3, "site": "no')  # a crash in the middle of a line
    page = text(folder)
    assert "not finished: round 2 of 3" in page
    assert "pfedpll on digits objective lcp 2 sites" in page
    assert "40.00 % n = 50 test rows at 2 sites, after round 2" in page
    assert "north 3 10 33.33 % south 1 40 46.67 %" in page
    assert "w 40 shared weights" in page
    assert "written, and counted here, when it ends" in page
    assert "Candidate sets" not in page


def test_before_the_first_round(tmp_path: Path) -> None:
    page = text(make(tmp_path, None, rounds=0))
    assert "not finished: round 0 of 3" in page
    assert "No round has been finished yet." in page
    assert "no headline figure" in page


def test_a_summary_of_fewer_rounds_than_the_settings_ask_for_is_not_the_end(tmp_path: Path) -> None:
    assert "not finished: round 3 of 3" in text(make(tmp_path, lambda s: s.update(rounds=2)))


def test_exact_labels(tmp_path: Path) -> None:
    def change(s: dict[str, Any]) -> None:
        del s["labels"]
        s["facts"] = {k: v for k, v in s["facts"].items() if k not in ("sets", "mean_size", "singletons")}
        s["facts"]["labels"] = "exact"
        for row in s["sites"]:
            row["labels"] = None

    page = text(make(tmp_path, change))
    assert "The sites learned from exact labels: there was nothing to resolve." in page
    assert "labels resolved" not in page
    assert "Confidence" not in page


def test_unknown_truth(tmp_path: Path) -> None:
    def change(s: dict[str, Any]) -> None:
        s["labels"].update(accuracy=None, mistaken=None)
        del s["facts"]["counts"], s["facts"]["classes_at_nobody"]
        for row in s["sites"]:
            row.update(labels=None, value=None, test=0)

    page = text(make(tmp_path, change))
    assert "The true ones are unknown" in page
    assert "picking a candidate at random would get 58.33 % right" in page
    assert "Mean confidence is 80.00 %, n = 4." in page
    assert "mistaken for" not in page
    assert "by true class" not in page
    assert "Classes that occur together" in page


def test_label_files_taken_away(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder.path / "labels" / "south.parquet").unlink()
    page = text(folder)
    assert "Candidate sets" in page
    assert "Confidence of the labels" not in page


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("summary.json", "resume"), ("env.json", "continue without it"), ("split.parquet", "continue without it")],
)
@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_file_cut_short_is_named_with_the_remedy(name: str, remedy: str, kept: int, tmp_path: Path) -> None:
    folder = make(tmp_path, None if name == "split.parquet" else lambda s: None)
    cut = folder.path / name
    cut.write_bytes(cut.read_bytes()[:kept])
    with pytest.raises(DataError, match=rf"{name}: cut short or damaged \(.*; .*{remedy}"):
        read_run(folder)
    cut.unlink()
    read_run(folder)


@pytest.mark.parametrize(("sites", "folded"), [(30, False), (31, True)])
def test_many_sites_are_folded(tmp_path: Path, sites: int, folded: bool) -> None:
    def change(s: dict[str, Any]) -> None:
        s["sites"] = [{"site": f"s{k}", "train": 5, "test": 2, "value": 0.5, "labels": 1.0} for k in range(sites)]
        s["facts"]["counts"] = [[1] * sites] * 3

    folder = make(tmp_path, change)
    assert (f"All {sites} sites, one by one" in text(folder)) is folded
    assert (f"Test accuracy of {sites} sites." in text(folder)) is folded


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (66560, "66.6 kB"),
        (999_600, "1 MB"),
        (2.5e9, "2.5 GB"),
        (4e15, "4e+03 TB"),
    ],
)
def test_amounts(bytes: float, words: str) -> None:
    assert amount(bytes).replace("\N{NO-BREAK SPACE}", " ") == words


def test_other_numbers() -> None:
    assert per_cent(0.12346) == "12.35\N{NO-BREAK SPACE}%"
    assert per_cent(None) == "\N{EN DASH}"
    assert count(1234567) == "1,234,567"
    assert many(1, "class", "classes") == "1 class"
    assert many(2000, "class", "classes") == "2,000 classes"
    assert many(2, "row") == "2 rows"
    assert product([3, 4000]) == "3 \N{MULTIPLICATION SIGN} 4,000"
    assert in_rounds([]) == ""
    assert in_rounds([7]) == "round 7"
    assert in_rounds([2, 5, 9]) == "3 times, rounds 2 to 9"


def test_a_run_with_a_class_that_no_import_finds_has_its_page(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(HalfWay):
        """Known to this function alone."""

        name: ClassVar[str] = "local"

    data = str(write(tmp_path / "mine.npz"))
    result = imperfed.run(Local(share=0.25), data, tmp_path / "runs", rounds=1, steps=3, workers=1, partition="iid")
    assert "Local" in result.report.read_text(encoding="utf-8")
