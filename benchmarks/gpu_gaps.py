"""What came to the GPU after the table of speeds: the server's steps, dropout, padded batches, repairs, one rank."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from imperfed.algorithms.fedavg import FedAvg
from imperfed.algorithms.pfedmo import PFedMo
from imperfed.algorithms.pfedpll import PFedPLL
from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Repair
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Candidates, Exact
from imperfed.core.network import Network
from imperfed.data.oracle import Oracle
from imperfed.engine.backends.cuda.capture import CudaCapturer
from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend
from imperfed.engine.conversation import CPU, repair_labels
from imperfed.engine.engine import Engine, MakeBackend
from imperfed.engine.local_training import Local
from imperfed.engine.schedule import Rounds
from imperfed.evaluation.evaluator import Evaluator
from imperfed.experiments.device import Hardware
from imperfed.models import ModelSpec, build
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.testing.cases import cases_of
from imperfed.testing.toy import one_by_one

ROOT = Path(__file__).resolve().parents[1]
GPU = torch.device("cuda", 0)
CLASSES = 10


@dataclass(frozen=True)
class Gap:
    """A method and a network, on made-up rows."""

    method: Algorithm
    net: Callable[[], Network]
    shape: tuple[int, ...]
    sites: int
    rows: int
    local: Local
    trusted: int = 0
    public: int = 0

    def federation(self, labels: type[Candidates] | type[Exact]) -> Federation:
        """Draw rows, labels, and the rows that the server holds."""
        draw = torch.Generator().manual_seed(0)
        n = self.sites * self.rows
        x, y = torch.randn(n, *self.shape, generator=draw), torch.randint(CLASSES, (n,), generator=draw)
        own = torch.randn(self.trusted, *self.shape, generator=draw)
        right = torch.randint(CLASSES, (self.trusted,), generator=draw)
        given: Candidates | Exact = Exact(y, CLASSES)
        if labels is Candidates:
            also = torch.rand(n, CLASSES, generator=draw) < 0.3
            given = Candidates(also | nn.functional.one_hot(y, CLASSES).bool(), CLASSES)
        return Federation(
            "made up",
            x,
            given,
            tuple(range(0, n + 1, self.rows)),
            tuple(f"site {k}" for k in range(self.sites)),
            tuple(map(str, range(CLASSES))),
            tuple(map(str, range(n))),
            torch.randn(self.public, *self.shape, generator=draw),
            trusted=Trusted(own, Exact(right, CLASSES)) if self.trusted else None,
        )

    def engine(self, make_backend: MakeBackend) -> Engine:
        """Return a run that is ready for its first round."""
        case = cases_of(self.method)[0]
        federation, how = self.federation(Candidates if case.kind is Candidates else Exact), Rounds()
        return Engine(
            case.algorithm,
            case.objective,
            self.net(),
            federation,
            Evaluator(Oracle(None, (), ())),
            self.local,
            how,
            0,
            None,
            make_backend,
            GPU,
        )


def with_dropout() -> Network:
    body = nn.Sequential(nn.Linear(108, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 256), nn.ReLU(), nn.Dropout())
    return Network(body, nn.Linear(256, CLASSES))


def lenet() -> Network:
    return build(ModelSpec("lenet5"), (1, 28, 28), CLASSES, 0)


def batch_norm() -> Network:
    return build(ModelSpec("resnet18", norm="batch"), (3, 32, 32), CLASSES, 0)


GAPS = {
    "the server's steps: pFedMo, LeNet-5, K = 4, batch 64, 40 steps": Gap(
        PFedMo(), lenet, (1, 28, 28), 4, 2560, Local(steps=40, batch=64, momentum=0.0), trusted=2560
    ),
    "the KL score: pFedPLL, LeNet-5, K = 4, batch 256, 40 steps": Gap(
        PFedPLL(), lenet, (1, 28, 28), 4, 10240, Local(steps=40, batch=256), public=10000
    ),
    "the same without the score": Gap(
        PFedPLL(kl=False), lenet, (1, 28, 28), 4, 10240, Local(steps=40, batch=256), public=10000
    ),
    "dropout: MLP 108-256-256-10, K = 10, batch 32, 40 steps": Gap(
        FedAvg(), with_dropout, (108,), 10, 1280, Local(steps=40, batch=32)
    ),
    "padded batches under batch normalisation: ResNet-18, K = 4, batch 256, sites of 1,000 rows": Gap(
        FedAvg(), batch_norm, (3, 32, 32), 4, 1000, Local(epochs=1, batch=256)
    ),
}


def gaps() -> Iterator[dict[str, Any]]:
    """Time the loop on the GPU and the captured graph, in turn; the first round of each is not counted."""
    Hardware(GPU, "tf32").prepare()
    for name, gap in GAPS.items():
        graph = gap.engine(
            lambda population, on_duty, workers: CudaGraphBackend(population, on_duty, CudaCapturer(GPU))
        )
        both = {"loop": gap.engine(one_by_one), "graph": graph}
        times: dict[str, list[float]] = {way: [] for way in both}
        for t in range(7):
            for way, engine in both.items():
                torch.cuda.synchronize()
                begun = time.perf_counter()
                engine.round(t)
                torch.cuda.synchronize()
                times[way].append(time.perf_counter() - begun)
        row: dict[str, Any] = {"work": name} | {way: statistics.median(each[1:]) for way, each in times.items()}
        assert isinstance(graph.backend, CudaGraphBackend)
        yield row | {"why": graph.backend.not_captured}
        for engine in both.values():
            engine.close()
        torch.cuda.empty_cache()


REPAIRS: dict[str, tuple[Repair, int]] = {
    "posterior repair, 500 clean rows": (PosteriorRepair(features="raw"), 500),
    "posterior repair, no clean rows": (PosteriorRepair(features="raw", insist=True), 0),
    "FB-NLL, 500 clean rows": (FBNLL(features="raw"), 500),
}


def noisy_rows(clean: int) -> Federation:
    """Draw 20 sites of 1,000 rows of 1,280 features, a fifth of whose labels are wrong."""
    gap = Gap(FedAvg(), lenet, (1280,), 20, 1000, Local(), trusted=clean)
    drawn, draw = gap.federation(Exact), torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, 1280, generator=draw) / 8
    y = drawn.labels.values
    wrong = torch.rand(len(y), generator=draw) < 0.2
    given = torch.where(wrong, (y + 1) % CLASSES, y)
    trusted = drawn.trusted and replace(drawn.trusted, x=drawn.trusted.x + centres[drawn.trusted.labels.values])
    return replace(drawn, x=drawn.x + centres[y], labels=Exact(given, CLASSES), trusted=trusted)


def repair_seconds() -> Iterator[dict[str, Any]]:
    """Time repairs of 20,000 rows on the GPU and on the host's processor; the first on the GPU is not counted."""
    for name, (repair, clean) in REPAIRS.items():
        federation, took = noisy_rows(clean), dict[str, float]()
        for where, device in (("start", GPU), ("gpu", GPU), ("cpu", CPU)):
            begun = time.perf_counter()
            repair_labels(repair, federation, device=device)
            took[where] = time.perf_counter() - begun
        yield {"repair": name} | took


RANK = ("pfedpll", "--data", "digits", "-s", "rounds.rounds=400", "-s", "rounds.evaluate_every=100")
FIXED = ("-s", "deterministic=true", "--device", "cuda")
PROGRAMS = {
    "plain": [sys.executable, "-m", "imperfed"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "imperfed"],
}


def one_rank() -> Iterator[dict[str, Any]]:
    """Run the same command with and without torchrun, three times in turn; compare every weight, and the seconds."""
    seconds: dict[str, list[float]] = {way: [] for way in PROGRAMS}
    ends = []
    with TemporaryDirectory() as out:
        for repetition in range(3):
            for way, program in PROGRAMS.items():
                folder = Path(out, f"{way}-{repetition}")
                words = [*program, "run", *RANK, *FIXED, "--out", str(folder)]
                subprocess.run(words, check=True, cwd=ROOT, capture_output=True)
                (run,) = folder.iterdir()
                seconds[way].append(json.loads((run / "summary.json").read_text())["seconds"])
                models = sorted((run / "models").glob("*.safetensors"))
                ends.append([load_file(model) for model in models])
    same = all(
        torch.equal(model[name], other[name])
        for end in ends
        for model, other in zip(end, ends[0], strict=True)
        for name in model
    )
    yield {"command": " ".join((*RANK, *FIXED)), "seconds": seconds, "models": len(ends[0]), "equal": same}
