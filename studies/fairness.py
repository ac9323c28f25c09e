"""Attacks on fairness against defences, table 5.1 of the thesis: `python -m studies.fairness --help`.

Every run is one line of `results.jsonl`, and runs that are in the file are not repeated; so the study can be divided by
scene, split or seed, and continued. All runs of a seed share split, initial weights and batches: they differ only in
the attack and in the defence. Delta is the distance to the run of the same seed without attack and defence.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch

from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import ServerContext
from imperfed.core.errors import ImperfedError
from imperfed.core.exchange import Updates
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.config import Config
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve
from studies.fairness_thesis import ATTACKS, thesis
from studies.lines import Record, read_lines, run_cells

SCENES: dict[str, dict[str, str]] = {
    "compas": {"data": "compas"},
    "student": {"data": "student"},
    "compas-african-american": {"data": "compas", "fairness.target": "African-American"},
}
ROUNDS = {"iid": {"student": 20}, "dirichlet": {"student": 60}}
"""T; 50 by default."""
DEFENCES: dict[str, dict[str, str]] = {
    "none": {},
    "krum": {"defence": "krum"},
    "trimmed-mean": {"defence": "trimmed-mean"},
    "median": {"defence": "median"},
    "fairfedpapl": {"defence": "fairfedpapl"},
    "fairfedpapl-thesis": {"defence": "fairfedpapl", "defence.variant": "thesis"},
    "oracle": {},
}
DETECTORS: dict[str, dict[str, str]] = {
    "placebo": {"defence": "placebo"},
    "fairfedpapl+placebo": {"defence": "fairfedpapl+placebo"},
}
"""Compared with FairFedPAPL in `studies.detectors`."""
ADAPTIVE = {"two groups": "studies.spread:TwoGroups", "all groups": "studies.spread:AllGroups"}
"""Attacks of `studies.detectors`, by import path."""
SUSPECTING = ("fairfedpapl", "fairfedpapl-thesis")
"""Defences that name suspects; they are also run without an attack."""


@dataclass(frozen=True)
class Cell:
    """One run of the study."""

    scene: str
    split: str
    attack: str
    """Empty: nobody attacks."""
    defence: str
    seed: int


@dataclass(frozen=True)
class Removed(Defence):
    """The oracle: the adversaries' updates are excluded by hand, from the first round on."""

    name: ClassVar[str] = "removed"
    sites: tuple[int, ...] = ()

    def inspect(
        self, memory: Tree, sent: Tree, updates: Updates, context: ServerContext
    ) -> tuple[Updates | None, Tree]:
        honest = [row for row, site in enumerate(updates.who) if site not in self.sites]
        return updates.only(torch.tensor(honest)) if honest else None, memory


def cells(scenes: Sequence[str], splits: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield all runs, seed by seed, so that an interrupted study has complete tables of fewer seeds."""
    for seed, data, split in product(seeds, scenes, splits):
        yield from (Cell(data, split, "", defence, seed) for defence in ("none", *SUSPECTING))
        yield from (Cell(data, split, attack, defence, seed) for attack, defence in product(ATTACKS, DEFENCES))


# -- a run -------------------------------------------------------------------------------------------------------------


def config_of(cell: Cell) -> Config:
    """Return the settings of a run."""
    rounds = ROUNDS[cell.split].get(cell.scene, 50)
    attack = ADAPTIVE.get(cell.attack, cell.attack)
    words: dict[str, Any] = {"method": "clpl", "seed": cell.seed, "data_seed": cell.seed, "attack": attack}
    words |= {"split.partition": cell.split, "rounds": rounds, "evaluate_every": rounds, "workers": 1}
    return resolve(words=SCENES[cell.scene] | words | (DEFENCES | DETECTORS)[cell.defence])


def carry_out(cell: Cell) -> Record:
    """Run a cell to its end and evaluate it."""
    torch.set_num_threads(1)
    begun, config = time.perf_counter(), config_of(cell)
    if cell.defence == "oracle":
        with closing(Experiment(config)) as experiment:
            config = replace(config, defence=Removed(adversaries(experiment)))
    with closing(Experiment(config)) as experiment:
        reports: list[RoundReport] = []
        experiment.engine.run(reports.append, lambda: False, None)
        personal = reports[-1].personal
        rows = sum(n for _, n in (scores["accuracy"] for scores in personal.values()))
        right = sum(value * n for value, n in (scores["accuracy"] for scores in personal.values()))
        fairness = experiment.evaluator.fairness(list(personal.values()), cell.seed)
        assert fairness is not None
        return asdict(cell) | {
            "accuracy": right / rows,
            "fairness": asdict(fairness),
            "adversaries": adversaries(experiment),
            "out": [[s.site for s in report.verdicts if s.out] for report in reports],
            "seconds": round(time.perf_counter() - begun, 2),
        }


def adversaries(experiment: Experiment) -> tuple[int, ...]:
    """Return the numbers of the sites that attack."""
    federation, facts = experiment.data.federation, experiment.data.facts
    return tuple(federation.sites.index(name) for name in facts.get("adversaries", ()))


def read(path: Path) -> dict[Cell, Record]:
    """Return the results of the runs in a file."""
    keys = ("scene", "split", "attack", "defence", "seed")
    return {Cell(*(record[key] for key in keys)): record for record in read_lines(path)}


# -- the table ---------------------------------------------------------------------------------------------------------


def value(record: Record, figure: str) -> float | None:
    """Return the accuracy, or a fairness figure by candidate group."""
    number = record["accuracy"] if figure == "accuracy" else record["fairness"]["candidate"][figure]["value"]
    return None if number is None else float(number)


def spread(values: Iterable[float | None]) -> str:
    """Format mean ± sample standard deviation of the values that are defined."""
    defined = [v for v in values if v is not None]
    if not defined:
        return "undefined"
    return f"{statistics.fmean(defined):.3f}" + (f" ± {statistics.stdev(defined):.3f}" if len(defined) > 1 else "")


def deltas(results: dict[Cell, Record], runs: Sequence[Cell], figure: str) -> list[float | None]:
    """Return the distance of each run to the clean run of its seed."""
    distances: list[float | None] = []
    for cell in runs:
        a = value(results[cell], figure)
        b = value(results[replace(cell, attack="", defence="none")], figure)
        distances.append(None if a is None or b is None else abs(a - b))
    return distances


def suspects(records: Sequence[Record]) -> str:
    """Format precision and recall of the sites left out in the last round, over all seeds."""
    last = [(set(r["out"][-1]), set(r["adversaries"])) for r in records]
    out, guilty = sum(len(o) for o, _ in last), sum(len(a) for _, a in last)
    caught = sum(len(o & a) for o, a in last)
    if not guilty:
        return f"{out / len(last):.1f} honest out"
    return f"{f'{caught / out:.2f}' if out else 'nobody'} / {caught / guilty:.2f}"


def table(results: dict[Cell, Record], data: str, split: str) -> str:
    """Return a Markdown table of one scene and split, with the figures of the thesis in brackets."""
    printed = thesis().get(data, {}).get(split, {})
    lines = [
        "| attack | defence | accuracy | EOD | ΔEOD | ΔSPD | out at the end |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for attack in ("", *ATTACKS):
        for defence in DEFENCES:
            runs = [c for c in results if (c.scene, c.split, c.attack, c.defence) == (data, split, attack, defence)]
            if runs:
                lines.append(row(results, sorted(runs, key=lambda c: c.seed), printed))
    return "\n".join(lines)


def row(results: dict[Cell, Record], runs: Sequence[Cell], printed: Record) -> str:
    """Return the table row of one attack and defence over the seeds."""
    attack, defence, records = runs[0].attack, runs[0].defence, [results[c] for c in runs]
    known = printed.get(defence.removesuffix("-thesis") if attack else {"none": "clean"}.get(defence, ""), {})

    def bracket(figure: str) -> str:
        if figure not in known:
            return ""
        number = known[figure]
        return f" ({number[ATTACKS.index(attack)] if attack else number:.3f})"

    parts = [
        attack or "nobody",
        defence,
        spread(value(r, "accuracy") for r in records) + bracket("accuracy"),
        spread(value(r, "eod") for r in records) + bracket("eod"),
        spread(deltas(results, runs, "eod")) + bracket("delta"),
        spread(deltas(results, runs, "spd")),
        suspects(records) if defence in SUSPECTING else "",
    ]
    return f"| {' | '.join(parts)} |"


def listed(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated words that refuses unknown ones."""

    def split(text: str) -> list[str]:
        words = text.split(",")
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return words

    return split


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables of all results."""
    parser = argparse.ArgumentParser(prog="python -m studies.fairness", description=__doc__)
    parser.add_argument("--scenes", default="compas,student", type=listed(SCENES), help=f"of {', '.join(SCENES)}")
    parser.add_argument("--splits", default="iid,dirichlet", type=listed(ROUNDS))
    parser.add_argument("--seeds", default="0,1,2,3,4", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/fairness"), help="folder of results.jsonl")
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    path = options.out / "results.jsonl"
    todo = [cell for cell in cells(options.scenes, options.splits, options.seeds) if cell not in read(path)]
    if todo and not options.only_table:
        run_cells(todo, carry_out, options.jobs, path)
    for data, split in product(options.scenes, options.splits):
        print(f"\n### {data}, {split}\n\n{table(read(path), data, split)}")


if __name__ == "__main__":
    try:
        main()
    except ImperfedError as error:
        sys.exit(f"error: {error}")
