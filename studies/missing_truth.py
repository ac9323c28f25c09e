"""Which candidate sets miss the true class: `python -m studies.missing_truth [--splits 10-11] [--jobs 14]`.

Sets are those of the classic datasets, or made up by letting every wrong class join with probability 0.3. In some of
them the true class is removed, or replaced by a class that was not in the set. Compared are the ranking of
`imperfed audit` at five sites and what can be done with scikit-learn on the pooled rows: logistic regression on
averaged candidates, and the same fitted again to its own probabilities within the sets (as PRODEN does), both out of
fold; rows are ranked by the probability outside their set. Every cell is one line of the file of results.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from imperfed.core.federation import Federation
from imperfed.core.labels import Candidates
from imperfed.data.sources import load
from imperfed.engine.conversation import repair_labels
from imperfed.repairs.features import features
from imperfed.repairs.posterior import SetPosterior
from imperfed.repairs.posterior.set_model import outside_mass
from studies.lines import Record, numbers, read_lines, rounded, run_cells
from studies.repairs_compared import ranking, share

RESULTS = Path(__file__).parent / "results" / "missing_truth.jsonl"
DATA = (("digits", "hog"), ("fashion-mnist", "hog"), ("lost", "raw"), ("birdsong", "raw"), ("fg-net", "raw"))
WAYS = ("replaced", "removed")
RATES = (0.05, 0.1, 0.2)
ROWS, SITES, JOINING = 1500, 5, 0.3
ROUNDS, FOLDS = 3, 5
METHODS = ("averaged", "within sets", "audit")


@dataclass(frozen=True)
class SetCell:
    """Sets of which a share misses the true class."""

    data: str
    phi: str
    way: str
    rate: float
    split: int = 0

    def drawn(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return features, classes, and sets."""
        draw, dataset = np.random.default_rng(self.split), load(self.data)
        assert dataset.y is not None
        rows = torch.from_numpy(draw.permutation(len(dataset))[:ROWS])
        x, y = features(self.phi, dataset.x[rows]).nan_to_num(), dataset.y[rows].flatten().long()
        if dataset.candidates is not None:
            S = dataset.candidates[rows] > 0
        else:
            S = torch.from_numpy(draw.random((len(y), len(dataset.classes))) < JOINING)
            S[torch.arange(len(y)), y] = True
        return x, y, spoilt(S, y, self.way, self.rate, draw)


def spoilt(sets: Tensor, y: Tensor, way: str, rate: float, draw: np.random.Generator) -> Tensor:
    """Return sets of which this share misses the true class; none becomes empty."""
    S, size = sets.clone(), sets.sum(1)
    able = (size < S.shape[1]) & (size >= (2 if way == "removed" else 1)) & S.gather(1, y[:, None]).flatten()
    for i in (torch.from_numpy(draw.random(len(y)) < rate) & able).nonzero().flatten().tolist():
        if way == "replaced":
            others = (~S[i]).nonzero().flatten()
            S[i, others[int(draw.integers(len(others)))]] = True
        S[i, y[i]] = False
    return S


def carry_out(cell: SetCell) -> Record:
    """Return average precisions, and how many sets miss the true class by the audit's estimate and in truth."""
    torch.set_num_threads(1)
    x, y, S = cell.drawn()
    wrong = ~S.gather(1, y[:, None]).flatten()
    averaged = out_of_fold(x, S / S.sum(1, keepdim=True))
    within = averaged
    for _ in range(ROUNDS):
        within = out_of_fold(x, within * S / (within * S).sum(1, keepdim=True).clamp(min=1e-12))
    Q, estimate = by_audit(x, S)
    record: Record = {"wrong": share(wrong), "estimate": estimate, "size": float(S.sum(1).double().mean())}
    for method, p in zip(METHODS, (averaged, within, Q), strict=True):
        record[method] = ranking(outside_mass(p, S), wrong)
    right = [float(((p * S).argmax(1) == y)[~wrong].double().mean()) for p in (within, Q)]
    return rounded(asdict(cell) | record | {"chosen within sets": right[0], "chosen": right[1]})


def by_audit(x: Tensor, S: Tensor) -> tuple[Tensor, float]:
    """Return the posterior of every row at five sites, and the share of sets estimated to miss the true class."""
    n, C = S.shape
    starts = tuple(n * k // SITES for k in range(SITES + 1))
    names, classes = tuple(f"site-{k}" for k in range(SITES)), tuple(map(str, range(C)))
    federation = Federation("sets", x, Candidates(S, C), starts, names, classes, tuple(map(str, range(n))), x[:0])
    found = repair_labels(SetPosterior(features="raw"), federation)[1].decisions
    sizes = [b - a for a, b in pairwise(starts)]
    noise = sum(decision.noise * size for decision, size in zip(found, sizes, strict=True)) / n
    return torch.cat([decision.posterior for decision in found if decision.posterior is not None]), noise


def out_of_fold(x: Tensor, targets: Tensor) -> Tensor:
    """Return probabilities of every class by logistic regression on soft targets, none from the row itself."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import StandardScaler

    z, p = StandardScaler().fit_transform(x.numpy()), np.zeros(targets.shape)
    for seen, unseen in KFold(FOLDS, shuffle=True, random_state=0).split(z):
        soft = targets[seen].double().numpy()
        row, named = (soft > 1e-3).nonzero()
        model = LogisticRegression(C=0.1, max_iter=100).fit(z[seen][row], named, soft[row, named])
        p[np.ix_(unseen, model.classes_)] = model.predict_proba(z[unseen])
    return torch.from_numpy(p)


def cells(splits: Sequence[int]) -> Iterator[SetCell]:
    """Yield all cells."""
    for (data, phi), split, way, rate in product(DATA, splits, WAYS, RATES):
        yield SetCell(data, phi, way, rate, split)


def table(path: Path) -> Iterator[str]:
    """Yield the table: means over the splits."""
    records = {SetCell(**{f.name: row[f.name] for f in fields(SetCell)}): row for row in read_lines(path)}
    yield "| sets | true class | missing | estimate | " + " | ".join(METHODS) + " | class chosen: within sets, audit |"
    yield "| --- " * (5 + len(METHODS)) + "|"
    for cell in cells([0]):
        runs = [row for known, row in records.items() if replace(known, split=0) == cell]
        if runs:
            mean = {name: statistics.fmean(run[name] for run in runs) for name in runs[0] if name not in ASIDE}
            shares = f"{100 * mean['wrong']:.1f} % | {100 * mean['estimate']:.1f} %"
            figures = " | ".join(f"{mean[method]:.3f}" for method in METHODS)
            chosen = f"{100 * mean['chosen within sets']:.1f} %, {100 * mean['chosen']:.1f} %"
            yield f"| {cell.data} | {cell.way} | {shares} | {figures} | {chosen} |"


ASIDE = {field.name for field in fields(SetCell)}


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.missing_truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--splits", default="10-11", type=numbers)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    done = [{f.name: row[f.name] for f in fields(SetCell)} for row in read_lines(options.out)]
    todo = [cell for cell in cells(options.splits) if asdict(cell) not in done]
    if todo and not options.only_table:
        run_cells(todo, carry_out, options.jobs, options.out)
    print(*table(options.out), sep="\n")


if __name__ == "__main__":
    main()
