"""The models: a small zoo, and the user's own as `package.module:function` or as objects (`own.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from imperfed.core.errors import UsageError, not_negative, positive, unknown
from imperfed.core.loading import load_function
from imperfed.core.network import Network
from imperfed.core.registry import Plugin, Registry, add_plugins
from imperfed.models import densenet, tabular, zoo
from imperfed.models.own import OBJECT, ModelObject, missing_object, named_by_path
from imperfed.models.zoo import Shape

NO_EDGES = torch.empty(0)


@dataclass(frozen=True)
class ModelSpec:
    """The name of a model, and the settings of the models that have any."""

    name: str = "mlp"
    hidden: int = 256  # mlp, mlp-ple: width of every hidden layer
    layers: int = 2  # mlp, mlp-ple: number of linear layers; 2 means one hidden layer
    bins: int = 32  # mlp-ple: the most bins of a column
    norm: Literal["group", "batch"] = "group"  # cnn, resnets, vgg16, densenet121
    features: int = 0  # text: number of features of the sparse inputs; 0: as the data say
    widths: tuple[int, ...] = (512, 1024, 1024, 512)  # text: widths of the sparse layer and the linear layers after it
    handed_over: ModelObject | None = field(default=None, repr=False)
    """The model itself, if it was handed over as an object; not a setting."""

    def __post_init__(self) -> None:
        positive("model", hidden=self.hidden, layers=self.layers, bins=self.bins, widths=min(self.widths, default=0))
        not_negative("model", features=self.features)

    @property
    def wanted_bins(self) -> int:
        """The most bins of a column, if the model encodes its inputs by bins that are learned from the data; or 0."""
        return self.bins if self.name in models() and models()[self.name].binned else 0


@dataclass(frozen=True)
class Model:
    """An entry of the catalogue."""

    about: str
    takes: str
    """The inputs it takes, in words."""
    fits: Callable[[Shape], bool]
    make: Callable[[ModelSpec, Shape, int, Tensor], Network]
    """Makes it from its settings, the shape of an input, the number of classes, and the edges of the bins."""
    binned: bool = False
    """Whether it takes bins that are learned from the data."""


@cache
def models() -> Registry[Model]:
    """Return all models that come with imperfed and those of plug-ins, by name."""
    registry = Registry(_zoo())
    add_plugins(registry, "models", _plugged)
    return registry


def _plugged(plugin: Plugin) -> Model:
    """Return the model of a plug-in: a function like the user's own, described by the first line of its docstring."""
    function = load_function("plug-in", plugin.path)
    about = inspect.cleandoc(function.__doc__ or "").split("\n")[0]
    return Model(
        about,
        f"inputs of the shapes that {plugin.distribution} is made for",
        lambda shape: True,
        lambda spec, shape, classes, edges: named_by_path(plugin.path, shape, classes),
    )


def _zoo() -> dict[str, Model]:
    return {
        "linear": _flat("linear regression: one linear layer, for the squared error", _linear),
        "logistic": _flat("logistic regression: the same network as linear, for the cross-entropy", _linear),
        "mlp": _flat("linear layers with ReLU between them; settings: hidden, layers", _mlp),
        "mlp-ple": Model(
            "the same layers on a table whose columns are encoded by bins; settings: hidden, layers, bins",
            "rows of a table",
            lambda shape: len(shape) == 1,
            _mlp_ple,
            binned=True,
        ),
        "lenet5": Model(
            "LeNet-5 with ReLU and max pooling; 61,706 parameters on 1 x 28 x 28 and 10 classes",
            f"images (channels, height, width) of at least {zoo.LENET_MIN} x {zoo.LENET_MIN} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= zoo.LENET_MIN,
            lambda spec, shape, classes, edges: zoo.lenet5(shape, classes),
        ),
        "text": Model(
            "a sparse linear layer, then linear layers with ReLU between them; settings: widths, features",
            "sparse inputs (2, slots): feature indices in the first row, their values in the second",
            lambda shape: len(shape) == 2 and shape[0] == 2,
            _text,
        ),
        "cnn": Model(
            "three convolutions with normalisation and the global average; 23,798 parameters on 1 x 64 x 64 and 6 "
            "classes; setting: norm",
            f"images (channels, height, width) of at least {zoo.CNN_MIN} x {zoo.CNN_MIN} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= zoo.CNN_MIN,
            lambda spec, shape, classes, edges: zoo.cnn(shape, classes, spec.norm),
        ),
        "resnet10": _resnet("ResNet-10", (1, 1, 1, 1)),
        "resnet18": _resnet("ResNet-18", (2, 2, 2, 2)),
        "resnet34": _resnet("ResNet-34", (3, 4, 6, 3)),
        "vgg16": Model(
            "VGG-16 for small images (one linear layer instead of three); setting: norm",
            f"images (channels, height, width) of at least {zoo.VGG_MIN} x {zoo.VGG_MIN} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= zoo.VGG_MIN,
            lambda spec, shape, classes, edges: zoo.vgg16(shape, classes, spec.norm),
        ),
        "firenet": Model(
            "FireNet: AlexNet reduced to three convolutions, with dropout",
            "images (channels, height, width) of any size",
            lambda shape: len(shape) == 3,
            lambda spec, shape, classes, edges: zoo.firenet(shape, classes),
        ),
        "densenet121": Model(
            "DenseNet-121, 7 million parameters; setting: norm (batch: as published)",
            f"images (channels, height, width) of at least {densenet.MIN_SIDE} x {densenet.MIN_SIDE} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= densenet.MIN_SIDE,
            lambda spec, shape, classes, edges: densenet.densenet121(shape, classes, spec.norm),
        ),
    }


def build(spec: ModelSpec, shape: Shape, classes: int, generator_seed: int, edges: Tensor = NO_EDGES) -> Network:
    """Return the model for inputs of this shape, with initial weights that depend on the seed alone.

    `edges`: of the bins of every column, [columns, bins + 1], for models that take them.
    """
    # Seeding through torch.manual_seed would also reset the generators of every GPU, which the fork does not restore.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator_seed)
        if spec.handed_over is not None:
            return spec.handed_over.network(shape, classes)
        if spec.name.startswith(OBJECT):
            raise missing_object(spec.name)
        if ":" in spec.name:
            return named_by_path(spec.name, shape, classes)
        return _fitting(spec.name, shape).make(spec, shape, classes, edges)


def _fitting(name: str, shape: Shape) -> Model:
    """Return the model of this name; refuse one that cannot take such inputs."""
    if name not in models():
        raise unknown("model", name, [*models(), "package.module:function"])
    model = models()[name]
    if not model.fits(shape):
        able = ", ".join(other for other, m in models().items() if m.fits(shape))
        raise UsageError(
            f"model {name!r} takes {model.takes}; an input here has shape {shape}. Models that take it: {able}"
        )
    return model


def _flat(about: str, make: Callable[[ModelSpec, Shape, int, Tensor], Network]) -> Model:
    return Model(about, "any shape (it is flattened)", lambda shape: True, make)


def _linear(spec: ModelSpec, shape: Shape, classes: int, edges: Tensor) -> Network:
    return zoo.linear(shape, classes)


def _mlp(spec: ModelSpec, shape: Shape, classes: int, edges: Tensor) -> Network:
    return zoo.mlp(shape, classes, spec.hidden, spec.layers)


def _mlp_ple(spec: ModelSpec, shape: Shape, classes: int, edges: Tensor) -> Network:
    if len(edges) != shape[0]:
        raise UsageError(f"model 'mlp-ple' needs the bins of {shape[0]} columns, learned from data; got {len(edges)}")
    return tabular.mlp_ple(edges, classes, spec.hidden, spec.layers)


def _text(spec: ModelSpec, shape: Shape, classes: int, edges: Tensor) -> Network:
    if not spec.features:
        raise UsageError("model 'text' needs the number of features of its sparse inputs; set features")
    return zoo.text(classes, spec.features, spec.widths)


def _resnet(title: str, blocks: tuple[int, ...]) -> Model:
    return Model(
        f"{title} for small images (3 x 3 stem, no early pooling); setting: norm",
        "images (channels, height, width) of any size",
        lambda shape: len(shape) == 3,
        lambda spec, shape, classes, edges: zoo.resnet(shape, classes, blocks, spec.norm),
    )
