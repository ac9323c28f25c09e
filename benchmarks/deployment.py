"""Minutes to a target with sixteen real processes, as in pFedMo's figure 3.7: `python -m benchmarks.deployment`.

Starts `imperfed serve` and sixteen `imperfed join` on this machine, over loopback and with keys, for every method anew,
and takes the time until the mean over the sites passes the target, where the run is stopped. MNIST, whose folder
IMPERFED_DATA names, in equal parts drawn at random; a twentieth of the rows is at the coordinator. Results are added to
`benchmarks/results/deployment.json`; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drill.actors import ROOT, Actor, read, until
from benchmarks.load import cleaned_up
from imperfed.data.sources import load
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.keys import make_keys

RESULTS = ROOT / "benchmarks/results/deployment.json"
SITES, AT_SERVER, TARGET, PATIENCE = 16, 0.05, 0.85, 900.0
METHODS = {
    "pFedMo": "pfedmo",
    "FedNAG": "fednag gamma=0.5",
    "FedNAG, public set as a worker": "fednag gamma=0.5 public_weight=0.2",
    "public set alone": "fednag gamma=0.5 public_weight=1",
    "FedAvg": "fedavg",
    "SlowMo": "slowmo method.beta=0.5",
    "FedADC": "fedadc beta_local=0.5 beta_global=0.5",
    "DOMO": "domo mu_s=0.5 b=0.5 local.momentum=0.5",
    "FastSlowMo": "fastslowmo gamma=0.5 gamma_a=0.5",
}
RECIPE = ["model.name=lenet5", "local.batch=64", "local.lr=0.01", "split.test=0.1", "checkpoint_every=1000"]


def names() -> list[str]:
    return [f"pi{k:02}" for k in range(SITES)]


def write_federation(folder: Path) -> None:
    """Write a file of images for every site, and one for the coordinator."""
    data = load("mnist")
    x, y = (data.x.float() - data.x.float().mean()) / data.x.float().std(), data.y
    order = np.random.default_rng(0).permutation(len(x))
    own = int(AT_SERVER * len(x))
    (folder / "sites").mkdir(parents=True)
    parts = {"trusted": order[:own]} | {
        f"sites/{name}": part for name, part in zip(names(), np.array_split(order[own:], SITES), strict=True)
    }
    for name, rows in parts.items():
        np.savez(folder / f"{name}.npz", x=x[rows].numpy(), y=y[rows].numpy())
    (folder / "federation.toml").write_text(
        'name = "pis"\nsites = "sites/*.npz"\ntrusted = "trusted.npz"\n[inputs]\narray = "x"\n'
        f'[labels]\nkind = "exact"\ncolumn = "y"\nclasses = {json.dumps([str(c) for c in range(10)])}\n'
    )


def run(home: Path, method: str, tau: int, rounds: int) -> dict[str, Any]:
    """Return the seconds at which every round of a method ended, and its accuracy, until the target is reached."""
    port, place = free_port(), home / f"{time.monotonic_ns()}"
    place.mkdir()
    words = [*method.split()[:1], *(word for word in method.split()[1:] for word in ("--set", word))]
    own_momentum = () if "local.momentum" in method else ("local.momentum=0",)
    recipe = (*RECIPE, *own_momentum, f"local.steps={tau}", f"rounds.rounds={rounds}")
    settings = [part for one in recipe for part in ("--set", one)]
    where = ["--host", "localhost", "--port", port, "--keys", home / "keys" / "coordinator", "--out", place / "run"]
    serving = Actor(place, "serve", "serve", home / "data" / "federation.toml", *words, *settings, *where)
    until(serving.out, "^serving")
    for name in names():
        own = ["--data", home / "data" / "sites" / f"{name}.npz", "--state", place / "state" / name, "--accept"]
        Actor(place, name, "join", f"localhost:{port}", *own, "--keys", home / "keys" / f"site-{name}")
    until(serving.out, "^one step to try", PATIENCE)
    until(serving.out, rf"^{words[0]}\S* on", PATIENCE)  # every site has tried a step: the first round begins
    began, found = time.monotonic(), list[dict[str, float]]()
    while len(found) < rounds and (not found or found[-1]["accuracy"] < TARGET):
        until(serving.out, rf"^round {len(found) + 1}/", PATIENCE)
        (told,) = re.findall(rf"^round {len(found) + 1}/.* accuracy ([0-9.]+) %", read(serving.out), re.MULTILINE)
        found.append({"seconds": round(time.monotonic() - began, 2), "accuracy": float(told) / 100})
    for actor in Actor.all:
        actor.kill_now()
    Actor.all.clear()
    shutil.rmtree(place)
    return {"rounds": found}


def main() -> None:
    """Run the methods that are missing, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=";".join(METHODS), help="their names, with ; between")
    parser.add_argument("--steps", default="40,20", help="numbers of local steps")
    parser.add_argument("--rounds", type=int, default=40, help="the most of a run")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with cleaned_up(keep=False) as home:
        write_federation(home / "data")
        make_keys(home / "keys", names(), ["localhost"], days=1)
        for tau in options.steps.split(","):
            for name in options.methods.split(";"):
                if name not in known.setdefault(tau, {}):
                    known[tau][name] = run(home, METHODS[name], int(tau), options.rounds)
                    end = known[tau][name]["rounds"][-1]
                    print(f"tau {tau}, {name}: {len(known[tau][name]['rounds'])} rounds, {end}", flush=True)
                    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
