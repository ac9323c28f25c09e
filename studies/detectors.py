"""Who finds the adversaries: `python -m studies.detectors --seeds 20`.

FairFedPAPL, the placebo contrast, both together, and the oracle, which leaves the adversaries out from the first round
on, under the attacks of the thesis and under two that know the placebo contrast (`studies.spread`). Runs, seeds and
files are those of `studies.fairness`: a run that is in `results.jsonl` is not repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from imperfed.core.errors import ImperfedError
from studies.fairness import ADAPTIVE, ATTACKS, ROUNDS, SCENES, Cell, carry_out, deltas, listed, read, spread, value
from studies.lines import Record, run_cells

COMPARED = ("fairfedpapl", "placebo", "fairfedpapl+placebo")
ATTACKED = ("", *ATTACKS, *ADAPTIVE)


def cells(scenes: Sequence[str], splits: Sequence[str], attacks: Sequence[str], seeds: int) -> Iterator[Cell]:
    """Yield all runs, seed by seed."""
    for seed, scene, split, attack in product(range(seeds), scenes, splits, attacks):
        more = ("oracle",) if attack else ()
        yield from (Cell(scene, split, attack, defence, seed) for defence in ("none", *COMPARED, *more))


def table(results: dict[Cell, Record], scene: str, split: str) -> str:
    """Return a Markdown table of one scene and split."""
    lines = [
        "| attack | defence | seeds | recall | false alarms per run | runs with one | accuracy | EOD | ΔEOD |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for attack, defence in product(ATTACKED, ("none", *COMPARED, "oracle")):
        chosen = (scene, split, attack, defence)
        runs = [cell for cell in results if (cell.scene, cell.split, cell.attack, cell.defence) == chosen]
        if runs:
            lines.append(row(results, sorted(runs, key=lambda cell: cell.seed)))
    return "\n".join(lines)


def row(results: dict[Cell, Record], runs: Sequence[Cell]) -> str:
    """Return the table row of one attack and defence over the seeds."""
    records = [results[cell] for cell in runs]
    parts = [
        runs[0].attack or "nobody",
        runs[0].defence,
        str(len(runs)),
        *(detection(records) if runs[0].defence in COMPARED else ("", "", "")),
        spread(value(record, "accuracy") for record in records),
        spread(value(record, "eod") for record in records),
        spread(deltas(results, runs, "eod")),
    ]
    return f"| {' | '.join(parts)} |"


def detection(records: Sequence[Record]) -> tuple[str, str, str]:
    """Format, of the last round: the share of adversaries out, honest sites out per run, and runs with any of these."""
    last = [(set(record["out"][-1]), set(record["adversaries"])) for record in records]
    caught, guilty = sum(len(out & a) for out, a in last), sum(len(a) for _, a in last)
    false = [len(out - a) for out, a in last]
    recall = f"{caught / guilty:.2f}" if guilty else ""
    return recall, f"{sum(false) / len(last):.2f}", f"{sum(map(bool, false))} of {len(last)}"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables of all results."""
    parser = argparse.ArgumentParser(prog="python -m studies.detectors", description=__doc__)
    parser.add_argument("--scenes", default="compas", type=listed(SCENES), help=f"of {', '.join(SCENES)}")
    parser.add_argument("--splits", default="iid,dirichlet", type=listed(ROUNDS))
    parser.add_argument("--attacks", default=",".join(ATTACKED), type=listed(ATTACKED), help="an empty one: nobody")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/fairness"), help="folder of results.jsonl")
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    options = parser.parse_args(words)
    path = options.out / "results.jsonl"
    wanted = ["", *(attack for attack in options.attacks if attack)]  # distances are to the runs without an attack
    todo = [c for c in cells(options.scenes, options.splits, wanted, options.seeds) if c not in read(path)]
    if todo and not options.only_table:
        run_cells(todo, carry_out, options.jobs, path)
    for scene, split in product(options.scenes, options.splits):
        print(f"\n### {scene}, {split}\n\n{table(read(path), scene, split)}")


if __name__ == "__main__":
    try:
        main()
    except ImperfedError as error:
        sys.exit(f"error: {error}")
