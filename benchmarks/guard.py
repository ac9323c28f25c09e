"""How often FairFedPAPL's guards accuse honest sites, and how many adversaries they find.

python -m benchmarks.guard [--data compas,student] [--attacks plfa,pafa,mixup] [--seeds 5] [--rounds 20] [--jobs 2]

Every run is done once with no site left out, and its scores are written to `results/guard.jsonl`; runs in the file are
not repeated. Each guard is then replayed on the same scores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.defences.fairfedpapl import FairFedPAPL
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.experiment import Experiment
from imperfed.experiments.resolving import resolve

RESULTS = Path(__file__).parent / "results" / "guard.jsonl"
GUARDS: dict[str, dict[str, Any]] = {
    "none": {"guard": "none"},
    "4 deviations": {"gap": 0.0},
    "4 deviations, 0.3 apart": {},
    "distance, 0.05": {"guard": "distance", "level": 0.05},
    "distance, 0.01": {"guard": "distance", "level": 0.01},
    "law, 0.05": {"guard": "law", "level": 0.05},
}
KEYS = ("data", "split", "attack", "score", "seed", "rounds")
Key = tuple[str, str, str, str, int, int]
Run = dict[str, Any]


def scores_of(key: Key) -> Run:
    """Do a run in which every site is merged; return the defence's score of each, by round."""
    torch.set_num_threads(1)
    data, split, attack, score, seed, rounds = key
    words: dict[str, Any] = {"method": "clpl", "data": data, "split.partition": split, "attack": attack}
    words |= {"seed": seed, "data_seed": seed, "rounds": rounds, "evaluate_every": rounds, "workers": 1}
    words |= {"defence": "fairfedpapl", "defence.score": score, "defence.deviations": 1e9}
    with closing(Experiment(resolve(words=words))) as experiment:
        reports: list[RoundReport] = []
        experiment.engine.run(reports.append, lambda: False, None)
        names = experiment.data.federation.sites
        guilty = [names.index(name) for name in experiment.data.facts.get("adversaries", ())]
    seen = [[s.score for s in report.verdicts] for report in reports]
    return dict(zip(KEYS, key, strict=True)) | {"guilty": guilty, "scores": seen}


@dataclass(frozen=True)
class Replay(FairFedPAPL):
    """The defence with scores that are already known."""

    smoothing: float = 0.0  # they are already smoothed

    def scores(self, sent: Tree, updates: Updates, context: ServerContext) -> Tensor:
        return updates["told"]


def play(run: Run, settings: dict[str, Any]) -> list[set[int]]:
    """Return the sites left out in each round."""
    defence, sites = Replay(**settings), len(run["scores"][0])
    memory, out = defence.init_state(sites), []
    for round, told in enumerate(run["scores"]):
        f = torch.tensor([torch.nan if s is None else s for s in told])
        updates = Updates(tuple(range(sites)), torch.ones(sites), {"told": f})
        context = ServerContext(None, f, round, 0.0, torch.Generator(), sites=tuple(map(str, range(sites))))  # type: ignore[arg-type]
        _, memory = defence.inspect(memory, {}, updates, context)
        out.append({s.site for s in context.verdicts if s.out})
    return out


def lines(runs: list[Run]) -> Iterator[str]:
    """Yield a Markdown table: for each dataset, split and attack, the result of each guard."""
    columns = ("data", "split", "attack", "runs", "guard", "adversaries out at the end", "honest out at the end")
    yield f"| {' | '.join(columns)} | runs with an honest site ever out |"
    yield "| --- " * 8 + "|"
    cells = sorted({(r["data"], r["split"], r["attack"]) for r in runs})
    for (data, split, attack), (name, settings) in product(cells, GUARDS.items()):
        mine = [r for r in runs if (r["data"], r["split"], r["attack"]) == (data, split, attack)]
        played = [(play(r, settings), set(r["guilty"])) for r in mine]
        guilty, honest = sum(len(g) for _, g in played), sum(10 - len(g) for _, g in played)
        caught, wronged = sum(len(o[-1] & g) for o, g in played), sum(len(o[-1] - g) for o, g in played)
        ever = sum(any(o - g for o in out) for out, g in played)
        where = f"{data} | {split} | {attack or 'nobody'} | {len(mine)} | {name}"
        yield f"| {where} | {f'{caught} of {guilty}' if guilty else ''} | {wronged} of {honest} | {ever} |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--data", default="compas,student")
    arguments.add_argument("--attacks", default="plfa,pafa,mixup")
    arguments.add_argument("--score", default="label")
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--jobs", type=int, default=1)
    given = arguments.parse_args()
    attacks, seeds = ["", *given.attacks.split(",")], range(given.seeds)
    RESULTS.touch()
    runs = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    done = {tuple(run[key] for key in KEYS) for run in runs}
    wanted = product(given.data.split(","), ("iid", "dirichlet"), attacks, [given.score], seeds, [given.rounds])
    todo = sorted((key for key in wanted if key not in done), key=lambda key: key[4])
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool, RESULTS.open("a") as file:
        for run in pool.imap_unordered(scores_of, todo):
            print(json.dumps(run), file=file, flush=True)
            runs.append(run)
    print("\n".join(lines([run for run in runs if run["score"] == given.score])))


if __name__ == "__main__":
    main()
