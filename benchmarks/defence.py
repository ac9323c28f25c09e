"""Seconds of one core for a round of FairFedPAPL: all sites together compared with one site after the other.

python -m benchmarks.defence [--rounds 7]

The sizes are those of COMPAS: 14 inputs, an MLP of 64 hidden units, three classes, 100 dummy rows, 20 steps. The two
ways take turns, round by round; medians are compared. Time is that of the process alone, unaffected by others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from imperfed.core.context import ServerContext
from imperfed.core.exchange import Updates
from imperfed.core.federation import Attribute
from imperfed.core.network import Layout, Net
from imperfed.defences.fairfedpapl import FairFedPAPL
from imperfed.models import ModelSpec, build

RESULTS = Path(__file__).parent / "results" / "defence.json"
SITES = (20, 40)
INPUTS, CLASSES = 14, ("low", "medium", "high")
DEFENCE = FairFedPAPL(target="b", unprivileged="high")
ALIKE = 0.02
"""How far a site's score may differ between the two ways: 20 steps of Adam amplify rounding errors."""


def the_hall(round: int) -> ServerContext:
    network = build(ModelSpec(hidden=64), (INPUTS,), len(CLASSES), 0)
    net = Net(network.eval(), Layout.of(network, lambda name: False))
    draw = torch.Generator().manual_seed(round)
    attribute = Attribute("group", tuple("abcdef"), INPUTS - 6)
    return ServerContext(net, torch.zeros(0, INPUTS), round, 0.01, draw, classes=CLASSES, attribute=attribute)


def some_updates(net: Net, sites: int, round: int) -> Updates:
    draw = torch.Generator().manual_seed(1000 + round)
    w = net.w + 0.01 * torch.randn(sites, len(net.w), generator=draw)
    return Updates(tuple(range(sites)), torch.ones(sites), {"w": w, "buffers": w[:, :0]})


def together(sent: dict[str, Tensor], updates: Updates, round: int) -> Tensor:
    return DEFENCE.scores(sent, updates, the_hall(round))


def one_by_one(sent: dict[str, Tensor], updates: Updates, round: int) -> Tensor:
    alone = [updates.only(torch.tensor([k])) for k in range(len(updates.who))]
    first = {name: t[:1] for name, t in sent.items()}
    return torch.cat([DEFENCE.scores(first, update, the_hall(round)) for update in alone])


def timed(way: Callable[..., Tensor], *given: Any) -> tuple[float, Tensor]:
    begun = time.process_time()
    scores = way(*given)
    return time.process_time() - begun, scores


def measure(sites: int, rounds: int) -> dict[str, float]:
    """Return the medians over the rounds, without the first, in which everything is loaded."""
    net = the_hall(0).net
    sent = {"w": net.w.clone().expand(sites, -1), "buffers": net.w[:0].expand(sites, -1)}
    seconds: dict[str, list[float]] = {"together": [], "one by one": []}
    for round in range(rounds + 1):
        updates = some_updates(net, sites, round)
        a, scores = timed(together, sent, updates, round)
        b, alone = timed(one_by_one, sent, updates, round)
        torch.testing.assert_close(scores, alone, rtol=0, atol=ALIKE)
        if round:
            seconds["together"].append(a)
            seconds["one by one"].append(b)
    ratio = median(b / a for a, b in zip(*seconds.values(), strict=True))
    return {"sites": sites} | {way: round_to(median(s)) for way, s in seconds.items()} | {"ratio": round_to(ratio)}


def round_to(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds
    torch.set_num_threads(1)
    lines = [measure(sites, rounds) for sites in SITES]
    print("sites   together, s   one by one, s   ratio")
    for line in lines:
        print(f"{line['sites']:5}   {line['together']:11}   {line['one by one']:13}   {line['ratio']:5}")
    RESULTS.write_text(json.dumps({"torch": torch.__version__, "rounds": rounds, "figures": lines}, indent=2) + "\n")


if __name__ == "__main__":
    main()
