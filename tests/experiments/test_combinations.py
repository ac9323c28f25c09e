"""Everything goes with everything: method x attack x defence, and repairs. What makes no sense is refused in words.

Methods, attacks, defences and repairs are those that are found in their folders, so that a new one is crossed as well.
"""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.algorithms import catalogue, reference
from imperfed.algorithms.clpl import CLPL
from imperfed.attacks import attacks
from imperfed.core.algorithm import Algorithm
from imperfed.core.errors import UsageError
from imperfed.core.labels import Candidates, Exact
from imperfed.defences import defences
from imperfed.experiments.config import options, resolve
from imperfed.experiments.experiment import Experiment
from imperfed.repairs import repairs

ALGORITHMS = [name for name, method in catalogue().items() if issubclass(method, Algorithm)]
SMALL = {
    "split.sites": 7,
    "split.partition": "iid",
    "split.trusted": 0.05,
    "labels.candidates": "flip",
    "candidates.edge": "raw",
    "model.name": "mlp",
    "model.hidden": 6,
    "local.steps": 2,
    "local.batch": 8,
    "rounds.rounds": 2,
    "rounds.workers": 1,
    "fairness.target": "q",
    "fairness.unprivileged": "c",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table with three groups and three classes."""
    draw = np.random.default_rng(0)
    y, groups = draw.integers(0, 3, 260), draw.integers(0, 3, 260)
    x = draw.normal(size=(260, 4)) + 2 * np.eye(3, 4)[y]
    path = tmp_path_factory.mktemp("crosses") / "table.npz"
    names = {"classes": np.array(["a", "b", "c"]), "attribute_values": np.array(["p", "q", "r"])}
    np.savez(path, x=x, y=y, attribute=np.eye(3)[groups], **names)
    return path


def settled(table: Path, method: str, **chosen: str) -> dict[str, object]:
    """The settings of a cross: two adversaries of seven, and a defence told so, that does not look long."""
    words: dict[str, object] = {"data": str(table), "method": method, **SMALL, **chosen}
    if chosen.get("attack"):
        words["attack.adversaries"] = 2
    if chosen.get("defence"):
        known = options(defences()[chosen["defence"]])
        words |= {
            f"defence.{key}": n
            for key, n in {"adversaries": 2, "dummy_rows": 8, "dummy_steps": 2}.items()
            if key in known
        }
    return words


def run(words: dict[str, object]) -> Experiment:
    with closing(Experiment(resolve(words=words))) as experiment:
        assert experiment.engine.run(lambda report: None, lambda: False, None)
    return experiment


def assert_learned(experiment: Experiment) -> None:
    assert experiment.engine.state.round == 2
    assert all(torch.isfinite(t).all() for t in experiment.engine.state.flat().values())


def takes_candidates(name: str) -> bool:
    """Whether an algorithm learns from candidate sets, by its own objective or by one that it is given."""
    own = catalogue()[name]().objective
    return own is None or own.accepts(Candidates)


def spelled(name: str) -> str:
    """With the objective of Cour et al., which learns from all that attacks make of candidate sets, if it takes it."""
    try:
        catalogue()[name](objective=CLPL())
    except UsageError:
        return name
    return f"{name}+clpl"


@pytest.mark.parametrize("attack", ["", *attacks()])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if takes_candidates(name)])
def test_every_algorithm_under_every_attack_and_defence(table: Path, name: str, attack: str) -> None:
    for defence in ("", *defences()):
        words = settled(table, spelled(name), attack=attack, defence=defence)
        if attack == "mixup" and spelled(name) == name:
            with pytest.raises(UsageError, match="comes with memberships labels here"):
                run(words)
        elif defence and name in ("local-only", "pooled"):
            with pytest.raises(UsageError, match=f"looks at what sites send; under {name} they send nothing"):
                run(words)
        elif defence in ("median", "trimmed-mean") and name in ("fedpsl", "ifca"):
            with pytest.raises(UsageError, match=f"mixes all sites number by number, and under {name} "):
                run(words)
        else:
            assert_learned(run(words))


@pytest.mark.parametrize("name", [n for n, m in catalogue().items() if not issubclass(m, Algorithm)])
def test_every_objective_under_attack_or_refused_with_the_reason(table: Path, name: str) -> None:
    """Sets that stay sets suit every objective of candidate sets; memberships suit those that take weights."""
    objective = catalogue()[name]
    for attack in ("plfa", "mixup"):
        words = settled(table, name, attack=attack, **{"labels.kind": "candidates"})
        kind = attacks()[attack](target="q", unprivileged="c").prepare(Candidates(torch.ones(1, 3).bool(), 3))
        if objective.accepts(type(kind)):
            assert_learned(run(words))
        else:
            with pytest.raises(UsageError, match=rf"{name!r} learns from .* comes with {kind.kind} labels here"):
                run(words)


@pytest.mark.parametrize("defence", ["", *defences()])
@pytest.mark.parametrize("repair", ["", *repairs()])
def test_repairs_before_attacked_training(table: Path, repair: str, defence: str) -> None:
    """On exact labels, which repairs mend: an attack on the groups, then a defence around any merge."""
    chosen = {"repair": repair, "attack": "pafa", "defence": defence, "labels.kind": "exact", "split.trusted": "0.2"}
    assert_learned(run(settled(table, "fedavg", **chosen)))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", list(repairs()))
def test_repairs_of_other_labels_are_refused(table: Path, repair: str) -> None:
    if repairs()[repair].labels is Candidates:
        pytest.skip("mends candidate sets")
    with pytest.raises(UsageError, match=f"repair {repair} mends .* comes with candidates labels here"):
        run(settled(table, "fedavg", repair=repair, **{"labels.kind": "candidates"}))


def test_mixup_asks_for_an_objective_by_name(table: Path) -> None:
    with pytest.raises(UsageError, match=r"memberships labels the objective must be named.*: clpl"):
        run(settled(table, "fedavg", attack="mixup"))


def test_plfa_rewrites_sets_and_nothing_else(table: Path) -> None:
    with pytest.raises(UsageError, match="plfa works on candidates labels, but the sites hold exact labels here"):
        run(settled(table, "fedavg", attack="plfa", **{"labels.kind": "exact"}))


@pytest.mark.parametrize(("part", "name"), [*product(["attack"], attacks()), ("defence", "fairfedpapl")])
def test_nobody_to_wrong_or_to_guard(part: str, name: str) -> None:
    if name not in (attacks() if part == "attack" else defences()):
        pytest.skip(f"there is no {part} {name}")
    words = {"data": "digits", "method": "clpl", "labels.candidates": "flip", "rounds.workers": 1, part: name}
    words |= {"attack.adversaries": 1} if part == "attack" else {}
    with pytest.raises(UsageError, match=f"{name} .*sensitive attribute"):
        run(words)


def test_fairness_of_rows_with_several_classes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y, groups = (draw.random((80, 3)) < 0.4).astype(np.int64), np.eye(2)[draw.integers(0, 2, 80)]
    np.savez(tmp_path / "many.npz", x=draw.normal(size=(80, 4)), y=y, attribute=groups)
    words = {"data": str(tmp_path / "many.npz"), "method": "fedavg", "split.partition": "iid"}
    with pytest.raises(UsageError, match="one class per row; rows of many may have several"):
        run(words | {"fairness.target": "1", "fairness.unprivileged": "2"})


def test_fairness_of_nobody() -> None:
    with pytest.raises(UsageError, match="digits has none"):
        run({"data": "digits", "method": "clpl", "candidates": "flip", "fairness.target": "q"})


def test_all_sites_cannot_attack(table: Path) -> None:
    with pytest.raises(UsageError, match="leave some honest"):
        run(settled(table, "clpl", attack="plfa") | {"attack.adversaries": 7})


def test_the_kinds_these_crosses_stand_on() -> None:
    assert reference(Candidates).accepts(Candidates)
    assert reference(Exact).accepts(Exact)
    assert len(ALGORITHMS) >= 8
