"""FedALC and its rivals on multi-label text: `python benchmarks/positives.py --data bibtex [--device cuda]`.

Settings and the round to stop at are chosen by validation P@1 with the first seed; then all seeds are run. Every figure
is of the method's own hooks on one pass a round (`one_pass`); the loop below only puts them on a device.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from imperfed.algorithms import find
from imperfed.core import Algorithm, Hall, Updates
from imperfed.data.candidates import Labelling
from imperfed.data.federate import Scene, federate
from imperfed.data.partitions import Split
from imperfed.data.sources import load
from imperfed.data.sparse import width
from imperfed.descend import Local
from imperfed.engine.course import Rounds
from imperfed.engine.rounds import Engine
from imperfed.engine.together import weighted_gradient
from imperfed.evaluate import Evaluator
from imperfed.models import ModelSpec, build
from imperfed.network import Net

SPLIT = Split(partition="label", test=0.34, validation=0.1, public=0.0)
STEPS = {"one_pass": True, "lr_theta": 1.0}
NEAR = STEPS | {"lr_w": 0.01, "lr_server": 0.01, "neighbours": 5}
ALL = STEPS | {"lr_w": 0.01, "lr_server": 0.0001}
LAMBDAS = (1, 3, 10, 30, 90)

GRID: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "FedALC": ("fedalc", [NEAR | {"lam": lam} for lam in LAMBDAS]),
    "FedALC, weights counts": ("fedalc", [NEAR | {"lam": lam / 100, "weights": "counts"} for lam in LAMBDAS]),
    "FedALC, weights sigma": ("fedalc", [NEAR | {"lam": 100 * lam, "weights": "sigma"} for lam in LAMBDAS]),
    "FedALC, plain mean of theta": ("fedalc", [NEAR | {"lam": lam, "by_size": False} for lam in LAMBDAS[1:4]]),
    "FedALC, margin of the next neighbour": ("fedalc", [NEAR | {"lam": lam, "nu": 0.0} for lam in LAMBDAS]),
    "FedALC, Eq. 7": ("fedalc", [NEAR | {"lam": lam, "mined": True} for lam in LAMBDAS]),
    "FedALC-fixed": ("fedalc-fixed", [STEPS | {"lr_fixed": rate} for rate in (0.1, 1.0, 10.0)]),
    "FedAwS, K = 5": ("fedaws", [NEAR | {"lam": lam} for lam in LAMBDAS]),
    "FedAwS, all pairs": ("fedaws", [ALL | {"lam": lam} for lam in LAMBDAS]),
    "FedAvg-fixed": ("fedavg-fixed", [STEPS]),
    "FedAvg": ("fedaws", [NEAR | {"lam": 0.0}]),
}
"""Every line of the table, its method, and the settings it may choose from."""


def scene(data: str, seed: int) -> Scene:
    return federate(load(data), SPLIT, Labelling(), seed)


def train(
    method: Algorithm, scene: Scene, widths: tuple[int, ...], rounds: int, every: int, seed: int, device: str
) -> list[dict[str, float]]:
    """The figures after every so many rounds."""
    fed = scene.federation
    spec = ModelSpec("text", features=width(fed.x), widths=widths)
    network = build(spec, tuple(fed.x.shape[1:]), len(fed.classes), seed)
    judge = Evaluator(scene.oracle)
    assert method.objective is not None
    engine = Engine(method, method.objective, network, fed, judge, Local(steps=1), Rounds(workers=1), seed)
    oracle = replace(scene.oracle, **{n: t.to(device) for n, t in vars(scene.oracle).items() if torch.is_tensor(t)})
    moved = replace(fed, x=fed.x.to(device), at=fed.at.to(device), labels=move(fed.labels, device))
    job = replace(engine.bench.job, federation=moved)
    net = Net(copy.deepcopy(engine.bench.net.module).to(device), job.layout)
    server = {name: t.to(device) for name, t in engine.state.server.items()}
    who, course = tuple(range(len(fed.sites))), []
    (exchange,) = method.exchanges(0)
    assert exchange.weigh is not None
    with torch.device(device):
        n = torch.tensor([float(size) for size in fed.sizes()])
        for round in range(rounds):
            hall = Hall(net, fed.public, round, 0.0, torch.Generator(), classes=fed.classes)
            net.load(job.layout.join(server["w"], server["buffers"], server["w"][:0]))
            g, losses = weighted_gradient(job, net, {}, who, exchange.weigh(n))
            server = exchange.gather(server, Updates(who, n, {"g": g.unsqueeze(0)}), hall)
            if (round + 1) % every == 0:
                net.load(job.layout.join(server["w"], server["buffers"], server["w"][:0]))
                scores = Evaluator(oracle).common(net)
                course.append(
                    {"round": round + 1, "loss": float(losses.mean())} | {k: v for k, (v, _) in scores.items()}
                )
    return course


def move(labels: Any, device: str) -> Any:
    return type(labels)(labels.values.to(device), labels.classes)


def best(course: list[dict[str, float]]) -> dict[str, float]:
    """The figures at the round that validation chooses."""
    return max(course, key=lambda figures: figures["validation p@1"])


def picked(settings: list[dict[str, Any]], pick: dict[str, float]) -> list[dict[str, Any]]:
    """Those that have the values picked, as far as they have such settings; all where none does."""
    return [s for s in settings if all(s.get(key, value) == value for key, value in pick.items())] or settings


def study(
    data: str, seeds: list[int], names: list[str], pick: dict[str, float], how: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Every line so far, anew after each."""
    scenes = {seed: scene(data, seed) for seed in seeds}
    lines: dict[str, Any] = {"most frequent labels": {"figures": [s.facts["most_frequent"] for s in scenes.values()]}}
    for name in names:
        method, settings = GRID[name][0], picked(GRID[name][1], pick)
        began, runs = time.perf_counter(), []
        for chosen in settings:
            runs.append(train(find(method)(**chosen), scenes[seeds[0]], seed=seeds[0], **how))
            print(f"{data}: {name} {chosen}: {best(runs[-1])}", flush=True)
        at = max(range(len(runs)), key=lambda i: best(runs[i])["validation p@1"])
        rest = [train(find(method)(**settings[at]), scenes[seed], seed=seed, **how) for seed in seeds[1:]]
        lines[name] = {
            "settings": settings[at],
            "figures": [best(course) for course in (runs[at], *rest)],
            "swept": [{"settings": s} | best(course) for s, course in zip(settings, runs, strict=True)],
            "course": runs[at],
            "seconds": time.perf_counter() - began,
        }
        yield lines


def means(figures: list[dict[str, float]]) -> str:
    """Mean and sample standard deviation over the seeds, in per cent."""
    told = []
    for name in ("p@1", "p@3", "p@5"):
        values = torch.tensor([100 * f[name] for f in figures], dtype=torch.float64)
        told.append(f"{values.mean():.1f}" + (f" ± {values.std():.1f}" if len(values) > 1 else ""))
    return " | ".join(told)


def table(lines: dict[str, Any]) -> str:
    """The lines as they stand on a results page."""
    rows = ["| method | P@1 | P@3 | P@5 | settings |", "| --- | --- | --- | --- | --- |"]
    for name, line in lines.items():
        chosen = ", ".join(f"{k} {v:g}" for k, v in line.get("settings", {}).items() if k in ("lam", "lr_fixed"))
        rows.append(f"| {name} | {means(line['figures'])} | {chosen} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="bibtex")
    parser.add_argument("--rounds", type=int, default=900)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--widths", default="512,1024,1024,512")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default=";".join(GRID), help="lines of the table, with ; between them")
    parser.add_argument("--pick", default="", help="settings that are not swept, as lam=10,lr_fixed=1")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    widths = tuple(map(int, given.widths.split(",")))
    how = {"widths": widths, "rounds": given.rounds, "every": given.every, "device": given.device}
    given.out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, Any] = {}
    pick = {key: float(value) for key, _, value in (word.partition("=") for word in given.pick.split(",") if word)}
    for lines in study(given.data, [int(s) for s in given.seeds.split(",")], given.only.split(";"), pick, how):
        made = {"how": how, "seeds": given.seeds, "lines": lines}
        (given.out / f"positives-{given.data}.json").write_text(json.dumps(made, indent=1))
    print(table(lines))


if __name__ == "__main__":
    main()
