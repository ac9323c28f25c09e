"""The training recipe: steps against those of torch, learning rates by hand, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from imperfed.core.algorithm import Algorithm
from imperfed.core.context import LocalStep
from imperfed.core.errors import DataError, UsageError
from imperfed.core.labels import Exact
from imperfed.core.network import Layout, Net, Network
from imperfed.core.objective import Objective
from imperfed.core.rates import descend
from imperfed.engine.backends.stacked import train_stacked
from imperfed.engine.local_training import Local, Plan, SiteData, batches, plan, train_locally
from imperfed.engine.seeds import generator
from imperfed.testing.toy import (
    LOCAL,
    OneStep,
    Plain,
    as_images,
    engine,
    network,
    one_by_one,
    world,
)
from tests.support.methods import algorithms, overriding


def rows_of(n: int = 20, images: bool = False) -> SiteData:
    federation, _ = as_images(world(Exact, (n,))) if images else world(Exact, (n,))
    return SiteData(federation.x, federation.labels, Plain().init_rows(federation.labels))


def planned(local: Local, n: int = 20) -> Plan:
    return plan(Algorithm(), Plain(), local, n, generator(0, 0, 0, "batches"))


def trained(local: Local) -> Tensor:
    """The weights after the steps of one round."""
    net = Net(network(), Layout.of(network(), Algorithm().is_personal))
    train_locally(Algorithm(), Plain(), net, rows_of(), planned(local), {}, {}, local)
    return net.w


def by_torch(local: Local, optimizer: torch.optim.Optimizer, module: nn.Module) -> Tensor:
    """The same, as anybody would write it with torch."""
    data = rows_of()
    for rows in planned(local).rows:
        at = rows[rows < 20]
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(data.x[at]), data.labels.values[at]).backward()
        if local.clip:
            nn.utils.clip_grad_norm_(module.parameters(), local.clip)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()])


TORCHS: dict[str, Any] = {
    "sgd": lambda p, local: torch.optim.SGD(p, local.lr, local.momentum, weight_decay=local.weight_decay),
    "adam": lambda p, local: torch.optim.Adam(p, local.lr, weight_decay=local.weight_decay),
    "adamw": lambda p, local: torch.optim.AdamW(p, local.lr, weight_decay=local.weight_decay),
}


@pytest.mark.parametrize("clip", [0.0, 0.3, 100.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", TORCHS)
def test_steps_are_torchs(name: Any, decay: float, clip: float) -> None:
    local = Local(steps=30, batch=8, lr=0.01, weight_decay=decay, optimizer=name, clip=clip)
    module = network()
    torch.testing.assert_close(
        trained(local), by_torch(local, TORCHS[name](module.parameters(), local), module), rtol=1e-6, atol=1e-6
    )


def test_the_decays_of_adam_and_adamw_differ() -> None:
    local = Local(steps=30, batch=8, lr=0.01, weight_decay=0.1, optimizer="adam")
    assert not torch.allclose(trained(local), trained(replace(local, optimizer="adamw")), atol=1e-3)


@pytest.mark.parametrize("rate", [0.05, torch.tensor(0.05)], ids=["number", "tensor"])
def test_a_rate_may_be_a_number_or_a_tensor(rate: Any) -> None:
    w, g = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -20.0])
    assert descend(w, g, rate).tolist() == pytest.approx([0.5, 3.0])
    assert w.tolist() == [1.0, 2.0]
    assert descend(w, g, rate, out=w) is w
    assert w.tolist() == pytest.approx([0.5, 3.0])


def test_in_a_stack_every_site_is_clipped_by_its_own_norm() -> None:
    usual = replace(LOCAL, steps=1, weight_decay=0.0)

    def moved(clip: float) -> list[Tensor]:
        """How far the first step takes each site, along its gradient."""
        e = engine(Algorithm(), Plain(), world(Exact), replace(usual, clip=clip))
        assert e.backend.stacks  # type: ignore[attr-defined]
        together = train_stacked(e.population, 0, 0, [0, 1, 2, 3])
        return [(e.state.server["w"] - one.up["w"]) / usual.lr for one in together]

    free = moved(0.0)
    norms = sorted(g.norm().item() for g in free)
    clip = (norms[1] + norms[2]) / 2
    for g, clipped in zip(free, moved(clip), strict=True):
        torch.testing.assert_close(clipped, g * min(1.0, clip / g.norm().item()), rtol=1e-4, atol=1e-6)


# -- learning rates ----------------------------------------------------------------------------------------------------


def rates(rounds: int, **settings: Any) -> list[float]:
    return [Local(lr=0.8, **settings).in_round(t, rounds).lr for t in range(rounds)]


def test_rates_by_hand() -> None:
    assert rates(3) == [0.8, 0.8, 0.8]
    assert rates(4, schedule="cosine") == pytest.approx([0.8, 0.6828427, 0.4, 0.1171573])
    assert rates(5, schedule="step", decay_every=2, decay=0.5) == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2])
    assert rates(5, warmup=3) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert rates(6, schedule="cosine", warmup=2) == pytest.approx([0.8 / 3, 1.6 / 3, 0.8, 0.6828427, 0.4, 0.1171573])
    assert rates(6, schedule="step", decay_every=2, decay=0.1, warmup=1) == pytest.approx(
        [0.4, 0.8, 0.8, 0.08, 0.08, 0.008]
    )


@pytest.mark.parametrize("schedule", ["cosine", "step"])
def test_rates_are_torchs(schedule: Any) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], 0.8)
    theirs: Any = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
        if schedule == "cosine"
        else torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.3)
    )
    for rate in rates(12, schedule=schedule, decay_every=5, decay=0.3):
        assert rate == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_a_constant_rate_is_the_setting_itself() -> None:
    local = Local(lr=0.3)
    assert local.in_round(7, 10) is local


@dataclass(frozen=True)
class Noting(Algorithm):
    """Notes the rates that sites and server are given."""

    name = "noting"
    noted = ([], [])  # type: ignore[var-annotated]

    def correct(self, g: Tensor, step: LocalStep) -> Tensor:
        self.noted[0].append(step.lr)
        return g

    def merge(self, server: Any, updates: Any, context: Any) -> Any:
        self.noted[1].append((context.lr, context.lr_change))
        return super().merge(server, updates, context)


def test_sites_and_server_have_the_rate_of_the_round() -> None:
    for notes in Noting.noted:
        notes.clear()
    local = Local(steps=2, batch=8, lr=0.4, schedule="step", decay_every=1, decay=0.5)
    engine(Noting(), Plain(), world(Exact, (9,)), local, rounds=3, make_backend=one_by_one).go()
    assert Noting.noted == ([0.4, 0.4, 0.2, 0.2, 0.1, 0.1], [(0.4, 0.5), (0.2, 0.5), (0.1, 1.0)])


# -- augmentation ------------------------------------------------------------------------------------------------------


def test_batches_are_augmented_with_numbers_of_their_own_and_labels_stay() -> None:
    data, local = rows_of(11, images=True), Local(steps=6, batch=4, augment="crop, flip")
    p = planned(local, 11)
    usual = planned(replace(local, augment=""), 11)
    assert torch.equal(p.rows, usual.rows)
    assert p.draws["augment/crop"].shape == (6, 4, 2)
    seen = [batch for _, batch in batches(data, {}, p, pad=False)]
    plain = [batch for _, batch in batches(data, {}, usual, pad=False)]
    assert sum(not torch.equal(a.x, b.x) for a, b in zip(seen, plain, strict=True)) == 6
    for a, b in zip(seen, plain, strict=True):
        assert torch.equal(a.labels.values, b.labels.values)
        assert a.draws == {}
    padded = [batch for _, batch in batches(data, {}, p, pad=True)]
    assert all(torch.equal(a.x, b.x[: len(a.x)]) for a, b in zip(seen, padded, strict=True))


@pytest.mark.parametrize("spelled", ["crop,flip", "crop, flip", "crop+flip"])
def test_names_are_separated_by_commas_or_plus(spelled: str) -> None:
    assert Local(augment=spelled).augmentations == ("crop", "flip")
    assert Local().augmentations == ()


def test_models_are_evaluated_on_images_as_they_are() -> None:
    data, met = as_images(world(Exact)), []

    class Watching(Network):
        def forward(self, x: Tensor, features: bool = False) -> Tensor:
            if not torch.is_grad_enabled() or not self.training:
                met.append(x.clone())
            return super().forward(x, features)

    with torch.random.fork_rng(devices=[]):
        net = Watching(nn.Sequential(nn.Flatten(), nn.Linear(6, 8)), nn.Linear(8, 4))
    local = replace(LOCAL, augment="flip")
    engine(Algorithm(), Plain(), data, local, net=net, rounds=1, make_backend=one_by_one).go()
    tests = torch.cat(data[1].test_x)
    assert met
    assert all((tests == x[:1]).flatten(1).all(1).any() for x in met if len(x) == 40)
    assert any(len(x) == 40 for x in met)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_method_with_steps_of_its_own_refuses_another_optimizer_and_says_why() -> None:
    owning = [a for a in algorithms(Exact) if "optimizer" in a.fixed_recipe]
    assert {a.name for a in owning} >= {"scaffold", "mime", "fednag", "fastslowmo", "domo", "fedadc", "pfedmo"}
    for method in owning:
        with pytest.raises(UsageError, match=f"local.optimizer=adam is not for {method.name}: ") as refused:
            engine(method, Plain(), world(Exact), replace(LOCAL, optimizer="adam"))
        assert method.fixed_recipe["optimizer"] in str(refused.value)


def test_whoever_defines_a_step_says_so() -> None:
    """None of the catalogue is left to the reason that is derived from its hooks."""
    for hook in ("move", "local_step"):
        assert all("optimizer" in method.fixed_recipe for method in overriding(hook))
    reasons = [reason for method in algorithms() for reason in method.fixed_recipe.values()]
    assert not any(reason.startswith("it defines") for reason in reasons)


@dataclass(frozen=True)
class SignSteps(Algorithm):
    """A method from elsewhere that declares nothing."""

    name = "sign-steps"

    def move(self, g: Tensor, step: LocalStep) -> None:
        step.w.sub_(g.sign(), alpha=float(step.lr))


@dataclass(frozen=True)
class WholeSteps(SignSteps):
    name = "whole-steps"

    def local_step(self, objective: Objective, step: LocalStep) -> tuple[Tensor, Any]:
        return super().local_step(objective, step)


def test_methods_from_elsewhere_need_not_declare_their_steps() -> None:
    assert SignSteps().fixed_recipe == {"optimizer": "it defines move of its own"}
    assert WholeSteps().fixed_recipe == {
        "optimizer": "it defines move and local_step of its own",
        "clip": "it defines local_step of its own",
    }
    with pytest.raises(UsageError, match=r"local.clip=0.5 is not for whole-steps: it defines local_step of its own"):
        engine(WholeSteps(), Plain(), world(Exact), replace(LOCAL, clip=0.5))


def test_methods_with_rates_of_their_own_refuse_a_schedule() -> None:
    (method,) = (a for a in algorithms() if a.name == "fedaws")
    assert method.objective is not None
    data = world(method.objective.labels)
    for settings in ({"schedule": "cosine"}, {"warmup": 2}):
        with pytest.raises(UsageError, match="is not for fedaws: its learning rates are lr_theta"):
            engine(method, method.objective, data, Local(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"clip": 1.0}, {"augment": "flip"}], ids=str)
def test_without_local_steps_there_is_nothing_to_choose(settings: Any) -> None:
    with pytest.raises(UsageError, match="is not for one-step: here it makes no local steps"):
        engine(OneStep(), Plain(), world(Exact), Local(**settings))


def test_tables_are_not_augmented() -> None:
    with pytest.raises(DataError, match=r"local.augment=flip changes images .* of toy has the shape \(6,\)"):
        engine(Algorithm(), Plain(), world(Exact), replace(LOCAL, augment="flip"))


def test_a_warm_up_must_end() -> None:
    with pytest.raises(UsageError, match=r"local.warmup is 2, but the run has 2 rounds"):
        engine(Algorithm(), Plain(), world(Exact), replace(LOCAL, warmup=2), rounds=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment": "crop,blur"}, "unknown name in local.augment 'blur'. Known: crop, flip"),
        ({"clip": -1.0}, "local.clip must be 0 or more"),
        ({"warmup": -1}, "local.warmup must be 0 or more"),
        ({"decay_every": 0}, "local.decay_every must be above 0"),
        ({"decay": 0.0}, "local.decay must be above 0"),
    ],
)
def test_bad_settings_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Local(**settings)
