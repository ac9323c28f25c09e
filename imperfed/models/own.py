"""Models of the user's own: a function named by its import path, or an object that was handed over from Python."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from imperfed.core.errors import UsageError
from imperfed.core.loading import blaming, current_folder_importable, import_path, load_function
from imperfed.core.network import Network
from imperfed.models.zoo import Shape

OBJECT = "object of "
"""How the name of a model begins that was handed over as an object; the path of its class or function follows."""
FROZEN = "frozen/"
"""How the name of a recorded parameter begins that is not trained."""
REPR = 1000
"""The most characters of a model's description that a run records."""


@dataclass(frozen=True, eq=False)
class ModelObject:
    """A model that was handed over from Python: a module with its initial weights, or a factory of modules."""

    given: nn.Module | Callable[..., Any]
    initial: Mapping[str, Tensor] | None = None
    """The weights with which a run began that is opened again."""

    @property
    def path(self) -> str:
        """The import path of the module's class, or of the factory."""
        named = not isinstance(self.given, nn.Module) and hasattr(self.given, "__qualname__")
        return import_path(self.given if named else type(self.given))

    def describe(self) -> str:
        """Return a description of limited length, such as the layers of a module."""
        text = repr(self.given)
        return text if len(text) <= REPR else f"{text[:REPR]} ..."

    def network(self, shape: Shape, classes: int) -> Network:
        """Return a new network; the object that was handed over stays as it is."""
        what = f"model ({OBJECT}{self.path})"
        if isinstance(self.given, nn.Module):
            with blaming(f"{what}: it cannot be copied; hand over a function that makes it"):
                module = copy.deepcopy(self.given)
        else:
            module = _made(what, self.given, shape, classes)
        network = _tried(what, module, shape, classes)
        if self.initial is not None:
            _restore(network, self.initial)
        return network


def missing_object(name: str) -> UsageError:
    """Return an error that says which object a run lacks."""
    path = name.removeprefix(OBJECT)
    return UsageError(
        f"this run's model was handed over as an object of {path}, of which only the weights are stored; hand it over "
        "again in Python: imperfed.load(folder, model=...) or imperfed.resume(folder, model=...)"
    )


def named_by_path(name: str, shape: Shape, classes: int) -> Network:
    """Return the network that the user's function makes, split at its head and tested."""
    what = f"model {name!r}"
    with current_folder_importable():
        module = _made(what, load_function("model", name), shape, classes)
    return _tried(what, module, shape, classes)


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers by name; those of parameters that are not trained are marked."""
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    named = (*network.named_parameters(), *network.named_buffers())
    return {FROZEN * (name in frozen) + name: t.detach().clone().contiguous() for name, t in named}


def _restore(network: nn.Module, initial: Mapping[str, Tensor]) -> None:
    """Give a network the weights with which a run began; refuse one that they do not fit."""
    own = dict(network.named_parameters()) | dict(network.named_buffers())
    before = {name.removeprefix(FROZEN): t for name, t in initial.items()}
    for name in {**own, **before}:
        then, now = (f"of shape {[*tree[name].shape]}" if name in tree else "missing" for tree in (before, own))
        if then != now:
            raise UsageError(f"model: {name} is {now} here and {then} in the run; hand over the network of the run")
        own[name].data.copy_(before[name])
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(FROZEN + name not in initial)


def _made(what: str, function: Callable[..., Any], shape: Shape, classes: int) -> Any:
    """Return what the user's function makes."""
    advice = ""
    if isinstance(function, type):
        advice = f"; if it needs other arguments, hand over an instance, {function.__name__}(...)"
    with blaming(
        f"{what}: the function failed; it is called with those of shape= and classes= that it accepts{advice}"
    ):
        return function(**_accepted(function, {"shape": shape, "classes": classes}))


def _accepted(function: Callable[..., object], arguments: dict[str, object]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


@torch.no_grad()
def _tried(what: str, module: Any, shape: Shape, classes: int) -> Network:
    """Return the module as a `Network`, after checking on a random batch of two that the split changes no output."""
    if not isinstance(module, nn.Module):
        raise UsageError(f"{what}: the function returned {type(module).__name__}; it must return an nn.Module")
    if any(isinstance(m, _NormBase) and m.momentum is None for m in module.modules()):
        # Such a layer counts batches in an integer buffer, and integer buffers are not part of a site's row.
        raise UsageError(f"{what}: momentum=None in a normalisation layer is not supported; give it a number")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UsageError(f"{what}: no parameter of it requires a gradient, so there is nothing to train")
    x = torch.rand(2, *shape)
    module.to("cpu", torch.float32).eval()
    with blaming(f"{what}: it cannot take a batch of shape {[*x.shape]}"):
        before = module(x)
    if not isinstance(before, Tensor) or before.shape != (2, classes):
        actual = f"shape {[*before.shape]}" if isinstance(before, Tensor) else f"type {type(before).__name__}"
        raise UsageError(
            f"{what}: a batch of two gave an output of {actual}; it must be a tensor of shape [2, {classes}], "
            "one logit for each class"
        )
    network = Network.around(module)
    advice = "end forward with the last linear layer that is defined (no softmax), or return Network(rep, head)"
    with blaming(f"{what}: it cannot be split before its last linear layer; {advice}"):
        z, after = network(x, features=True), network(x)
    if z.shape != (2, network.head.in_features) or not torch.allclose(before, after, equal_nan=True):
        raise UsageError(f"{what}: its last linear layer is not its last operation; {advice}")
    network.train()
    return network
