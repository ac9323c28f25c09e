"""A site's own model for labels of any kind, made of one fitted model, or of one per class where rows have several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.alone.base import AloneModel, Fitted
from imperfed.alone.logistic import Linear
from imperfed.alone.trees import AveragedTrees, BoostedTrees
from imperfed.core.batch import Tree
from imperfed.core.labels import Labels


@dataclass(frozen=True)
class Always(Fitted):
    """The same probabilities for every row: all there is to learn from rows of one class."""

    form: ClassVar[str] = "always"
    probability: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        return self.probability.expand(len(x), -1)


FORMS: dict[str, type[Fitted]] = {form.form: form for form in (Always, Linear, AveragedTrees, BoostedTrees)}


@dataclass(frozen=True)
class ModelPart:
    """A fitted model and the classes that its columns stand for; `present`: the first column means absent."""

    fitted: Fitted
    classes: Tensor
    present: bool


@dataclass(frozen=True)
class SiteModel:
    """The probability of every class of the federation, from what one site has seen."""

    classes: int
    parts: tuple[ModelPart, ...]

    def probabilities(self, x: Tensor) -> Tensor:
        """Return the probability of each class for every row, [n, C]; 0 for a class that the site has never seen."""
        flat = x.flatten(1)
        whole = flat.new_zeros(len(x), self.classes, dtype=torch.float32)
        for part in self.parts:
            own = part.fitted.probabilities(flat)
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
    """Fit one site's rows. Where a row has one class, labels that leave several open count each by its share."""
    flat = x.flatten(1).double()
    if not labels.several:
        return SiteModel(labels.classes, (_one_class(kind, flat, labels, seed),))
    return SiteModel(labels.classes, tuple(_one_by_one(kind, flat, labels, seed)))


def _one_class(kind: AloneModel, x: Tensor, labels: Labels, seed: int) -> ModelPart:
    rows, classes, weight = labels.weighted_examples()
    seen, y = classes.unique(return_inverse=True)
    if len(seen) == 1:
        return ModelPart(Always(torch.ones(1)), seen, present=False)
    return ModelPart(kind.fit(x[rows].numpy(), y.numpy(), weight.double().numpy(), seed), seen, present=False)


def _one_by_one(kind: AloneModel, x: Tensor, labels: Labels, seed: int) -> Iterator[ModelPart]:
    """Fit one model per class to the rows that say whether they have it."""
    for c, marks in enumerate(labels.marks().unbind(1)):
        known = marks >= 0
        y = marks[known].long()
        if not len(y) or y.min() == y.max():  # nothing to tell apart; one half where nothing is known
            share = float(y.float().mean()) if len(y) else 0.5
            fitted: Fitted = Always(torch.tensor([1 - share, share]))
        else:
            fitted = kind.fit(x[known].numpy(), y.numpy(), torch.ones(len(y)).double().numpy(), seed)
        yield ModelPart(fitted, torch.tensor([c]), present=True)
