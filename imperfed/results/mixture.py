"""What a site predicts with after `auto`: a mixture of the federated model and the one that it has fitted alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.alone import SiteModel
from imperfed.core.batch import Tree
from imperfed.core.labels import Labels
from imperfed.results.folder import RunFolder

FOLDER = "alone"
NUMBERS = ("weight", "temperature", "mixture_temperature")
EVEN = 0.5
Predictor = Callable[[Tensor], Tensor]
"""From inputs, scaled as in training, to logits."""


@dataclass(frozen=True)
class Mixture:
    """A site's own model, and the weight of the federated one beside it."""

    alone: SiteModel
    weight: float
    temperature: float = 1.0
    """What the federated model's logits are divided by before they are mixed."""
    mixture_temperature: float = 1.0
    """What the logits of the mixture are divided by."""

    def probabilities(self, federated: Tensor, x: Tensor, kind: type[Labels]) -> Tensor:
        """Return mixed probabilities; `federated`: the logits of the federated model for the inputs `x`."""
        return kind.probabilities(self.logits(federated, x, kind))

    def logits(self, federated: Tensor, x: Tensor, kind: type[Labels]) -> Tensor:
        """Return the logits of the mixture; at weight 1 those of the federated model, at their temperatures."""
        return self.mixed(federated, self.alone.probabilities(x) if self.weight < 1 else federated, kind)

    def mixed(self, federated: Tensor, own: Tensor, kind: type[Labels]) -> Tensor:
        """Return the same from what the site's own model says; not used at weight 1."""
        shared = federated / self.temperature
        if self.weight < 1:
            own, others = kind.normalised(own), kind.probabilities(shared)
            if kind.partial:  # an even bet: the site has never marked the class, and only the others know it
                own = torch.where(own == EVEN, others, own)
            shared = kind.logits(self.weight * others + (1 - self.weight) * own)
        return shared / self.mixture_temperature

    def tree(self) -> Tree:
        """Return the site's own model as plain numbers, with the weight and the temperatures."""
        numbers = {name: torch.tensor(getattr(self, name)) for name in NUMBERS}
        return {name: t.contiguous() for name, t in self.alone.tensors().items()} | numbers

    def beside(self, model: Predictor, kind: type[Labels]) -> Predictor:
        """Return the mixture with a federated model, as logits."""
        return lambda x: self.logits(model(x).cpu(), x.cpu(), kind)

    def by_itself(self, kind: type[Labels]) -> Predictor:
        """Return the site's own model, as logits."""
        return lambda x: kind.logits(kind.normalised(self.alone.probabilities(x.cpu())))


def save_mixture(folder: RunFolder, site: str, mixture: Mixture) -> None:
    """Write `alone/<site>.safetensors`."""
    folder.save_tensors(f"{FOLDER}/{site}.safetensors", mixture.tree())


def read_mixture(folder: RunFolder, site: str) -> Mixture | None:
    """Return a site's own model and the weight; None if the run has no such models."""
    if not (folder.path / FOLDER / f"{site}.safetensors").exists():
        return None
    tree = folder.load_tensors(folder.path / FOLDER / f"{site}.safetensors")
    return Mixture(SiteModel.of(tree), *(float(tree[name]) for name in NUMBERS))
