"""A coordinator that is killed just before the end of a run."""

from __future__ import annotations

from benchmarks.drill.actors import Actor
from benchmarks.drill.consortium import SITES, Consortium, failures
from imperfed.flower.processes.child import free_port


def endings_fail(drill: Consortium) -> None:
    """Kill the coordinator once its results are written, with a site away; resume it, and let the site join later."""
    port = free_port()
    serving = drill.serve("ending", port, rounds=4)
    actors = drill.join_all("ending", port)
    serving.until(r"^round 2/")
    actors["west"].kill_now()
    serving.until(r"^waiting for .*has yet to get its results")
    serving.kill_now()
    run = drill.folder("ending")
    resumed = Actor(drill.home, "ending-resumed", "resume", run)
    resumed.until(r"^waiting for west, which has yet")
    late = drill.join("ending", "west", port)
    codes = resumed.ended(), late.ended()
    for name in ("north", "south"):
        actors[name].ended()
    reports = len(list(drill.home.glob(f"ending-*/{run.name}/report.html")))
    drill.tell(
        "the coordinator killed after its results, a site away; resumed, and joined later",
        "reports, models and labels of all sites lost; `resume`: “ended already”",
        f"{resumed.said('waiting for west.*')}; code {codes[0]}",
        f"code {codes[1]}; {reports} of {len(SITES)} sites have their reports",
        len(failures(run, "west")),
        "none" if reports == len(SITES) else "LOST",
    )
