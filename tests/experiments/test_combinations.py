"""Everything goes with everything: method x attack x defence, and repairs. What makes no sense is refused in words.

Methods, attacks, defences and repairs are those that are found in their folders, so that a new one is crossed as well.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from imperfed.algorithms import reference
from imperfed.attacks import attacks
from imperfed.core.algorithm import Algorithm
from imperfed.core.components import UpdateAttack
from imperfed.core.errors import UsageError
from imperfed.core.exchange import send_model
from imperfed.core.labels import Candidates, Exact, Labels, Memberships
from imperfed.core.objective import Objective
from imperfed.defences import defences
from imperfed.defences.fltrust import FLTrust
from imperfed.defences.robust import Mixing, Robust
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve
from imperfed.experiments.setting_sections import options
from imperfed.repairs import repairs
from tests.support.methods import algorithms, objectives, shares_nothing

OF_MEMBERSHIPS = next(objective for objective in objectives() if objective.accepts(Memberships))
"""An objective that learns from all that attacks make of candidate sets."""
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


ON_ROWS = [name for name, attack in attacks().items() if not issubclass(attack, UpdateAttack)]
ON_UPDATES = [name for name in attacks() if name not in ON_ROWS]
AT_ONCE = {"adversaries": 2, "dummy_rows": 8, "dummy_steps": 2, "burn_in": 0, "first_decision": 1}
"""Settings of defences that withstand two adversaries and do not look long."""


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
        defence = defences()[chosen["defence"]]
        words |= {f"defence.{key}": n for key, n in AT_ONCE.items() if key in options(defence)}
        if issubclass(defence, Robust) and defence(adversaries=2).needs() > 7:
            words["defence.adversaries"] = 1
    return words


def run(words: dict[str, object]) -> Experiment:
    with closing(Experiment(resolve(words=words))) as experiment:
        assert experiment.engine.run(lambda report: None, lambda: False, None)
    return experiment


def assert_learned(experiment: Experiment) -> None:
    assert experiment.engine.state.round == 2
    assert all(torch.isfinite(t).all() for t in experiment.engine.state.flat().values())


def spelled(algorithm: Algorithm) -> str:
    """Return its name with an objective that learns from memberships too, if it takes one."""
    try:
        replace(algorithm, objective=OF_MEMBERSHIPS)
    except UsageError:
        return algorithm.name
    return f"{algorithm.name}+{OF_MEMBERSHIPS.name}"


def attacked_kind(attack: str) -> type[Labels]:
    """Return the kind of labels that an attack makes of candidate sets."""
    if attack in ON_UPDATES:
        return Candidates
    return type(attacks()[attack](target="q", unprivileged="c").prepare(Candidates(torch.ones(1, 3).bool(), 3)))


def refused_around(algorithm: Algorithm, defence: str) -> str:
    """Return the words with which a defence is refused around an algorithm; empty where it is not."""
    name, rule = algorithm.name, defences().get(defence)
    if rule is None:
        return ""
    if shares_nothing(algorithm):
        return f"looks at what sites send; under {name} they send nothing"
    if issubclass(rule, Mixing) and algorithm.not_mixable_because:
        return f"mixes all sites coordinate by coordinate, and under {name} "
    if issubclass(rule, FLTrust):
        if algorithm.not_mixable_because:
            return f"replaces all answers by one, and under {name} "
        more = any(exchange.send is not send_model for exchange in algorithm.exchanges(0))
        return f"under {name} these need more" if more or algorithm.overridden & {"init_site", "prepare"} else ""
    return ""


@pytest.mark.parametrize("attack", ["", *ON_ROWS])
@pytest.mark.parametrize("algorithm", algorithms(Candidates), ids=lambda a: a.name)
def test_every_algorithm_under_every_attack_and_defence(table: Path, algorithm: Algorithm, attack: str) -> None:
    name = algorithm.name
    for defence in ("", *defences()):
        words = settled(table, spelled(algorithm), attack=attack, defence=defence)
        if attack and attacked_kind(attack) is not Candidates and spelled(algorithm) == name:
            with pytest.raises(UsageError, match=f"comes with {attacked_kind(attack).kind} labels here"):
                run(words)
        elif refusal := refused_around(algorithm, defence):
            with pytest.raises(UsageError, match=refusal):
                run(words)
        else:
            assert_learned(run(words))


@pytest.mark.parametrize("algorithm", algorithms(Candidates), ids=lambda a: a.name)
def test_every_algorithm_under_falsified_updates(table: Path, algorithm: Algorithm) -> None:
    for attack, defence in zip(ON_UPDATES, ("", "krum", "median", ""), strict=False):
        words = settled(table, algorithm.name, attack=attack, defence=defence)
        if defence and refused_around(algorithm, defence):
            continue  # as above
        if shares_nothing(algorithm):
            with pytest.raises(UsageError, match=f"{attack} falsifies the updates that sites send; under"):
                run(words)
        else:
            assert_learned(run(words))


@pytest.mark.parametrize("defence", list(defences()))
@pytest.mark.parametrize("attack", ON_UPDATES)
def test_every_defence_against_falsified_updates(table: Path, attack: str, defence: str) -> None:
    experiment = run(settled(table, "fedavg", attack=attack, defence=defence))
    assert_learned(experiment)
    adversaries = experiment.engine.server.adversaries
    assert adversaries is not None
    names = [experiment.data.federation.sites[k] for k in adversaries.sites]
    assert names == experiment.data.facts["adversaries"]


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.name)
def test_every_objective_under_attack_or_refused_with_the_reason(table: Path, objective: Objective) -> None:
    """Sets that stay sets suit every objective of candidate sets; memberships suit those that take weights."""
    for attack in ON_ROWS:
        words = settled(table, objective.name, attack=attack, **{"labels.kind": "candidates"})
        kind = attacked_kind(attack)
        if objective.accepts(kind):
            assert_learned(run(words))
        else:
            reason = rf"{objective.name!r} learns from .* comes with {kind.kind} labels here"
            with pytest.raises(UsageError, match=reason):
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
        pytest.skip("corrects candidate sets")
    with pytest.raises(UsageError, match=f"repair {repair} corrects .* comes with candidates labels here"):
        run(settled(table, "fedavg", repair=repair, **{"labels.kind": "candidates"}))


def test_mixup_asks_for_an_objective_by_name(table: Path) -> None:
    with pytest.raises(UsageError, match=r"memberships labels have no default objective; name one of: clpl"):
        run(settled(table, "fedavg", attack="mixup"))


def test_plfa_rewrites_sets_and_nothing_else(table: Path) -> None:
    with pytest.raises(UsageError, match="plfa works on candidates labels, but the sites hold exact labels here"):
        run(settled(table, "fedavg", attack="plfa", **{"labels.kind": "exact"}))


@pytest.mark.parametrize(("part", "name"), [*product(["attack"], ON_ROWS), ("defence", "fairfedpapl")])
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
    assert len(algorithms(Candidates)) >= 8
