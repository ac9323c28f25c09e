"""The server's side of an exchange: answers are put into groups, looked at by the defence, merged and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean

import torch

from imperfed.auxiliary import Defence
from imperfed.core import Done, Exchange, Hall, Suspicion, Tree, Updates
from imperfed.descend import Local, Shelf, descend, plan
from imperfed.engine.seeds import SERVER, generator, seeded
from imperfed.engine.site import Bench
from imperfed.errors import DivergedError, ImperfedError
from imperfed.network import Net

GUARD = "defence/"
"""Names of this prefix in the server's memory are the defence's."""


@dataclass
class Server:
    """What the server does with answers, on the state that the sites' processes see."""

    bench: Bench
    net: Net
    defence: Defence | None

    def halls(self, round: int) -> list[Hall]:
        """What the server may use in this round, for each group."""
        job, fed = self.bench.job, self.bench.job.federation
        halls = []
        for g in range(len(self.bench.state.servers)):
            draw = generator(job.seed, round, SERVER, f"hall {g}" if g else "hall")
            names = tuple(fed.sites[k] for k in job.groups.members[g])
            given = self.net, fed.public, round, job.local.lr, draw
            hall = Hall(*given, classes=fed.classes, attribute=fed.attribute, sites=names)
            if fed.trusted is not None:
                hall = replace(hall, trusted=fed.trusted, train=self.training(round))
            halls.append(hall)
        return halls

    def local(self) -> Local:
        """How the server trains on rows of its own: with as many steps as a site makes on average."""
        job = self.bench.job
        steps = [job.local.steps_of(n) for n in job.federation.sizes()]
        return replace(job.local, steps=round(mean(steps)), epochs=0)

    def training(self, round: int) -> Callable[[Tree], Done]:
        """How the server trains on its own rows in this round."""
        job, trusted = self.bench.job, self.bench.job.federation.trusted
        local = self.local()

        def train(down: Tree) -> Done:
            assert trusted is not None
            objective, labels = job.objective, trusted.labels.told_as(job.objective.labels)
            shelf = Shelf(trusted.x, labels, objective.open(labels), objective.survey(labels))
            p = plan(job.algorithm, local, len(trusted.x), generator(job.seed, round, SERVER, "batches"))
            self.net.load(job.layout.join(down["w"], down["buffers"], self.bench.state.personal[0]))
            with seeded(job.seed, round, SERVER, "layers train"):
                return descend(job.algorithm, job.objective, self.net, shelf, p, down, {}, local)[0]

        return train

    def take(self, exchange: Exchange, updates: Updates, halls: list[Hall]) -> None:
        """Merge the answers of an exchange, each group by itself; a group of which nobody answered stays as it was."""
        for g, hall in enumerate(halls):
            server = dict(self.bench.state.servers[g])
            if mine := self.of_group(updates, g):
                self.remember(g, self.merge(exchange, server, mine, hall))
            elif exchange.trains:
                self.remember(g, self.bench.job.algorithm.unmerged(server))

    def of_group(self, updates: Updates, g: int) -> Updates | None:
        """The answers of one group, its sites by their numbers there."""
        homes = self.bench.job.groups.homes
        rows = [row for row, k in enumerate(updates.who) if homes[k][0] == g]
        if not rows:
            return None
        places = tuple(homes[updates.who[row]][1] for row in rows)
        if len(self.bench.state.servers) == 1:
            return replace(updates, who=places)
        parts = tuple(updates.parts[row] for row in rows) if updates.parts else ()
        at = torch.tensor(rows, device=updates.n.device)
        return Updates(places, updates.n[at], {name: t[at] for name, t in updates.trees.items()}, parts)

    def merge(self, exchange: Exchange, server: Tree, updates: Updates, hall: Hall) -> Tree:
        """What the algorithm makes of the answers that the defence lets through."""
        if self.defence is None or not exchange.trains:
            return exchange.gather(server, updates, hall)
        memory = {name.removeprefix(GUARD): t for name, t in server.items() if name.startswith(GUARD)}
        kept, memory = self.defence.inspect(memory, self.sent(server, updates.who), updates, hall)
        if kept is None:
            hall.notes.append(f"{self.defence.name}: no answer was let through, the model stays as it was")
            server = self.bench.job.algorithm.unmerged(server)
        else:
            hall.left_out = tuple(k for k in updates.who if k not in kept.who)
            server = exchange.gather(server, kept, hall)
        return server | {f"{GUARD}{name}": t for name, t in memory.items()}

    def sent(self, server: Tree, who: tuple[int, ...]) -> Tree:
        """The model that each of these sites started from, a row a site."""
        downs = [server | self.bench.job.algorithm.send(server, k) for k in who]
        same = all(down["w"] is server["w"] for down in downs)
        w = server["w"].expand(len(who), -1) if same else torch.stack([down["w"] for down in downs])
        return {"w": w, "buffers": server["buffers"].expand(len(who), -1)}

    def remember(self, g: int, server: Tree) -> None:
        """A group's new memory, in place: the sites' processes see it at once."""
        known = self.bench.state.servers[g]
        if undeclared := server.keys() ^ known.keys():
            raise ImperfedError(f"the server's memory changed its names: {', '.join(sorted(undeclared))}")
        alike = [server[name].shape == t.shape for name, t in known.items()]
        finite = torch.stack([torch.isfinite(server[name]).all().to(t.device) for name, t in known.items()]).tolist()
        for (name, t), sound in zip(known.items(), map(all, zip(alike, finite, strict=True)), strict=True):
            if not sound:
                raise DivergedError(f"the merged {name!r} has the wrong shape or is not finite: the run has diverged")
            t.copy_(server[name])

    def suspicions(self, halls: list[Hall]) -> list[Suspicion]:
        """What the defence thinks of the sites, by their numbers in the whole federation."""
        members = self.bench.job.groups.members
        return [replace(s, site=members[g][s.site]) for g, hall in enumerate(halls) for s in hall.suspicions]
