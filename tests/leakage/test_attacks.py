"""The attacks one by one, on numbers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from imperfed.core.network import Layout, Net, Network
from imperfed.engine.local_training import Local
from imperfed.leakage.chosen_weights import between_thresholds, can_single_out, chosen
from imperfed.leakage.curious import CuriousCoordinator
from imperfed.leakage.first_layer import input_layers, quotients
from imperfed.leakage.label_shares import estimated_shares, head_bias, mean_prediction, whole_numbers, wrong_share
from imperfed.leakage.matching import by_chance, match, recovered_by_chance
from imperfed.leakage.observed import SeenExchange, attacked
from imperfed.nn.inversion import Reconstruction
from imperfed.results.leak_summary import LeakSummary, SiteLeak
from tests.support.transcription import near


def a_net(*layers: nn.Module, classes: int = 3, stays=lambda name: False) -> Net:
    torch.manual_seed(3)
    rep = nn.Sequential(*layers) if layers else nn.Identity()
    width = [m for m in layers if isinstance(m, nn.Linear)][-1].out_features if layers else 4
    network = Network(rep, nn.Linear(width, classes))
    return Net(network, Layout.of(network, stays))


def gradient(net: Net, x: Tensor, y: Tensor) -> Tensor:
    return net.backward(cross_entropy(net(x), y)).clone()


# -- rows as quotients -------------------------------------------------------------------------------------------------


def test_the_layers_on_the_inputs_are_found_by_a_probe():
    def layers(net: Net) -> list[tuple[str, str]]:
        return input_layers(net, net.w, net.layout.buffers(net.row), torch.Size([4]))

    assert layers(a_net()) == [("head.weight", "head.bias")]
    assert layers(a_net(nn.Linear(4, 4), nn.ReLU())) == [("rep.0.weight", "rep.0.bias")]  # not the head: also 4 wide
    assert layers(a_net(nn.Linear(4, 6, bias=False), nn.ReLU())) == []
    assert layers(a_net(nn.Tanh(), nn.Linear(4, 6))) == []


def test_the_weights_that_stay_at_a_site_give_no_rows():
    net = a_net(nn.Linear(4, 6), nn.ReLU(), stays=lambda name: name.startswith("rep."))
    assert input_layers(net, net.w[: net.layout.shared], net.row[:0], torch.Size([4])) == []


def test_one_row_follows_from_its_gradient():
    x = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    for net, layer in ((a_net(), "head"), (a_net(nn.Linear(4, 6), nn.ReLU()), "rep.0")):
        made = quotients(net, gradient(net, x, torch.tensor([1])), f"{layer}.weight", f"{layer}.bias")
        near(made, x, tolerance=1e-5)


def test_in_a_batch_a_unit_that_one_row_reaches_gives_it_away_and_where_units_agree_comes_first():
    net = a_net(nn.Linear(2, 4), nn.ReLU())
    with torch.no_grad():  # units 0 and 1 see the first row alone, unit 2 the second alone, unit 3 both
        net.module.rep[0].weight.copy_(torch.tensor([[1.0, 0], [2, 0], [0, 1], [1, 1]]))
        net.module.rep[0].bias.copy_(torch.tensor([-0.5, -0.5, -0.5, 0.0]))
    x = torch.tensor([[1.0, 0.25], [0.125, 1.0]])
    made = quotients(net, gradient(net, x, torch.tensor([0, 2])), "rep.0.weight", "rep.0.bias")
    near(made[0], x[0], tolerance=1e-5)
    assert len(made) == 3
    assert min(float((row - x[1]).norm()) for row in made) < 1e-5


def seen_by_units(g_w: list[list[float]], g_b: list[float]) -> Tensor:
    """The rows that follow from the gradients of three units."""
    net = a_net(nn.Linear(2, 3), nn.ReLU())
    given = torch.zeros_like(net.w)
    net.layout.view(given, "rep.0.weight").copy_(torch.tensor(g_w))
    net.layout.view(given, "rep.0.bias").copy_(torch.tensor(g_b))
    return quotients(net, given, "rep.0.weight", "rep.0.bias")


def test_a_unit_tells_as_much_whichever_way_its_bias_moves():
    near(seen_by_units([[-1.0, -2], [0, 0], [0, 0]], [-0.5, 0.0, 0.0]), [[2, 4]])
    near(seen_by_units([[-1.0, -2], [1e-5, 0], [0, 0]], [-0.5, 1e-4, 0.0]), [[2, 4]])  # the second says too little


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_quotients_agree_up_to_a_hundredth_of_their_length(unit: float):
    """Two units that agree count as one row, their mean by strength; a third row is another."""
    made = seen_by_units([[3 * unit, 4 * unit], [6.03 * unit, 8 * unit], [4 * unit, -3 * unit]], [1.0, 2.0, 1.0])
    near(made / unit, [[3.01, 4], [4, -3]], tolerance=1e-5)
    assert len(seen_by_units([[3 * unit, 4 * unit], [6.2 * unit, 8 * unit], [0, 0]], [1.0, 2.0, 0.0])) == 2


def test_a_gradient_of_zero_gives_no_rows():
    net = a_net()
    assert quotients(net, torch.zeros_like(net.w), "head.weight", "head.bias").shape == (0, 4)


def test_chosen_weights_single_out_the_rows_between_neighbouring_thresholds():
    net = a_net(nn.Linear(4, 200), nn.ReLU())
    layer, x = ("rep.0.weight", "rep.0.bias"), torch.randn(12, 4)
    assert can_single_out(net, layer)
    assert not can_single_out(a_net(), ("head.weight", "head.bias"))
    assert not can_single_out(a_net(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5)), layer)
    assert not can_single_out(a_net(nn.Linear(4, 6), nn.ReLU(), stays=lambda name: name.startswith("head.")), layer)
    before = net.w.clone()
    w = chosen(net, net.w, layer, x)
    assert torch.equal(net.w, before)
    h = net.layout.view(w, "rep.0.weight")[0]
    passed = (x @ h)[:, None] + net.layout.view(w, "rep.0.bias") > 0
    assert (passed.int().diff(dim=1) <= 0).all()  # a row passes the first thresholds, and no later one
    alone = [i for i in range(12) if (passed.sum(1) == passed[i].sum()).sum() == 1 and passed[i].any()]
    assert len(alone) > 8
    net.w.copy_(w)
    made = between_thresholds(net, gradient(net, x, torch.arange(12) % 3), layer)
    assert len(made) < 20
    for i in alone:
        assert (made - x[i]).norm(dim=1).min() < 1e-3


# -- labels ------------------------------------------------------------------------------------------------------------


def test_shares_are_the_prediction_minus_the_gradient():
    prediction, labels = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.25, 0.0, 0.75])
    near(estimated_shares(prediction - labels, prediction), labels)
    near(estimated_shares(torch.tensor([-0.9, 0.5, 0.4]), prediction), [1.0, 0, 0])  # none is negative


def test_whole_numbers_sum_to_the_rows_and_the_largest_remainders_are_rounded_up():
    assert whole_numbers(torch.tensor([0.36, 0.49, 0.15]), 5).tolist() == [2, 2, 1]
    assert whole_numbers(torch.tensor([0.4, 0.6]), 1).tolist() == [0, 1]
    assert wrong_share(torch.tensor([2, 2, 1]), torch.tensor([4.0, 0, 6])) == pytest.approx(0.4)


def test_the_mean_prediction_is_over_both_models():
    net = a_net()
    certain = net.w.clone()
    certain[-3:] = torch.tensor([50.0, 0, 0])
    nothing = torch.zeros_like(net.w)
    models = [(nothing, net.row[:0]), (certain, net.row[:0])]
    near(mean_prediction(net, models, torch.Size([4])), [2 / 3, 1 / 6, 1 / 6], tolerance=1e-3)


# -- the update as a gradient ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "tolerance"),
    [
        (Local(steps=1, batch=2, lr=0.5, momentum=0.9, weight_decay=0.3), 1e-5),
        (Local(steps=4, batch=2, lr=0.5, momentum=0.9), 1e-5),
        (Local(steps=4, batch=2, lr=0.5, momentum=0.0), 1e-5),
        (Local(epochs=2, batch=4, lr=0.5, momentum=0.5), 1e-5),  # 10 rows: 6 steps
    ],
)
def test_a_constant_gradient_is_found_again(local: Local, tolerance: float):
    w = begin = torch.tensor([1.0, -2.0, 0.5])
    g, v = torch.tensor([0.2, 0.1, -0.3]), torch.zeros(3)
    for _ in range(local.steps_of(10)):
        v = local.momentum * v + g + local.weight_decay * w
        w = w - local.lr * v
    seen = SeenExchange("train", True, {"w": begin}, {"w": w})
    near(CuriousCoordinator(a_net(), seen, local, 10, 8, torch.Size([4]), (0, 1)).gradient(), g, tolerance)


def test_momentum_is_of_sgd_and_the_decay_of_adamw_is_no_part_of_a_gradient():
    w, moved = torch.tensor([1.0, -2.0]), torch.tensor([0.4, 0.2])
    seen = SeenExchange("train", True, {"w": w}, {"w": w - moved})
    local = Local(steps=4, batch=2, lr=0.5, momentum=0.9, weight_decay=0.3)
    for optimizer, g in (("adam", moved / 2 - 0.3 * w), ("adamw", moved / 2)):
        recipe = replace(local, optimizer=optimizer)
        near(CuriousCoordinator(a_net(), seen, recipe, 10, 8, torch.Size([4]), (0, 1)).gradient(), g)


# -- what a coordinator knows ------------------------------------------------------------------------------------------


def coordinator(net: Net, up: dict[str, Tensor], rows: int = 5, trained: bool = True, **more) -> CuriousCoordinator:
    """One that has sent weights of 0."""
    down = {"w": torch.zeros_like(net.w), "buffers": net.row[:0]}
    seen = SeenExchange("train", trained, down, up)
    return CuriousCoordinator(net, seen, Local(steps=1, lr=1.0), 10, rows, torch.Size([4]), (-0.5, 0.5), **more)


def test_labels_follow_from_the_last_bias_and_the_predictions_before_and_after():
    net = a_net()
    certain = torch.zeros_like(net.w)
    certain[-3:] = torch.tensor([50.0, 0, 0])
    up = {"w": certain, "buffers": net.row[:0]}
    g = torch.zeros_like(net.w)
    net.layout.view(g, "head.bias").copy_(torch.tensor([1 / 6, 1 / 6, -1 / 3]))
    near(coordinator(net, up).label_shares(g), [1 / 2, 0, 1 / 2], tolerance=1e-3)  # predictions 2/3, 1/6, 1/6
    # A gradient says nothing of the weights afterwards: predictions 1/3 each.
    near(coordinator(net, {"g": g}, trained=False).label_shares(g), [1 / 6, 1 / 6, 2 / 3], tolerance=1e-5)
    kept = a_net(stays=lambda name: name.startswith("head"))
    assert coordinator(kept, up).label_shares(g) is None


def test_a_search_starts_from_as_many_rows_of_each_class_as_the_shares_say():
    net = a_net()
    known = coordinator(net, {}).start(torch.tensor([0.4, 0.0, 0.6]))
    assert known.x.shape == (5, 4)
    assert known.z.argmax(1).tolist() == [0, 0, 2, 2, 2]
    assert known.z.softmax(1).max(1).values.min() > 1 - 1e-6  # taken as known
    unknown = coordinator(net, {}).start(None)
    assert torch.equal(unknown.x, known.x)
    assert unknown.z.abs().max() < 5
    assert len(coordinator(net, {}, rows=1000).start(None).x) == 64


def test_what_a_search_finds_lies_between_the_smallest_and_the_largest_input():
    net = a_net()
    made, reached = coordinator(net, {}).by_search(torch.ones_like(net.w), None, 0)
    start = coordinator(net, {}).start(None)
    near(made, start.x.clamp(-0.5, 0.5))
    assert -1 <= reached <= 1
    images = replace(coordinator(net, {}), shape=torch.Size([1, 2, 2]), between=(0.2, 0.6))
    flat = Net(
        Network(nn.Flatten(), nn.Linear(4, 3)), Layout.of(Network(nn.Flatten(), nn.Linear(4, 3)), lambda n: False)
    )
    grey, _ = replace(images, net=flat).by_search(torch.ones_like(flat.w), None, 0)
    near(grey, (0.4 + 0.04 * start.x.view(5, 1, 2, 2)).clamp(0.2, 0.6))  # images start near grey


def test_how_a_search_goes(monkeypatch: pytest.MonkeyPatch):
    """Labels that follow from the bias are kept; only images are made smooth, since a table's columns have no order."""
    asked = []

    def found(net, w, buffers, v, start, steps, lr, mu, known, several):
        asked.append((steps, lr, mu, known, several))
        return Reconstruction(start.x[None], start.z[None], torch.zeros(1))

    monkeypatch.setattr("imperfed.leakage.curious.invert", found)
    net = a_net()
    table, images = coordinator(net, {}), coordinator(net, {}, several=True)
    table.by_search(net.w, torch.tensor([1.0, 0, 0]), 7)
    replace(images, shape=torch.Size([1, 2, 2])).by_search(net.w, None, 8)
    assert asked == [(7, 0.05, 0.0, True, False), (8, 0.05, 1e-3, False, True)]


def test_no_more_rows_follow_than_were_visited():
    net = a_net(nn.Linear(4, 6), nn.ReLU())
    x = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    g = gradient(net, x, torch.tensor([1]))
    seen = SeenExchange("train", True, {"w": net.w.clone(), "buffers": net.row[:0]}, {})
    one = CuriousCoordinator(net, seen, Local(), 10, 1, torch.Size([4]), (-3, 3))
    near(one.by_quotients(g), x, tolerance=1e-5)
    assert one.by_quotients(torch.zeros_like(g)).shape == (0, 4)


def test_a_gradient_that_is_sent_is_taken_as_it_is():
    g = torch.tensor([0.2, 0.1])
    seen = SeenExchange("gradient", False, {"w": torch.ones(2)}, {"g": g})
    assert CuriousCoordinator(a_net(), seen, Local(weight_decay=0.5), 10, 8, torch.Size([4]), (0, 1)).gradient() is g


def test_the_exchange_that_trains_is_attacked_and_not_a_question_before_it():
    question = SeenExchange("losses", False, {"w": torch.ones(2)}, {"losses": torch.ones(2)})
    training = SeenExchange("train", True, {"w": torch.ones(2)}, {"w": torch.zeros(2)})
    assert attacked([question, training]) is training
    whole = SeenExchange("whole gradient", False, {"w": torch.ones(2)}, {"g": torch.ones(2)})
    assert attacked([whole, training]) is training
    assert attacked([whole, question]) is whole
    assert attacked([question]) is None
    assert attacked([SeenExchange("train", True, {"w": torch.ones(0)}, {"w": torch.ones(0)})]) is None


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_distances_are_measured_in_those_of_the_average_row_elsewhere():
    rows, others = torch.tensor([[0.0, 2.0], [4.0, 0.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    made = torch.tensor([[3.0, 0.0], [0.0, 1.9]])
    found = match(made, rows, others)  # the average is 0, 0
    assert found.row.tolist() == [1, 0] or found.made.tolist() == [1, 0]
    at = dict(zip(found.row.tolist(), found.distance.tolist(), strict=True))
    assert at == pytest.approx({0: 0.05, 1: 0.25})
    assert dict(zip(found.row.tolist(), found.recovered.tolist(), strict=True)) == {0: True, 1: False}
    assert found.share_closer == 1.0


def test_the_average_row_elsewhere_is_where_distances_are_measured_from():
    rows, others = torch.tensor([[5.0, 2.0]]), torch.tensor([[4.0, 0.0], [6.0, 4.0], [5.0, -1.0]])  # average 5, 1
    found = match(torch.tensor([[5.0, 2.5]]), rows, others)
    assert found.distance.tolist() == pytest.approx([0.5])
    alone = match(torch.tensor([[0.0, 0.0], [3.0, 1.0]]), torch.tensor([[0.0, 0.0], [4.0, 0.0]]), others[:0])
    assert sorted(alone.distance.tolist()) == pytest.approx(
        [0.0, 2**0.5 / 2]
    )  # from the average of the rows themselves


def test_a_row_is_exact_up_to_rounding_and_only_where_it_is_recovered():
    rows, others = torch.tensor([[10.0, 0.0], [0.0, 10.0]]), torch.tensor([[-9.0, 0.0], [9.0, 0.0]])
    assert match(torch.tensor([[10.0, 0.009], [0.0, 9.5]]), rows, others).exact.tolist() == [True, False]
    nearer_elsewhere = torch.tensor([[10.0, 0.0099], [0.0, 9.0]])
    assert not match(torch.tensor([[10.0, 0.009]]), rows[:1], nearer_elsewhere).exact.any()


def test_what_is_nearer_to_a_row_elsewhere_is_not_recovered():
    rows = torch.tensor([[10.0, 0.0]])
    found = match(torch.tensor([[9.8, 0.0]]), rows, torch.tensor([[9.75, 0.0], [-9.0, 0.0]]))
    assert found.distance.item() < 0.1
    assert not found.recovered.any()
    assert match(torch.tensor([[9.8, 0.0]]), rows, torch.tensor([[9.5, 0.0], [-9.0, 0.0]])).recovered.all()


def test_a_tenth_is_recovered_and_a_thousandth_exact():
    rows, others = torch.tensor([[10.0, 0.0], [0.0, 10.0]]), torch.tensor([[-9.0, 0.0], [9.0, 0.0]])
    for apart, recovered, exact in (
        (0.0095, True, True),
        (0.0105, True, False),
        (0.95, True, False),
        (1.05, False, False),
    ):
        found = match(torch.tensor([[0.0, 10.0 + apart]]), rows, others)
        assert (found.recovered.tolist(), found.exact.tolist()) == ([recovered], [exact])
    assert match(rows[:0], rows, others).share_closer == 0


def test_chance_is_measured_on_rows_that_were_never_visited():
    """One of four rows (1, 0) is taken; the others and the visited row average (2, 0), which misses it by 1."""
    made, rows, others = torch.tensor([[1.0, 3.0]]), torch.tensor([[5.0, 0.0]]), torch.tensor([[1.0, 0.0]] * 4)
    assert by_chance(made, rows, others).distance.tolist() == pytest.approx([3.0])


def test_the_same_reconstructions_do_worse_on_rows_that_the_site_never_visited():
    torch.manual_seed(0)
    rows, others = torch.randn(5, 8), torch.randn(60, 8)
    assert match(rows + 0.01, rows, others).recovered.sum() == 5
    chance = by_chance(rows + 0.01, rows, others)
    assert chance.recovered.sum() == 0
    assert chance.share_closer == 0.0


def test_chance_is_scaled_where_there_are_fewer_rows_elsewhere():
    """Two of four rows elsewhere would be 'recovered', so of eight rows four would."""
    torch.manual_seed(0)
    others = 10 * torch.randn(4, 6)
    rows = 10 * torch.randn(8, 6)
    chance = by_chance(torch.cat([others[:2] + 0.01, torch.zeros(2, 6)]), rows, others)
    assert int(chance.recovered.sum()) == 2
    assert recovered_by_chance(chance, 8, 4) == 4
    assert recovered_by_chance(chance, 4, 60) == 2
    assert recovered_by_chance(by_chance(rows, rows, others[:0]), 8, 0) == 0


def test_the_range_of_distances_is_in_order():
    one = SiteLeak("a", 4, 4, 4, 0, 0, 0, 9.5, 0.5, 0.5, 0.1, None, None)
    far = structs.replace(one, site="b", distance=10.25)
    found = LeakSummary("fedavg", "digits", "mlp", 1, 4, (1,), "sgd", 0.1, (one, far), "")
    assert "from its row: 9.50 to 10.25," in " ".join(found.sentences())


def test_the_bias_of_the_last_layer_is_used_where_it_is_sent_alone():
    assert head_bias(a_net(nn.Linear(4, 3))) == "head.bias"
    assert head_bias(a_net(nn.Linear(4, 3), stays=lambda name: name.startswith("head"))) == ""
