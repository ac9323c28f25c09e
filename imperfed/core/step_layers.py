"""Layers that must know which local step they are in: dropout, and normalisation over the rows of a batch.

Where the engine makes local steps it passes them two things. The key of the step: dropout masks follow from it and from
the place of a number in its batch alone, so that the loop and a captured program draw the same masks on any device,
with padding or without. And which rows of a batch are real, where others only pad it: statistics are those of the real
rows. Outside local steps these layers are torch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

BITS = 24
"""The bits of a drawn number that are compared with the probability."""
STAGES = ((16, 0x7FEB352D), (15, 0x846CA68B - (1 << 32)))
"""Shifts and factors of Wellons' 32-bit hash "lowbias32", the factors as signed numbers."""
LAST_SHIFT = 16
PER_LAYER, PER_PASS = 0x3C6EF372, 0x1B873593
"""What is added to a key for every further layer, and for every further pass through a layer in the same step."""
OTHER_DRAWS = 0x6C6179657273
"""Keeps keys apart from whatever else is drawn from the same seed."""


def step_keys(seed: int, steps: int) -> Tensor:
    """Return the keys of so many steps, int32 [steps, 2]."""
    draw = torch.Generator().manual_seed(seed ^ OTHER_DRAWS)
    return torch.randint(-(1 << 31), 1 << 31, (steps, 2), generator=draw).to(torch.int32)


def drawn(key: Tensor, salt: int, shape: Sequence[int]) -> Tensor:
    """Return numbers from 0 to 2^24 - 1 that follow from a key, a salt and the place of each number."""
    salt = (salt + (1 << 31)) % (1 << 32) - (1 << 31)  # as a signed number
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.int32, device=key.device) + (key[0] + salt)
    (by, factor), (then_by, then_factor) = STAGES
    x = (folded(x, by) * factor) ^ key[1]
    x = folded(x, then_by) * then_factor
    return (folded(x, LAST_SHIFT) & ((1 << BITS) - 1)).view(tuple(shape))


def folded(x: Tensor, by: int) -> Tensor:
    """Return numbers with their upper bits folded into the lower ones; the shift brings in zeros."""
    return x ^ ((x >> by) & ((1 << 32 - by) - 1))


class StepLayer(nn.Module):
    """What the layers here know of the step they are in, and nothing outside of local steps."""

    key: Tensor | None = None
    real: Tensor | None = None
    """1 on the rows of the batch that are real, 0 on others; None: all are."""
    first, salt = 0, 0
    """The salt of the step's first pass through the layer, and of the next."""

    def enter(self, key: Tensor | None, real: Tensor | None) -> None:
        """Begin a step, or with no key leave it."""
        self.key, self.real, self.salt = key, real, self.first


class PlannedMask(StepLayer):
    """Dropout whose mask in a local step follows from the step's key."""

    p: float
    channels_of: ClassVar[int | None] = None
    """The number of dimensions of the inputs whose channels are dropped as a whole; None: every number by itself."""

    def forward(self, x: Tensor) -> Tensor:
        if self.key is None or not self.training or self.channels_of not in (None, x.ndim):
            out: Tensor = super().forward(x)
            return out
        shape = x.shape if self.channels_of is None else (*x.shape[:2], *[1] * (x.ndim - 2))
        kept = drawn(self.key, self.salt, shape) >= round(self.p * (1 << BITS))
        self.salt += PER_PASS
        return x * (kept.to(x.dtype) / (1 - self.p) if self.p < 1 else 0.0)


class MaskedNorm(StepLayer):
    """Batch normalisation whose statistics are those of the real rows."""

    eps: float
    momentum: float | None
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        of_batch = self.training or self.running_mean is None
        if self.real is None or not of_batch:
            out: Tensor = super().forward(x)
            return out
        if len(x) != len(self.real):
            raise ValueError(
                f"batch normalisation is given {len(x)} rows in a step of {len(self.real)}, so that it is not known "
                "which of them only pad the batch"
            )
        over, beside = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
        real = self.real.view(-1, *[1] * (x.ndim - 1))
        count = self.real.sum() * x[0, 0].numel()
        numbers = x.float()
        mean = (numbers * real).sum(over) / count
        away = numbers - mean.view(beside)
        variance = (away.square() * real).sum(over) / count
        if self.training and self.running_mean is not None and self.running_var is not None:
            assert self.momentum is not None
            with torch.no_grad():
                self.running_mean.lerp_(mean.detach(), self.momentum)
                self.running_var.lerp_(variance.detach() * count / (count - 1), self.momentum)
        normal = away * torch.rsqrt(variance + self.eps).view(beside)
        if self.weight is not None and self.bias is not None:
            normal = normal * self.weight.view(beside) + self.bias.view(beside)
        return normal.to(x.dtype)


class StepDropout(PlannedMask, nn.Dropout):
    """Dropout of single numbers."""


class StepDropout1d(PlannedMask, nn.Dropout1d):
    """Dropout of the channels of sequences."""

    channels_of = 3


class StepDropout2d(PlannedMask, nn.Dropout2d):
    """Dropout of the channels of images."""

    channels_of = 4


class StepDropout3d(PlannedMask, nn.Dropout3d):
    """Dropout of the channels of volumes."""

    channels_of = 5


class StepBatchNorm1d(MaskedNorm, nn.BatchNorm1d):  # type: ignore[misc]  # the buffers are declared on both sides
    """Batch normalisation of rows or sequences."""


class StepBatchNorm2d(MaskedNorm, nn.BatchNorm2d):  # type: ignore[misc]
    """Batch normalisation of images."""


class StepBatchNorm3d(MaskedNorm, nn.BatchNorm3d):  # type: ignore[misc]
    """Batch normalisation of volumes."""


IN_STEPS: dict[type[nn.Module], type[StepLayer]] = {
    nn.Dropout: StepDropout,
    nn.Dropout1d: StepDropout1d,
    nn.Dropout2d: StepDropout2d,
    nn.Dropout3d: StepDropout3d,
    nn.BatchNorm1d: StepBatchNorm1d,
    nn.BatchNorm2d: StepBatchNorm2d,
    nn.BatchNorm3d: StepBatchNorm3d,
}
"""What replaces torch's layers of exactly these types: a subclass may compute something else."""


def step_layers(network: nn.Module) -> list[StepLayer]:
    """Make those layers of a network that depend on the local step know it, and return them."""
    for module in network.modules():
        if type(module) in IN_STEPS:
            module.__class__ = IN_STEPS[type(module)]  # the same layer with the same numbers
    layers = [module for module in network.modules() if isinstance(module, StepLayer)]
    for number, layer in enumerate(layers):
        layer.first = number * PER_LAYER
    return layers
