"""The zoo's sizes and cuts, the seed's reign over the first weights, and the user's own models."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from imperfed.core.errors import UsageError
from imperfed.core.network import Layout, Net, Network
from imperfed.models import ModelSpec, build, models

torch.set_num_threads(1)

WIDE = {"vgg16": (3, 32, 33), "densenet121": (3, 32, 32)}
SHAPES = {"linear": (5,), "logistic": (5,), "mlp": (5,), "mlp-ple": (5,), "lenet5": (1, 12, 13), "text": (2, 5), **WIDE}


EDGES = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.5, 2.0], [-0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [-2.0, 1.0, 1.5]])
"""Of two bins for each of five columns; one column has only one, and one has none."""


def make(name: str, shape: tuple[int, ...] = (3, 8, 8), classes: int = 4, **settings: object) -> Network:
    return build(ModelSpec(name, **settings), shape, classes, 0, EDGES)


def net_of(network: Network) -> Net:
    return Net(network, Layout.of(network, lambda name: False))


# -- the zoo -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "shape", "parameters"),
    [
        (ModelSpec("linear"), (30,), 31 * 10),
        (ModelSpec("logistic"), (1, 8, 8), 65 * 10),
        (ModelSpec(), (108,), 109 * 256 + 257 * 10),
        (ModelSpec("mlp", hidden=7, layers=4), (2, 3), 7 * 7 + 2 * 8 * 7 + 8 * 10),
        (ModelSpec("mlp", layers=1), (30,), 31 * 10),
        (ModelSpec("lenet5"), (1, 28, 28), 61_706),
        (ModelSpec("text", features=8, widths=(3, 4)), (2, 5), 9 * 3 + 3 + 4 * 4 + 5 * 10),
        (ModelSpec("cnn"), (1, 64, 64), 16 * 9 + 32 * 16 * 9 + 64 * 32 * 9 + 2 * (16 + 32 + 64) + 65 * 10),
        (ModelSpec("densenet121", norm="batch"), (3, 224, 224), 7_978_856 - 990 * 1025),  # published: 1000 classes
        (ModelSpec("resnet10", norm="batch"), (3, 32, 32), 4_903_242),
        (ModelSpec("resnet18", norm="batch"), (3, 32, 32), 11_173_962),
        (ModelSpec("resnet34", norm="batch"), (3, 32, 32), 21_282_122),
        (ModelSpec("resnet18"), (3, 32, 32), 11_173_962),
        (ModelSpec("vgg16"), (3, 32, 32), 14_724_042),
        (ModelSpec("vgg16", norm="batch"), (3, 64, 64), 14_724_042),
        (ModelSpec("firenet"), (3, 64, 64), 4_864 + 131_200 + 33_024 + 1025 * 4096 + 4097 * 4096 + 40_970),
        (ModelSpec("firenet"), (3, 224, 224), 4_864 + 131_200 + 33_024 + 12_545 * 4096 + 4097 * 4096 + 40_970),
    ],
)
def test_parameter_counts(spec: ModelSpec, shape: tuple[int, ...], parameters: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in build(spec, shape, 10, 0).parameters()) == parameters


@pytest.mark.parametrize("name", models())
def test_every_model_says_what_it_is_and_cuts_at_its_head(name: str) -> None:
    shape = SHAPES.get(name, (3, 8, 8))
    network = make(name, shape, features=9).eval()
    x = torch.rand(2, *shape)
    z = network(x, features=True)
    assert models()[name].about
    assert models()[name].takes
    assert z.shape == (2, network.head.in_features)
    assert network(x).shape == (2, 4)
    assert torch.equal(network(x), network.head(z))


def test_mlp_is_linear_layers_with_relu_between() -> None:
    network = make("mlp", (2, 3), hidden=7, layers=3)
    x = torch.randn(5, 2, 3)
    (a, b), (c, d) = ((m.weight, m.bias) for m in network.rep if isinstance(m, nn.Linear))
    z = ((x.reshape(5, 6) @ a.T + b).relu() @ c.T + d).relu()
    torch.testing.assert_close(network(x), z @ network.head.weight.T + network.head.bias)


def test_each_bin_of_a_column_is_a_number_that_rises_from_0_to_1_between_its_edges() -> None:
    network = make("mlp-ple", (5,), hidden=3)
    encode = network.rep[0]
    x = torch.tensor([[-0.25, 1.25, 0.0, 7.0, -5.0], [9.0, -9.0, 0.5, 0.0, 1.2]])
    expected = [[0.75, 0, 1, 0.5, 0.5, 0, 0], [1, 1, 0, 0, 1, 1, 0.4]]
    torch.testing.assert_close(encode(x), torch.tensor(expected, dtype=torch.float32))
    weight, bias = network.rep[1][0].weight, network.rep[1][0].bias
    torch.testing.assert_close(network(x, features=True), (encode(x) @ weight.T + bias).relu())


def test_bins_are_constants_that_are_neither_sent_nor_trained() -> None:
    network = make("mlp-ple", (5,), hidden=3)
    fields = Layout.of(network, lambda name: False).fields
    assert set(fields) == {"rep.1.0.weight", "rep.1.0.bias", "head.weight", "head.bias"}
    assert sum(field.shape.numel() for field in fields.values()) == 8 * 3 + 4 * 4


@pytest.mark.parametrize("edges", [torch.empty(0), EDGES[:4]])
def test_bins_must_be_those_of_the_columns(edges: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=f"needs the bins of 5 columns, learned from data; got {len(edges)}"):
        build(ModelSpec("mlp-ple"), (5,), 4, 0, edges)


def test_text_takes_sparse_rows_and_has_relu_between_its_linear_layers() -> None:
    network = make("text", (2, 4), features=6, widths=(3, 7, 5))
    rows = [{1: 2.0, 4: -1.0}, {0: 0.5, 2: 1.0, 5: 3.0}, {}]
    x = torch.tensor([[[1, 4, 6, 6], [2, -1, 0, 0]], [[0, 2, 5, 6], [0.5, 1, 3, 0]], [[6, 6, 6, 6], [0, 0, 0, 0]]])
    dense = torch.zeros(3, 6)
    for r, row in enumerate(rows):
        for feature, value in row.items():
            dense[r, feature] = value
    sparse, first, _, second = network.rep
    z = second((first(dense @ sparse.weight[:6] + sparse.bias)).relu())
    torch.testing.assert_close(network(x, features=True), z)
    network(x).sum().backward()
    assert (sparse.weight.grad[:6].abs().sum(1) > 0).tolist() == [True, True, True, False, True, True]
    assert not sparse.weight.grad[6].any()


def test_text_must_know_its_features() -> None:
    with pytest.raises(UsageError, match="set features"):
        make("text", (2, 4))
    with pytest.raises(UsageError, match=r"model\.widths"):
        ModelSpec("text", widths=(3, 0))


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 11, 5), (3, 32, 32)])
def test_resnet_halves_its_image_three_times(shape: tuple[int, int, int]) -> None:
    network = make("resnet10", shape)
    before_pooling = network.rep[:-2](torch.randn(2, *shape))
    assert before_pooling.shape == (2, 512, -(-shape[1] // 8), -(-shape[2] // 8))


def test_firenet_normalises_each_channel_by_its_ten_neighbours() -> None:
    layer = next(m for m in make("firenet").rep if isinstance(m, nn.LocalResponseNorm))
    x = 30 * torch.rand(2, 24, 1, 1, dtype=torch.float64)
    for c in range(24):
        near = x[:, max(0, c - 5) : c + 6].square().sum(1)
        torch.testing.assert_close(layer(x)[:, c], x[:, c] / (1 + 1e-4 * near) ** 0.75)


def test_vgg16_refuses_images_that_five_poolings_leave_nothing_of() -> None:
    with pytest.raises(UsageError, match="at least 32 x 32 pixels"):
        make("vgg16", (3, 31, 40))


def test_the_small_network_leaves_an_eighth_of_each_side() -> None:
    before_pooling = make("cnn", (1, 64, 40)).rep[:-2](torch.randn(2, 1, 64, 40))
    assert before_pooling.shape == (2, 64, 8, 5)
    assert make("cnn", (1, 8, 8))(torch.randn(2, 1, 8, 8)).shape == (2, 4)


def test_densenet_layers_see_all_that_was_before_them() -> None:
    network = make("densenet121", (3, 32, 32))
    block = network.rep[3]
    x = torch.randn(2, 64, 4, 4)
    after = block(x)
    assert after.shape[1] == 64 + 6 * 32
    assert torch.equal(after[:, :64], x)
    assert torch.equal(after[:, -32:], block[5](after[:, :-32]))
    assert network.rep[:-2](torch.randn(1, 3, 224, 224)).shape == (1, 1024, 7, 7)


@pytest.mark.parametrize(("name", "count"), [("cnn", 3), ("densenet121", 121)])
def test_norms_of_the_other_convolutional_networks_are_found_by_name(name: str, count: int) -> None:
    modules = dict(make(name, (3, 32, 32), norm="batch").named_modules())
    norms = {path for path, m in modules.items() if isinstance(m, nn.BatchNorm2d)}
    assert norms == {path for path in modules if path.endswith("norm")}
    assert len(norms) == count


@pytest.mark.parametrize(("norm", "kind"), [("group", nn.GroupNorm), ("batch", nn.BatchNorm2d)])
def test_norms_are_of_the_chosen_kind_and_found_by_name(norm: str, kind: type[nn.Module]) -> None:
    modules = dict(make("resnet18", norm=norm).named_modules())
    norms = {name for name, m in modules.items() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)}
    assert norms == {name for name in modules if name.endswith("norm")}
    assert len(norms) == 20
    assert all(isinstance(modules[name], kind) for name in norms)


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("mlp", "group"),
        ("mlp-ple", "group"),
        ("lenet5", "group"),
        ("cnn", "group"),
        ("cnn", "batch"),
        ("resnet10", "group"),
        ("resnet10", "batch"),
        ("densenet121", "group"),
    ],
)
def test_can_be_differentiated_twice(name: str, norm: str) -> None:
    shape = SHAPES.get(name, (3, 8, 8))
    net = net_of(make(name, shape, norm=norm))
    loss = cross_entropy(net(torch.randn(3, *shape)), torch.tensor([0, 2, 1]))
    curved = net.backward(net.gradient(loss).square().sum())
    assert torch.isfinite(curved).all()
    assert curved.abs().sum() > 0


def test_batch_norm_trains_in_the_row_and_ignores_its_integer_counter() -> None:
    network = make("resnet10", norm="batch")
    net = net_of(network)
    counters = [name for name, b in network.named_buffers() if not b.is_floating_point()]
    assert counters
    assert not set(counters) & set(net.layout.fields)
    before = net.row.clone()
    net.train(True)
    net(torch.randn(4, 3, 8, 8))
    moved = net.layout.tree(net.row != before)
    assert all(moved[name].all() for name in moved if name.endswith("running_mean"))
    assert not any(moved[name].any() for name, f in net.layout.fields.items() if f.trainable)
    # What the counter holds makes no difference to the answer or to the next update of the statistics.
    row, x, ends = net.row.clone(), torch.randn(4, 3, 8, 8), []
    for tracked in (0, 1000):
        net.load(row)
        for name in counters:
            network.get_buffer(name).fill_(tracked)
        ends.append((net(x).detach(), net.row.clone()))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert not torch.equal(ends[0][1], row)


@pytest.mark.parametrize("name", ["mlp", "mlp-ple", "lenet5", "resnet10"])
def test_first_weights_are_a_function_of_the_seed_alone(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        network = build(ModelSpec(name), SHAPES.get(name, (3, 8, 8)), 3, seed, EDGES)
        return torch.cat([p.detach().reshape(-1) for p in network.parameters()])

    torch.manual_seed(1)
    first = weights(7)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3)), "building a model disturbed the global generator"
    assert torch.equal(first, weights(7))
    assert not torch.equal(first, weights(8))


# -- what cannot be built ----------------------------------------------------------------------------------------------


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"unknown model 'resnet19'. Did you mean 'resnet1\d'.*package.module:function"
    ):
        make("resnet19")


@pytest.mark.parametrize("settings", [{"layers": 0}, {"hidden": 0}])
def test_an_mlp_needs_layers_and_width(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"model\.(layers|hidden) must be above 0"):
        make("mlp", **settings)


@pytest.mark.parametrize(
    ("name", "shape", "able"),
    [
        ("lenet5", (30,), "linear, logistic, mlp, mlp-ple$"),
        ("lenet5", (1, 11, 12), "linear, logistic, mlp, cnn, resnet10, resnet18, resnet34, firenet$"),
        ("lenet5", (28, 28), "linear, logistic, mlp$"),
        ("resnet18", (30,), "linear, logistic, mlp, mlp-ple$"),
    ],
)
def test_a_shape_that_does_not_fit_is_named_with_models_that_take_it(
    name: str, shape: tuple[int, ...], able: str
) -> None:
    with pytest.raises(UsageError, match=able) as caught:
        make(name, shape)
    assert f"{shape}" in str(caught.value)
    assert models()[name].takes in str(caught.value)


# -- the user's own ----------------------------------------------------------------------------------------------------

OWN = """
import torch
from torch import nn

from imperfed.core.network import Network

number = 3

def good(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, classes))

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4))

def keywords(**given):
    assert set(given) == {"shape", "classes"}
    return good(**given)

def cut(shape, classes):
    return Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU()), nn.Linear(6, classes))

class Reversed(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.head = nn.Linear(6, classes)
        self.body = nn.Linear(12, 6)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)))

def demanding(shape, classes, width):
    return good(shape, classes)

def nothing(shape, classes):
    return None

def narrow(shape, classes):
    return good(shape, classes - 1)

def pair(shape, classes):
    class Pair(nn.Linear):
        def forward(self, x):
            return x, x
    return Pair(12, classes)

def flat(shape, classes):
    return nn.Sequential(nn.Linear(12, classes))

def headless(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(), nn.AdaptiveAvgPool1d(classes))

def softmax(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, classes), nn.Softmax(-1))

def counting(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12, momentum=None), nn.Linear(12, classes))

def frozen(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, classes)).requires_grad_(False)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Network]]:
    (tmp_path / "ownmodels.py").write_text(OWN)
    (tmp_path / "brokenmodels.py").write_text("import nosuchlibrary\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ownmodels", raising=False)
    importlib.invalidate_caches()
    path = list(sys.path)
    yield lambda name: make(name, (3, 2, 2))
    assert sys.path == path, "the import path was left changed"


@pytest.mark.parametrize("function", ["good", "bare", "keywords", "cut"])
def test_own_models(own: Callable[[str], Network], function: str) -> None:
    network = own(f"ownmodels:{function}")
    assert network.training
    assert network.head.weight.shape == (4, 6)
    assert network.eval()(torch.zeros(5, 3, 2, 2), features=True).shape == (5, 6)
    again = own(f"ownmodels:{function}")
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuchmodule:good", "cannot import 'nosuchmodule'; run from the folder that holds it"),
        ("brokenmodels:good", "cannot import 'brokenmodels'.*nosuchlibrary"),
        (":good", "cannot import ''"),
        ("ownmodels:goood", r"unknown function in module 'ownmodels' 'goood'. Did you mean 'good'\?"),
        ("ownmodels:number", "unknown function in module 'ownmodels' 'number'"),
        ("ownmodels:demanding", "the function failed.*'width'"),
        ("ownmodels:nothing", "returned NoneType; it must return an nn.Module"),
        ("ownmodels:narrow", r"output of shape \[2, 3\]; it must be a tensor of shape \[2, 4\]"),
        ("ownmodels:pair", "output of type tuple"),
        ("ownmodels:flat", r"cannot take a batch of shape \[2, 3, 2, 2\]"),
        ("ownmodels:headless", r"return a Network\(rep, head\)"),
        ("ownmodels:softmax", "last linear layer is not its last operation; .*no softmax"),
        ("ownmodels:Reversed", "cannot be split before its last linear layer; "),
        ("ownmodels:frozen", "no parameter of it requires a gradient"),
        ("ownmodels:counting", "momentum=None in a normalisation layer is not supported"),
    ],
)
def test_own_models_that_do_not_work_say_why(own: Callable[[str], Network], name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        own(name)


# -- the documentation ------------------------------------------------------------------------------------------------

DOCS = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


def test_the_documentation_lists_every_model() -> None:
    listed = re.findall(r"^\| `([\w-]+)` \| .* \| .* \| .*\|$", DOCS, flags=re.MULTILINE)
    assert listed == list(models())
