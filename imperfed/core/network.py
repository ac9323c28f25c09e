"""A network split into representation and head, and the flat row that holds its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from imperfed.core.errors import UsageError
from imperfed.core.step_layers import step_layers


class Network(nn.Module):
    """head(between(rep(x))): `rep` maps an input to p features, `head` is the last linear layer.

    Layers inserted between the two keep their own names, so that an algorithm can keep them at a site by name.
    """

    rep: nn.Module
    head: nn.Linear

    def __init__(self, rep: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.rep = rep
        self.head = head
        self.between: tuple[str, ...] = ()
        self.halved = False
        """Whether products are computed in bfloat16; the numbers stay in float32."""

    def forward(self, x: Tensor, features: bool = False) -> Tensor:
        if not self.halved:
            return self.compute(x, features)
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            return self.compute(x, features).float()

    def compute(self, x: Tensor, features: bool) -> Tensor:
        """Return the representation, or the logits computed from it."""
        z: Tensor = self.rep(x)
        return z if features else self.classify(z)

    def classify(self, z: Tensor) -> Tensor:
        """Return the logits of a representation."""
        for name in self.between:
            z = self.get_submodule(name)(z)
        logits: Tensor = self.head(z)
        return logits

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the representation and the logits computed from it, in one pass."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.halved, cache_enabled=False):
            z = self.rep(x)
            logits = self.classify(z)
        return z.to(x.dtype), logits.to(x.dtype)

    def insert_before_head(self, name: str, make: Callable[[int], nn.Module]) -> Network:
        """Insert the layer `make(p)` between representation and head; return this network."""
        self.add_module(name, make(self.head.in_features))
        self.between = (*self.between, name)
        return self

    @classmethod
    def around(cls, module: nn.Module) -> Network:
        """Split any module whose last operation is its last registered linear layer."""
        if isinstance(module, cls):
            return module
        linear = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
        if not linear:
            raise UsageError(
                f"{type(module).__name__} has no nn.Linear to serve as its head; return a Network(rep, head)"
            )
        if not linear[-1][0]:  # the module is that layer
            return cls(nn.Identity(), linear[-1][1])
        path, head = linear[-1]
        parent, _, leaf = path.rpartition(".")
        setattr(module.get_submodule(parent), leaf, nn.Identity())
        return cls(module, head)


@dataclass(frozen=True)
class Field:
    """The place of one named tensor in the row."""

    offset: int
    shape: torch.Size
    trainable: bool

    @property
    def end(self) -> int:
        return self.offset + self.shape.numel()


@dataclass(frozen=True)
class Layout:
    """How one row holds a network's numbers: shared weights, personal weights, shared buffers, personal buffers.

    `row[:shared]` is what is sent as "w", and `row[:trainable]` is what a local step changes. Normalisation buffers,
    which are averaged but take part in no momentum or correction, come last. Integer buffers and parameters that
    require no gradient are constants: the same everywhere, and not part of the row.
    """

    fields: Mapping[str, Field]
    shared: int
    trainable: int
    shared_end: int
    size: int

    @classmethod
    def of(cls, network: nn.Module, stays: Callable[[str], bool]) -> Layout:
        weights = [(n, p.shape) for n, p in network.named_parameters() if p.requires_grad]
        buffers = [(n, b.shape) for n, b in network.named_buffers() if b.is_floating_point()]
        fields: dict[str, Field] = {}
        ends: list[int] = []
        offset = 0
        for tensors, trainable in ((weights, True), (buffers, False)):
            for personal in (False, True):
                for name, shape in tensors:
                    if stays(name) == personal:
                        fields[name] = Field(offset, shape, trainable)
                        offset += shape.numel()
                ends.append(offset)
        return cls(fields, *ends)

    def tree(self, row: Tensor) -> dict[str, Tensor]:
        """Return every named tensor of a whole row, as a view."""
        return {name: row[f.offset : f.end].view(f.shape) for name, f in self.fields.items()}

    def view(self, flat: Tensor, name: str) -> Tensor:
        """Return one named tensor of a vector, or of a stack of vectors, that begins like the row, as "w" does."""
        f = self.fields[name]
        return flat[..., f.offset : f.end].reshape(*flat.shape[:-1], *f.shape)

    def row(self, network: nn.Module) -> Tensor:
        """Return a network's present numbers as a new row."""
        # Not state_dict, which leaves out non-persistent buffers.
        state = dict(network.named_parameters()) | dict(network.named_buffers())
        return torch.cat([state[name].reshape(-1) for name in self.fields]).detach().clone()

    def join(self, w: Tensor, buffers: Tensor, personal: Tensor) -> Tensor:
        """Return a whole row from the shared numbers and the personal ones, which may still be in host memory."""
        personal, cut = personal.to(w.device), self.trainable - self.shared
        return torch.cat([w, personal[:cut], buffers, personal[cut:]])

    def personal(self, row: Tensor) -> Tensor:
        """Return the part of a row, or of each of several rows, that never leaves its site."""
        return torch.cat([row[..., self.shared : self.trainable], row[..., self.shared_end :]], -1)

    def buffers(self, row: Tensor) -> Tensor:
        """Return the shared normalisation buffers."""
        return row[..., self.trainable : self.shared_end]


class Net:
    """A network whose parameters are views of one row, and its gradients of another; loaded for one site after another.

    It uses the row and the gradient given to it, or else allocates its own.
    """

    def __init__(self, network: Network, layout: Layout, row: Tensor | None = None, grad: Tensor | None = None) -> None:
        self.module = network
        self.layout = layout
        self.row = layout.row(network) if row is None else row.copy_(layout.row(network))
        self.w = self.row[: layout.trainable]
        self.grad = torch.zeros_like(self.w) if grad is None else grad
        self.one = self.row.new_ones(())
        self.parameters: list[nn.Parameter] = []
        views, named = layout.tree(self.row), dict(network.named_parameters())
        for name, field in layout.fields.items():
            if field.trainable:
                named[name].data = views[name]
                named[name].grad = self.grad[field.offset : field.end].view(field.shape)
                self.parameters.append(named[name])
            else:
                owner, _, leaf = name.rpartition(".")
                setattr(network.get_submodule(owner), leaf, views[name])
        self.frozen = {n: p for n, p in named.items() if n not in layout.fields and p.is_floating_point()}
        self.step_layers = step_layers(network)
        # Switching the mode at every step takes time, so it is done only where some layer depends on it.
        self.modal = any(looks_at_mode(m) for m in network.modules())

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        return logits

    def features(self, x: Tensor) -> Tensor:
        """Return the representation of x: p numbers per example."""
        z: Tensor = self.module(x, features=True)
        return z

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the representation of x and its logits, in one pass."""
        return self.module.with_features(x)

    def load(self, row: Tensor) -> Net:
        """Copy the numbers of a row into the network."""
        self.row.copy_(row)
        return self

    def train(self, mode: bool) -> None:
        """Switch to training or evaluation mode, if any layer depends on it."""
        if self.modal:
            self.module.train(mode)

    def begin_step(self, key: Tensor | None, real: Tensor | None = None) -> None:
        """Tell the layers that a local step begins, or that the last one has ended (no key).

        `key`: two int32 numbers, from which dropout masks follow. `real`: 1 on the rows of the batch that are real and
        0 on others; None: all are.
        """
        for layer in self.step_layers:
            layer.enter(key, real)

    def draw_again(self) -> None:
        """Let the next pass draw the dropout masks that the first pass of this step drew."""
        for layer in self.step_layers:
            layer.salt = layer.first

    def backward(self, loss: Tensor) -> Tensor:
        """Return the gradient of a scalar at the present weights, as one vector (overwritten by the next call)."""
        self.grad.zero_()
        # This is loss.backward() without its checks, which take as long as a small network's backward pass itself.
        torch.autograd.Variable._execution_engine.run_backward(
            (loss,), (self.one,), False, False, (), allow_unreachable=True, accumulate_grad=True
        )
        return self.grad

    def gradient(self, loss: Tensor) -> Tensor:
        """Return the same gradient in differentiable form; 0 for weights that the loss does not depend on."""
        grads = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in grads])

    def through(self, w: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the network at other weights [shared | personal], differentiable in them; mode and buffers stay."""
        weights = {n: self.layout.view(w, n) for n, f in self.layout.fields.items() if f.trainable}
        return lambda x: torch.func.functional_call(self.module, weights, (x,))

    def in_passing(self, x: Tensor) -> Tensor:
        """Return the network's output without changing its buffers."""
        if self.layout.trainable == self.layout.size:
            return self(x)
        buffers = {n: self.layout.view(self.row, n).clone() for n, f in self.layout.fields.items() if not f.trainable}
        logits: Tensor = torch.func.functional_call(self.module, buffers, (x,))
        return logits

    def at(self, w: Tensor, buffers: Tensor, x: Tensor, features: bool = False) -> Tensor:
        """Return the network's output at other shared weights, with its own personal part, in evaluation mode."""
        row = torch.cat([w, self.w[self.layout.shared :], buffers, self.row[self.layout.shared_end :]])
        # BatchNorm refuses running statistics that require a gradient, as they would if `w` does.
        tree = {n: t if self.layout.fields[n].trainable else t.detach() for n, t in self.layout.tree(row).items()}
        tree |= {n: t.to(row.dtype) for n, t in self.frozen.items()}
        training = self.module.training
        self.train(False)
        out: Tensor = torch.func.functional_call(self.module, tree, (x,), {"features": features})
        self.train(training)
        return out


MODAL = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd, nn.RReLU, nn.RNNBase, nn.MultiheadAttention)


def looks_at_mode(module: nn.Module) -> bool:
    """Return whether a layer may compute differently in training and in evaluation; a user's own layer always may."""
    return isinstance(module, MODAL) or not type(module).__module__.startswith(("torch.nn.", "imperfed."))
