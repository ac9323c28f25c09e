"""Whose numbers they are, where nothing can be made of those that all sites sent.

Each number may be possible and all of them together not: second moments that are no square of anything, counts that
cancel out. Then the server's step is tried again without each site; the one without which it works is named.
"""

from __future__ import annotations

import torch

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView
from imperfed.core.errors import ImperfedError, QuorumError
from imperfed.core.exchange import Query, Updates
from imperfed.engine.conversation import Merge, aggregated
from imperfed.engine.validate import REFUSED


class NoNumberError(ArithmeticError):
    """That the server's step ends in something that is not a number, which the next answers would rest on."""


def merged(last: str, exchange: Query, server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Return the server's memory after an exchange; name the site whose answer nothing can be made of.

    `last`: the name of the exchange on which no other rests.
    """
    step = aggregated if exchange.name == last else _step
    try:
        return step(exchange, server, updates, context)
    except ImperfedError:
        raise
    except Exception as error:
        spoilers = [k for k in updates.who if _works(step, exchange, server, _without(updates, k), context)]
        if len(spoilers) != 1:  # several together, or none by itself
            raise
        name = context.sites[spoilers[0]]
        raise QuorumError(
            f"a repair needs an answer from every site. {name}: {REFUSED}nothing can be made of its numbers in "
            f"{exchange.name!r} ({error})"
        ) from error


def _step(exchange: Query, server: Tree, updates: Updates, context: ServerView) -> Tree:
    new = aggregated(exchange, server, updates, context)
    if name := next((name for name, t in new.items() if t.is_floating_point() and bool(torch.isnan(t).any())), ""):
        raise NoNumberError(f"{name!r} would not be a number")
    return new


def _works(step: Merge, exchange: Query, server: Tree, updates: Updates, context: ServerView) -> bool:
    try:
        step(exchange, server, updates, context)
    except Exception:
        return False
    return True


def _without(updates: Updates, site: int) -> Updates:
    """Return the answers of all other sites."""
    kept = [place for place, k in enumerate(updates.who) if k != site]
    who, parts = tuple(updates.who[place] for place in kept), tuple(updates.parts[place] for place in kept)
    return Updates(who, updates.n[kept], {}, parts)
