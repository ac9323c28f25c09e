"""What goes around an algorithm goes over messages as well: attacks, defences, repairs, groups, one pass for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message

from imperfed.core.errors import QuorumError, UsageError
from imperfed.core.labels import Exact, Positive
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.run_data import held_by_sites, load_data
from imperfed.flower.messages.payload import Payload, pack, unpack
from imperfed.repairs.posterior import cross_fit, noise_model
from imperfed.testing.toy import differences
from tests.support.rehearsal import AT_ONCE, Alone, Apart, assert_same, raw, scaled, settled


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table with three groups and three classes."""
    draw = np.random.default_rng(0)
    y, groups = draw.integers(0, 3, 300), draw.integers(0, 3, 300)
    x = draw.normal(size=(300, 4)) + 2 * np.eye(3, 4)[y]
    path = tmp_path_factory.mktemp("around") / "table.npz"
    names = {"classes": np.array(["a", "b", "c"]), "attribute_values": np.array(["p", "q", "r"])}
    np.savez(path, x=x, y=y, attribute=np.eye(3)[groups], **names)
    return path


SEVEN: dict[str, Any] = {"split.sites": 7, "split.partition": "iid", "rounds.rounds": 2}
DEFENDED = {
    "labels.candidates": "flip",
    "candidates.edge": "raw",
    "fairness.target": "q",
    "fairness.unprivileged": "c",
    "attack": "plfa",
    "attack.adversaries": 2,
    "defence": "fairfedpapl",
    "defence.dummy_rows": 8,
    "defence.dummy_steps": 2,
    "split.trusted": 0.05,
}
REPAIRED = {
    "labels.kind": "exact",
    "labels.noise": "uniform",
    "split.trusted": 0.15,
    "repair": "fb-nll",
    "repair.groups": 2,
    "repair.M": 2,
    "repair.rank": 1,
    "repair.features": "raw",
}


def test_attack_and_defence(table: Path, tmp_path: Path) -> None:
    config = settled("clpl", data=str(table), **SEVEN, **DEFENDED)
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False).start().go()
    alone = Alone(config, load_data(config)).go()
    assert any(report.verdicts for report in alone.reports)
    assert_same(alone, apart)


def test_a_defence_that_asks_the_sites_first(table: Path, tmp_path: Path) -> None:
    """The shares of the groups, once, and nothing else than in plain training; then every verdict is the same."""
    asking = DEFENDED | {"defence": "fairfedpapl+placebo", "defence.burn_in": 0, "defence.first_decision": 1}
    config = settled("clpl", data=str(table), **SEVEN, **asking)
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False).start().go()
    alone = Alone(config, load_data(config)).go()
    assert any(v.by == "placebo" and v.score is not None for v in alone.reports[-1].verdicts)
    assert_same(alone, apart)
    up = [unpack(m.content).trees.get("up", {}) for way, m in apart.grid.sent if way == "up"]
    assert {name for answer in up for name in answer} == {"w", "buffers", "group shares"}
    shares = [answer["group shares"] for answer in up if "group shares" in answer]
    assert [len(one) for one in shares] == [3] * 7


def test_shares_of_few_rows_are_not_sent(table: Path, tmp_path: Path) -> None:
    config = settled("clpl", data=str(table), **SEVEN, **DEFENDED | {"defence": "fairfedpapl+placebo"})
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False)
    h = apart.holdings[2]
    apart.grid.nodes[102] = apart.node(replace(h, x=h.x[:9], labels=h.labels.between(0, 9), ids=h.ids[:9]))
    with pytest.raises(QuorumError, match=f"{h.name} did not connect"):
        apart.start(replace(AT_ONCE, gather=0.05))
    told = (tmp_path / "run" / "messages.txt").read_text()
    assert f"{h.name} has 9 rows; sums of fewer than 10 say too much about each" in told


def test_repair_and_groups(table: Path, tmp_path: Path) -> None:
    config = settled("cross-entropy", data=str(table), **SEVEN, **REPAIRED)
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False).start().go()
    whole = Experiment(config)
    assert whole.repair_result is not None
    assert len(set(whole.data.federation.groups)) == 2
    assert apart.experiment.data.federation.groups == whole.data.federation.groups
    changed = int((whole.repair_result.given != whole.repair_result.decided).sum())
    assert sum(apart.experiment.data.facts["labels_changed"]) == changed > 0
    assert_same(Alone(config, load_data(config)).go(), apart)
    up = {name for way, m in apart.grid.sent if way == "up" for name in m.content.array_records.get("up", {})}
    assert up == {"V", "r", "V_classes", "changed", "noise", "w", "buffers"}


SPOILED: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], str]] = {
    "shape": ("V", lambda t: t[1:], "'V' is float32 [6, 2], and float32 [7, 2] at most sites"),
    "type": ("V", torch.Tensor.double, "'V' is float64 [7, 2], and float32 [7, 2] at most sites"),
    "not finite": ("r", lambda t: t / 0, "'r' is not finite"),
    "width": ("V_classes", lambda t: t[:, :1], "'V_classes' is float32 [any, 1, 1], and"),
}


@pytest.mark.parametrize("how", [*SPOILED, "missing", "another"])
def test_a_repair_names_the_site_whose_answer_does_not_fit(how: str, table: Path, tmp_path: Path) -> None:
    config = settled("cross-entropy", data=str(table), **SEVEN, **REPAIRED)
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False)
    name, change, reason = SPOILED.get(how, ("r", torch.Tensor.clone, ""))

    def spoil(payload: Payload) -> Payload:
        up = dict(payload.trees.get("up", {}))
        if name in up:
            up[name] = change(up[name])
            if how == "missing":
                del up[name]
            if how == "another":
                up["more"] = torch.zeros(2)
        return Payload(payload.words, {**payload.trees, "up": up})

    node = apart.grid.nodes[102]
    node.mishap = lambda m, answer: Message(pack(spoil(unpack(answer(m).content))), reply_to=m)
    missing = {"missing": "it has no 'r'", "another": "it should not have 'more'"}
    with pytest.raises(QuorumError) as caught:
        apart.start()
    site = apart.holdings[2].name
    expected = f"a repair needs an answer from every site. {site}: its answer was refused: {reason or missing[how]}"
    assert str(caught.value).startswith(expected)


POSTERIOR = {"labels.kind": "exact", "labels.noise": "uniform", "repair": "posterior", "repair.features": "raw"}
FIRST = {"n", "sum x", "sum x^2", "sum z z^T", "sum a a^T", "gradients", "sum p", "N"}
SUPPORT = {"predicted", "surest", "contradicted", "doubted"}
WITH_CLEAN, WITHOUT = {"net", "denied", "sureness", "changes", "labels"}, {"log-likelihood"}


@pytest.mark.parametrize(
    ("clean", "method", "insist"),
    [(True, "cross-entropy", True), (False, "posterior-ce", True), (False, "posterior-ce", False)],
)
def test_posterior_repair(
    table: Path, tmp_path: Path, clean: bool, method: str, insist: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as in one process, from sums alone; with probabilities in place of labels where training asks."""
    few_steps(monkeypatch)
    chosen = (
        SEVEN | POSTERIOR | {"split.sites": 3, "repair.insist": insist} | ({"split.trusted": 0.15} if clean else {})
    )
    config = settled(method, data=str(table), **chosen)
    apart = Apart(config, held_by_sites(config), tmp_path, scales=False).start().go()
    alone = Alone(config, load_data(config)).go()
    repaired = alone.experiment.repair_result
    assert repaired is not None
    facts, sizes = apart.experiment.data.facts, alone.scene.federation.sizes()
    assert facts["noise_estimates"] == list(repaired.noise)
    assert facts["labels_changed"] == [int(part.sum()) for part in (repaired.given != repaired.decided).split(sizes)]
    assert (sum(facts["labels_changed"]) > 0) == insist
    assert repaired.verdict is not None
    assert facts["repair_support"] == repaired.verdict.words
    assert facts["repair_support"].endswith("all labels stay as they are") != insist
    assert_same(alone, apart)
    up = {name for way, m in apart.grid.sent if way == "up" for name in m.content.array_records.get("up", {})}
    assert up == FIRST | SUPPORT | (WITH_CLEAN if clean else WITHOUT) | {"changed", "noise", "w", "buffers"}
    for holding in apart.holdings:  # what the site computed on the way is gone, and its decision is kept
        assert [path.stem for path in (tmp_path / holding.name / "run").glob("rep*.safetensors")] == ["repaired"]


def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let posterior repair make few exchanges: each is a message to every site."""
    monkeypatch.setattr(cross_fit, "STEPS", 4)
    monkeypatch.setattr(noise_model, "POOLED_STEPS", 2)
    monkeypatch.setattr(noise_model, "POOLED_STEPS_IN_SEARCH", 2)


def test_one_pass_is_the_same_up_to_the_order_of_a_sum(tmp_path: Path) -> None:
    config, data = settled("fedalc", model="mlp", **{"method.one_pass": True, "model.hidden": 8}), raw(Positive)
    apart = Apart(config, data, tmp_path).start().go()
    alone = Alone(config, scaled(data)).go()
    assert not differences(alone.engine.state.server, apart.engine.state.server, tolerance=1e-6)
    for mine, theirs in zip(alone.reports, apart.reports, strict=True):
        assert mine.losses == pytest.approx(theirs.losses, rel=1e-5)


def test_stacked_sites_are_the_same_up_to_rounding(tmp_path: Path) -> None:
    """In one process several small networks are trained in one program; over messages each is trained by itself."""
    config, data = settled("fedavg", model="mlp", **{"model.hidden": 8}), raw(Exact)
    apart = Apart(config, data, tmp_path).start().go()
    alone = Alone(config, scaled(data)).go()
    assert not differences(alone.engine.state.server, apart.engine.state.server, tolerance=1e-6)


def test_rows_are_not_brought_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pooled brings all rows to one place"):
        Apart(settled("pooled"), raw(Exact), tmp_path).start()


def test_collected_labels_need_the_secret_of_the_sites(tmp_path: Path) -> None:
    apart = Apart(settled("fedalc"), raw(Positive), tmp_path)
    apart.secret = b""
    with pytest.raises(Exception, match="needs a secret that the sites share"):
        apart.start()
