"""What a site predicts with, as one module: scaling, network, the site's own model beside it, and the temperature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from imperfed.alone import SiteModel
from imperfed.core.labels import Labels
from imperfed.data.scale import Scale
from imperfed.results.mixture import Mixture


class DeliveredModel(nn.Module):
    """From inputs as they are read, blanks as NaN, to the probability of each class; the same as `predict` computes."""

    def __init__(
        self, scale: Scale, network: nn.Module, kind: type[Labels], temperature: float, mixture: Mixture | None
    ) -> None:
        super().__init__()
        self.scale, self.kind, self.temperature, self.mixture = scale, kind, temperature, mixture
        self.network = network
        self.alone = None if mixture is None else SiteModule(mixture.alone)
        self.requires_grad_(False)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.scale.at_once(x)
        logits = self.network(scaled)
        if self.mixture is None or self.alone is None:
            return self.kind.probabilities(logits / self.temperature)
        own = self.alone(scaled) if self.mixture.weight < 1 else torch.empty(0)
        return self.kind.probabilities(self.mixture.mixed(logits, own, self.kind))


class SiteModule(nn.Module):
    """A site's own model as a module."""

    def __init__(self, model: SiteModel) -> None:
        super().__init__()
        self.model = model
        self.fitted = nn.ModuleList(part.fitted.module() for part in model.parts)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return self.model.combined([fitted(flat) for fitted in self.fitted], flat)
