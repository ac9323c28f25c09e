"""A coordinator that would read what single sites send, while they hide it."""

from __future__ import annotations

import re

from benchmarks.drill.actors import read
from benchmarks.drill.consortium import NETWORK, SETTINGS, SITES, Consortium
from imperfed.flower.processes.child import free_port
from imperfed.flower.site.privacy_ledger import PrivacyLedger

ROUNDS = 4
NOISE = {"site": 4, "sum": 1}
"""The noise of each way to hide updates; that of a sum hides a site among all others, and is less."""


def updates_are_hidden(drill: Consortium) -> None:
    """Hide every update by noise, then in a sum; then let a site ask for noise where the run has none."""
    for privacy in NOISE:
        hidden(drill, privacy)
    port, policy = free_port(), drill.home / "sparing.toml"
    policy.write_text(f'modules = ["{NETWORK}"]\nmost_epsilon = 3')
    joining = drill.join("open", "north", port, policy=policy)
    serving = drill.serve("open", port, "--sites", "north", method="fedavg")
    code, said = serving.ended(), serving.said(r"^error: .*")
    kept = "the same in its log" if "most_epsilon" in read(joining.out) else "NOTHING in its log"
    joining.end()
    told = f"{said} (code {code})" if "most_epsilon" in said else f"NOTHING: {said}"
    drill.tell("no noise, where a site's policy asks for it", "no site could ask", told, kept, 0, "nothing was sent")


def hidden(drill: Consortium, privacy: str) -> None:
    """Do a run whose updates are hidden, and report what reached the coordinator and what each site counted."""
    port, name = free_port(), f"hidden-{privacy}"
    settings = [*SETTINGS, "--set", f"privacy={privacy}", "--set", f"privacy.noise={NOISE[privacy]}"]
    serving = drill.serve(name, port, method="fedavg", rounds=ROUNDS, settings=settings)
    actors = drill.join_all(name, port)
    code = serving.ended()
    for actor in actors.values():
        actor.ended()
    spent = re.match(r"privacy=\w+: epsilon \S+", serving.said(r"^privacy=.*"))
    log = read(drill.home / f"{name}-north" / "log.txt")
    left = sorted(set(re.findall(r"(?:up|share)/w", log)))
    counted = [len(PrivacyLedger.read(drill.home / f"{name}-{site}").releases) for site in SITES]
    drill.tell(
        f"the coordinator reads single updates (`privacy={privacy}`)",
        "each was sent as it was",
        f"{spent[0] if spent else 'NOTHING'}; code {code}",
        f"its log: {', '.join(left)} left it; {min(counted)} to {max(counted)} updates in each site's own count",
        0,
        "none" if code == 0 else "LOST",
    )
