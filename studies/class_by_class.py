"""Several classes per row, judged class by class: `python -m studies.class_by_class [--jobs 14]`.

Marks of four classes of a dataset, from frequent to rare, are flipped in both directions. Each class is then audited
as exact labels, present or absent, at five sites; beside it, logistic regression on the pooled rows, out of fold, ranks
by one minus the probability of the mark given. Every cell is one line of the file of results.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path

import numpy as np
import torch

from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.data.sources import load
from imperfed.repairs.features import features
from imperfed.repairs.posterior import PosteriorRepair
from studies.lines import Record, read_lines, rounded, run_cells
from studies.missing_truth import out_of_fold
from studies.repairs_compared import both_ways, labels_of, ranking, share, suspicion

RESULTS = Path(__file__).parent / "results" / "class_by_class.jsonl"
DATA = (("chestxray14", "hog"), ("enron", "raw"), ("rcv1", "raw"))
RANKS = (0, 2, 4, 7)
"""The classes, by how frequent they are."""
RATES = (0.05, 0.1, 0.2)
ROWS, SITES, SPLIT = 1500, 5, 10
MARKS = {"present": 1, "absent": 0}


@dataclass(frozen=True)
class MarkCell:
    """One class of a dataset, and the share of its marks that are flipped."""

    data: str
    phi: str
    rank: int
    rate: float


def carry_out(cell: MarkCell) -> Record:
    """Return average precisions by mark given, for the audit and for the regression, and wrong marks after a repair."""
    torch.set_num_threads(1)
    draw, dataset = np.random.default_rng(SPLIT), load(cell.data)
    assert dataset.y is not None
    rows = torch.from_numpy(draw.permutation(len(dataset))[:ROWS])
    x = dataset.x.to_dense()[rows] if dataset.x.layout != torch.strided else dataset.x[rows]
    x, marks = features(cell.phi, x).nan_to_num(), dataset.y[rows] == 1
    y = marks[:, marks.sum(0).argsort(descending=True)[cell.rank]].long()
    wrong = torch.from_numpy(draw.random(len(y)) < cell.rate)
    given = torch.where(wrong, 1 - y, y)
    starts, names = tuple(len(y) * k // SITES for k in range(SITES + 1)), tuple(f"site-{k}" for k in range(SITES))
    ids = tuple(map(str, range(len(y))))
    federation = Federation("marks", x, Exact(given, 2), starts, names, ("absent", "present"), ids, x[:0])
    checked, unchecked, _ = both_ways(PosteriorRepair(features="raw"), federation)
    p = out_of_fold(x, torch.nn.functional.one_hot(given, 2))
    suspected = {"audit": suspicion(unchecked, given), "regression": 1 - p.gather(1, given[:, None]).flatten()}
    record: Record = {"frequency": share(y == 1), "before": share(wrong)}
    record |= {"repaired": share(labels_of(checked) != y), "unchecked": share(labels_of(unchecked) != y)}
    for name, mark in MARKS.items():
        at = given == mark
        record |= {f"{method} {name}": ranking(s[at], wrong[at]) for method, s in suspected.items()}
        record[f"wrong {name}"] = share(wrong[at])
    return rounded(asdict(cell) | record)


def table(path: Path) -> Iterator[str]:
    """Yield the table: means over the classes of a dataset."""
    yield (
        "| data | flipped | given as present: wrong | regression | audit | given as absent: wrong | regression | audit "
        "| wrong before | repaired | unchecked |"
    )
    yield "| --- " * 11 + "|"
    for (data, _), rate in product(DATA, RATES):
        runs = [row for row in read_lines(path) if (row["data"], row["rate"]) == (data, rate)]
        if runs:
            cells = [cell for name in MARKS for cell in (per_cent(runs, f"wrong {name}"), *precisions(runs, name))]
            cells += [per_cent(runs, name) for name in ("before", "repaired", "unchecked")]
            yield f"| {data} | {100 * rate:.0f} % | " + " | ".join(cells) + " |"


def per_cent(runs: Sequence[Record], name: str) -> str:
    """Return a mean share."""
    return f"{100 * statistics.fmean(run[name] for run in runs):.1f} %"


def precisions(runs: Sequence[Record], mark: str) -> list[str]:
    """Return the mean average precisions of both methods among the rows with this mark."""
    known = [run for run in runs if run[f"audit {mark}"] is not None]
    return [f"{statistics.fmean(run[f'{method} {mark}'] for run in known):.3f}" for method in ("regression", "audit")]


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.class_by_class", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    names = [field.name for field in fields(MarkCell)]
    done = [tuple(row[name] for name in names) for row in read_lines(options.out)]
    every = [MarkCell(data, phi, rank, rate) for (data, phi), rank, rate in product(DATA, RANKS, RATES)]
    todo = [cell for cell in every if tuple(asdict(cell).values()) not in done]
    if todo and not options.only_table:
        run_cells(todo, carry_out, options.jobs, options.out)
    print(*table(options.out), sep="\n")


if __name__ == "__main__":
    main()
