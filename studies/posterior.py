"""Posterior repair beside others: `python -m studies.posterior [TABLE ...] [--splits 10-14] [--jobs 14]`.

    cifar   CIFAR-10 with people's, class-dependent, uniform and no noise, at 20 sites, EfficientNet features
    people  all five label sets of CIFAR-10N, EfficientNet and HoG features
    mnist   the settings of `studies.fb_nll` on MNIST
    digits  the digits of scikit-learn, 0 to 40 % of the labels flipped, at 5 and 20 sites
    rates   0 to 40 % of the labels flipped: CIFAR-10, MNIST, tables, 20 sites of 200 rows
    sizes   5, 20 and 100 sites of 50 to 2,000 rows, 20 % flipped

Splits 10 and above were not used to set any constant. Every split is one line of the file of results, and splits in
the file are not repeated. `--features FILE` takes the features of CIFAR-10 from a file of `studies.feature_file`;
without it they are computed, with the extra `vision`. cleanlab is compared where that package is installed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch

from imperfed.core.errors import ImperfedError
from studies.fairness import listed
from studies.fb_nll import NETWORK, NOISES, TASKS
from studies.lines import Record, numbers, read_lines, rounded, run_cells
from studies.no_harm import TOLERATED
from studies.noisy_data import FLIPS, NoisyCell
from studies.repairs_compared import POSTERIORS, compared

RESULTS = Path(__file__).parent / "results" / "posterior.jsonl"
PEOPLE = ("aggre", "random1", "random2", "random3", "worse")
RATES = (0.0, 0.05, 0.1, 0.2, 0.4)
INPUTS = (
    ("cifar10", NETWORK),
    ("cifar10", "hog"),
    ("mnist", "hog"),
    ("mnist", "raw"),
    ("compas", "raw"),
    ("student-without-gpa", "raw"),
)
SIZES = ((5, 50), (5, 200), (5, 2000), (20, 50), (20, 200), (20, 500), (100, 50), (100, 100))
"""Sites, and rows of each; the 20,000 images of CIFAR-10 at hand allow no more."""
TABLES: dict[str, tuple[NoisyCell, ...]] = {
    "cifar": (
        *(NoisyCell("cifar", f"cifar10n-{people}", NETWORK, "none") for people in ("worse", "aggre")),
        *(NoisyCell("cifar", "cifar10", NETWORK, "class-dependent", tasks=tasks) for tasks in TASKS),
        NoisyCell("cifar", "cifar10", NETWORK, "uniform", tasks=2),
        NoisyCell("cifar", "cifar10", NETWORK, "none", tasks=2),
    ),
    "people": tuple(
        NoisyCell("people", f"cifar10n-{kind}", phi, "none") for kind, phi in product(PEOPLE, (NETWORK, "hog"))
    ),
    "mnist": tuple(
        NoisyCell("mnist", "mnist", "hog", noise, tasks=tasks, rows=600) for tasks, noise in product(TASKS, NOISES)
    ),
    "rates": tuple(
        NoisyCell("rates", data, phi, noise, rate, rows=200, clean=200)
        for (data, phi), rate, noise in product(INPUTS, RATES, FLIPS)
        if rate or noise == FLIPS[0]
    ),
    "digits": tuple(
        NoisyCell("digits", "digits", "hog", noise, rate, sites, clean=180)
        for noise, rate, sites in product(FLIPS, (0.0, 0.1, 0.2, 0.4), (5, 20))
        if rate or noise == FLIPS[0]
    ),
    "sizes": tuple(
        NoisyCell("sizes", data, phi, FLIPS[1], 0.2, sites, rows=rows, clean=200)
        for (data, phi), (sites, rows) in product((("cifar10", NETWORK), ("mnist", "hog")), SIZES)
    ),
}
WITH, WITHOUT = POSTERIORS
COLUMNS = (
    *("before", "FB-NLL", "class means", "probe", "cleanlab"),
    *(WITH, f"{WITH} unchecked", WITHOUT, f"{WITHOUT} unchecked"),
)
RANKED = ("cleanlab", WITH, WITHOUT)


def carry_out(cell: NoisyCell, file: Path | None) -> Record:
    """Return the figures of one split."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    found, described = compared(*cell.federated(file)), asdict(cell)
    assert not described.keys() & found.keys()
    return rounded(described | found | {"seconds": time.perf_counter() - begun})


def read(path: Path) -> dict[NoisyCell, Record]:
    """Return the results in a file."""
    names = [field.name for field in fields(NoisyCell)]
    return {NoisyCell(**{name: record[name] for name in names}): record for record in read_lines(path)}


def table(results: dict[NoisyCell, Record], name: str) -> Iterator[str]:
    """Yield a table: wrong labels in per cent, mean over the splits and worst, then average precisions of rankings."""
    yield "| data | features | noise | sites | splits | " + " | ".join(COLUMNS) + " | average precision |"
    yield "| --- " * (5 + len(COLUMNS) + 1) + "|"
    for cell in TABLES[name]:
        runs = [record for known, record in results.items() if replace(known, split=0) == cell]
        if runs:
            shares = [spread([run[column] for run in runs]) for column in COLUMNS]
            ranks = ", ".join(f"{method} {mean([run[f'{method} ranks'] for run in runs])}" for method in RANKED)
            yield f"| {words_of(cell)} | {len(runs)} | " + " | ".join(shares) + f" | {ranks} |"


def harms(results: dict[NoisyCell, Record]) -> Iterator[str]:
    """Yield how often each method left more wrong labels than there had been, by more than is tolerated, and where."""
    yield "| method | runs | with more wrong labels than before | the worst, points | on |"
    yield "| --- " * 5 + "|"
    for method in ("FB-NLL", "class means", "probe", "cleanlab", WITH, WITHOUT):
        rises = {
            cell: float(share) - float(run["before"])
            for cell, run in results.items()
            if (share := run[method]) is not None
        }
        harmed = {cell: rise for cell, rise in rises.items() if rise > TOLERATED}
        worst = f"{100 * max(harmed.values()):+.1f}" if harmed else "-"
        where = ", ".join(sorted({cell.data for cell in harmed})) or "-"
        yield f"| {method} | {len(rises)} | {len(harmed)} | {worst} | {where} |"


def words_of(cell: NoisyCell) -> str:
    """Return the first cells of a row."""
    noise = "people" if cell.data.startswith("cifar10n") else cell.noise
    rate = f", {100 * cell.rate:.0f} %" if cell.noise in FLIPS else ""
    tasks = f", {cell.tasks} tasks" if cell.tasks > 1 else ""
    sites = f"{cell.sites} of {cell.rows}" if cell.rows else str(cell.sites)
    return f"{cell.data}{tasks} | {cell.phi} | {noise}{rate} | {sites}"


def spread(values: Sequence[float | None]) -> str:
    """Format the mean in per cent, with the highest in brackets; - where a method refused a split."""
    known = [100 * value for value in values if value is not None]
    return f"{statistics.fmean(known):.1f} ({max(known):.1f})" if len(known) == len(values) else "-"


def mean(values: Sequence[float | None]) -> str:
    """Format the mean of average precisions; - where there is none."""
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.3f}" if known else "-"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.posterior", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=listed(TABLES), default=[["cifar"]], metavar="TABLE")
    parser.add_argument("--splits", default="10-14", type=numbers)
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    parser.add_argument("--features", type=Path, help="a file with the features of CIFAR-10")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    names, done = [name for part in options.tables for name in part], read(options.out)
    wanted = (replace(cell, split=split) for split in options.splits for name in names for cell in TABLES[name])
    todo = [cell for cell in wanted if cell not in done]
    if todo and not options.only_table:
        run_cells(todo, partial(carry_out, file=options.features), options.jobs, options.out)
    for name in names:
        print(f"\n### {name}\n", *table(read(options.out), name), sep="\n")
    print("\n### harm, in all tables\n", *harms(read(options.out)), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except ImperfedError as error:
        sys.exit(f"error: {error}")
