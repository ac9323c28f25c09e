"""The oracle: complete labels where a simulation would hide some, and a refusal where they are really missing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fully_labelled import FullyLabelled
from imperfed.core.errors import UsageError
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve

SMALL = {
    "split.sites": 2,
    "split.partition": "iid",
    "annotates": "a, b; b, c",
    "model.hidden": 4,
    "local.steps": 2,
    "rounds.workers": 1,
}


def table(folder: Path, missing: bool = False) -> str:
    draw = np.random.default_rng(0)
    y = (draw.random((60, 4)) < 0.5).astype(int)
    y[0, 0] = -1 if missing else y[0, 0]
    np.savez(folder / "table.npz", x=draw.normal(size=(60, 3)), y=y, classes=np.array(["a", "b", "c", "d"]))
    return str(folder / "table.npz")


def labels_under(method: str, data: str, **more: str) -> tuple[tuple[str, ...], torch.Tensor]:
    with closing(Experiment(resolve(words=SMALL | {"data": data, "method": method} | more))) as experiment:
        federation = experiment.engine.population.federation
        return federation.classes, federation.labels.values


def test_no_label_is_hidden_and_the_classes_are_those_of_the_other_methods(tmp_path: Path) -> None:
    data = table(tmp_path)
    (classes, hidden), (same, known) = (labels_under(method, data) for method in ("pooled+iml", "oracle"))
    assert classes == same == ("a", "b", "c")
    assert (hidden < 0).any()
    assert (known >= 0).all()
    given = hidden >= 0
    assert torch.equal(known[given], hidden[given])


def test_all_rows_are_in_one_place(tmp_path: Path) -> None:
    data, words = table(tmp_path), SMALL | {"rounds.rounds": 1}
    sizes = {}
    for method in ("oracle", "fedavg"):
        with closing(Experiment(resolve(words=words | {"data": data, "method": method}))) as experiment:
            sizes[method] = experiment.engine.population.sizes
    assert len(sizes["fedavg"]) == 2
    assert list(sizes["oracle"]) == [sum(sizes["fedavg"])]


def test_any_method_may_be_given_all_labels(tmp_path: Path) -> None:
    classes, known = labels_under("fedavg", table(tmp_path), annotates="all")
    assert classes == ("a", "b", "c", "d")
    assert (known >= 0).all()


def test_labels_that_are_really_missing_cannot_be_completed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="oracle learns from complete labels, but 1 cells of table are not annotated"):
        labels_under("oracle", table(tmp_path, missing=True))


def test_it_learns_from_annotated_classes_only() -> None:
    with pytest.raises(UsageError, match="oracle is for classes that are annotated or not"):
        FullyLabelled(objective=CROSS_ENTROPY)


@pytest.mark.parametrize("method", ["fixmatch", "mixup-pme"])
def test_sparse_features_are_not_changed(tmp_path: Path, method: str) -> None:
    lines = ["6 5 3", *(f"{c} {c}:1 4:1" for c in (0, 1, 2, 0, 1, 2))]
    (tmp_path / "tags.txt").write_text("\n".join(lines) + "\n")
    words = {"data": str(tmp_path / "tags.txt"), "method": method, "model.name": "text", "split.public": 0.0}
    with pytest.raises(UsageError, match=f"{method} trains on changed inputs"):
        Experiment(resolve(words=SMALL | {"annotates": "all"} | words))
