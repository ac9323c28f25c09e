"""What a curious coordinator knows about a site's round, and its attacks. The truth is not among it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.network import Net
from imperfed.engine.local_training import Local
from imperfed.leakage.chosen_weights import between_thresholds
from imperfed.leakage.first_layer import input_layers, quotients
from imperfed.leakage.label_shares import estimated_shares, head_bias, mean_prediction, whole_numbers
from imperfed.leakage.observed import SeenExchange
from imperfed.nn.inversion import Dummies, invert

MOST_ROWS = 64
"""The most rows that a search reconstructs."""
RATE, VARIATION = 0.05, 1e-3
"""Of a search: its learning rate, and the weight of the total variation of images."""
KNOWN = 20.0
"""The logit of a label that is taken as known."""


@dataclass(frozen=True)
class CuriousCoordinator:
    """What the coordinator knows about a site's round, and its attacks."""

    net: Net
    """The network with the initial personal weights: what a site keeps is not known."""
    seen: SeenExchange
    local: Local
    """The recipe of the round."""
    n: int
    """The site's number of rows."""
    rows: int
    """The different rows of the round, which follow from n, the batch and the steps."""
    shape: torch.Size
    """Of one row."""
    between: tuple[float, float]
    """The smallest and the largest value of an input; for images this is common knowledge."""
    several: bool = False
    """Whether a row may have several classes."""
    layer: tuple[str, str] | None = None
    """The layer on the inputs whose weights were chosen for the purpose; None: the coordinator is honest."""

    def gradient(self) -> Tensor:
        """Return the mean gradient of the steps, as if the weights had stood still meanwhile."""
        moved, local = self.seen.moved, self.local
        if not self.seen.trained:
            return moved
        m = local.momentum if local.optimizer == "sgd" else 0.0
        # v_t = g (1 + m + ... + m^(t-1)): what a constant gradient g moves the weights by, over all steps.
        times = sum(sum(m**age for age in range(t)) for t in range(1, local.steps_of(self.n) + 1))
        decay = 0.0 if local.optimizer == "adamw" else local.weight_decay
        return moved / (local.lr * times) - decay * self.seen.down["w"]

    def by_quotients(self, gradient: Tensor) -> Tensor:
        """Return the rows that follow from a layer on the inputs, [at most `rows`, ...]."""
        if self.layer is not None:
            made = [between_thresholds(self.net, gradient, self.layer)]
        else:
            down = self.seen.down
            layers = input_layers(self.net, down["w"], down["buffers"], self.shape)
            made = [quotients(self.net, gradient, *layer)[: self.rows] for layer in layers]
        flat = torch.cat([*made, gradient.new_empty(0, self.shape.numel())])
        return flat[flat.isfinite().all(1)].view(-1, *self.shape)

    def label_shares(self, gradient: Tensor) -> Tensor | None:
        """Return the estimated share of each class; None where the last layer's bias is not sent."""
        down, up = self.seen.down, self.seen.up
        if not (bias := head_bias(self.net)):
            return None
        models = [(down["w"], down["buffers"])]
        if self.seen.trained:
            models.append((up["w"], up["buffers"]))
        prediction = mean_prediction(self.net, models, self.shape)
        return estimated_shares(self.net.layout.view(gradient, bias), prediction)

    def by_search(self, gradient: Tensor, shares: Tensor | None, iterations: int) -> tuple[Tensor, float]:
        """Return rows whose gradient points along the site's, and the cosine that they reach.

        `shares`: of each class among the labels, which are then taken as known; None: they are searched for as well.
        """
        down, image = self.seen.down, len(self.shape) == 3
        start, (low, high) = self.start(shares), self.between
        if image:
            start = Dummies((low + high) / 2 + (high - low) / 10 * start.x, start.z)
        where, target = (down["w"][None], down["buffers"][None]), gradient[None]
        known, variation = shares is not None, VARIATION if image else 0.0
        found = invert(self.net, *where, target, start, iterations, RATE, variation, known, self.several)
        return found.x[0].clamp(low, high), float(found.cosine[0])

    def start(self, shares: Tensor | None) -> Dummies:
        """Return random rows, with as many of each class as the shares say."""
        classes, rows = self.net.module.head.out_features, min(self.rows, MOST_ROWS)
        start = Dummies.start(rows, self.shape, classes, torch.Generator().manual_seed(0))
        if shares is None:
            return start
        counts = whole_numbers(shares, rows).long()
        return Dummies(start.x, KNOWN * torch.eye(classes)[torch.arange(classes).repeat_interleave(counts)])
