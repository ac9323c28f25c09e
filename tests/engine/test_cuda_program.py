"""What is captured and what is not, with the program carried out step by step on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from imperfed.algorithms.cross_entropy import CROSS_ENTROPY
from imperfed.algorithms.fedcorr import CorrectedCE
from imperfed.algorithms.fedlsr import FedLSR
from imperfed.algorithms.fednag import FedNAG
from imperfed.algorithms.mime import Mime
from imperfed.algorithms.pfedmo import PFedMo
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Batch
from imperfed.core.labels import Exact
from imperfed.core.lazy import LazyRows
from imperfed.core.objective import Objective
from imperfed.engine.backends.cuda.capturable import counts_padding, draws
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.backends.cuda.program import block_size, depth
from imperfed.engine.engine import Engine
from imperfed.engine.failures import NotFinite
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.testing.toy import (
    LOCAL,
    Plain,
    Watched,
    differences,
    engine,
    everything,
    network,
    one_by_one,
    step_by_step,
    world,
)


class FunctionalDropout(nn.Module):
    """A user's layer that draws its masks from torch's own generator."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, 0.5, self.training)


class OwnDropout(nn.Dropout):
    """A user's layer that torch's does not stand for."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Folded(nn.Module):
    """Rows as half as many, each twice as long: what a layer inside it is given are no longer the rows of a batch."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.view(len(x) * 2, -1)).view_as(x)
        return out


class Reminded(Plain):
    """An objective whose loss depends on what it remembers of an example."""

    name = "reminded"

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, out = super().loss(net, batch)
        return values * (1 + batch.rows["p"].square().sum(1)), out


class Noisy(Plain):
    """An objective that draws random numbers from torch's own generator."""

    name = "noisy"

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        values, out = super().loss(net, batch)
        return values * torch.rand(()), out


@dataclass(frozen=True)
class Held:
    """Rows in memory that are read as if they were elsewhere."""

    x: Tensor
    name: str = "held"
    identity: str = "held"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def read(self, rows: Tensor) -> Tensor:
        return self.x[rows]


def program_and_loop(
    *layers: nn.Module, algorithm: Algorithm | None = None, objective: Plain | None = None, **settings: Any
) -> tuple[Watched, Watched]:
    graphs, loop = (
        engine(
            algorithm or Algorithm(),
            objective or Plain(),
            world(Exact),
            net=network(*layers),
            make_backend=make_backend,
            **settings,
        ).go()
        for make_backend in (step_by_step, one_by_one)
    )
    return graphs, loop


DRAWN = "draws random numbers of its own"
BY_ITSELF = (
    f"the network or its loss {DRAWN}, such as by torch.nn.functional.dropout; nn.Dropout as a layer is captured"
)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.RReLU(), f"RReLU {DRAWN}, unlike nn.Dropout"),
        (nn.AlphaDropout(0.5), f"AlphaDropout {DRAWN}, unlike nn.Dropout"),
        (OwnDropout(0.5), f"OwnDropout {DRAWN}, unlike nn.Dropout"),
        (FunctionalDropout(), BY_ITSELF),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_network_that_draws_random_numbers_of_its_own_is_not_captured(layer: nn.Module, why: str) -> None:
    graphs, loop = program_and_loop(layer)
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert graphs.backend.not_captured == why
    assert not graphs.backend.programs
    assert not differences(everything(graphs), everything(loop))


def test_a_loss_that_draws_random_numbers_is_not_captured() -> None:
    graphs, loop = program_and_loop(objective=Noisy())
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert graphs.backend.not_captured == BY_ITSELF
    assert not differences(everything(graphs), everything(loop))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_layers_with_dropout_inside_are_known(share: float) -> None:
    layers = [
        nn.LSTM(4, 4, num_layers=2, dropout=share),
        nn.GRU(4, 4, num_layers=2, dropout=share),
        nn.MultiheadAttention(4, 2, dropout=share),
    ]
    assert [draws(layer) for layer in layers] == [share > 0] * 3


SEVERAL = replace(LOCAL, epochs=2)
"""Sites with more and fewer steps."""


@pytest.mark.parametrize("local", [LOCAL, SEVERAL], ids=["steps", "epochs"])
@pytest.mark.parametrize(
    "layers",
    [
        (nn.Dropout(0.5),),
        (nn.Dropout(0.2), nn.Linear(8, 8), nn.Dropout(0.2)),
        (nn.Unflatten(1, (4, 2)), nn.Dropout1d(0.4), nn.Flatten()),
        (nn.BatchNorm1d(8),),
        (nn.BatchNorm1d(8, affine=False, momentum=0.3), nn.Dropout(0.2)),
        (nn.BatchNorm1d(8, track_running_stats=False),),
        (nn.Unflatten(1, (2, 2, 2)), nn.BatchNorm2d(2), nn.Dropout2d(0.3), nn.Flatten()),
    ],
    ids=["dropout", "two", "channels", "norm", "no affine", "no buffers", "images"],
)
def test_dropout_and_batch_normalisation_are_captured(layers: tuple[nn.Module, ...], local: Any) -> None:
    """The batches here are padded: 12, 20, 31 and 26 rows in batches of 8."""
    graphs, loop = program_and_loop(*layers, local=local)
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert graphs.backend.not_captured is None
    assert graphs.backend.programs
    assert not differences(everything(graphs), everything(loop), 1e-5)
    other, _ = program_and_loop(*layers, local=local, seed=1)
    assert differences(everything(graphs), everything(other), 1e-3)


def test_a_step_with_two_passes_has_the_masks_of_the_loop() -> None:
    graphs, loop = program_and_loop(nn.Dropout(0.5), algorithm=Mime())
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert graphs.backend.programs
    assert not differences(everything(graphs), everything(loop), 1e-5)


COUNTED = "would count the rows that pad a batch to 8"


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.InstanceNorm1d(4, track_running_stats=True), f"InstanceNorm1d {COUNTED}"),
        (
            nn.BatchNorm1d(8, momentum=None),
            f"nn.BatchNorm with momentum=None {COUNTED}",
        ),
        (Folded(nn.BatchNorm1d(4)), "batch normalisation is given 16 rows in a step of 8"),
    ],
    ids=["instance", "cumulative", "folded"],
)
def test_other_statistics_of_padded_batches_are_not_captured(layer: nn.Module, why: str) -> None:
    layers = (nn.Unflatten(1, (4, 2)), layer, nn.Flatten()) if "Instance" in why else (layer,)
    graphs, loop = program_and_loop(*layers)
    assert isinstance(graphs.backend, CudaGraphBackend)
    assert why in (graphs.backend.not_captured or "")
    assert not differences(everything(graphs), everything(loop))


def test_layers_without_statistics_over_rows_are_known() -> None:
    assert not any(map(counts_padding, (nn.InstanceNorm1d(8), nn.GroupNorm(2, 8), nn.LayerNorm(8))))


# -- the server's own steps --------------------------------------------------------------------------------------------

UNEVEN = replace(SEVERAL, batch=7)
AT_SERVER = [PFedMo(), PFedMo(representation="restart", reading="mix"), FedNAG(public_weight=0.3)]


@pytest.mark.parametrize("layers", [(), (nn.BatchNorm1d(8), nn.Dropout(0.3))], ids=["plain", "layers"])
@pytest.mark.parametrize(
    "local", [replace(SEVERAL, batch=7), replace(LOCAL, schedule="cosine")], ids=["epochs", "cosine"]
)
@pytest.mark.parametrize("algorithm", AT_SERVER, ids=lambda a: a.name)
def test_the_servers_steps_are_captured(algorithm: Algorithm, local: Any, layers: tuple[nn.Module, ...]) -> None:
    """24 rows of the server's, in padded batches where there are 7 rows in one."""
    graphs, loop = program_and_loop(*layers, algorithm=algorithm, local=local, rounds=3)
    backend = graphs.backend
    assert isinstance(backend, CudaGraphBackend)
    assert backend.server_steps is not None
    assert backend.server_steps.not_captured is None
    assert backend.server_steps.program is not None
    notes = [note for report in graphs.reports for note in report.notes]
    assert notes.count("the server's local steps are one captured graph") == 1
    assert not differences(everything(graphs), everything(loop), 1e-5)


def test_a_server_whose_steps_cannot_be_captured_makes_them_in_the_loop() -> None:
    graphs, loop = program_and_loop(nn.RReLU(), algorithm=PFedMo(), rounds=3)
    notes = [note for report in graphs.reports for note in report.notes]
    why = f"RReLU {DRAWN}, unlike nn.Dropout"
    assert notes.count(f"the server's local steps run one by one, not as one captured graph: {why}") == 1
    assert not differences(everything(graphs), everything(loop))


def test_lazy_inputs_are_read_in_the_loop() -> None:
    federation, oracle = world(Exact)
    lazy = replace(federation, x=LazyRows.of(Held(federation.x)))
    graphs = engine(Algorithm(), Plain(), (lazy, oracle), make_backend=step_by_step).go()
    loop = engine(Algorithm(), Plain(), (federation, oracle), make_backend=one_by_one).go()
    notes = [note for report in graphs.reports for note in report.notes]
    assert [note for note in notes if "one by one, not as one captured graph: its inputs are read when a batch" in note]
    assert not differences(everything(graphs), everything(loop))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or none in CUDA_VISIBLE_DEVICES")
def test_lazy_inputs_end_on_a_gpu_as_those_in_its_memory_do() -> None:
    federation, oracle = world(Exact)
    device, local = torch.device("cuda", 0), LOCAL
    ends = []
    for x in (federation.x, LazyRows.of(Held(federation.x))):
        data = replace(federation, x=x)
        run = Engine(
            Algorithm(), Plain(), network(), data, Evaluator(oracle), local, Rounds(2), 0, None, one_by_one, device
        )
        run.run(lambda report: None, lambda: False, None)
        ends.append(everything(run))
    assert not differences(*ends)


def test_every_round_of_the_server_starts_from_fresh_memory_of_its_rows() -> None:
    graphs, loop = program_and_loop(algorithm=PFedMo(), objective=Reminded(), rounds=3)
    assert not differences(everything(graphs), everything(loop), 1e-5)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_round_in_several_blocks_is_that_of_the_loop(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps and fewer, with random numbers of the method and of a layer: every block has its own part of them."""
    monkeypatch.setattr("imperfed.engine.backends.cuda.program.block_size", lambda steps, sites, depth: size)
    local = replace(LOCAL, epochs=1, batch=7)  # 2, 3, 5 and 4 steps
    parts: dict[str, Any] = {"algorithm": FedLSR(), "objective": CROSS_ENTROPY, "local": local}
    graphs, loop = program_and_loop(nn.Dropout(0.3), **parts)
    assert not differences(everything(graphs), everything(loop), 1e-5)
    assert [report.losses for report in graphs.reports] == [
        pytest.approx(report.losses, abs=1e-5) for report in loop.reports
    ]


@pytest.mark.parametrize("objective", [CROSS_ENTROPY, CorrectedCE()], ids=lambda objective: objective.name)
def test_a_site_whose_weights_are_not_finite_fails_alone(objective: Objective) -> None:
    """Also where nothing is remembered about its rows, or whole numbers, which are always finite."""
    data = world(Exact)
    x = data[0].x.clone()
    x[12:32] = torch.inf  # site 1
    e = engine(Algorithm(), objective, (replace(data[0], x=x), data[1]), make_backend=step_by_step, rounds=1).go()
    assert {k: type(failure) for k, failure in e.reports[0].failures.items()} == {1: NotFinite}
    assert e.state.server["w"].isfinite().all()


def test_the_deeper_a_network_the_fewer_steps_are_in_one_graph() -> None:
    shallow, deep = (nn.Sequential(*(nn.Linear(2, 2) for _ in range(count))) for count in (5, 400))
    assert (depth(shallow), depth(deep)) == (5, 400)
    assert block_size(steps=100, sites=4, depth=depth(shallow)) == 100
    assert block_size(steps=100, sites=4, depth=depth(deep)) == 5  # 400 layers x 5 steps x 4 sites
    assert block_size(steps=100, sites=100, depth=depth(deep)) == 1
