"""Every table of the command line at 80 columns: nothing is wider, no word is cut, and the metric is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

from imperfed.census.console import print_inspection
from imperfed.census.inspect import inspect
from imperfed.cli.catalogue_cache import read_catalogue
from imperfed.cli.listing import listing
from imperfed.cli.sweep_table import sweep_table
from imperfed.cli.tables import compare_table, figures_table, run_table
from imperfed.cli.terminal_table import TableColumn, print_table
from imperfed.evaluation.label_figures import SuspectFigures
from imperfed.evaluation.prediction_counts import PredictionCounts
from imperfed.evaluation.time_to_target import TargetReached
from imperfed.experiments.comparison_line import Line
from imperfed.label_audit.audit_summary import AuditedSite, AuditSummary, KnownTruth
from imperfed.label_audit.audit_table import print_audit
from imperfed.results.prediction_figures import PredictionSummary
from imperfed.results.summary import ClassSummary, SiteSummary, Summary
from tests.support.made_run import summary

WIDTH = 80
SITES = [f"university-hospital-of-the-northern-region-{k}" for k in range(4)]
CLASSES = [f"disease {k} of the lower respiratory tract" for k in range(30)]


def printed(show: Callable[[Console], object]) -> str:
    """Return what is shown on a console of 80 columns, as the commands make it."""
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False, width=WIDTH)
    with console.capture() as captured:
        show(console)
    return captured.get()


def assert_fits(text: str, *words: str) -> None:
    """Nothing is cut or too wide, except for lines that hold a path alone, and these words can be read."""
    lines = [line for line in text.splitlines() if not re.fullmatch(r"\s*\S*/\S*", line)]
    assert max(map(len, lines)) <= WIDTH, max(lines, key=len)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for word in words:
        assert any(word.replace(" ", "") in column for column in columns_of(text)), word


def columns_of(text: str) -> list[str]:
    """Return the letters of each column of each table, without blanks and line breaks."""
    columns: list[str] = []
    count = 0
    for line in text.splitlines():
        if line[:1] not in ("│", "┃"):
            count = count if line[:1] in ("┡", "├") else 0
            continue
        cells = re.split("[│┃]", line)[1:-1]
        if not count:
            columns, count = [*columns, *[""] * len(cells)], len(cells)
        for place, cell in enumerate(cells, start=len(columns) - count):
            columns[place] += re.sub(r"\s", "", cell)
    return columns


def made(**changed: Any) -> Summary:
    return msgspec.structs.replace(msgspec.convert(summary(), Summary), **changed)


def site(name: str) -> SiteSummary:
    return SiteSummary(name, 123456, 12345, 0.8274, 0.71, 0.91234, 0.55)


def test_a_run(tmp_path: Path) -> None:
    classes = tuple(ClassSummary(name, tuple(SITES[:3]), 12, 123456, 0.8, 0.9, 0.7) for name in CLASSES)
    confusion = torch.full((30, 30), 1000) + torch.diag(torch.arange(30) * 1000)
    predictions = PredictionSummary.of(PredictionCounts(confusion, torch.zeros(10, 3)), CLASSES)
    found = made(sites=tuple(map(site, SITES)), metric="auroc", by_class=classes, predictions=predictions)
    text = printed(lambda console: run_table(console, found, tmp_path))
    assert_fits(text, *SITES, *CLASSES, "annotated,%", "never,%", "auroc,%", "recall,%", "precision,%", "82.74")
    assert "the 8 classes of lowest recall of 30" in " ".join(text.split())
    assert "auroc, class by class, mean over sites; positives: of the training rows" in text


def test_what_was_not_measured_is_no_column(tmp_path: Path) -> None:
    sites = tuple(SiteSummary(name, 90, 0, None, None, None, None) for name in SITES)
    unmeasured, unknown = msgspec.structs.replace(made().personal, mean=None, worst=None, n=0), made().labels
    labels = msgspec.structs.replace(unknown, accuracy=None, mistaken=None) if unknown else None
    found = made(sites=sites, personal=unmeasured, common={}, labels=labels)
    text = printed(lambda console: run_table(console, found, tmp_path))
    table, _, below = text.partition("└")
    assert "%" not in table
    assert "mean over sites" not in table
    assert "no model was measured" in " ".join(below.split())
    assert "the true ones are unknown" in below


def test_few_classes_are_all_listed_with_what_is_never_predicted(tmp_path: Path) -> None:
    confusion = torch.tensor([[9, 0, 1], [5, 0, 2], [0, 0, 0]])
    predictions = PredictionSummary.of(PredictionCounts(confusion, torch.zeros(10, 3)), ("flu", "sepsis", "gout"))
    text = printed(lambda console: run_table(console, made(predictions=predictions), tmp_path))
    assert_fits(text, "recall,%", "precision,%")
    assert "recall and precision on 17 test rows, class by class" in text
    shared = msgspec.structs.replace(made().facts, common_test=True)
    text_shared = printed(lambda console: run_table(console, made(predictions=predictions, facts=shared), tmp_path))
    assert "17 test rows that all sites share, mean over their models, class by class" in " ".join(text_shared.split())
    assert "never predicted: sepsis (7 test rows)" in text
    assert "no test rows of: gout" in text
    assert re.search(r"sepsis +│ +7 │ +0 │ +0.00 │ +never │ flu", text)


def test_a_comparison(tmp_path: Path) -> None:
    target = TargetReached(0.8, "global model", 12, 345.6)
    lines = [
        Line(
            f"pfedpll lambda1=0.5 lambda2={k}",
            (0.8, 0.7),
            (0.9, 0.8),
            1234.5,
            81.2,
            (0.7, 0.6),
            (target, TargetReached(0.8, "mean over sites", None, None)),
            ("diverged",),
            over="accuracy, mean over sites",
            metric="accuracy",
        )
        for k in range(3)
    ]
    (tmp_path / "cc-digits").mkdir()
    for name in ("results.json", "report.html", "runs.json"):
        (tmp_path / name).touch()
    text = printed(lambda console: compare_table(console, lines, [0, 1], tmp_path))
    assert_fits(text, "accuracy,%", "labelsresolved,%", "diverged", "1of3", "75.00", "1234.5")
    listed = text.partition("Written:\n")[2].replace(f"{tmp_path}/", "").splitlines()
    assert listed == ["  report.html", "  results.json", listed[2], "  cc-digits"]
    assert "test accuracy, mean over sites, 2 seeds" in text


def test_a_sweep_says_over_how_many_seeds_where_there_is_no_interval(tmp_path: Path) -> None:
    cell = {"settings": {"lr": "0.1"}, "mean": 0.75, "trials": [], "difference": None}
    chosen = {"settings": {"lr": "0.1"}, "values": [0.8], "figure": "accuracy, mean over sites", "interval": None}
    results = {"cells": [cell], "grid": {"lr": ["0.1"]}, "figure": "accuracy", "method": "cc", "seeds": [0]}
    for run in ("chosen-run", "trials/a-trial"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "summary.json").touch()
    text = printed(lambda console: sweep_table(console, {**results, "chosen": chosen}, tmp_path))
    assert text.splitlines()[-1] == f"  {tmp_path / 'chosen-run'}"
    assert "on test rows: accuracy, mean over sites 80.00\N{NO-BREAK SPACE}% (1 seed)" in text
    assert_fits(text, "lr", "chosen")


def test_figures_computed_again() -> None:
    scores = {"auroc": (0.8, 30), "p@1": (0.5, 30), "auroc annotated": (0.9, 30), "auroc never annotated": (0.7, 30)}
    figures: Any = dict.fromkeys(SITES, scores)
    text = printed(lambda console: figures_table(console, figures, False))
    assert_fits(text, *SITES, "auroc,%", "120")
    assert text.startswith("auroc, p@1, ")
    once = printed(lambda console: figures_table(console, figures, False, one_test=True))
    assert re.search(r"mean over sites *│.*│ +30 │", once)
    assert "120" not in once


def test_an_audit(tmp_path: Path) -> None:
    truth = KnownTruth(SuspectFigures(0.2, 0.9, 0.8, 0.7, 100), None)
    sites = tuple(AuditedSite(name, 1234567, 0.2, 12345, 12345, 0.1, (), (), (), truth) for name in SITES)
    found = AuditSummary(
        "birds",
        "posterior",
        "raw",
        0,
        ("a", "b"),
        99,
        0.2,
        0.1,
        1,
        1,
        0.9,
        0.1,
        0.9,
        0.9,
        (),
        True,
        "In words.",
        ("A finding.",),
        "No.",
        (),
        sites,
        truth,
    )
    text = printed(lambda console: print_audit(console, found, tmp_path))
    assert_fits(text, *SITES, "wrong,estimated", "wrongintruth", "1,234,567")


@pytest.mark.parametrize(("sites", "classes"), [(3, 3), (4, 14), (30, 3)])
def test_an_inspection(tmp_path: Path, sites: int, classes: int) -> None:
    names = [f"a finding with a long name {c}"[-20:] for c in range(classes)]
    for k in range(sites):
        marks = [["10"[(i + c + k) % 2] if (c + k) % 3 else "" for c in range(classes)] for i in range(12)]
        rows = "".join(f"{1234.5 * i},{99999 + i},{','.join(row)}\n" for i, row in enumerate(marks))
        path = tmp_path / "sites" / f"the-clinic-of-the-town-number-{k}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"a-measurement-with-a-long-name,w,{','.join(names)}\n{rows}")
    text = printed(lambda console: print_inspection(inspect(tmp_path), console, {}))
    lines = [line for line in text.splitlines() if str(tmp_path) not in line]
    assert_fits("\n".join(lines), "largest class", "skew")
    assert "a-measurement-with-a-long-name" in re.sub(r"\s", "", text) or sites > 20


@pytest.mark.parametrize("what", read_catalogue().lists)
def test_a_list(what: str) -> None:
    text = printed(lambda console: listing(what, False, console))
    framed = [line for line in text.splitlines() if line[:1] in ("┏", "┃", "│", "└", "├", "┡")]
    assert_fits("\n".join(framed))
    assert "about" in framed[1]


def test_a_table_that_is_too_wide_goes_on_below() -> None:
    columns = [TableColumn("name", ["first", "second"], words=True)]
    columns += [TableColumn(f"figure-{k:02}", [f"{k}.123456", "9"]) for k in range(20)]
    text = printed(lambda console: print_table(console, columns, "a title"))
    assert_fits(text, *(f"{k}.123456" for k in range(20)))
    assert text.count("second") == text.count("name") == 4
    assert text.startswith("a title\n")


def test_numbers_are_never_broken_and_names_only_if_they_must_be() -> None:
    columns = [TableColumn("site", ["north-west " * 3, "x"], words=True), TableColumn("n", ["1234567890"] * 2)]
    text = printed(lambda console: print_table(console, columns))
    assert "north-west north-west north-west" in text
    console = Console(width=27)
    with console.capture() as captured:
        print_table(console, columns)
    assert captured.get().count("north-west") == 3
    assert captured.get().count("1234567890") == 2
