"""A coordinator that asks for too much, again and again; and a bit that flips in what a site keeps of its rows."""

from __future__ import annotations

import json
import time
from pathlib import Path

from safetensors.torch import load_file

from benchmarks.drill.actors import Actor, read
from benchmarks.drill.consortium import SITES, Consortium, failures
from benchmarks.drill.curious import FOUND, HEAVY, OLD_RUN, SERVE_AS_CURIOUS
from benchmarks.drill.disks import flip
from imperfed.flower.processes.child import free_port

ATTACKS = {
    "splits": ("`hello` under 60 names with other data seeds", "60 answers, from which 40 of 40 rows followed exactly"),
    "missing": ("`hello` with other values declared missing", "told which values the site has: 40 of 40 were found"),
    "zoom": ("counts for bins on ever finer grids", "a value was known to eleven digits after eight counts"),
    "rounds": ("20 models in the one round of a run", "20 updates"),
    "figures": ("20 models to be measured in a run of one round", "20 figures"),
    "another kind": ("a message of a search, and counts, in a run that is neither", "both were answered"),
    "modules": ("code as `run.method`, 20 times", "refused as well, with all settings in the log each time"),
    "another run": ("the name of a folder that is there already", "its report was overwritten, its states deleted"),
    "the same name": ("the name of a run with other settings", "its report was overwritten, its states deleted"),
    "heavy": (f"a message of {8 * HEAVY // 10**6} MB where 8 are allowed", "not bounded"),
    "wide": ("a model with 12 thousand million parameters", "not bounded"),
}
"""What is asked, and what came of it when nothing was done about it."""
POLICY = "most_bytes = 8_000_000"


def too_much_is_asked(drill: Consortium) -> None:
    """Let a coordinator ask a site for everything that follows from asking often, or that nobody agreed to."""
    port, policy, state = free_port(), drill.home / "careful.toml", drill.home / "asked-north"
    policy.write_text(POLICY)
    old = state / OLD_RUN / "report.html"
    old.parent.mkdir(parents=True)
    old.write_text("an old report")
    where = ["--host", "localhost", "--port", port, "--keys", drill.keys / "coordinator", "--out", drill.home / "asked"]
    words = ["serve", drill.data / "federation.toml", "average-ce", "--sites", "north", *where]
    serving = Actor(drill.home, "asked", *words, start=("-c", SERVE_AS_CURIOUS))
    own = ["--data", drill.data / "sites" / "north.csv", "--state", state, "--keys", drill.keys / "site-north"]
    joining = Actor(drill.home, "asked-site", "join", f"localhost:{port}", *own, "--policy", policy)
    serving.ended()
    found = json.loads(read(drill.folder("asked") / FOUND))
    joining.end()
    log = read(state / "log.txt")
    for attack, (fault, before) in ATTACKS.items():
        sent, answered, refusal = found[attack]
        reason = refusal.removeprefix("no answer: ").removeprefix("north refuses ")
        logged = [line for line in log.splitlines() if reason[-40:] in line]
        site = f"{len(logged)} of these in its log" if logged else "NOTHING in its log"
        if attack == "another run":
            site += f"; the folder has {', '.join(path.name for path in old.parent.iterdir())} as before"
        lost = "none" if old.read_text() == "an old report" else "LOST"
        drill.tell(fault, before, f"{answered} of {sent} answered: {refusal}", site, "-", lost)


def rows_change_on_disk(drill: Consortium) -> None:
    """Flip a bit in the copy of a site's rows during a run."""
    reference, port = drill.alone(), free_port()
    serving = drill.serve("copies", port)
    actors = drill.join_all("copies", port)
    serving.until(r"^round 3/")
    [copy] = (drill.home / "copies-north").glob("rows-*.safetensors")
    whole, began = copy.read_bytes(), time.monotonic()
    flip(copy, at=len(whole) // 2)
    while copy.exists() and copy.read_bytes() != whole and time.monotonic() - began < 60:
        time.sleep(0.05)
    mended = copy.exists() and copy.read_bytes() == whole
    seconds = time.monotonic() - began
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    same = sum(_same(reference / "models" / f"{s}.safetensors", _model(drill, s)) for s in SITES)
    drill.tell(
        "one bit flipped in the copy of a site's rows",
        "not noticed: 40 became 1.7e11, and the model another one",
        f"ends with code {code}",
        f"its copy is as before after {seconds:.1f} s" if mended else "ITS COPY STAYS DAMAGED",
        len(failures(drill.folder("copies"), "north")),
        "none" if same == len(SITES) else f"LOST: {same} of {len(SITES)} models equal those of an undisturbed run",
    )


def _model(drill: Consortium, site: str) -> Path:
    [model] = drill.home.glob(f"copies-{site}/*/models/{site}.safetensors")
    return model


def _same(one: Path, other: Path) -> bool:
    a, b = load_file(one), load_file(other)
    return all(bool((a[name] == b[name]).all()) for name in a)
