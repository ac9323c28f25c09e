"""The server's side of an exchange: it groups the answers, lets the defence inspect them, merges and remembers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mean

import torch

from imperfed.core.batch import Tree, part_of, prefixed
from imperfed.core.components import Adversaries, Defence
from imperfed.core.context import LocalResult, ServerContext, SiteVerdict
from imperfed.core.errors import DivergedError, ImperfedError
from imperfed.core.exchange import Exchange, Query, Train, Updates
from imperfed.core.federation import Attribute
from imperfed.core.network import Net
from imperfed.engine.backends.base import TrainsAtServer
from imperfed.engine.local_training import Local, SiteData, plan, train_locally
from imperfed.engine.population import Population
from imperfed.engine.seeds import SERVER, generator, seeded

DEFENCE = "defence/"
"""The prefix of the defence's names in the server's memory."""


@dataclass
class Server:
    """What the server does with answers, on state that the worker processes share."""

    population: Population
    net: Net
    defence: Defence | None
    adversaries: Adversaries | None = None
    """Sites whose updates are falsified on their way; only a simulation has them."""
    backend: TrainsAtServer | None = None
    """What can make the server's local steps faster than the loop."""

    def contexts(self, round: int) -> list[ServerContext]:
        """Return what the server may use in this round, for each group."""
        spec, fed = self.population.spec, self.population.federation
        lr, contexts = spec.local_in(round).lr, []
        for g, names in enumerate(self.site_names):
            # The purpose is part of the seed: its text must not change.
            draw = generator(spec.seed, round, SERVER, f"hall {g}" if g else "hall")
            context = ServerContext(
                self.net,
                fed.public,
                round,
                lr,
                draw,
                lr_change=spec.local_in(round + 1).lr / lr,
                attribute=fed.attribute,
                classes=fed.classes,
                sites=names,
                trusted=fed.trusted,
            )
            if fed.trusted is not None:
                context.train = self.training(round)
            contexts.append(context)
        return contexts

    def local(self, local: Local) -> Local:
        """Return how the server trains on its own rows: as the sites do, with as many steps as they make on average."""
        return replace(local, steps=self.mean_steps, epochs=0, min_steps=0, max_steps=0)

    @cached_property
    def mean_steps(self) -> int:
        """The number of local steps that sites make on average, by how `local` says it follows from their rows."""
        local, counts = self.population.spec.local, self.population.counts
        return round(mean(local.steps_of(int(n)) for n in counts))

    @cached_property
    def site_names(self) -> list[tuple[str, ...]]:
        """The names of the sites of each group."""
        names = self.population.federation.sites
        return [tuple(names[k] for k in members) for members in self.population.groups.members]

    def training(self, round: int) -> Callable[[Tree], LocalResult]:
        """Return a function that trains on the server's own rows in this round."""
        spec, trusted = self.population.spec, self.population.federation.trusted
        local = self.local(spec.local_in(round))

        def train(down: Tree) -> LocalResult:
            assert trusted is not None
            objective, labels = spec.objective, trusted.labels.as_kind(spec.objective.labels)
            rows = {name: t.to(trusted.x.device) for name, t in objective.init_rows(labels).items()}
            data = SiteData(trusted.x, labels, rows, objective.site_stats(labels))
            draw = generator(spec.seed, round, SERVER, "batches")
            steps = plan(spec.algorithm, objective, local, len(trusted.x), draw)
            if self.backend is not None:
                whole = self.local(spec.local)
                if (done := self.backend.train_at_server(whole, steps, down, local.lr)) is not None:
                    return done
            self.net.load(spec.layout.join(down["w"], down["buffers"], self.population.state.personal[0]))
            with seeded(spec.seed, round, SERVER, "layers train"):
                return train_locally(spec.algorithm, objective, self.net, data, steps, down, {}, local)[0]

        return train

    def take(self, exchange: Exchange, updates: Updates, contexts: list[ServerContext]) -> None:
        """Aggregate the answers of an exchange, group by group; a group without answers stays as it was."""
        for g, context in enumerate(contexts):
            if own := self.of_group(updates, g):
                server = dict(self.population.state.servers[g])
                self.remember(g, self.merge(exchange, server, self.falsified(exchange, server, own, g), context))

    def falsified(self, exchange: Exchange, server: Tree, updates: Updates, g: int) -> Updates:
        """Return a group's answers as they arrive: the weights of adversaries are not those they trained."""
        if self.adversaries is None or not isinstance(exchange, Train):
            return updates
        members, sent = self.population.groups.members[g], self.sent(exchange, server, updates.who)
        w = self.adversaries.falsify([members[k] for k in updates.who], sent["w"], updates["w"])
        return replace(updates, trees={**updates.trees, "w": w})

    def of_group(self, updates: Updates, g: int) -> Updates | None:
        """Return the answers of one group, with sites numbered within the group; None if it has none."""
        homes = self.population.groups.homes
        rows = [row for row, k in enumerate(updates.who) if homes[k][0] == g]
        if not rows:
            return None
        places = tuple(homes[updates.who[row]][1] for row in rows)
        if len(self.population.state.servers) == 1:
            return replace(updates, who=places)
        parts = tuple(updates.parts[row] for row in rows) if updates.parts else ()
        own = updates.only(torch.tensor(rows, device=updates.n.device))
        return replace(own, who=places, parts=parts)

    def merge(self, exchange: Exchange, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        """Return the server's new memory, from the answers that the defence accepts."""
        if self.defence is None or not isinstance(exchange, Train):
            return exchange.aggregate(server, updates, context)
        memory, sent = part_of(server, DEFENCE), self.sent(exchange, server, updates.who)
        kept, memory = self.defence.inspect(memory, sent, updates, context)
        if kept is None:
            context.notes.append(f"{self.defence.name}: no answer was accepted, so the model stays as it was")
        else:
            context.left_out = tuple(k for k in updates.who if k not in kept.who)
            server = exchange.aggregate(server, kept, context)
        return server | prefixed(DEFENCE, memory)

    def sent(self, exchange: Exchange, server: Tree, who: tuple[int, ...]) -> Tree:
        """Return the model that each of these sites started from, one row per site."""
        downs = [server | exchange.send(server, k) for k in who]
        same = all(down["w"] is server["w"] for down in downs)
        w = server["w"].expand(len(who), -1) if same else torch.stack([down["w"] for down in downs])
        return {"w": w, "buffers": server["buffers"].expand(len(who), -1)}

    def remember(self, g: int, server: Tree) -> None:
        """Write a group's new memory in place, where the worker processes see it at once."""
        known, method = self.population.state.servers[g], type(self.population.spec.algorithm).__name__
        if not isinstance(server, dict):
            raise ImperfedError(
                f"{method}: after an exchange the server's memory is a {type(server).__name__}; return its new memory, "
                'such as server | {"w": ...}'
            )
        if changed := server.keys() ^ known.keys():
            raise ImperfedError(
                f"{method}: the names in the server's memory have changed: {', '.join(sorted(changed))}; every name is "
                "there from the start, in what init_server returns"
            )
        alike = [server[name].shape == t.shape for name, t in known.items()]
        finite = torch.stack([torch.isfinite(server[name]).all().to(t.device) for name, t in known.items()]).tolist()
        for (name, t), sound in zip(known.items(), map(all, zip(alike, finite, strict=True)), strict=True):
            if not sound:
                raise DivergedError(f"the merged {name!r} has the wrong shape or is not finite: the run has diverged")
            t.copy_(server[name])

    def verdicts(self, contexts: list[ServerContext]) -> list[SiteVerdict]:
        """Return the defence's verdicts, with sites numbered as in the whole federation."""
        members = self.population.groups.members
        return [replace(v, site=members[g][v.site]) for g, context in enumerate(contexts) for v in context.verdicts]


def defence_memory(defence: Defence | None) -> Callable[[int], Tree]:
    """Return a function from a number of sites to the defence's first memory, named as in the server's memory."""
    return lambda sites: {} if defence is None else prefixed(DEFENCE, defence.init_state(sites))


def questions(defence: Defence | None, attribute: Attribute | None) -> tuple[Query, ...]:
    """Return what the defence asks the sites before round 0, with answers that go to its part of the memory."""
    return () if defence is None else tuple(q.on_part(DEFENCE) for q in defence.opening(attribute))
