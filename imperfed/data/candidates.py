"""Candidate sets from true classes. Each generator returns a matrix of zeros and ones, one row an example."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from imperfed.core.errors import UsageError, unknown
from imperfed.core.threads import one_thread

Index = npt.NDArray[np.int64]
Sets = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]

KINDS = ("auto", "exact", "candidates", "annotated")
GENERATORS = ("uniform", "flip", "matrix", "instance")
EDGES = ("raw", "min2", "nofull")
NORMALISE = ("mean", "mean-wrong", "max")
TEMPERATURES = (1e-2, 1e4)
"""Where `calibrate` looks."""
ROUNDING = 1e-9
"""Of a mean size: with few classes every temperature may give the same one."""
HIDDEN, BATCH, RATE, EPOCHS, STEPS = 128, 256, 1e-3, 5, 500
"""The clean network: hidden units, batch and learning rate of Adam, fewest epochs, fewest steps."""


@dataclass(frozen=True)
class LabelConfig:
    """What the sites are told about the classes of their rows.

    `kind`: "auto" takes the candidate sets that come with the data and generates some where none do; "candidates" takes
    exactly those that `candidates` names; "exact" gives one class, the true one unless `noise` makes it wrong or the
    data come with labels of their own ("auto" does so in either case); "annotated" gives, where a row may have several
    classes, the truth about those that its site annotates. That is what "auto" does for such rows.
    """

    kind: str = "auto"
    candidates: str = "instance"  # given, uniform, flip, matrix, instance
    uniform: str = "exact"  # uniform: all sets but the full one alike, or the size law of the CAVL code (authors)
    flip: float = 0.3  # flip: probability q of every wrong class
    edge: str = "min2"  # flip: raw, min2 (at least two candidates), nofull (never all classes)
    matrix: str = "band"  # matrix: pair, neighbour, band, dense
    matrix_q: float = 0.5  # matrix: q of pair and neighbour
    rho: float = 0.4  # instance: the rate
    normalise: str = "mean"  # instance: by the mean of all classes, of the wrong ones (mean-wrong), or by the max
    temperature: float = 1.0  # instance: divides the clean network's logits
    mean_size: float = 0.0  # instance: if positive, the temperature is found that gives this expected size
    annotates: str = ""  # annotated: given, drawn, table-1, table-3, one-class, or classes by site: "a, b; b, c"
    annotated: float = 0.5  # drawn: share of the classes that a site annotates
    classes: str = ""  # annotated: those to learn, with commas, or all; empty: those that `annotates` names, else all
    noise: str = "none"  # wrong exact labels: none, class-independent, class-dependent, uniform
    noise_rate: float = 0.4  # class-independent, class-dependent: share of a site's labels
    noisy_sites: float = 0.6  # uniform: rho, the probability that a site is noisy
    noise_floor: float = 0.5  # uniform: tau, the least rate of a noisy site
    attribute_flip: float = 0.3  # probability that another group joins a row's own, for data with a sensitive attribute


def generate(
    labelling: LabelConfig, x: Tensor, y: Tensor, classes: int, seed: int, generator: np.random.Generator
) -> tuple[Sets, float | None]:
    """The sets that `labelling` names, and the temperature if there is one; `seed` is the clean network's."""
    truth = y.numpy()
    if labelling.candidates == "uniform":
        return uniform(truth, classes, labelling.uniform, generator), None
    if labelling.candidates == "flip":
        return flip(truth, classes, labelling.flip, labelling.edge, generator), None
    if labelling.candidates == "matrix":
        return draw(flipping_matrix(labelling.matrix, classes, labelling.matrix_q)[truth], truth, generator), None
    if labelling.candidates != "instance":
        raise unknown("kind of candidate sets", labelling.candidates, ("given", *GENERATORS))
    if labelling.mean_size and labelling.temperature != 1:
        raise UsageError("mean_size finds the temperature; to choose the temperature yourself, set mean_size = 0")
    logits, temperature = clean_logits(x, y, classes, seed), labelling.temperature
    if labelling.mean_size:
        temperature = calibrate(logits, truth, labelling.rho, labelling.normalise, labelling.mean_size)
    chances = instance_chances(logits, truth, labelling.rho, labelling.normalise, temperature)
    return draw(chances, truth, generator), temperature


# -- generators that look at the class only ----------------------------------------------------------------------------


def uniform(y: Index, classes: int, mode: str, generator: np.random.Generator) -> Sets:
    """Every set that holds the true class and is not full, with equal probability; `authors` draws the size first."""
    if mode == "exact":
        sets = _with_truth(generator.random((len(y), classes)) < 0.5, y)
        while len(full := np.flatnonzero(sets.all(1))):
            sets[full] = _with_truth(generator.random((len(full), classes)) < 0.5, y[full])
        return sets
    if mode != "authors":
        raise unknown("law of uniform candidate sets", mode, ("exact", "authors"))
    # Binomial(C, 1/2) without 0 and C has the weights (C choose s) / (2^C - 2), and never forms 2^C.
    sizes = generator.binomial(classes, 0.5, len(y))
    while len(redo := np.flatnonzero((sizes == 0) | (sizes == classes))):
        sizes[redo] = generator.binomial(classes, 0.5, len(redo))
    keys = generator.random((len(y), classes))
    keys[np.arange(len(y)), y] = -1.0
    return keys <= np.take_along_axis(np.sort(keys, axis=1), sizes[:, None] - 1, axis=1)


def flip(y: Index, classes: int, q: float, edge: str, generator: np.random.Generator) -> Sets:
    """Every wrong class with probability q, then the edge rule."""
    _check_share("flip", q)
    if edge not in EDGES:
        raise unknown("edge rule", edge, EDGES)
    sets = _with_truth(generator.random((len(y), classes)) < q, y)
    wrong = (y + generator.integers(1, classes, len(y))) % classes
    if edge == "min2":
        alone = np.flatnonzero(sets.sum(1) == 1)
        sets[alone, wrong[alone]] = True
    elif edge == "nofull":
        full = np.flatnonzero(sets.all(1))
        sets[full, wrong[full]] = False
    return sets


def flipping_matrix(preset: str, classes: int, q: float) -> Floats:
    """T[y, j], the probability that class j joins the set of an example of class y; 1 on the diagonal."""
    offsets: Mapping[str, Mapping[int, float]] = {
        "pair": {1: q},
        "neighbour": {-1: q, 1: q},
        "band": {-3: 0.1, -2: 0.3, -1: 0.5, 1: 0.5, 2: 0.3, 3: 0.1},
        "dense": {1: 0.2, 2: 0.8, 3: 0.8, 4: 0.8, 5: 0.4, 6: 0.4, 7: 0.2, 8: 0.2, 9: 0.2},
    }
    if preset not in offsets:
        raise unknown("flipping matrix", preset, offsets)
    _check_share("matrix_q", q)
    chosen = offsets[preset]
    if len(chosen) >= classes:
        raise UsageError(
            f"the flipping matrix {preset!r} needs more than {len(chosen)} classes, the data have {classes}; use pair"
        )
    T = np.eye(classes)
    of = np.arange(classes)
    for offset, chance in chosen.items():
        T[of, (of + offset) % classes] = chance
    return T


# -- the generator that looks at the example ---------------------------------------------------------------------------


def instance_chances(logits: Floats, y: Index, rho: float, normalise: str, temperature: float) -> Floats:
    """u_j, the probability that a wrong class joins the set, from the logits of a network trained on true classes."""
    _check_share("rho", rho)
    if not temperature > 0:
        raise UsageError(f"temperature must be positive; given: {temperature}")
    if normalise not in NORMALISE:
        raise unknown("normalisation", normalise, NORMALISE)
    z = logits / temperature
    z[np.arange(len(y)), y] = -np.inf
    # r = p / max p over the wrong classes. Through logits it is never 0/0, however certain the network is.
    r = np.exp(z - z.max(1, keepdims=True))
    if normalise == "mean":
        r /= r.mean(1, keepdims=True)
    elif normalise == "mean-wrong":
        r /= r.sum(1, keepdims=True) / (r.shape[1] - 1)
    u: Floats = np.minimum(r * rho, 1.0)
    return u


def expected_size(chances: Floats) -> float:
    """The expected mean size of sets drawn with these chances of the wrong classes."""
    return 1.0 + float(chances.sum(1, dtype=np.float64).mean())


def calibrate(logits: Floats, y: Index, rho: float, normalise: str, mean_size: float) -> float:
    """The temperature at which the expected mean size is `mean_size`, by bisection: the size grows with it."""

    def size(temperature: float) -> float:
        return expected_size(instance_chances(logits, y, rho, normalise, temperature))

    low, high = TEMPERATURES
    least, most = size(low), size(high)
    if not least - ROUNDING <= mean_size <= most + ROUNDING:
        raise UsageError(
            f"mean_size = {mean_size} cannot be reached with rho = {rho} and normalise = {normalise}: any temperature "
            f"gives a mean size between {least:.3f} and {most:.3f}; change rho or mean_size"
        )
    middle = math.sqrt(low * high)
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if size(middle) < mean_size else (low, middle)
    return middle


def draw(chances: Floats, y: Index, generator: np.random.Generator) -> Sets:
    """Every class on its own with its chance, and the true class always."""
    return _with_truth(generator.random(chances.shape) < chances, y)


# -- the clean network -------------------------------------------------------------------------------------------------


def clean_logits(x: Tensor, y: Tensor, classes: int, seed: int) -> Floats:
    """Logits of a small network trained on the true classes of these very rows, kept in `cache_folder()`.

    They serve to generate candidate sets and for nothing else.
    """
    settings = (x.shape, classes, seed, HIDDEN, BATCH, RATE, EPOCHS, STEPS)
    digest = hashlib.sha256(repr(settings).encode())
    for tensor in (x, y):
        digest.update(tensor.contiguous().numpy().data)
    path = cache_folder() / f"{digest.hexdigest()}.npy"
    logits = _recall(path, (len(x), classes))
    if logits is None:
        with one_thread():
            logits = train_clean(x.flatten(1), y, classes, seed)
        _keep(path, logits)
    return logits


def train_clean(x: Tensor, y: Tensor, classes: int, seed: int) -> Floats:
    """One hidden layer on standardised inputs, trained by Adam; returns its logits on the rows it was trained on."""
    random = torch.Generator().manual_seed(seed)
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread[spread == 0] = 1.0
    net = nn.Sequential(skip_init(nn.Linear, x.shape[1], HIDDEN), nn.ReLU(), skip_init(nn.Linear, HIDDEN, classes))
    weights = list(net.parameters())
    for w in weights:
        bound = w.shape[-1] ** -0.5
        nn.init.uniform_(w, -bound, bound, generator=random)
    step = adam(weights)
    batches = -(-len(x) // BATCH)
    for _ in range(max(EPOCHS, -(-STEPS // batches))):
        for rows in torch.randperm(len(x), generator=random).split(BATCH):
            loss = nn.functional.cross_entropy(net((x[rows] - mean) / spread), y[rows])
            step(torch.autograd.grad(loss, weights))
    with torch.no_grad():
        return np.concatenate([net((part - mean) / spread).numpy() for part in x.split(4 * BATCH)])


def adam(weights: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], None]:
    """A step of Adam along gradients. Written out, since torch.optim takes two seconds to import what it then needs."""
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    steps = count(1)

    @torch.no_grad()
    def step(gradients: Sequence[Tensor]) -> None:
        t = next(steps)
        rate = RATE * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        for w, g, (m, s) in zip(weights, gradients, moments, strict=True):
            m.lerp_(g, 0.1)
            s.lerp_(g.square(), 0.001)
            w.sub_(rate * m / (s.sqrt() + 1e-8))

    return step


def cache_folder() -> Path:
    """Where clean networks' logits are kept; it may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "imperfed" / "clean"


def _recall(path: Path, shape: tuple[int, int]) -> Floats | None:
    """What was kept, or None where there is nothing, or nothing of use."""
    try:
        with path.open("rb") as file:
            logits: Floats = np.lib.format.read_array(file)
    except (OSError, ValueError):
        return None
    return logits if logits.shape == shape and logits.dtype == np.float32 and np.isfinite(logits).all() else None


def _keep(path: Path, logits: Floats) -> None:
    """Write whole or not at all; a folder that cannot be written costs time and nothing else."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.save(file, logits)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()


def _with_truth(sets: Sets, y: Index) -> Sets:
    sets[np.arange(len(y)), y] = True
    return sets


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} must lie in 0 .. 1; given: {value}")
