"""Posterior repair beside others: `python -m studies.posterior [digits] [large] [people] [seed ...]`.

`digits` flips labels of the digits that come with scikit-learn, at rates from 0 to 40 %; `large` takes the settings
of `studies.fb_nll`, on splits that were not used to set any constant (seeds 10 and above); `people` takes those on
CIFAR-10 with class-dependent, uniform, people's and no noise, with cleanlab on pooled rows (extra package `cleanlab`)
and the repair without its check of the features as further columns.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.dirichlet import DirichletPartition
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.engine.conversation import repair_labels
from imperfed.evaluation.evaluator import RepairFigures
from imperfed.repairs.fb_nll import FBNLL
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.repairs.posterior.axes import MOST, TINY, coordinates, standardised
from imperfed.repairs.posterior.cross_fit import FOLDS, RIDGE, fit, one_hot
from studies.fb_nll import SETTINGS

SEEDS = (10, 11)
RATES, KINDS, SITES = (0.0, 0.1, 0.2, 0.4), ("uniform", "class-dependent"), (5, 20)
CLEAN_SHARE = 0.1
"""Of the digits, at the server: 180 rows."""
BOTH = (PosteriorRepair(features="raw"), PosteriorRepair(features="raw", clean_rows="ignore"))


def flipped(federation: Federation, kind: str, rate: float, seed: int) -> Federation:
    """Return the federation with this share of each site's labels wrong.

    A wrong label is any other class (uniform), or the one class for which the site takes it (class-dependent).
    """
    draw, parts = torch.Generator().manual_seed(seed), []
    C = len(federation.classes)
    for y in federation.labels.values.split(federation.sizes()):
        shift = torch.randint(1, C, (len(y) if kind == "uniform" else C,), generator=draw)
        other = (y + (shift if kind == "uniform" else shift[y])) % C
        parts.append(torch.where(torch.rand(len(y), generator=draw) < rate, other, y))
    return replace(federation, labels=Exact(torch.cat(parts), C))


def digits_table(seeds: Sequence[int]) -> Iterator[str]:
    """Yield wrong labels in per cent before and after, mean over the seeds and worst."""
    yield "| noise | rate | sites | before | FB-NLL | posterior, 180 clean rows | posterior, none |"
    yield "| --- " * 7 + "|"
    repairs = (FBNLL(), *(replace(repair, features="auto") for repair in BOTH))
    for kind, rate, sites in product(KINDS, RATES, SITES):
        if rate == 0 and kind != KINDS[0]:
            continue
        rows = []
        for seed in seeds:
            split = SplitConfig(sites, DirichletPartition(), test=0, trusted=CLEAN_SHARE)
            data = federate(load("digits"), split, LabelConfig("exact"), seed)
            truth = data.federation.labels.values
            rows.append(figures(flipped(data.federation, kind, rate, seed), truth, repairs))
        yield f"| {kind if rate else 'none'} | {100 * rate:.0f} % | {sites} | {cells(rows)} |"


def large_table(seeds: Sequence[int]) -> Iterator[str]:
    """Yield the same for the settings of FB-NLL's table of labels."""
    yield "| data | tasks | noise | before | FB-NLL | posterior, 500 clean rows | posterior, none |"
    yield "| --- " * 7 + "|"
    for setting in SETTINGS:
        rows = []
        for seed in seeds:
            data = setting.federated(seed)
            assert data.oracle.truth is not None
            rows.append(figures(data.federation, data.oracle.truth, (FBNLL(features="raw"), *BOTH)))
        noise = "people" if setting.data.startswith("cifar10n") else setting.noise
        yield f"| {setting.data} | {setting.tasks} | {noise} | {cells(rows)} |"


def people_table(seeds: Sequence[int]) -> Iterator[str]:
    """Yield the same on CIFAR-10, with cleanlab, and the repair with and without its check of the features."""
    repairs = [replace(repair, insist=insist) for repair in BOTH for insist in (False, True)]
    yield "| data | tasks | noise | before | FB-NLL | cleanlab | 500 clean rows | unchecked | none | unchecked |"
    yield "| --- " * 10 + "|"
    for setting in SETTINGS:
        if not setting.data.startswith("cifar10") or setting.noise == "class-independent":
            continue
        rows = []
        for seed in seeds:
            data = setting.federated(seed)
            assert data.oracle.truth is not None
            found = figures(data.federation, data.oracle.truth, (FBNLL(features="raw"), *repairs))
            pooled = by_cleanlab(data.federation)
            found.insert(2, float((pooled != data.oracle.truth).double().mean()))
            rows.append(found)
        noise = "people" if setting.data.startswith("cifar10n") else setting.noise
        yield f"| {setting.data} | {setting.tasks} | {noise} | {cells(rows)} |"


def by_cleanlab(federation: Federation) -> Tensor:
    """Return labels in which cleanlab's issues, on the pooled rows, have the class that the first probe predicts."""
    from cleanlab.filter import find_label_issues

    x, g, C = federation.x.flatten(1).double(), federation.labels.values, len(federation.classes)
    scale = {"mu": x.mean(0), "sd": x.std(0, correction=0) + TINY}
    z = standardised(x, scale)
    A = coordinates(x, scale, torch.linalg.eigh(z.T @ z / len(z))[1][:, -MOST:])
    place = torch.cat([torch.arange(n) for n in federation.sizes()])
    fold = place % FOLDS
    W = fit(A, one_hot(g, C), (fold[:, None] != torch.arange(FOLDS)).double(), RIDGE)
    p = torch.softmax((A @ W)[fold, torch.arange(len(A))], -1)
    issues = torch.from_numpy(find_label_issues(g.numpy(), p.numpy(), n_jobs=1))
    return torch.where(issues, p.argmax(1), g)


def figures(federation: Federation, truth: Tensor, repairs: Sequence[FBNLL | PosteriorRepair]) -> list[float]:
    """Return the share of wrong labels before, and after each repair."""
    given = federation.labels.values
    after = [repair_labels(repair, federation)[1].decided for repair in repairs]
    shares = [RepairFigures.of(given, labels, truth).noise_after for labels in (given, *after)]
    return [share for share in shares if share is not None]


def cells(rows: Sequence[Sequence[float]]) -> str:
    """Format the mean over the seeds of every column, in per cent, with the highest in brackets."""
    columns = list(zip(*rows, strict=True))
    return " | ".join(f"{100 * statistics.fmean(column):.2f} ({100 * max(column):.2f})" for column in columns)


def main(words: Sequence[str]) -> None:
    """Print the tables."""
    seeds = tuple(int(word) for word in words if word.isdigit()) or SEEDS
    names = [word for word in words if not word.isdigit()] or ["digits", "large"]
    for name in names:
        for line in {"digits": digits_table, "large": large_table, "people": people_table}[name](seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
