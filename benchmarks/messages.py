"""The messages of a run with real sites, in one process: what leaves a site, its bytes, and equality of results.

python -m benchmarks.messages [method [key=value ...]]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from imperfed.data.site_files import SiteFiles
from imperfed.data.whole_federation import taken_apart
from imperfed.experiments.resolving import resolve
from imperfed.experiments.run_data import held_by_sites
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from imperfed.flower.coordinator.coordinator import Coordinator
from imperfed.flower.messages.local_grid import LocalGrid, Node
from imperfed.flower.messages.transport import Timeouts
from imperfed.flower.site.handlers import make_app
from imperfed.flower.site.runtime import LocalSite
from imperfed.results.folder import RunFolder

SECRET = b"known to the sites"


def main() -> None:
    """Do one run with messages and one without, and compare them."""
    method, *words = sys.argv[1:] or ["pfedpll"]
    settings = {"data": "digits", "model": "cnn", "rounds": 5, "sites": 4, "device": "cpu"}
    config = resolve(words=settings | {"method": method} | dict(word.split("=", 1) for word in words))
    with TemporaryDirectory() as name:
        here = Path(name)
        central, holdings = taken_apart(held_by_sites(config))

        def node(holding: SiteFiles) -> Node:
            place = LocalSite(holding.name, lambda config, declaration: holding, here / holding.name, SECRET)
            return Node(make_app(lambda node: place), {})

        grid = LocalGrid({100 + k: node(holding) for k, holding in enumerate(holdings)})
        folder, sites = RunFolder(here / "run"), [holding.name for holding in holdings]
        folder.write("config.toml", config.toml())
        coordinator = Coordinator(grid, config, central, sites, folder, timeouts=Timeouts(poll=0))
        began = time.perf_counter()
        coordinator.run(Watch())
        seconds = time.perf_counter() - began
        whole, _ = start(config, here, Watch())
        a, b = (f.load_model("global") for f in (folder, whole))
        same = all(torch.equal(a[key], b[key]) for key in b) and list(folder.records()) == list(whole.records())
        numbers = sum(t.numel() for t in b.values())
        print(f"{method}: {numbers} numbers are shared; models and metrics equal to one process: {same}")
        print(f"{seconds:.1f} s; bytes, all messages of {config.rounds.rounds} rounds:")
        for site, ways in coordinator.transport.traffic().items():
            print(f"  {site}: {ways['down']} down, {ways['up']} up")
        print(*(here / sites[0] / "log.txt").read_text().splitlines(), sep="\n")


if __name__ == "__main__":
    main()
