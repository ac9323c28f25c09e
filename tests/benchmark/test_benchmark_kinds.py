"""What the benchmark compares: datasets from its files, methods from the catalogue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imperfed.algorithms import catalogue
from imperfed.benchmark import members as members_of
from imperfed.benchmark.kinds import EXAMPLE, BenchmarkKind, kind_of, kinds
from imperfed.benchmark.members import members
from imperfed.cli.typed_words import configs
from imperfed.core.errors import UsageError
from imperfed.core.labels import KINDS
from imperfed.core.registry import Registry
from imperfed.examples import examples
from imperfed.experiments.reproduction.measures import measure
from imperfed.experiments.tuning import Tuning, attempts
from tests.support.own_parts import HalfWay


def every_member() -> dict[str, set[str]]:
    return {name: {m for one in kind.datasets for m in members(kind, one)} for name, kind in kinds().items()}


def test_there_are_five_kinds_whose_files_name_what_exists() -> None:
    assert list(kinds()) == ["candidates", "fairness", "missing", "noisy", "positives"]
    for kind in kinds().values():
        assert all(one.labels in KINDS for one in kind.datasets)
        assert all(measure(name).title for name in (kind.figure, *kind.figures))
        assert set(kind.left_out) <= set(catalogue())
        assert all(
            one.data.removeprefix(EXAMPLE) in examples() for one in kind.datasets if one.data.startswith(EXAMPLE)
        )
    with pytest.raises(UsageError, match=r"unknown benchmark 'noise'\. Did you mean 'noisy'"):
        kind_of("noise")


@pytest.mark.parametrize("kind", kinds().values(), ids=lambda kind: kind.name)
def test_all_settings_can_be_and_every_method_has_as_many_trials(kind: BenchmarkKind) -> None:
    for dataset in kind.datasets:
        make = configs({**kind.words(dataset), "data": dataset.data})
        assert {len(attempts(make(method, 0), Tuning(7))) for method in members(kind, dataset)} == {7}


def test_every_method_for_imperfect_labels_is_compared_or_said_to_be_left_out() -> None:
    compared = {name.split()[0].partition("+")[0] for found in every_member().values() for name in found}
    said = {name for kind in kinds().values() for name in kind.left_out}
    general = {"domo", "fastslowmo", "fedadc", "fedmom", "fednag", "mime", "pfedmo", "scaffold", "slowmo"}  # optimizers
    silent = {"average-ce", "cross-entropy", "positive-softmax", "masked-bce"}  # what fedavg minimises
    after_a_repair = {"posterior-ce"}
    assert set(catalogue()) - compared - said == (general | silent | after_a_repair) - compared - said


def test_a_method_of_the_catalogue_takes_part_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = kind_of("missing")
    more = Registry({**catalogue(), "half-way": type("Mine", (HalfWay,), {"made_for": KINDS["annotated"]})})
    monkeypatch.setattr(members_of, "catalogue", lambda: more)
    assert "half-way" in members(kind, kind.dataset("hospitals"))
    lost = kind_of("candidates").dataset("lost")
    assert "half-way" not in members(kind_of("candidates"), lost)


def test_labels_decide_who_is_compared() -> None:
    found = every_member()
    assert {"pfedpll", "laar", "lw", "fedavg", "pooled+cc"} <= found["candidates"]
    assert {"fedpsl", "iml", "fedmatch", "oracle"} <= found["missing"]
    assert {"fedalc", "fedaws", "flag", "fedmlh"} <= found["positives"]
    assert {"clpl defence=krum", "clpl defence=fairfedpapl", "clpl", "clpl attack=none"} <= found["fairness"]
    assert not {"fedalc", "cc"} & found["noisy"]
    kind = kind_of("positives")
    assert "fedalc" not in members(kind, kind.dataset("taggers"))  # its rows name several classes


def test_what_cannot_be_run_here_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))
    chosen, why = kind_of("candidates").chosen([])
    assert [one.name for one in chosen] == ["digits"]  # what comes along
    assert why["lost"] == f"no pll/lost.mat in {tmp_path} (IMPERFED_DATA)"
    assert set(why) | {"digits"} == {one.name for one in kind_of("candidates").datasets}
    with pytest.raises(UsageError, match=r"candidates, lost: no pll/lost\.mat in .*; it comes from"):
        kind_of("candidates").chosen(["lost"])
    with pytest.raises(UsageError, match="unknown dataset of the benchmark candidates 'los'"):
        kind_of("candidates").chosen(["los"])
    mnist = kind_of("candidates").dataset("mnist")
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist").mkdir(exist_ok=True)
        (tmp_path / f"mnist/{name}-ubyte.gz").touch()
    assert mnist.left_out(has_gpu=False) == "needs a GPU, and there is none here (LeNet-5 on 60000 images)"
    assert mnist.left_out(has_gpu=True) == ""
    slow = replace(mnist, gpu="", hours="many images")
    assert slow.left_out(has_gpu=False) == "takes hours without a GPU, and there is none here (many images)"
    assert slow.left_out(has_gpu=True) == ""
    assert replace(slow, hours="").left_out(has_gpu=False) == ""
    assert kind_of("candidates").chosen(["mnist"])[0] == (mnist,)  # asked for by name, it runs without one
