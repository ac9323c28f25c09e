"""A site's own model for labels of any kind: one fitted model, or several, each for some of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.alone.base import AloneModel, Fitted, ModelPart
from imperfed.alone.examples import Always
from imperfed.alone.logistic import Linear
from imperfed.alone.trained_network import TrainedNetwork
from imperfed.alone.trees import AveragedTrees, BoostedTrees
from imperfed.core.batch import Tree
from imperfed.core.labels import Labels

FORMS: dict[str, type[Fitted]] = {
    form.form: form for form in (Always, Linear, AveragedTrees, BoostedTrees, TrainedNetwork)
}


@dataclass(frozen=True)
class SiteModel:
    """The probability of every class of the federation, from what one site has seen."""

    classes: int
    parts: tuple[ModelPart, ...]

    def probabilities(self, x: Tensor) -> Tensor:
        """Return the probability of each class for every row, [n, C]; 0 for a class that the site has never seen."""
        flat = x.flatten(1)
        return self.combined([part.fitted.probabilities(flat) for part in self.parts], flat)

    def combined(self, by_part: Sequence[Tensor], flat: Tensor) -> Tensor:
        """Return the same from what each part says about the rows `flat`."""
        whole = flat.new_zeros(flat.shape[0], self.classes, dtype=torch.float32)
        for part, own in zip(self.parts, by_part, strict=True):
            whole[:, part.classes] = own[:, 1:] if part.present else own
        return whole

    def tensors(self) -> Tree:
        """Return the model as plain tensors, `part.form.field`."""
        tree: Tree = {"classes": torch.tensor(self.classes)}
        for number, part in enumerate(self.parts):
            prefix = f"{number}.{part.fitted.form}"
            tree[f"{number}.classes"] = part.classes
            tree[f"{number}.present"] = torch.tensor(part.present)
            tree |= {f"{prefix}.{name}": t for name, t in part.fitted.tensors().items()}
        return tree

    @classmethod
    def of(cls, tensors: Tree) -> SiteModel:
        """Return the model that `tensors` describes."""
        numbers = sorted({int(name.partition(".")[0]) for name in tensors if "." in name})
        return cls(int(tensors["classes"]), tuple(_part(tensors, number) for number in numbers))


def _part(tensors: Tree, number: int) -> ModelPart:
    own = {name.partition(".")[2]: t for name, t in tensors.items() if name.startswith(f"{number}.")}
    classes, present = own.pop("classes"), bool(own.pop("present"))
    form = FORMS[next(iter(own)).partition(".")[0]]
    return ModelPart(form.of({name.partition(".")[2]: t for name, t in own.items()}), classes, present)


def fit(kind: AloneModel, x: Tensor, labels: Labels, seed: int) -> SiteModel:
    """Fit one site's rows."""
    return SiteModel(labels.classes, kind.fit(x, labels, seed))
