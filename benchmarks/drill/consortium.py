"""Three sites with their files and keys, and what was seen of every fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.drill.actors import ROGUE, Actor, join_as, read
from imperfed.flower.processes.keys import make_keys

SITES = ("north", "south", "west")
ROUNDS = 9
NETWORK = "benchmarks.drill.consortium:network"
LARGE = "benchmarks.drill.consortium:large_network"
SETTINGS = ["--model", NETWORK, "--set", "local.steps=40", "--set", "batch=16"]


def network(shape, classes):
    """Build a network that is not batched over sites in one process, so that all runs can be compared bit for bit."""
    from torch import nn

    from imperfed.core.network import Network

    return Network(nn.Sequential(nn.Linear(shape[0], 16), nn.LayerNorm(16), nn.Tanh()), nn.Linear(16, classes))


def large_network(shape, classes):
    """Build a network of 12 MB, which travels in three pieces."""
    from torch import nn

    from imperfed.core.network import Network

    return Network(nn.Sequential(nn.Linear(shape[0], 1000), nn.Tanh(), nn.Linear(1000, 3000)), nn.Linear(3000, classes))


class Seen(NamedTuple):
    """One line of the table."""

    fault: str
    before: str
    """What happened in the first drill, when nothing was done about it."""
    coordinator: str
    site: str
    rounds: str
    """Rounds lost."""
    state: str
    """State lost."""


class Consortium:
    """A folder with files and keys of three sites, in which commands are started."""

    def __init__(self, home: Path) -> None:
        self.home, self.data, self.keys, self.policy = home, home / "data", home / "keys", home / "policy.toml"
        self.rows: list[Seen] = []
        write_federation(self.data)
        self.policy.write_text(f'modules = ["{NETWORK}", "{LARGE}"]')
        make_keys(self.keys, SITES, ["localhost"], days=1)

    def serve(
        self,
        name: str,
        port: int,
        *more: object,
        method: str = "pfedpll",
        rounds: int = ROUNDS,
        settings: Sequence[str] = SETTINGS,
    ) -> Actor:
        where = ["--host", "localhost", "--port", port, "--keys", self.keys / "coordinator", "--out", self.home / name]
        what = [self.data / "federation.toml", method, "--rounds", rounds, *settings]
        return Actor(self.home, name, "serve", *what, *where, *more)

    def join(
        self,
        run: str,
        site: str,
        port: int,
        *,
        keys: Path | None = None,
        rogue: bool | str = False,
        policy: Path | None = None,
        state: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Actor:
        own = ["--data", self.data / "sites" / f"{site}.csv", "--test", self.data / "test" / f"{site}.csv"]
        own += ["--state", self.home / f"{run}-{state or site}", "--keys", keys or self.keys / f"site-{site}"]
        words = ["join", f"localhost:{port}", *own, "--policy", policy or self.policy]
        return Actor(
            self.home,
            f"{run}-{state or site}",
            *words,
            start=("-c", join_as(rogue if isinstance(rogue, str) else ROGUE)) if rogue else ("-m", "imperfed"),
            env=env,
        )

    def join_all(self, run: str, port: int, policy: Path | None = None) -> dict[str, Actor]:
        return {name: self.join(run, name, port, policy=policy) for name in SITES}

    def folder(self, name: str) -> Path:
        """Return the coordinator's folder of a run."""
        [run] = (self.home / name).iterdir()
        return run

    def toll(self, run: str, *sites: str) -> Toll:
        """Begin to measure what a fault costs these sites in a run that has begun."""
        return Toll(self, run, sites)

    def tell(self, fault: str, before: str, coordinator: str, site: str, rounds: object, state: str) -> None:
        """Record what was seen of a fault."""
        self.rows.append(Seen(fault, before, coordinator, site, str(rounds), state))

    def alone(self) -> Path:
        """Do the same run in one process, undisturbed."""
        words = ["--data", self.data, "--set", "split.public=0", "--workers", 1, "--out", self.home / "alone"]
        command = [sys.executable, "-m", "imperfed", "run", "pfedpll", "--rounds", ROUNDS, *SETTINGS, *words]
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        return self.folder("alone")


class Toll:
    """What a fault costs sites that do not deserve it, from its beginning on."""

    def __init__(self, drill: Consortium, run: str, sites: Sequence[str]) -> None:
        self.drill, self.run, self.sites = drill, run, sites
        self.before = self._failed()

    def _failed(self) -> int:
        """Return in how many rounds one of the sites has failed."""
        return sum(len(failures(self.drill.folder(self.run), site)) for site in self.sites)

    def rounds(self) -> int:
        """Return how many answers in rounds were lost."""
        return self._failed() - self.before

    def state(self) -> str:
        """Return which sites had to go back to an earlier state, or have lost one."""
        logs = {site: read(self.drill.home / f"{self.run}-{site}" / "log.txt") for site in self.sites}
        back = [site for site, log in logs.items() if "going on from the state after" in log or "is not there" in log]
        return f"that of {', '.join(back)}" if back else "none"

    def at_the_end(self) -> str:
        """Return the same once the run has ended; a site without a report of its own has lost everything."""
        without = [s for s in self.sites if not list(self.drill.home.glob(f"{self.run}-{s}/*/report.html"))]
        return f"no report at {', '.join(without)}" if without else self.state()


def write_federation(folder: Path) -> None:
    """Write three sites' files with candidate sets, their tests, and the declaration."""
    draw, classes = np.random.default_rng(0), ["asthma", "flu", "none"]
    centres = draw.normal(size=(3, 8))
    for part, rows in (("sites", 200), ("test", 60)):
        (folder / part).mkdir(parents=True)
        for name in SITES:
            y = draw.integers(0, 3, rows)
            x, other = centres[y] + draw.normal(size=(rows, 8)), draw.integers(0, 3, rows) if part == "sites" else y
            lines = [
                ",".join([*(f"{v:.3f}" for v in values), "|".join(classes[c] for c in sorted({a, b}))])
                for values, a, b in zip(x, y, other, strict=True)
            ]
            (folder / part / f"{name}.csv").write_text("\n".join(["a,b,c,d,e,f,g,h,diagnosis", *lines]) + "\n")
    (folder / "federation.toml").write_text(
        'name = "clinics"\nsites = "sites/*.csv"\ntest = "test/*.csv"\n[inputs]\nnumeric = ["a", "b", "c", "d", "e", '
        f'"f", "g", "h"]\n[labels]\nkind = "candidates"\ncolumn = "diagnosis"\nclasses = {json.dumps(classes)}\n'
    )


def failures(run: Path, site: str) -> list[str]:
    """Return the reasons for which a site failed in rounds of a run, as the coordinator's log has them."""
    return re.findall(rf"(round \d+: {site} failed: .*)", read(run / "log.txt"))
