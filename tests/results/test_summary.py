"""`summary.json` as a type: what is written is what is read, for runs of every kind of labels."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from imperfed.core.errors import DataError
from imperfed.experiments.resolving import resolve
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from imperfed.results.data_facts import DataFacts
from imperfed.results.folder import RunFolder
from imperfed.results.label_summary import FilledLabels, ResolvedLabels
from imperfed.results.summary import OverSites, Summary
from tests.support import made_run

QUICK = {"method": "fedavg", "rounds.rounds": 2, "local.steps": 2, "workers": 1, "model.name": "linear"}
WAYS: dict[str, dict[str, Any]] = {
    "exact": {"labels.kind": "exact"},
    "candidates": {"labels.candidates": "flip", "rounds.target": 0.01},
    "attacked and defended": {
        "labels.candidates": "flip",
        "attack": "plfa",
        "defence": "fairfedpapl",
        "defence.target": "q",
        "defence.unprivileged": "c",
        "fairness.target": "q",
        "fairness.unprivileged": "c",
    },
    "missing": {"data": "several", "labels.annotates": "a; b; a, b; c"},
    "positive": {"data": "several", "split.partition": "label"},
}
BY_NAME = {"global", "sent", "account", "groups", "most_frequent", "further"}
"""Parts whose keys are names of metrics, tensors, groups or facts."""


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a page takes longer than these runs."""
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def run(way: str, folder: Path) -> tuple[RunFolder, Summary]:
    """A quick run on rows of one class and a sensitive attribute, or on rows of several classes."""
    draw = np.random.default_rng(0)
    y, names = draw.integers(0, 3, 240), {"classes": np.array(["a", "b", "c"])}
    x = draw.normal(size=(240, 4)) + 2 * np.eye(3, 4)[y]
    groups = {"attribute": np.eye(3)[draw.integers(0, 3, 240)], "attribute_values": np.array(["p", "q", "r"])}
    np.savez(folder / "one.npz", x=x, y=y, **names, **groups)
    np.savez(folder / "several.npz", x=x, y=draw.random((240, 3)) < 0.5, **names)
    words = {"split.sites": 4, "split.partition": "iid", "split.public": 0, "data": "one"} | QUICK | WAYS[way]
    if words["split.partition"] == "label":
        del words["split.sites"]
    return start(resolve(words=words | {"data": str(folder / f"{words['data']}.npz")}), folder / "runs", Watch())


def keys(part: Any) -> Iterator[str]:
    """All keys of a JSON value that are names of fields."""
    if isinstance(part, dict):
        yield from part
        yield from (key for name, value in part.items() if name not in BY_NAME for key in keys(value))
    elif isinstance(part, list):
        yield from (key for value in part for key in keys(value))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_is_what_is_read(way: str, tmp_path: Path) -> None:
    folder, summary = run(way, tmp_path)
    assert folder.summary() == summary
    assert Summary.from_json(summary.to_json()) == summary
    assert pickle.loads(pickle.dumps(summary)) == summary  # runs of several seeds come from other processes
    written = json.loads((folder.path / "summary.json").read_text())
    assert {key for key in keys(written) if not (key.isidentifier() and key == key.lower())} == set()
    # what others read
    assert written["personal"]["mean"] == summary.personal.mean
    assert [row["site"] for row in written["sites"]] == [row.site for row in summary.sites]
    assert written["classes"] == ["a", "b", "c"]
    if summary.labels is not None:
        assert written["labels"]["accuracy"] == summary.labels.accuracy


def test_labels_are_told_apart_by_their_kind(tmp_path: Path) -> None:
    kinds: dict[str, type | None] = {"exact": None, "candidates": ResolvedLabels, "missing": FilledLabels}
    for way, kind in kinds.items():
        (tmp_path / way).mkdir()
        folder, summary = run(way, tmp_path / way)
        written = json.loads((folder.path / "summary.json").read_text())
        if kind is None:
            assert summary.labels is None
            assert "labels" not in written
        else:
            assert isinstance(summary.labels, kind)
            assert written["labels"]["kind"] == way


def test_parts_that_do_not_apply_are_left_out(tmp_path: Path) -> None:
    written = json.loads(run("exact", tmp_path)[1].to_json())
    parts = {"labels", "by_class", "target", "repair", "suspicions", "fairness"}
    assert not parts & written.keys()
    assert not {"auroc_annotated", "auroc_never_annotated"} & written["sites"][0].keys()
    folder, _ = run("attacked and defended", tmp_path)
    assert {"suspicions", "fairness"} <= json.loads((folder.path / "summary.json").read_text()).keys()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("facts", None, "facts"),
        ("by class", [], "by class"),
        ("personal", {"mean": "much"}, "personal"),
        ("labels", {"filled in": 3, "accuracy": 0.5}, "kind"),
    ],
)
def test_a_summary_of_another_version_is_named_with_the_remedy(
    key: str, value: object, said: str, tmp_path: Path
) -> None:
    folder = made_run.make(tmp_path, lambda s: s.update({key: value}))
    remedy = "delete it, and `imperfed resume` the run"
    with pytest.raises(DataError, match=rf"summary.json: cut short or damaged \(not .* version .*{said}.*; {remedy}"):
        folder.summary()


def test_a_number_that_json_cannot_hold_is_refused() -> None:
    told = made_run.summary()
    told["seconds"] = 1.0
    summary = Summary.from_json(json.dumps(told))
    summary.account["epsilon"] = float("nan")
    with pytest.raises(ValueError, match="nan"):
        summary.to_json()


def test_a_site_without_a_figure_does_not_count() -> None:
    over = OverSites.of([(0.5, 10), (float("nan"), 0), (0.8, 30)])
    assert over == OverSites(mean=0.65, weighted=0.725, worst=0.5, n=40)
    assert OverSites.of([(float("nan"), 0)]) == OverSites(None, None, None, 0)
    assert OverSites.of([(0.5, 30), (0.8, 30)], same_rows=True).n == 30  # each row counts once


def test_the_headline_is_the_global_models_where_sites_have_no_figure() -> None:
    told = made_run.summary()
    assert Summary.from_json(json.dumps(told)).headline == 0.6
    told["personal"] = {"mean": None, "weighted": None, "worst": None, "n": 0}
    assert Summary.from_json(json.dumps(told)).headline == 0.625
    told["global"] = {}
    assert Summary.from_json(json.dumps(told)).headline is None


def test_facts_of_a_generator_of_your_own_are_kept() -> None:
    facts = made_run.summary()["facts"]
    typed = DataFacts.of(facts | {"tilt": 0.25})
    assert typed.further == {"tilt": 0.25}
    assert typed.mean_size == 2.0
    assert DataFacts.of(facts).further == {}


def fields(kind: Any) -> Iterator[tuple[str, str]]:
    """The keys of a part and of its parts, each with the name of the part it is in."""
    if isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        for one in kind.fields:
            yield kind.cls.__name__, one.encode_name
            yield from fields(one.type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        yield from (key for one in kind.types for key in fields(one))
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from fields(kind.item_type)
    elif isinstance(kind, msgspec.inspect.DictType):
        yield from fields(kind.value_type)


def test_every_key_is_documented() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "run-folder.md").read_text(encoding="utf-8")
    described = page[page.index("## summary.json") :]
    every = set(fields(msgspec.inspect.type_info(Summary)))
    assert ("FairnessFigure", "interval") in every
    assert [f"{part}.{key}" for part, key in sorted(every) if f"`{key}`" not in described] == []
