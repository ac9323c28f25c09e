import pytest
import torch
from torch.nn.functional import normalize

from imperfed.algorithms.fedavg_fixed import FedAvgFixed
from imperfed.algorithms.positive_hinge import PositiveHinge
from imperfed.core.errors import UsageError
from imperfed.core.labels import Positive
from imperfed.core.network import Layout, Net, Network
from imperfed.engine.local_training import Local
from imperfed.nn.embeddings import ClassMatrix
from imperfed.testing.toy import engine, network, world
from tests.support.transcription import batch, near, tiny_net

W = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=torch.float64)


def net(W: torch.Tensor) -> Net:
    """A network whose representation is its input."""
    network = Network(torch.nn.Identity(), ClassMatrix(2, 3))
    network.head.weight.data = W.clone()
    return Net(network, Layout.of(network, lambda name: False))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_the_printed_losses(scale: float):
    x = torch.tensor([[0.6, 0.8]] * 3, dtype=torch.float64) * scale
    loss, _ = PositiveHinge().loss(net(W * scale), batch(Positive(torch.arange(3), 3), x=x))
    near(loss, [0.09, 0.0, 0.01])


def test_the_printed_gradient_goes_through_the_normalisation():
    n = net(torch.tensor([[2.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=torch.float64))
    x = torch.tensor([[1.2, 1.6]], dtype=torch.float64)
    loss, _ = PositiveHinge().loss(n, batch(Positive(torch.tensor([0]), 3), x=x))
    near(n.backward(loss.sum()).view(3, 2), [[0, -0.24], [0, 0], [0, 0]])


def test_it_is_the_networks_own_score():
    torch.manual_seed(0)
    n = tiny_net(FedAvgFixed())
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 1, 0])
    loss, _ = PositiveHinge(threshold=2.0).loss(n, batch(Positive(y, 4), x=x))
    torch.testing.assert_close(loss, (2.0 - n(x).gather(1, y[:, None]).squeeze(1)) ** 2)
    torch.testing.assert_close(n(x), normalize(n.features(x)) @ normalize(n.module.head.weight).T)


def test_one_pass_refuses_what_it_would_leave_undone():
    method = FedAvgFixed(one_pass=True)
    with pytest.raises(UsageError, match="running statistics of normalisation layers are never learned"):
        engine(method, method.objective, world(Positive), net=network(torch.nn.BatchNorm1d(8)))
    with pytest.raises(UsageError, match=r"local\.weight_decay acts in local steps, and here fedavg-fixed makes none"):
        engine(method, method.objective, world(Positive), Local(weight_decay=0.1))
