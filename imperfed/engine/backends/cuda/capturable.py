"""Whether the local steps of a run can be captured."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from imperfed.core.lazy import LazyRows
from imperfed.core.step_layers import MaskedNorm, StepLayer
from imperfed.engine.population import Population


class NotCapturable(Exception):
    """A local step that cannot be captured, and why."""


def obstacle(population: Population) -> str | None:
    """Return why the local steps of a run cannot be captured, as far as that is known without trying."""
    if isinstance(population.federation.x, LazyRows):
        return "its inputs are read when a batch needs them, and a graph finds them in the GPU's memory"
    modules = list(population.runtime.net.module.modules())
    if drawing := next((m for m in modules if draws(m)), None):
        return f"{type(drawing).__name__} draws random numbers of its own, unlike nn.Dropout"
    if not padded(population):
        return None
    norm = next((m for m in modules if counts_padding(m)), None)
    if norm is None:
        return None
    kind = "nn.BatchNorm with momentum=None" if isinstance(norm, MaskedNorm) else type(norm).__name__
    batch = population.spec.local.batch
    return f"{kind} would count the rows that pad a batch to {batch}, unlike nn.BatchNorm with a momentum"


def padded(population: Population) -> bool:
    """Return whether some batch has fewer rows than the largest."""
    return any(n % population.spec.local.batch for n in population.sizes)


def draws(layer: nn.Module) -> bool:
    """Return whether a layer is known to draw random numbers in training that do not follow from the plan."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU) and not isinstance(layer, StepLayer)


def counts_padding(layer: nn.Module) -> bool:
    """Return whether a layer takes statistics of all rows of a batch, and not of the real ones alone."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return not isinstance(layer, StepLayer) or layer.momentum is None  # a mean over all steps needs their number
    return isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats


def generators(device: torch.device) -> list[Tensor]:
    """Return the states of torch's own generators, whose numbers a captured step would repeat."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
