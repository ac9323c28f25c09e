"""The server's side of an exchange: answers are put into groups, looked at by the defence, merged and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean

import torch

from imperfed.core.batch import Tree
from imperfed.core.components import Defence
from imperfed.core.context import LocalResult, ServerContext, SiteVerdict
from imperfed.core.errors import DivergedError, ImperfedError
from imperfed.core.exchange import Exchange, Updates
from imperfed.core.network import Net
from imperfed.engine.local_training import Local, SiteData, plan, train_locally
from imperfed.engine.seeds import SERVER, generator, seeded
from imperfed.engine.site import SiteRuntime

GUARD = "defence/"
"""Names of this prefix in the server's memory are the defence's."""


@dataclass
class Server:
    """What the server does with answers, on the state that the sites' processes see."""

    runtime: SiteRuntime
    net: Net
    defence: Defence | None

    def contexts(self, round: int) -> list[ServerContext]:
        """What the server may use in this round, for each group."""
        spec, fed = self.runtime.spec, self.runtime.spec.federation
        halls = []
        for g in range(len(self.runtime.state.servers)):
            draw = generator(spec.seed, round, SERVER, f"hall {g}" if g else "hall")
            names = tuple(fed.sites[k] for k in spec.groups.members[g])
            given = self.net, fed.public, round, spec.local.lr, draw
            context = ServerContext(*given, classes=fed.classes, attribute=fed.attribute, sites=names)
            if fed.trusted is not None:
                context = replace(context, trusted=fed.trusted, train=self.training(round))
            halls.append(context)
        return halls

    def local(self) -> Local:
        """How the server trains on rows of its own: with as many steps as a site makes on average."""
        spec = self.runtime.spec
        steps = [spec.local.steps_of(n) for n in spec.federation.sizes()]
        return replace(spec.local, steps=round(mean(steps)), epochs=0)

    def training(self, round: int) -> Callable[[Tree], LocalResult]:
        """How the server trains on its own rows in this round."""
        spec, trusted = self.runtime.spec, self.runtime.spec.federation.trusted
        local = self.local()

        def train(down: Tree) -> LocalResult:
            assert trusted is not None
            objective, labels = spec.objective, trusted.labels.told_as(spec.objective.labels)
            data = SiteData(trusted.x, labels, objective.init_rows(labels), objective.site_stats(labels))
            p = plan(spec.algorithm, local, len(trusted.x), generator(spec.seed, round, SERVER, "batches"))
            self.net.load(spec.layout.join(down["w"], down["buffers"], self.runtime.state.personal[0]))
            with seeded(spec.seed, round, SERVER, "layers train"):
                return train_locally(spec.algorithm, spec.objective, self.net, data, p, down, {}, local)[0]

        return train

    def take(self, exchange: Exchange, updates: Updates, contexts: list[ServerContext]) -> None:
        """Merge the answers of an exchange, each group by itself; a group of which nobody answered stays as it was."""
        for g, context in enumerate(contexts):
            server = dict(self.runtime.state.servers[g])
            if mine := self.of_group(updates, g):
                self.remember(g, self.merge(exchange, server, mine, context))
            elif exchange.trains:
                self.remember(g, self.runtime.spec.algorithm.unmerged(server))

    def of_group(self, updates: Updates, g: int) -> Updates | None:
        """The answers of one group, its sites by their numbers there."""
        homes = self.runtime.spec.groups.homes
        rows = [row for row, k in enumerate(updates.who) if homes[k][0] == g]
        if not rows:
            return None
        places = tuple(homes[updates.who[row]][1] for row in rows)
        if len(self.runtime.state.servers) == 1:
            return replace(updates, who=places)
        parts = tuple(updates.parts[row] for row in rows) if updates.parts else ()
        at = torch.tensor(rows, device=updates.n.device)
        return Updates(places, updates.n[at], {name: t[at] for name, t in updates.trees.items()}, parts)

    def merge(self, exchange: Exchange, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """What the algorithm makes of the answers that the defence lets through."""
        if self.defence is None or not exchange.trains:
            return exchange.aggregate(server, updates, context)
        memory = {name.removeprefix(GUARD): t for name, t in server.items() if name.startswith(GUARD)}
        kept, memory = self.defence.inspect(memory, self.sent(server, updates.who), updates, context)
        if kept is None:
            context.notes.append(f"{self.defence.name}: no answer was let through, the model stays as it was")
            server = self.runtime.spec.algorithm.unmerged(server)
        else:
            context.left_out = tuple(k for k in updates.who if k not in kept.who)
            server = exchange.aggregate(server, kept, context)
        return server | {f"{GUARD}{name}": t for name, t in memory.items()}

    def sent(self, server: Tree, who: tuple[int, ...]) -> Tree:
        """The model that each of these sites started from, a row a site."""
        downs = [server | self.runtime.spec.algorithm.send(server, k) for k in who]
        same = all(down["w"] is server["w"] for down in downs)
        w = server["w"].expand(len(who), -1) if same else torch.stack([down["w"] for down in downs])
        return {"w": w, "buffers": server["buffers"].expand(len(who), -1)}

    def remember(self, g: int, server: Tree) -> None:
        """A group's new memory, in place: the sites' processes see it at once."""
        known = self.runtime.state.servers[g]
        if undeclared := server.keys() ^ known.keys():
            raise ImperfedError(f"the server's memory changed its names: {', '.join(sorted(undeclared))}")
        alike = [server[name].shape == t.shape for name, t in known.items()]
        finite = torch.stack([torch.isfinite(server[name]).all().to(t.device) for name, t in known.items()]).tolist()
        for (name, t), sound in zip(known.items(), map(all, zip(alike, finite, strict=True)), strict=True):
            if not sound:
                raise DivergedError(f"the merged {name!r} has the wrong shape or is not finite: the run has diverged")
            t.copy_(server[name])

    def suspicions(self, contexts: list[ServerContext]) -> list[SiteVerdict]:
        """What the defence thinks of the sites, by their numbers in the whole federation."""
        members = self.runtime.spec.groups.members
        return [replace(s, site=members[g][s.site]) for g, context in enumerate(contexts) for s in context.verdicts]
