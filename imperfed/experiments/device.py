"""The device on which a run computes, and its precision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from imperfed.core.errors import UsageError
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.backends.task_pool import cores
from imperfed.engine.engine import MakeBackend
from imperfed.engine.population import Population
from imperfed.experiments.config import RunConfig
from imperfed.experiments.values import gpus_of

# The most streams on which CUDA computes at once; it is read when a process first uses the GPU.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


_by_itself = False
_side_by_side = 1
"""How many processes like this one make runs on the cores of this machine."""


def share_cores(processes: int) -> None:
    """Let this process, one of so many on the CPU, start its part of the workers unless a run says how many."""
    global _side_by_side
    _side_by_side = processes


def take_own_part() -> None:
    """Let this process, one of several ranks, make whole runs by itself, on its own GPU or its part of the cores."""
    global _by_itself
    _by_itself = True


def is_by_itself() -> bool:
    """Return whether this process is one of several that each make whole runs."""
    return _by_itself


def on_own_cores(population: Population, on_duty: int, workers: int) -> ProcessBackend:
    """Return the backend of the CPU; without a number of workers, with one for each core of this process."""
    return ProcessBackend(population, on_duty, workers or max(1, cores() // _side_by_side))


def own_gpu(gpus: Sequence[int]) -> int:
    """Return the GPU of this rank; refuse more ranks on a machine than it has GPUs."""
    place = int(os.environ.get("LOCAL_RANK", "0"))
    if place >= len(gpus):
        raise UsageError(
            f"{os.environ['LOCAL_WORLD_SIZE']} ranks on a machine with {len(gpus)} GPUs; start one for each GPU "
            "(torchrun --nproc-per-node), or give --device cpu"
        )
    return gpus[place]


@dataclass(frozen=True)
class Hardware:
    """A device, the precision of products on it, whether networks are compiled, and whether runs are repeatable."""

    device: torch.device
    precision: str
    compiled: bool = False
    deterministic: bool = False
    gpus: tuple[int, ...] = ()
    """The GPUs that the settings name; with several, there is a rank for each."""

    @classmethod
    def of(cls, run: RunConfig) -> Hardware:
        """Return the hardware that the settings ask for; `auto` is a GPU if there is one, with TF32 products."""
        device, precision = run.device, run.precision
        has_gpu, gpus = torch.cuda.is_available(), gpus_of(device)
        if device.startswith("cuda") and not has_gpu:
            raise UsageError(f"device = {device}: this machine has no GPU that torch can use; set it to auto or cpu")
        if has_gpu and (missing := [gpu for gpu in gpus if gpu >= torch.cuda.device_count()]):
            raise UsageError(f"device = {device}: there is no GPU {missing[0]}; they are numbered from 0")
        on_gpu = has_gpu and device != "cpu"
        if on_gpu and _by_itself:
            gpus = (own_gpu(gpus or range(torch.cuda.device_count())),)
        if not on_gpu and (precision not in ("auto", "float32") or run.compile):
            raise UsageError("precision and compile are settings for a GPU, but this run is on the CPU; leave them out")
        chosen = "tf32" if precision == "auto" and on_gpu else precision.replace("auto", "float32")
        where = (
            torch.device("cuda", gpus[0] if gpus else torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        )
        return cls(where, chosen, run.compile, run.deterministic, gpus)

    def prepare(self) -> None:
        """Tell torch which products may be rounded; weights, sums and losses are always float32."""
        tf32 = self.precision != "float32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        # Benchmarking all kernels takes time, as compiling does, and another may be the fastest next time.
        torch.backends.cudnn.benchmark = self.compiled and not self.deterministic
        torch.backends.cudnn.benchmark_limit = 0
        torch.backends.cudnn.deterministic = self.deterministic

    @property
    def local_backend(self) -> MakeBackend:
        """The backend for this device in this process."""
        if self.device.type == "cpu":
            return on_own_cores
        from imperfed.engine.backends.cuda.capture import CudaCapturer
        from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend

        torch.cuda.set_device(self.device)  # not before: settings are looked at where nothing is computed, too
        recorder, compiled = CudaCapturer(self.device), self.compiled
        return lambda runtime, on_duty, workers: CudaGraphBackend(runtime, on_duty, recorder, compiled)

    def described(self) -> dict[str, str | bool]:
        """Return the description for a run's env.json."""
        if self.device.type == "cpu":
            return {"device": "cpu", "precision": self.precision}
        name = torch.cuda.get_device_name(self.device)
        modes: dict[str, str | bool] = {"compiled": self.compiled, "deterministic": self.deterministic}
        return {"device": f"cuda ({name})", "precision": self.precision} | modes
