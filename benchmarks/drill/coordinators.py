"""A coordinator that is killed, one that asks for too much, and one that asks for what cannot be."""

from __future__ import annotations

import re
import subprocess
import sys

from safetensors.torch import load_file

from benchmarks.drill.actors import Actor, read
from benchmarks.drill.consortium import NETWORK, SITES, Consortium
from benchmarks.drill.rogue import CARD
from imperfed.flower.processes.child import free_port

ONE_ROW = ["--model", "logistic", "--set", "batch=1", "--set", "steps=1"]
PROTECTIVE = 'columns = ["a", "b", "c", "d", "e", "f", "g", "diagnosis"]'
"""A policy without modules, and without the column h."""
CURIOUS = [
    (
        ONE_ROW,
        {
            "one row per step is asked for (`batch=1`, `steps=1`)": (
                "smallest_batch",
                "12 of 12 rows and their labels were read out",
            ),
            "a column that the site does not share": ("columns", "its sums were sent"),
        },
    ),
    (["--model", NETWORK], {"a model that imports a module at the site": ("modules", "it was imported and called")}),
]
"""What a curious coordinator asks for: settings; then, of each fault, the key of the policy that rules it out, and what
happened before."""


def coordinator_fails(drill: Consortium) -> None:
    """Kill the coordinator mid-round and resume it; the sites keep running. Then ask it about the run."""
    port, reference = free_port(), drill.alone()
    serving = drill.serve("second", port)
    actors = drill.join_all("second", port)
    serving.until(r"^round 3/")
    killed = serving.kill_now()  # its one task is the run itself
    missed = actors["north"].until(r"^no answer at \S+ any more.*")
    run = drill.folder("second")
    resumed = Actor(drill.home, "resumed", "resume", run)
    code = resumed.ended()
    for actor in actors.values():
        actor.ended()
    went_on = re.search(r"resumed after round (\d+)", read(run / "log.txt"))
    models = [
        (load_file(reference / "models" / f"{s}.safetensors"), load_file(path / "models" / f"{s}.safetensors"))
        for s in SITES
        for path in drill.home.glob(f"second-{s}/{run.name}")
        if (path / "report.html").exists()
    ]
    same = len(models) == len(SITES) and all((a[k] == b[k]).all() for a, b in models for k in a)
    drill.tell(
        f"kill -9 of the coordinator ({killed} processes), `imperfed resume`",
        "held as well, but `join` said nothing meanwhile",
        f"{went_on[0] if went_on else 'NOT RESUMED'}; ends with code {code}",
        f"“{missed}”; {len(models)} of {len(SITES)} came back by themselves and ended with a report",
        f"{3 - int(went_on[1]) if went_on else '?'} (done again)",
        "none: all models equal those of an undisturbed run" if same else "LOST",
    )
    told = asked(drill, "evaluate", run)
    drill.tell(
        "`imperfed evaluate` of a served run", "did not say where rows and models are", told, "nothing", 0, "none"
    )


def curious_coordinator(drill: Consortium) -> None:
    """Ask a site for one row per step, for an import and for a column that its policy rules out."""
    port, policy = free_port(), drill.home / "protective.toml"
    policy.write_text(PROTECTIVE)
    joining = drill.join("curious", "north", port, policy=policy)
    for n, (settings, faults) in enumerate(CURIOUS):
        serving = drill.serve(f"curious-{n}", port, "--sites", "north", settings=settings)
        code, said = serving.ended(), serving.said(r"^error: .*")
        for fault, (key, before) in faults.items():
            objection = re.findall(rf"(?:refuses|;) ([^;]*\({key}\))", said)
            kept = "the same in its log" if f"({key})" in read(joining.out) else "NOTHING in its log"
            told = f"“{objection[0].strip()}”; code {code}" if objection else f"NOTHING: {said}"
            drill.tell(fault, before, told, kept, 0, "nothing was sent")
    joining.end()


def what_cannot_be(drill: Consortium) -> None:
    """Serve a method for other labels; let a site begin with a wrong card, and come back with the right one."""
    unfit = drill.serve("unfit", free_port(), settings=["--set", "run.objective=cross-entropy"])
    code = unfit.ended()
    drill.tell(
        "a method for other labels than those declared",
        "not refused before all had joined",
        f"{unfit.last()} (code {code})",
        "no one had joined",
        0,
        "none",
    )
    port = free_port()
    serving = drill.serve("card", port, rounds=2)
    actors = {
        name: drill.join("card", name, port, rogue=name == "south", env={CARD: "1"} if name == "south" else None)
        for name in SITES
    }
    code = serving.ended()
    said = serving.said(r"^error: .*")
    actors["south"].kill_now()
    actors["south"] = drill.join("card", "south", port)
    resumed = Actor(drill.home, "card-resumed", "resume", drill.folder("card"))
    again = resumed.ended()
    for actor in actors.values():
        actor.ended()
    reports = len(list(drill.home.glob("card-*/*/report.html")))
    drill.tell(
        "a wrong card at first: other classes",
        "`resume` was refused for ever",
        f"{said} (code {code}); after `resume`: code {again}",
        f"the right card is accepted; {reports} of {len(SITES)} end with a report",
        0,
        "none" if again == 0 and reports == len(SITES) else "LOST",
    )


def asked(drill: Consortium, verb: str, run: object) -> str:
    """Return what a command says about a run."""
    done = subprocess.run(
        [sys.executable, "-m", "imperfed", verb, str(run)], capture_output=True, text=True, check=False, cwd=drill.home
    )
    last = (done.stderr.strip().splitlines() or ["NOTHING"])[-1]
    return f"{last.replace(f'{drill.home}/', '')} (code {done.returncode})"
