"""Where a run computes, and how exactly."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from imperfed.core.errors import UsageError
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.engine import MakeBackend
from imperfed.experiments.config import RunConfig

# CUDA computes on at most so many streams at once; it reads the variable when a process first uses the GPU.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


@dataclass(frozen=True)
class Hardware:
    """A device, the precision of products on it, whether networks are compiled, and whether a run can be repeated."""

    device: torch.device
    precision: str
    compiled: bool = False
    deterministic: bool = False

    @classmethod
    def of(cls, run: RunConfig) -> Hardware:
        """From the settings; `auto` is a GPU where there is one, and there products in TF32."""
        device, precision = run.device, run.precision
        there = torch.cuda.is_available()
        if device == "cuda" and not there:
            raise UsageError("device = cuda: this machine has no GPU that torch can use; leave it at auto, or cpu")
        on_gpu = there and device != "cpu"
        if not on_gpu and (precision not in ("auto", "float32") or run.compile):
            raise UsageError("precision and compile are settings of a GPU, and this run is on the CPU; leave them out")
        chosen = "tf32" if precision == "auto" and on_gpu else precision.replace("auto", "float32")
        where = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        return cls(where, chosen, run.compile, run.deterministic)

    def prepare(self) -> None:
        """Tell torch which products may be rounded; weights, sums and losses are float32 in any case."""
        tf32 = self.precision != "float32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        # Trying all kernels out takes time, as compiling does; and the next time another may be the fastest.
        torch.backends.cudnn.benchmark = self.compiled and not self.deterministic
        torch.backends.cudnn.benchmark_limit = 0
        torch.backends.cudnn.deterministic = self.deterministic

    @property
    def make_backend(self) -> MakeBackend:
        """Who answers for the sites here."""
        if self.device.type == "cpu":
            return ProcessBackend
        from imperfed.engine.backends.cuda.capture import CudaCapturer
        from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend

        recorder, compiled = CudaCapturer(self.device), self.compiled
        return lambda runtime, on_duty, workers: CudaGraphBackend(runtime, on_duty, recorder, compiled)

    def described(self) -> dict[str, str | bool]:
        """For a run's env.json."""
        if self.device.type == "cpu":
            return {"device": "cpu", "precision": self.precision}
        name = torch.cuda.get_device_name(self.device)
        how: dict[str, str | bool] = {"compiled": self.compiled, "deterministic": self.deterministic}
        return {"device": f"cuda ({name})", "precision": self.precision} | how
