"""Whether posterior repair leaves right labels alone: `python -m studies.no_harm [WHICH] --runs 150 --jobs 14`.

Cases are drawn from their numbers: features made up or real, weak or strong, 2 to 16 classes, 3 to 20 sites of 50 to
1,000 rows, no noise or 5 to 40 % of it. `design`: those by which the check of the features was chosen. `fresh`: other
numbers and other datasets; by their results the check was made stricter. `again`: still other numbers, looked at once
after that. `small`: the same with at most 300 rows over all sites. `trusted`: still others, the server of each of which
has 100 to 500 rows with right labels; `checked`: others of that kind, looked at once after the last change of what
such rows show, also where the sites have fewer rows than the server. Results are added to
`studies/results/no_harm_<which>.jsonl`, and cases that are there are not repeated. `caution` runs nothing: from these
files it works out what a stricter check would prevent, and what it would cost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Exact
from imperfed.data.sources import load
from imperfed.repairs.features import features
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.repairs.posterior.support import CLEAR, LEVEL
from studies.lines import Record, read_lines, rounded, run_cells
from studies.repairs_compared import both_ways, labels_of, share

RESULTS = Path(__file__).parent / "results"
FIRST = {
    "design": 5_000,
    "fresh": 4_000_000,
    "again": 7_000_000,
    "small": 8_000_000,
    "trusted": 9_000_000,
    "checked": 11_000_000,
}
"""The number of the first case."""
WITH_CLEAN_ROWS = ("trusted", "checked")
REAL = {
    "design": ("digits/raw", "digits/hog", "wisdm/raw", "student-without-gpa/raw", "cifar10/hog"),
    "fresh": (
        "mnist/hog",
        "fashion-mnist/hog",
        "pneumoniamnist/hog",
        "compas/raw",
        "fire/hog",
        "lost/raw",
        "mnist/raw",
    ),
}
SMALL = 300
"""The most rows of a small case."""
SHAPES = ("one cluster a class", "two clusters a class", "heavy tails", "chance", "rare classes", "soft-max")
MOST_ROWS = 4000
TOLERATED = 0.002
"""By how much the share of wrong labels may rise."""
USEFUL = 0.01
"""By how much a repair lowers the share of wrong labels to count as one that helps."""
STRICTER = ((CLEAR, LEVEL), (0.75, 0.7), (0.8, 0.75), (0.85, 0.8), (0.9, 0.85), (0.95, 0.9))
"""What the check asks of the fit at least (`clear`, `level`), and what it might ask instead."""


@dataclass(frozen=True)
class Case:
    """One case: data, sites and noise."""

    number: int
    data: str
    classes: int
    width: int
    apart: float
    sites: int
    rows: int
    skewed: bool
    noise: str
    rate: float
    spread: bool
    clean: int

    @classmethod
    def drawn(cls, number: int, which: str) -> Case:
        """Return the case with this number."""
        draw = Random(number)
        sites, noise = draw.choice([3, 5, 10, 20]), draw.choice(["none", "uniform", "class", "feature"])
        real = draw.random() < 0.5
        return cls(
            number,
            draw.choice(REAL.get(which, REAL["fresh"]) if real else SHAPES),
            draw.choice([2, 3, 4, 6, 10]),
            draw.choice([4, 10, 30, 100]),
            draw.choice([0.2, 0.4, 0.7, 1.0, 1.5]),
            sites,
            min(MOST_ROWS, sites * draw.choice([50, 100, 200, 400, 1000])),
            draw.random() < 0.6,
            noise,
            0.0 if noise == "none" else draw.choice([0.05, 0.1, 0.2, 0.4]),
            draw.random() < 0.5,
            draw.choice([100, 200, 500] if which in WITH_CLEAN_ROWS else [0, 0, 0, 100]),
        )

    def rows_of(self, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return features and classes."""
        if self.data in SHAPES:
            return made(self, draw)
        x, y = of_features(self.data)
        chosen = torch.from_numpy(draw.permutation(len(y))[: self.rows])
        return x[chosen], y[chosen]

    def federation(self) -> tuple[Federation, Tensor]:
        """Return what sites and server hold, and the true classes of the sites' rows."""
        draw = np.random.default_rng(self.number)
        x, y = self.rows_of(draw)
        C = int(y.max()) + 1
        site = self.site_of(y, draw)
        trusted = Trusted(x[: self.clean], Exact(y[: self.clean], C)) if self.clean else None
        site, order = site[self.clean :].sort(stable=True)
        x, y = x[self.clean :][order], y[self.clean :][order]
        sizes = [int(size) for size in site.bincount() if size]
        starts = tuple(np.cumsum([0, *sizes]).tolist())
        given = wrong(self, x, y, torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)), draw)
        names = tuple(f"site-{k}" for k in range(len(sizes)))
        ids, classes = tuple(map(str, range(len(y)))), tuple(map(str, range(C)))
        federation = Federation(self.data, x, Exact(given, C), starts, names, classes, ids, x[:0], trusted=trusted)
        return federation, y

    def site_of(self, y: Tensor, draw: np.random.Generator) -> Tensor:
        """Return the site of every row: at random, or with classes that are unequally spread."""
        shares = draw.dirichlet([0.7 if self.skewed else 1e6] * self.sites, size=int(y.max()) + 1).cumsum(1)
        return torch.from_numpy((draw.random((len(y), 1)) > shares[y.numpy()]).sum(1)).clamp(max=self.sites - 1)


def made(case: Case, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return made-up features and classes."""
    n, C, d = case.rows, case.classes, case.width
    shares = 0.6 ** np.arange(C) if case.data == "rare classes" else np.ones(C)
    y = draw.choice(C, size=n, p=shares / shares.sum())
    x = draw.standard_t(2, size=(n, d)) if case.data == "heavy tails" else draw.normal(size=(n, d))
    if case.data == "soft-max":
        scores = 2 * case.apart * x @ draw.normal(size=(d, C)) / np.sqrt(d)
        y = (scores + draw.gumbel(size=(n, C))).argmax(1)
    elif case.data == "two clusters a class":
        x += case.apart * draw.normal(size=(C, 2, d))[y, draw.integers(2, size=n)]
    elif case.data != "chance":
        x += case.apart * draw.normal(size=(C, d))[y]
    return torch.from_numpy(x), torch.from_numpy(y)


@cache
def of_features(name: str) -> tuple[Tensor, Tensor]:
    """Return features and classes of a real dataset."""
    data, _, phi = name.partition("/")
    dataset = load(data)
    assert dataset.y is not None
    rows = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[:10000]
    return features(phi, dataset.x[rows]).nan_to_num(), dataset.y[rows].flatten()


def wrong(case: Case, x: Tensor, y: Tensor, site: Tensor, draw: np.random.Generator) -> Tensor:
    """Return labels some of which are wrong; at which rate differs from site to site if noise is spread."""
    C, n = int(y.max()) + 1, len(y)
    factor = draw.uniform(0, 2, case.sites) if case.spread else np.ones(case.sites)
    rate = torch.from_numpy((case.rate * factor).clip(0, 0.6))[site]
    if case.noise == "feature":  # rows that lie nearest to another class, as people mistake them
        z = (x - x.mean(0)) / (x.std(0) + 1e-6)
        means = torch.stack([z[y == c].mean(0) if (y == c).any() else z.new_full(z.shape[1:], 1e3) for c in range(C)])
        distance = torch.cdist(z, means)
        own = distance.gather(1, y[:, None]).flatten()
        near, other = distance.scatter(1, y[:, None], torch.inf).min(1)
        score = (own - near) + 0.5 * (own - near).std() * torch.from_numpy(draw.normal(size=n))
        rank = torch.empty(n)
        for k in range(case.sites):
            at = (site == k).nonzero().flatten()
            rank[at[score[at].argsort(descending=True)]] = torch.arange(len(at)) / max(1, len(at))
        return torch.where(rank < rate, other, y)
    of_class = draw.integers(1, C, size=(case.sites, C))
    shift = draw.integers(1, C, size=n) if case.noise == "uniform" else of_class[site.numpy(), y.numpy()]
    return torch.where(torch.from_numpy(draw.random(n)) < rate, (y + torch.from_numpy(shift)) % C, y)


def cases(which: str) -> Iterator[Case]:
    """Yield the cases of a kind."""
    drawn = (Case.drawn(number, which) for number in count(FIRST[which]))
    if which == "small":
        return (case for case in drawn if case.rows - case.clean <= SMALL)
    least = {"trusted": 2.0, "checked": 1.5}.get(which, 0.0)
    return (case for case in drawn if case.rows >= least * case.clean)


def measured(case: Case) -> Record:
    """Return the shares of wrong labels before, after, and after a repair that does not check itself."""
    torch.set_num_threads(1)
    federation, y = case.federation()
    checked, unchecked, verdict = both_ways(PosteriorRepair(features="raw"), federation)
    labels = {"before": federation.labels.values, "after": labels_of(checked), "unchecked": labels_of(unchecked)}
    shares = {name: share(found != y) for name, found in labels.items()}
    alone = len(verdict.alone) / len(federation.sites)
    return rounded(asdict(case) | shares | {"alone": alone} | dict(verdict.figures), 4)


def results_of(which: str) -> Path:
    """Return the file of results."""
    return RESULTS / f"no_harm_{which}.jsonl"


def table(which: str) -> Iterator[str]:
    """Yield how often labels were harmed, with and without the check, by noise; then every case that was."""
    rows = read_lines(results_of(which))
    yield "| noise | runs | before | unchecked | checked | harmed, unchecked | harmed, checked | worst |"
    yield "| --- " * 8 + "|"
    for noise in ("none", "uniform", "class", "feature", "all"):
        some = [row for row in rows if noise in (row["noise"], "all")]
        means = [100 * float(np.mean([row[name] for row in some])) for name in ("before", "unchecked", "after")]
        rises = [[float(row[name]) - float(row["before"]) for row in some] for name in ("unchecked", "after")]
        harmed = [sum(rise > TOLERATED for rise in column) for column in rises]
        cells = [*(f"{mean:.1f}" for mean in means), *map(str, harmed), f"{100 * max(rises[1]):+.1f}"]
        yield f"| {noise} | {len(some)} | " + " | ".join(cells) + " |"
    for row in sorted(rows, key=lambda row: float(row["before"]) - float(row["after"])):
        if float(row["after"]) > float(row["before"]) + TOLERATED:
            yield json.dumps(row)


def caution() -> Iterator[str]:
    """Yield what stricter checks would do to the runs without clean rows: harm that is left, and help that is lost."""
    rows = [row for which in ("fresh", "again", "small") for row in read_lines(results_of(which)) if not row["clean"]]
    helped = [row for row in rows if row["unchecked"] < row["before"] - USEFUL]
    yield f"{len(rows)} runs without clean rows; without the check {len(helped)} of them would be helped"
    yield "| clear | level | harmed | worst | wrong after | helped |"
    yield "| --- " * 6 + "|"
    for clear, level in STRICTER:
        passed = [row["clear"] >= clear and row["level"] >= level for row in rows]
        after = [row["after"] if ok else row["before"] for row, ok in zip(rows, passed, strict=True)]
        rises = [share - row["before"] for row, share in zip(rows, after, strict=True)]
        harmed, kept = sum(rise > TOLERATED for rise in rises), sum(rise < -USEFUL for rise in rises)
        figures = f"{harmed} | {100 * max(rises):+.1f} | {100 * float(np.mean(after)):.1f} | {kept}"
        yield f"| {clear:g} | {level:g} | {figures} |"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.no_harm", description=__doc__)
    parser.add_argument("which", nargs="?", choices=[*FIRST, "caution"], default="fresh")
    parser.add_argument("--runs", type=int, default=150, help="how many cases in all")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    if options.which == "caution":
        print(*caution(), sep="\n")
        return
    which, path = options.which, results_of(options.which)
    done = {record["number"] for record in read_lines(path)}
    todo = [case for case in islice(cases(which), options.runs) if case.number not in done]
    if todo and not options.only_table:
        run_cells(todo, measured, options.jobs, path)
    print(*table(which), sep="\n")


if __name__ == "__main__":
    main()
