"""Time and memory of posterior repair: `taskset -c 0,1 python -m studies.repair_cost --rows 50000`.

Features are drawn at random around one centre per class, and 20 % of the labels are wrong; no clean rows.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence

import torch

from imperfed.core.federation import Federation
from imperfed.core.labels import Exact
from imperfed.engine.conversation import repair_labels
from imperfed.repairs.posterior import PosteriorRepair


def federation(rows: int, width: int, classes: int, sites: int) -> Federation:
    """Return made-up rows at sites of equal size."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (rows,), generator=draw)
    x = 0.2 * torch.randn(classes, width, generator=draw)[y] + torch.randn(rows, width, generator=draw)
    given = torch.where(torch.rand(rows, generator=draw) < 0.2, (y + 1) % classes, y)
    starts = tuple(rows * k // sites for k in range(sites + 1))
    names, ids = tuple(f"site-{k}" for k in range(sites)), tuple(map(str, range(rows)))
    return Federation("made", x, Exact(given, classes), starts, names, tuple(map(str, range(classes))), ids, x[:0])


def main(words: Sequence[str] | None = None) -> None:
    """Repair once, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m studies.repair_cost", description=__doc__)
    for name, default in (("rows", 50_000), ("width", 1_280), ("classes", 100), ("sites", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(words)
    data = federation(options.rows, options.width, options.classes, options.sites)
    before, begun, cpu = peak(), time.perf_counter(), time.process_time()
    repair_labels(PosteriorRepair(features="raw"), data)
    print(f"{time.perf_counter() - begun:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
    print(f"{peak():.0f} MB at most, {before:.0f} MB of them before the repair began")


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
