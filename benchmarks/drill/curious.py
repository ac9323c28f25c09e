"""A coordinator that asks for more than any run needs, in every way it knows, and counts what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from imperfed.alone import alone_models
from imperfed.data.files.declaration import parse
from imperfed.data.scale import Scale
from imperfed.engine.failures import Failure
from imperfed.experiments.resolving import resolve
from imperfed.flower.coordinator.mailbox import SuperLinkMailbox
from imperfed.flower.coordinator.serving import Service, home_of
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.messages.search_figures import consensus_words, family_words
from imperfed.flower.messages.transport import Timeouts, Transport
from imperfed.results.folder import RunFolder

SERVE_AS_CURIOUS = (
    "import imperfed.flower.coordinator.serving as s; s.SERVER = 'benchmarks.drill.curious:server'; "
    "from imperfed.cli.app import main; main()"
)
FOUND = "curious.json"
"""In the run's folder: of each attack, how many messages were sent, how many were answered, and the last refusal."""
WEIGHTS = 27
"""Of a logistic model for eight columns and three classes."""
HEAVY = 10**7
"""Numbers of a message that is too large for the site's policy."""
OLD_RUN = "an-old-run"
server = ServerApp()


class Curious:
    """One coordinator and one site."""

    def __init__(self, grid: Grid, context: Context, folder: RunFolder) -> None:
        service = Service.of(folder)
        declaration = service.declaration(folder)
        self.declaration, self.classes = declaration.toml(), declaration.labels.classes
        self.greeting = self.run("honest")
        mailbox = SuperLinkMailbox(grid, home_of(folder))
        self.transport = Transport(mailbox, service.sites, self.greeting, Timeouts(answer=60), print)
        self.transport.admitted = json.loads(str(context.run_config["admitted"])) or None
        self.found: dict[str, tuple[int, int, str]] = {}

    def run(self, name: str, declaration: str = "", **settings: Any) -> RunInfo:
        """Return a run that this site would take part in, with other settings."""
        words = {"method": "average-ce", "model": "logistic", "batch": 16, "rounds": 1, "split.public": 0}
        text = resolve(words=words | {"split.trusted": 0} | settings).toml()
        return RunInfo(name, text, declaration or self.declaration, 0, Scale.none(), {})

    def attack(self, name: str, messages: Iterable[tuple[str, Payload]]) -> None:
        """Send messages one after the other, and note how many are answered."""
        sent, answered, refusal = 0, 0, ""
        for kind, payload in messages:
            (reply,) = self.transport.send(kind, {0: payload}, name).values()
            sent, answered = sent + 1, answered + (not isinstance(reply, Failure))
            refusal = reply.reason if isinstance(reply, Failure) else refusal
        self.found[name] = sent, answered, refusal

    def go(self) -> None:
        """Do everything."""
        self.transport.gather()
        hello = [self.run(f"seed-{n}", **{"run.data_seed": n}).payload() for n in range(1, 61)]
        self.attack("splits", (("query.hello", one) for one in hello))
        self.attack("missing", (("query.hello", self.without(n).payload()) for n in range(20)))
        scales = [Scale(*(torch.full((8,), x, dtype=torch.float64) for x in (0.0, 10.0**-n))) for n in range(8)]
        binned = self.run("zoom", model="mlp-ple")
        self.attack("zoom", (("query.count", replace(binned, scale=scale).payload()) for scale in scales))
        self.attack("rounds", (("train", self.trained(n)) for n in range(20)))
        self.attack("figures", (("evaluate", self.trained(n, measured=True)) for n in range(20)))
        families = family_words([next(iter(alone_models().values()))()])
        alone = self.greeting.payload(families | consensus_words({}) | {"number": 0})
        self.attack("another kind", [("query.alone", alone), ("query.count", self.greeting.payload())])
        code = self.greeting.settings.replace('method = "average-ce"', 'method = "cleanup:Go"')
        self.attack("modules", [("query.hello", replace(self.greeting, run="code", settings=code).payload())] * 20)
        self.attack("another run", [("query.hello", self.run(OLD_RUN).payload())])
        again = self.run("honest", method="fedavg+average-ce", rounds=2)
        self.attack("the same name", [("query.hello", again.payload()), ("query.leave", again.payload())])
        self.attack("heavy", [("train", self.trained(0, weights=HEAVY))])
        self.attack(
            "wide", [("train", self.run("wide", model="mlp", **{"model.hidden": 10**9}).payload(*self.step(0)))]
        )

    def without(self, number: int) -> RunInfo:
        """Return a run whose declaration leaves out a value."""
        declared = parse(self.declaration)
        inputs = replace(declared.inputs, missing=(f"{number / 1000:.3f}",), fill="mean")
        return self.run(f"missing-{number}", replace(declared, inputs=inputs).toml())

    def trained(self, number: int, measured: bool = False, weights: int = WEIGHTS) -> Payload:
        """Return a message of round 1 with another model."""
        words, trees = self.step(number, weights)
        return self.greeting.payload({**words, "exchange": -1, "evaluate": 1, "round": 1} if measured else words, trees)

    def step(self, number: int, weights: int = WEIGHTS) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the words and the model of a message of round 1."""
        states = {name: [-1, 0] for name in ("from", "base", "best")}
        model = {"w": torch.full((weights,), 0.01 * number), "buffers": torch.zeros(0)}
        return {"round": 0, "exchange": 0, "evaluate": 0} | states, {"down": model, "model": model}


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Ask, and end the run without any result."""
    folder = RunFolder(Path(str(context.run_config["folder"])))
    curious = Curious(grid, context, folder)
    outcome: dict[str, object] = {"error": "all was asked", "exit_code": 6}
    try:
        curious.go()
    except Exception as error:
        outcome["error"] = repr(error)
    folder.write(FOUND, json.dumps(curious.found))
    RunFolder(home_of(folder)).write("outcome.json", json.dumps(outcome))
