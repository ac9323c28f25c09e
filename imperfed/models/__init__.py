"""The models: a small zoo, and the user's own `nn.Module` given as `package.module:function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from imperfed.core.errors import UsageError, not_negative, positive, unknown
from imperfed.core.loading import blaming, current_folder_importable, load_function
from imperfed.core.network import Network
from imperfed.core.registry import Plugin, Registry, add_plugins
from imperfed.models import densenet, zoo
from imperfed.models.zoo import Shape


@dataclass(frozen=True)
class ModelSpec:
    """The name of a model, and the settings of the models that have any."""

    name: str = "mlp"
    hidden: int = 256  # mlp: width of every hidden layer
    layers: int = 2  # mlp: number of linear layers; 2 means one hidden layer
    norm: Literal["group", "batch"] = "group"  # cnn, resnets, vgg16, densenet121
    features: int = 0  # text: number of features of the sparse inputs; 0: as the data say
    widths: tuple[int, ...] = (512, 1024, 1024, 512)  # text: widths of the sparse layer and the linear layers after it

    def __post_init__(self) -> None:
        positive("model", hidden=self.hidden, layers=self.layers, widths=min(self.widths, default=0))
        not_negative("model", features=self.features)


@dataclass(frozen=True)
class Model:
    """An entry of the catalogue."""

    about: str
    takes: str
    """The inputs it takes, in words."""
    fits: Callable[[Shape], bool]
    make: Callable[[ModelSpec, Shape, int], Network]


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
        lambda spec, shape, classes: _own(plugin.path, shape, classes),
    )


def _zoo() -> dict[str, Model]:
    return {
        "linear": _flat("linear regression: one linear layer, for the squared error", _linear),
        "logistic": _flat("logistic regression: the same network as linear, for the cross-entropy", _linear),
        "mlp": _flat("linear layers with ReLU between them; settings: hidden, layers", _mlp),
        "lenet5": Model(
            "LeNet-5 with ReLU and max pooling; 61,706 parameters on 1 x 28 x 28 and 10 classes",
            f"images (channels, height, width) of at least {zoo.LENET_MIN} x {zoo.LENET_MIN} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= zoo.LENET_MIN,
            lambda spec, shape, classes: zoo.lenet5(shape, classes),
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
            lambda spec, shape, classes: zoo.cnn(shape, classes, spec.norm),
        ),
        "resnet10": _resnet("ResNet-10", (1, 1, 1, 1)),
        "resnet18": _resnet("ResNet-18", (2, 2, 2, 2)),
        "resnet34": _resnet("ResNet-34", (3, 4, 6, 3)),
        "vgg16": Model(
            "VGG-16 for small images (one linear layer instead of three); setting: norm",
            f"images (channels, height, width) of at least {zoo.VGG_MIN} x {zoo.VGG_MIN} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= zoo.VGG_MIN,
            lambda spec, shape, classes: zoo.vgg16(shape, classes, spec.norm),
        ),
        "firenet": Model(
            "FireNet: AlexNet reduced to three convolutions, with dropout",
            "images (channels, height, width) of any size",
            lambda shape: len(shape) == 3,
            lambda spec, shape, classes: zoo.firenet(shape, classes),
        ),
        "densenet121": Model(
            "DenseNet-121, 7 million parameters; setting: norm (batch: as published)",
            f"images (channels, height, width) of at least {densenet.MIN_SIDE} x {densenet.MIN_SIDE} pixels",
            lambda shape: len(shape) == 3 and min(shape[1:]) >= densenet.MIN_SIDE,
            lambda spec, shape, classes: densenet.densenet121(shape, classes, spec.norm),
        ),
    }


def build(spec: ModelSpec, shape: Shape, classes: int, generator_seed: int) -> Network:
    """Return the model for inputs of this shape, with initial weights that depend on the seed alone."""
    # Seeding through torch.manual_seed would also reset the generators of every GPU, which the fork does not restore.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator_seed)
        if ":" in spec.name:
            return _own(spec.name, shape, classes)
        return _fitting(spec.name, shape).make(spec, shape, classes)


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


def _flat(about: str, make: Callable[[ModelSpec, Shape, int], Network]) -> Model:
    return Model(about, "any shape (it is flattened)", lambda shape: True, make)


def _linear(spec: ModelSpec, shape: Shape, classes: int) -> Network:
    return zoo.linear(shape, classes)


def _mlp(spec: ModelSpec, shape: Shape, classes: int) -> Network:
    return zoo.mlp(shape, classes, spec.hidden, spec.layers)


def _text(spec: ModelSpec, shape: Shape, classes: int) -> Network:
    if not spec.features:
        raise UsageError("model 'text' needs the number of features of its sparse inputs; set features")
    return zoo.text(classes, spec.features, spec.widths)


def _resnet(title: str, blocks: tuple[int, ...]) -> Model:
    return Model(
        f"{title} for small images (3 x 3 stem, no early pooling); setting: norm",
        "images (channels, height, width) of any size",
        lambda shape: len(shape) == 3,
        lambda spec, shape, classes: zoo.resnet(shape, classes, blocks, spec.norm),
    )


# -- the user's own ---------------------------------------------------------------------------------------------------


def _own(name: str, shape: Shape, classes: int) -> Network:
    """Return the network that the user's function makes, split at its head and tested."""
    with current_folder_importable():
        function = load_function("model", name)
        with blaming(
            f"model {name!r}: the function failed; it is called with those of shape= and classes= that it accepts"
        ):
            module = function(**_accepted(function, {"shape": shape, "classes": classes}))
    if not isinstance(module, nn.Module):
        raise UsageError(f"model {name!r}: the function returned {type(module).__name__}; it must return an nn.Module")
    if any(isinstance(m, _NormBase) and m.momentum is None for m in module.modules()):
        # Such a layer counts batches in an integer buffer, and integer buffers are not part of a site's row.
        raise UsageError(f"model {name!r}: momentum=None in a normalisation layer is not supported; give it a number")
    return _tried(name, module, shape, classes)


def _accepted(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


@torch.no_grad()
def _tried(name: str, module: nn.Module, shape: Shape, classes: int) -> Network:
    """Return the module as a `Network`, after checking on a random batch of two that the split changes no output."""
    x = torch.rand(2, *shape)
    module.eval()
    with blaming(f"model {name!r}: it cannot take a batch of shape {[*x.shape]}"):
        before = module(x)
    if not isinstance(before, Tensor) or before.shape != (2, classes):
        actual = f"shape {[*before.shape]}" if isinstance(before, Tensor) else f"type {type(before).__name__}"
        raise UsageError(
            f"model {name!r}: a batch of two gave an output of {actual}; it must be a tensor of shape [2, {classes}], "
            "one logit for each class"
        )
    network = Network.around(module)
    advice = "end forward with the last linear layer that is defined (no softmax), or return Network(rep, head)"
    with blaming(f"model {name!r}: it cannot be split before its last linear layer; {advice}"):
        z, after = network(x, features=True), network(x)
    if z.shape != (2, network.head.in_features) or not torch.allclose(before, after, equal_nan=True):
        raise UsageError(f"model {name!r}: its last linear layer is not its last operation; {advice}")
    network.train()
    return network
