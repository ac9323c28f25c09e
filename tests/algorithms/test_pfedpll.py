import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from imperfed.algorithms import pfedpll
from imperfed.algorithms.lw import LW
from imperfed.algorithms.pfedpll import LCP, PFedPLL, kl
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.labels import Candidates
from imperfed.core.network import Layout, Net, Network
from imperfed.engine.seeds import generator
from imperfed.nn.losses import masked_softmax
from imperfed.testing.toy import network as toy
from tests.support.transcription import (
    UNIFORM,
    Answers,
    S,
    W,
    Y,
    Z,
    assert_stable,
    batch,
    double,
    gradient,
    losses,
    near,
    one_step,
    silent,
    tiny_net,
)

ALPHA = np.array([[0.2, 0.8, 0, 0], [0, 0.5, 0.1, 0.4], [0.7, 0, 0, 0.3]])
L1, L2, L3 = 0.7, 1.3, 2.1


# -- LCP: equations 5 to 9 ---------------------------------------------------------------------------------------------


def triplet(z: np.ndarray, sets: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The three losses of every example, [3, n], in the paper's own terms."""
    terms = []
    for z_i, M, a in zip(z, sets, alpha, strict=True):
        y = np.exp(z_i) / np.exp(z_i).sum()  # Eq. 4
        L_s = -np.log(sum(y[j] for j in range(len(y)) if M[j]))  # Eq. 5
        L_pc = -sum(a[j] * np.log(y[j]) for j in range(len(y)) if M[j])  # Eq. 7
        L_nc = -np.log(1 - max(y[j] for j in range(len(y)) if not M[j])) if not M.all() else 0.0  # Eq. 8
        terms.append([L_s, L_pc, L_nc])
    return np.array(terms).T


def rows() -> dict[str, Tensor]:
    return {"alpha": torch.tensor(ALPHA)}


def test_triplet_loss_by_hand():
    terms = triplet(Z.numpy(), Y.numpy(), ALPHA)
    near(terms_of(1, 0, 0), terms[0], tolerance=1e-12)  # Eq. 5
    near(terms_of(0, 1, 0), terms[1], tolerance=1e-12)  # Eq. 7
    near(terms_of(0, 0, 1), terms[2], tolerance=1e-12)  # Eq. 8
    near(terms_of(L1, L2, L3), L1 * terms[0] + L2 * terms[1] + L3 * terms[2], tolerance=1e-12)  # Eq. 9
    assert (terms > 0.05).all()


def terms_of(*weights: float) -> Tensor:
    return losses(LCP(*weights), rows())


def test_gradient_by_finite_differences():
    z, numeric = Z.numpy(), np.zeros((3, 4))
    for i in range(12):
        e = np.zeros(12)
        e[i] = 1e-6
        up, down = (np.array([L1, L2, L3]) @ triplet(z + s * e.reshape(3, 4), Y.numpy(), ALPHA) for s in (1, -1))
        numeric.flat[i] = (up - down).mean() / 2e-6
    near(gradient(LCP(L1, L2, L3), rows()), numeric, tolerance=1e-8)


def test_a_set_of_all_classes_has_neither_summarisation_nor_negative_calibration():
    everything = Candidates(torch.ones_like(Y), 4)
    a = {"alpha": torch.full((3, 4), 0.25, dtype=torch.float64)}
    near(losses(LCP(1, 0, 0), a, labels=everything), [0, 0, 0], tolerance=1e-12)
    assert (losses(LCP(0, 0, 1), a, labels=everything) == 0).all()
    assert (gradient(LCP(0, 0, 1), a, labels=everything) == 0).all()
    near(losses(LCP(), a, labels=everything), triplet(Z.numpy(), np.ones((3, 4), bool), np.full((3, 4), 0.25))[1])


def test_extreme_logits_stay_finite():
    assert_stable(LCP())


def test_confidences_start_equal_and_follow_equation_6():
    near(LCP().init_rows(S)["alpha"], UNIFORM)  # Alg. 1, line 1
    _, out = LCP().loss(Answers(Z), batch(rows=rows()))
    near(LCP().update_rows(silent, batch(), out)["alpha"], W)
    near(LCP().infer_labels(-Z, S, {"alpha": W}), W)


def test_confidences_come_from_the_pass_of_the_step_itself():
    before, after, remembered = one_step(LCP())
    torch.testing.assert_close(remembered["alpha"], masked_softmax(before, Y))
    assert not torch.allclose(remembered["alpha"], masked_softmax(after, Y), atol=1e-3)


# -- LCI: what stays ---------------------------------------------------------------------------------------------------


def network() -> Network:
    torch.manual_seed(0)
    return Network(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Linear(3, 2))


def test_the_relation_module_starts_as_the_identity_and_stays():
    x = torch.tensor([[0.5, -1.0], [2.0, 0.1]])
    plain, built = network(), PFedPLL().build(network())
    torch.testing.assert_close(built(x), plain(x))
    assert torch.equal(built.get_submodule("corr").weight, torch.eye(3))
    layout = Layout.of(built, PFedPLL().is_personal)
    personal = {name for name, f in layout.fields.items() if f.offset >= layout.shared}
    assert personal == {"corr.weight", "head.weight", "head.bias"}
    assert layout.shared == 2 * 3 + 3


def test_without_lci_the_network_is_unchanged_and_all_of_it_travels():
    method = PFedPLL(lci=False)
    layout = Layout.of(method.build(network()), method.is_personal)
    assert "corr.weight" not in layout.fields
    assert layout.shared == layout.trainable


def test_another_objective_may_take_the_place_of_lcp():
    assert PFedPLL().objective == LCP()
    assert PFedPLL(objective=LW()).objective == LW()
    assert tiny_net(PFedPLL(objective=LW())).layout.shared == 3 * 5 + 5


# -- KL score: equation 10 and algorithm 2 -----------------------------------------------------------------------------

PUBLIC = torch.tensor([[1.0, 0.5], [-0.3, 2.0], [0.7, -1.1], [0.2, 0.4], [-2.0, 1.0]], dtype=torch.float64)


def representation(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """softmax(tanh(A x + b)) over the three features."""
    z = np.tanh(x @ w[:6].reshape(3, 2).T + w[6:9])
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def scores(global_w: np.ndarray, site_w: np.ndarray, batches: list[np.ndarray]) -> np.ndarray:
    distance = np.zeros(len(site_w))
    for k, w in enumerate(site_w):
        for a in batches:
            p, q = representation(w, a), representation(global_w, a)
            distance[k] += (p * np.log(p / q)).sum(1).mean() / len(batches)  # Eq. 10; Alg. 2, line 4
    return distance / distance.sum()  # Alg. 2, line 5


def meeting(public: Tensor) -> tuple[dict[str, Tensor], Updates, ServerContext]:
    method = PFedPLL()
    built = method.build(network())
    net = Net(built, Layout.of(built, method.is_personal))
    draw = torch.Generator().manual_seed(5)
    w = torch.randn(9, generator=draw)
    sites = w + torch.tensor([[0.1], [0.5], [1.0]]) * torch.randn(3, 9, generator=draw)
    updates = Updates((0, 1, 2), torch.tensor([10.0, 20.0, 70.0]), {"w": sites, "buffers": torch.zeros(3, 0)})
    return (
        {"w": w, "buffers": torch.zeros(0)},
        updates,
        ServerContext(net, public, 0, 0.01, torch.Generator().manual_seed(11)),
    )


@double()
def test_merge_weighs_each_site_by_how_far_its_representation_moved():
    server, updates, context = meeting(PUBLIC)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(11)).numpy()
    a = PUBLIC.numpy()[order]
    s = scores(server["w"].numpy(), updates["w"].numpy(), [a[:3], a[3:]])  # a batch of three and one of two
    assert (np.abs(s - 1 / 3) > 0.01).all()
    merged = PFedPLL(batches=2, size=3).merge(server, updates, context)
    near(merged["w"], s @ updates["w"].numpy(), tolerance=1e-12)
    assert context.notes == []


@double()
def test_only_so_many_batches_are_looked_at():
    server, updates, context = meeting(PUBLIC)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(11)).numpy()
    s = scores(server["w"].numpy(), updates["w"].numpy(), [PUBLIC.numpy()[order[:2]]])
    near(PFedPLL(batches=1, size=2).scores(server, updates, context), s, tolerance=1e-12)


@double()
@pytest.mark.parametrize("case", ["all distances are 0", "a site is not finite", "no public inputs"])
def test_falls_back_to_the_sizes_and_says_so(case: str):
    server, updates, context = meeting(PUBLIC[:0] if case == "no public inputs" else PUBLIC)
    if case == "all distances are 0":
        updates.trees["w"][:] = server["w"]
    if case == "a site is not finite":
        updates.trees["w"][1, 0] = torch.nan
    near(PFedPLL().scores(server, updates, context), [0.1, 0.2, 0.7])
    assert len(context.notes) == 1
    assert "n_k/n" in context.notes[0]


def test_no_weight_is_negative_where_sites_have_hardly_moved():
    server, _, context = meeting(PUBLIC.float())
    near_by = server["w"] + 1e-6 * torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    updates = Updates(tuple(range(50)), torch.ones(50), {"w": near_by, "buffers": torch.zeros(50, 0)})
    assert (PFedPLL().scores(server, updates, context) >= 0).all()
    assert context.notes == []


def test_a_site_is_scored_with_its_own_running_statistics():
    net = Net(normed := Network(nn.BatchNorm1d(2), nn.Linear(2, 2)), Layout.of(normed, lambda name: False))
    layout = net.layout
    server = {"w": net.row[: layout.shared].clone(), "buffers": layout.buffers(net.row).clone()}
    moved = server["buffers"] + torch.tensor([[0.0], [0.1], [0.5]]) * torch.arange(4)
    updates = Updates((0, 1, 2), torch.ones(3), {"w": server["w"].expand(3, -1), "buffers": moved})
    still, little, far = PFedPLL().scores(
        server, updates, ServerContext(net, PUBLIC.float(), 0, 0.01, torch.Generator())
    )
    assert still == 0 < little < far


@double()
def test_without_kl_the_sizes_are_the_weights():
    server, updates, context = meeting(PUBLIC)
    near(PFedPLL(kl=False).merge(server, updates, context)["w"], np.array([0.1, 0.2, 0.7]) @ updates["w"].numpy())


def scored(passes: list[int], rows: int | None, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The scores of three models by 7 batches of 3 inputs, and the number of inputs of every pass."""
    net = Net(toy(), Layout.of(toy(), lambda name: False))
    W = net.row + torch.linspace(0, 1, 3)[:, None] * torch.randn(3, len(net.row), generator=generator(0, 0, 0, "W"))
    server, updates = (
        {"w": net.row.clone(), "buffers": W[0, :0]},
        Updates((0, 1, 2), torch.ones(3), {"w": W, "buffers": W[:, :0]}),
    )
    at = net.at
    public = torch.randn(20, 6, generator=generator(0, 0, 0, "x"))
    with monkeypatch.context() as patched:
        patched.setattr(net, "at", lambda w, b, x, features: passes.append(len(x)) or at(w, b, x, features))
        if rows:
            patched.setattr(pfedpll, "rows_at_once", lambda x, least: rows)
        context = ServerContext(net, public, 0, 0.01, generator(0, 0, 0, "order"))
        return PFedPLL(batches=7, size=3).scores(server, updates, context)


def test_where_a_pass_takes_many_rows_the_score_takes_one_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    many, few = list[int](), list[int]()
    by_batch, at_once = scored(many, None, monkeypatch), scored(few, 8192, monkeypatch)
    assert many == 4 * [3, 3, 3, 3, 3, 3, 2]
    assert few == 4 * [20]
    torch.testing.assert_close(at_once, by_batch, rtol=1e-5, atol=0)
    assert len(by_batch.unique()) == 3


def test_kl_is_not_symmetric():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    expected = (p * np.log(p / q)).sum()
    near(kl(torch.tensor(p).log()[None], torch.tensor(q).log()[None], 1), expected)
    assert abs(expected - (q * np.log(q / p)).sum()) > 0.02


def test_negative_term_keeps_value_and_gradient_where_a_non_candidate_has_nearly_all_the_mass() -> None:
    z = torch.tensor([[30.0, 0.0, 1.0]], requires_grad=True)  # in float32 the first probability rounds to 1
    labels = Candidates(torch.tensor([[False, True, True]]), 3)
    values, _ = LCP(lambda1=0.0, lambda2=0.0).loss(lambda x: x, batch(labels, {"alpha": labels.uniform()}, z))
    values.sum().backward()
    expected = 30 - math.log(1 + math.e)  # log(1 - p_0) = log of the others' share
    assert values.item() == pytest.approx(expected, abs=1e-5)
    assert z.grad is not None
    assert z.grad[0].tolist() == pytest.approx([1.0, -1 / (1 + math.e), -math.e / (1 + math.e)], abs=1e-5)
