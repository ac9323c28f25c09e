"""The device on which a run computes, and its precision."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from imperfed.core.errors import UsageError
from imperfed.engine.backends.process import ProcessBackend
from imperfed.engine.engine import MakeBackend
from imperfed.experiments.config import RunConfig

# The most streams on which CUDA computes at once; it is read when a process first uses the GPU.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


@dataclass(frozen=True)
class Hardware:
    """A device, the precision of products on it, whether networks are compiled, and whether runs are repeatable."""

    device: torch.device
    precision: str
    compiled: bool = False
    deterministic: bool = False

    @classmethod
    def of(cls, run: RunConfig) -> Hardware:
        """Return the hardware that the settings ask for; `auto` is a GPU if there is one, with TF32 products."""
        device, precision = run.device, run.precision
        has_gpu = torch.cuda.is_available()
        if device == "cuda" and not has_gpu:
            raise UsageError("device = cuda: this machine has no GPU that torch can use; set it to auto or cpu")
        on_gpu = has_gpu and device != "cpu"
        if not on_gpu and (precision not in ("auto", "float32") or run.compile):
            raise UsageError("precision and compile are settings for a GPU, but this run is on the CPU; leave them out")
        chosen = "tf32" if precision == "auto" and on_gpu else precision.replace("auto", "float32")
        where = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        return cls(where, chosen, run.compile, run.deterministic)

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
    def make_backend(self) -> MakeBackend:
        """The backend for this device."""
        if self.device.type == "cpu":
            return ProcessBackend
        from imperfed.engine.backends.cuda.capture import CudaCapturer
        from imperfed.engine.backends.cuda.graph_backend import CudaGraphBackend

        recorder, compiled = CudaCapturer(self.device), self.compiled
        return lambda runtime, on_duty, workers: CudaGraphBackend(runtime, on_duty, recorder, compiled)

    def described(self) -> dict[str, str | bool]:
        """Return the description for a run's env.json."""
        if self.device.type == "cpu":
            return {"device": "cpu", "precision": self.precision}
        name = torch.cuda.get_device_name(self.device)
        modes: dict[str, str | bool] = {"compiled": self.compiled, "deterministic": self.deterministic}
        return {"device": f"cuda ({name})", "precision": self.precision} | modes
