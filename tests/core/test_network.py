"""The row a network's numbers live in, and the network that lives in a row."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from imperfed.core.errors import UsageError
from imperfed.core.network import Layout, Net, Network

torch.set_num_threads(1)

X = torch.tensor([[0.3, -1.2, 0.5], [1.1, 0.4, -0.7], [-0.6, 0.9, 2.0], [0.2, 0.8, -1.5], [1.7, -0.3, 0.1]])
Y = torch.tensor([0, 1, 1, 0, 1])


def toy(seed: int = 0) -> Network:
    """3 -> 4 features -> corr -> 2 classes, with batch normalisation in the representation and in `corr`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rep = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
        network = Network(rep, nn.Linear(4, 2))
        return network.insert_before_head("corr", lambda p: nn.Sequential(nn.Linear(p, p), nn.BatchNorm1d(p)))


def relation(name: str) -> bool:
    return name.startswith(("corr.", "head."))


def nowhere(name: str) -> bool:
    return False


def net_of(network: Network, stays: Callable[[str], bool] = nowhere) -> Net:
    return Net(network, Layout.of(network, stays))


def numbered(layout: Layout) -> Tensor:
    return torch.arange(1.0, layout.size + 1)


# -- the layout -------------------------------------------------------------------------------------------------------


def test_row_holds_shared_weights_personal_weights_shared_buffers_personal_buffers() -> None:
    layout = Layout.of(toy(), relation)
    assert list(layout.fields) == [
        *("rep.0.weight", "rep.0.bias", "rep.1.weight", "rep.1.bias"),
        *("head.weight", "head.bias", "corr.0.weight", "corr.0.bias", "corr.1.weight", "corr.1.bias"),
        *("rep.1.running_mean", "rep.1.running_var"),
        *("corr.1.running_mean", "corr.1.running_var"),
    ]
    shared, personal = 12 + 4 + 4 + 4, 8 + 2 + 16 + 4 + 4 + 4
    assert (layout.shared, layout.trainable) == (shared, shared + personal)
    assert (layout.shared_end, layout.size) == (shared + personal + 8, shared + personal + 16)
    fields = list(layout.fields.values())
    assert [f.offset for f in fields] == [0, *(f.end for f in fields[:-1])]
    assert [f.trainable for f in fields] == [f.end <= layout.trainable for f in fields]


@settings(deadline=None, max_examples=40)
@given(st.sets(st.sampled_from(list(Layout.of(toy(), nowhere).fields))))
def test_what_travels_and_what_stays_make_up_the_row(home: set[str]) -> None:
    layout = Layout.of(toy(), lambda name: name in home)
    row = numbered(layout)
    w, buffers, personal = row[: layout.shared], layout.buffers(row), layout.personal(row)
    assert torch.equal(layout.join(w, buffers, personal), row)
    tree = layout.tree(row)
    at_home = {number for name in home for number in tree[name].reshape(-1).tolist()}
    assert set(personal.tolist()) == at_home
    assert not at_home & set(torch.cat([w, buffers]).tolist())
    assert sum(t.numel() for t in tree.values()) == layout.size == len(at_home) + len(w) + len(buffers)


def test_tree_is_views_of_the_row_and_row_reads_a_network() -> None:
    network = toy()
    layout = Layout.of(network, relation)
    row = layout.row(network)
    for name, tensor in layout.tree(row).items():
        assert torch.equal(tensor, network.state_dict()[name])
    layout.tree(row)["corr.0.bias"][2] = 7.5
    assert row[layout.fields["corr.0.bias"].offset + 2] == 7.5
    assert network.corr[0].bias[2] != 7.5, "the row is a copy, not the network itself"


def test_view_names_a_tensor_in_a_vector_and_in_a_stack() -> None:
    layout = Layout.of(toy(), relation)
    row = numbered(layout)
    stack = torch.stack([row, 10 * row])[:, : layout.shared]
    start = layout.fields["rep.0.bias"].offset
    assert torch.equal(layout.view(row, "rep.0.bias"), row[start : start + 4])
    assert torch.equal(layout.view(stack, "rep.0.weight"), torch.stack([row[:12], 10 * row[:12]]).view(2, 4, 3))
    assert torch.equal(layout.buffers(torch.stack([row, row]))[1], layout.buffers(row))


def test_integer_buffers_and_frozen_parameters_are_constants() -> None:
    network = toy()
    network.rep[0].bias.requires_grad_(False)
    net = net_of(network)
    assert "rep.0.bias" not in net.layout.fields
    assert not any(name.endswith("num_batches_tracked") for name in net.layout.fields)
    kept = network.rep[0].bias.clone()
    net.gradient(cross_entropy(net(X), Y))
    net.load(torch.zeros_like(net.row))
    assert torch.equal(network.rep[0].bias, kept)


def test_a_buffer_that_is_not_saved_lies_in_the_row_too() -> None:
    network = toy()
    network.rep[0].register_buffer("scale", torch.tensor([2.0, 3.0]), persistent=False)
    net = net_of(network)
    assert torch.equal(net.layout.view(net.row, "rep.0.scale"), torch.tensor([2.0, 3.0]))


# -- the network -------------------------------------------------------------------------------------------------------


def test_an_identity_before_the_head_changes_nothing_until_it_is_trained() -> None:
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2))
    logits, z = network(X), network(X, features=True)

    def identity(p: int) -> nn.Linear:
        layer = nn.Linear(p, p, bias=False)
        nn.init.eye_(layer.weight)
        return layer

    assert network.insert_before_head("corr", identity) is network
    torch.testing.assert_close(network(X), logits)
    assert "corr.weight" in dict(network.named_parameters())
    nn.init.constant_(network.corr.weight, 0.5)
    torch.testing.assert_close(network(X), network.head(0.5 * z.sum(1, keepdim=True).expand(5, 4)))
    assert torch.equal(network(X, features=True), z), "what is inserted is no part of the representation"


def test_layers_before_the_head_apply_in_the_order_of_insertion() -> None:
    network = Network(nn.Identity(), nn.Linear(3, 2))
    network.insert_before_head("first", lambda p: nn.Softplus()).insert_before_head("second", lambda p: nn.Hardtanh())
    torch.testing.assert_close(network(X), network.head(torch.log1p(X.exp()).clamp(-1, 1)))


class Nested(nn.Module):
    """A user's module with its head one level down and another linear layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.top = nn.Sequential(nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.body(x))


def test_around_cuts_a_module_before_its_last_linear_layer() -> None:
    module = Nested()
    body, head, logits = module.body, module.top[1], module(X)
    network = Network.around(module)
    assert network.head is head
    assert torch.equal(network(X), logits)
    assert torch.equal(network(X, features=True), body(X).tanh())
    assert {name.split(".")[0] for name, _ in network.named_parameters()} == {"rep", "head"}
    assert Network.around(network) is network


def test_around_refuses_a_module_without_a_linear_layer() -> None:
    with pytest.raises(UsageError, match=r"Sequential has no nn\.Linear to serve as its head"):
        Network.around(nn.Sequential(nn.Tanh()))


def test_one_linear_layer_is_a_head_alone() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(4, 3)
    network = Network.around(layer)
    assert network.head is layer
    assert torch.equal(network(x, features=True), x)
    assert torch.equal(network(x), layer(x))


# -- a network in a row -----------------------------------------------------------------------------------------------


def test_parameters_are_views_of_the_row_and_gradients_land_in_one_vector() -> None:
    twin, net = toy(), net_of(toy(), relation)
    loss = cross_entropy(net(X), Y)
    cross_entropy(twin(X), Y).backward()
    for _ in range(2):  # the second time shows that gradients do not pile up
        g = net.backward(cross_entropy(net(X), Y))
    assert g is net.grad
    for name, p in twin.named_parameters():
        torch.testing.assert_close(net.layout.view(g, name), p.grad)
    assert g.abs().sum() > 0
    net.w.sub_(g, alpha=0.1)
    with torch.no_grad():
        for p in twin.parameters():
            p -= 0.1 * p.grad
    assert cross_entropy(net(X), Y) < loss
    torch.testing.assert_close(net(X), twin(X))
    names = [name for name, f in net.layout.fields.items() if f.trainable]
    assert [p.data_ptr() for p in net.parameters] == [net.layout.view(net.row, n).data_ptr() for n in names]


def test_load_takes_over_weights_and_buffers() -> None:
    net, other = net_of(toy(0), relation), toy(1)
    other(3 * X + 1)
    row = net.layout.row(other)
    assert net.load(row) is net
    net.train(False)
    torch.testing.assert_close(net(X), other.eval()(X))
    torch.testing.assert_close(net.features(X), other(X, features=True))
    row.zero_()
    assert net.row.abs().sum() > 0, "a row that was loaded is not kept"


def test_running_statistics_are_written_to_the_row() -> None:
    net = net_of(toy(), relation)
    net.train(True)
    z = net.module.rep[0](X).detach()
    net(X)
    torch.testing.assert_close(net.layout.view(net.row, "rep.1.running_mean"), 0.1 * z.mean(0))
    torch.testing.assert_close(net.layout.view(net.row, "rep.1.running_var"), 0.9 + 0.1 * z.var(0))
    torch.testing.assert_close(net.layout.buffers(net.row)[:4], 0.1 * z.mean(0))
    kept = net.row.clone()
    net.train(False)
    net(X)
    assert torch.equal(net.row, kept)


@pytest.mark.parametrize("mode", [True, False])
def test_at_is_loading_the_shared_part_and_leaves_the_net_alone(mode: bool) -> None:
    net, other = net_of(toy(0), relation), toy(1)
    other(3 * X + 1)
    row = net.layout.row(other)
    w, buffers = row[: net.layout.shared], net.layout.buffers(row)
    net.train(mode)
    before, state = net.row.clone(), copy.deepcopy(net.module.state_dict())
    logits, z = net.at(w, buffers, X), net.at(w, buffers, X, features=True)

    assert net.module.training is mode
    assert torch.equal(net.row, before)
    assert all(torch.equal(t, state[name]) for name, t in net.module.state_dict().items())
    net.backward(cross_entropy(net(X), Y))
    assert net.grad.abs().sum() > 0, "the parameters still write to the gradient"

    net.load(net.layout.join(w, buffers, net.layout.personal(before)))
    net.train(False)
    torch.testing.assert_close(net(X), logits)
    torch.testing.assert_close(net.features(X), z)
    assert not torch.allclose(net.load(before)(X), logits)


def test_at_takes_frozen_weights_along_to_another_precision() -> None:
    network = toy()
    network.rep[0].requires_grad_(False)
    net = net_of(network)
    w, buffers = net.w, net.layout.buffers(net.row)
    exact = net.at(w.double(), buffers.double(), X.double())
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), net.at(w, buffers, X))


def test_in_passing_gives_the_same_answer_and_leaves_the_buffers_alone() -> None:
    net = net_of(toy(), relation)
    before = net.row.clone()
    answer, g = net.in_passing(X), net.backward(cross_entropy(net.in_passing(X), Y)).clone()
    assert torch.equal(net.row, before)
    logits = net(X)
    assert torch.equal(logits, answer)
    assert torch.equal(net.backward(cross_entropy(logits, Y)), g)
    assert not torch.equal(net.row, before)


def test_at_can_be_differentiated_in_the_weights_it_is_given() -> None:
    net = net_of(toy(), relation)
    net.train(False)
    w, buffers = net.w[: net.layout.shared].clone().requires_grad_(), net.layout.buffers(net.row)
    (g,) = torch.autograd.grad(cross_entropy(net.at(w, buffers, X), Y), w)
    torch.testing.assert_close(g, net.backward(cross_entropy(net(X), Y))[: net.layout.shared])


def test_gradient_can_be_differentiated_again() -> None:
    net = net_of(toy().double(), relation)
    net.train(False)
    direction = torch.linspace(-1, 1, net.layout.trainable, dtype=torch.float64)

    def slope() -> Tensor:
        return net.gradient(cross_entropy(net(X.double()), Y)) @ direction

    curvature = net.backward(slope()).clone()  # Hessian times direction
    start, h, numeric = net.w.clone(), 1e-5, torch.zeros_like(curvature)
    for i in range(len(start)):
        ends = []
        for side in (h, -h):
            net.w.copy_(start)[i] += side
            ends.append(slope().detach())
        numeric[i] = (ends[0] - ends[1]) / (2 * h)
    torch.testing.assert_close(curvature, numeric, rtol=1e-6, atol=1e-8)
    assert curvature.abs().max() > 0.01
    net.w.copy_(start)
    loss = cross_entropy(net(X.double()), Y)
    torch.testing.assert_close(net.gradient(loss).detach(), net.backward(loss))


def test_gradient_of_a_loss_on_the_features_is_zero_at_the_head() -> None:
    net = net_of(toy(), relation)
    g = net.gradient(net.features(X).square().sum())
    assert (net.layout.view(g, "rep.0.weight") != 0).all()
    assert (g[net.layout.shared :] == 0).all()


class FunctionalDropout(nn.Module):
    """A user's module that looks at its mode without any layer that does."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, 0.5, self.training)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), FunctionalDropout(), nn.RReLU(), nn.BatchNorm1d(3)])
def test_the_mode_is_switched_where_a_layer_looks_at_it(layer: nn.Module) -> None:
    net = net_of(Network(layer, nn.Linear(3, 2)))
    x = torch.cat([X, -X, 2 * X])
    net.train(False)
    calm = net(x)
    assert torch.equal(net(x), calm)
    net.train(True)
    assert not torch.equal(net(x), calm)
