"""Randomness as an argument, and the batches that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.core.network import Layout, Net
from imperfed.engine.local_training import Local, Plan, SiteData, batches, plan, train_locally, widen
from imperfed.engine.seeds import SERVER, generator, seed_of, seeded
from imperfed.testing.toy import Plain, network, world

MODEST = settings(deadline=None, max_examples=40)


@dataclass(frozen=True)
class Drawing(Algorithm):
    """Draws one number a step, one a row, and two a row."""

    def draws(self, steps: int, batch: int, generator: torch.Generator) -> Tree:
        rand = torch.rand(steps, batch, 3, generator=generator)
        return {"step": rand[:, 0, 0], "row": rand[..., 1], "pair": rand[..., 1:]}


def make(n: int, seed: int = 0, algorithm: Algorithm | None = None, **local: int) -> Plan:
    return plan(algorithm or Algorithm(), Plain(), Local(**local), n, generator(seed, 0, 0, "batches"))


def test_seeds_depend_on_every_part_and_on_nothing_else() -> None:
    parts = [(s, r, c, p) for s in (0, 1) for r in (0, 1, 11) for c in (SERVER, 0, 1) for p in ("batches", "hall")]
    seeds = [seed_of(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert [seed_of(*part) for part in reversed(parts)] == seeds[::-1]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_generators_do_not_touch_each_other_or_the_global_one() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    a, b = generator(0, 1, 2, "x"), generator(0, 1, 3, "x")
    torch.rand(5, generator=b)
    alone = torch.rand(5, generator=generator(0, 1, 2, "x"))
    assert torch.equal(torch.rand(5, generator=a), alone)
    with seeded(0, 1, 2, "layers"):
        torch.rand(5)
    assert torch.equal(torch.random.get_rng_state(), before)


@MODEST
@given(n=st.integers(1, 50), batch=st.integers(1, 12), steps=st.integers(1, 20), seed=st.integers(0, 3))
def test_every_row_comes_once_a_pass(n: int, batch: int, steps: int, seed: int) -> None:
    rows = make(n, seed, steps=steps, batch=batch).rows
    assert rows.shape == (steps, batch)
    passes = -(-n // batch)
    for start in range(0, steps, passes):
        part = rows[start : start + passes].flatten()
        real = part[part < n].tolist()
        assert len(set(real)) == len(real)
        if start + passes <= steps:
            assert sorted(real) == list(range(n))
    sizes = (rows < n).sum(1)
    assert sizes.max() - sizes.min() <= 1
    assert (rows.sort(1).values == n).equal(rows == n)  # padding comes last in a batch


@MODEST
@given(n=st.integers(1, 50), batch=st.integers(1, 12), epochs=st.integers(1, 3))
def test_epochs_are_whole_passes(n: int, batch: int, epochs: int) -> None:
    p = make(n, epochs=epochs, batch=batch)
    assert len(p.rows) == Local(epochs=epochs, batch=batch).steps_of(n) == epochs * -(-n // batch)
    assert p.rows[p.rows < n].bincount().tolist() == [epochs] * n


def test_plans_follow_the_seed() -> None:
    assert torch.equal(make(20, 1, steps=9, batch=4).rows, make(20, 1, steps=9, batch=4).rows)
    assert not torch.equal(make(20, 1, steps=9, batch=4).rows, make(20, 2, steps=9, batch=4).rows)


def test_passes_differ_from_each_other() -> None:
    rows = make(16, steps=4, batch=8).rows
    assert not torch.equal(rows[:2], rows[2:])


def shelf_of(n: int) -> SiteData:
    federation, _ = world(Exact, (n,))
    labels = federation.labels
    assert isinstance(labels, Exact)
    return SiteData(federation.x, labels, Plain().init_rows(labels))


def test_batches_hold_the_planned_rows_and_mark_the_padding() -> None:
    data, p = shelf_of(11), make(11, steps=4, batch=4, algorithm=Drawing())
    trash = {"p": torch.cat([data.rows["p"], torch.zeros(1, 4)])}
    padded = [batch for _, batch in batches(data, trash, p, pad=True)]
    cut = [batch for _, batch in batches(data, trash, p, pad=False)]
    assert [len(batch.x) for batch in padded] == [4, 4, 4, 4]
    assert [len(batch.x) for batch in cut] == [3, 4, 4, 3]
    assert padded[0].real.tolist() == [1, 1, 1, 0]
    for h in range(4):
        rows = p.rows[h][p.rows[h] < 11]
        assert torch.equal(cut[h].x, data.x[rows])
        assert torch.equal(cut[h].labels.values, data.labels.values[rows])
        assert torch.equal(padded[h].x[: len(rows)], cut[h].x)
        assert torch.equal(cut[h].draws["step"], p.draws["step"][h])
        assert torch.equal(padded[h].draws["row"], p.draws["row"][h])
        assert torch.equal(cut[h].draws["pair"], p.draws["pair"][h, : len(rows)])


def test_the_mean_of_a_batch_ignores_padding() -> None:
    data, p = shelf_of(3), make(3, steps=1, batch=8)
    _, batch = next(batches(data, {}, p, pad=True))
    assert batch.mean(torch.tensor([1.0, 2.0, 6.0, 50.0, 50.0, 50.0, 50.0, 50.0])).item() == 3.0


def test_widened_plans_hold_more_padding_and_nothing_else() -> None:
    p = make(11, steps=4, batch=4, algorithm=Drawing())
    wide = widen(p, 11, 3)
    assert torch.equal(wide.rows[:, :4], p.rows)
    assert (wide.rows[:, 4:] == 11).all()
    assert {name: tuple(t.shape) for name, t in wide.draws.items()} == {"step": (4,), "row": (4, 7), "pair": (4, 7, 2)}
    assert torch.equal(wide.draws["pair"][:, :4], p.draws["pair"])


@MODEST
@given(n=st.integers(1, 20), extra=st.integers(0, 9))
def test_descend_does_not_see_padding(n: int, extra: int) -> None:
    data, p = shelf_of(n), make(n, steps=5, batch=4)
    ends = []
    for plan_, pad in ((p, False), (widen(p, n, extra), True)):
        module = network()
        layout = Layout.of(module, Algorithm().is_personal)
        net = Net(module, layout)
        down = {"w": net.w.clone(), "buffers": torch.zeros(0)}
        done, loss, rows = train_locally(Algorithm(), Plain(), net, data, plan_, down, {}, Local(lr=0.1), pad)
        ends.append((done.net.w.clone(), loss, rows["p"]))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*ends, strict=True))


def test_descend_remembers_visited_rows_only_and_leaves_the_shelf_alone() -> None:
    data, p = shelf_of(20), make(20, steps=2, batch=4)
    before = data.rows["p"].clone()
    net = Net(network(), Layout.of(network(), Algorithm().is_personal))
    _, _, rows = train_locally(Algorithm(), Plain(), net, data, p, {}, {}, Local(lr=0.1))
    visited = torch.zeros(20, dtype=torch.bool).index_fill(0, p.rows.flatten(), True)
    assert torch.equal((rows["p"] != before).any(1), visited)
    assert torch.equal(data.rows["p"], before)


@pytest.mark.parametrize(("n", "steps"), [(1, 5), (16, 5), (40, 10), (48, 12), (1000, 12)])
def test_steps_follow_a_sites_size_between_a_floor_and_a_cap(n: int, steps: int) -> None:
    local = Local(epochs=2, batch=8, min_steps=5, max_steps=12)
    assert local.steps_of(n) == steps
    assert len(make(n, epochs=2, batch=8, min_steps=5, max_steps=12).rows) == steps


def test_a_floor_and_a_cap_bound_epochs_only() -> None:
    with pytest.raises(UsageError, match=r"bound the steps of local\.epochs; set local\.epochs"):
        Local(max_steps=5)
    with pytest.raises(UsageError, match=r"local.min_steps \(7\) is above local.max_steps \(5\)"):
        Local(epochs=1, min_steps=7, max_steps=5)
    with pytest.raises(UsageError, match="min_steps"):
        Local(epochs=1, min_steps=-1)
    assert Local(epochs=1, batch=8, min_steps=7).steps_of(800) == 100
