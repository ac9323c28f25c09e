"""Looks into every message that left a site for what must never leave it."""

from __future__ import annotations

from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.flower.messages.payload import Payload, unpack
from imperfed.testing.clauses import RUN, found
from tests.support.rehearsal import Apart

CARD = {"name", "rows", "kind", "classes", "shape", "features", "tests", "several", "held out", "digest"}
FIGURES = {"loss", "validation", "metrics", "values", "counts"}
SEARCH = {"agreement", "likelihood", "family", "weight", "score", "alone", "difference"}
SAID = CARD | FIGURES | SEARCH | {"done", "asked"}
"""All words that a site ever says."""


def letters_from(apart: Apart, node: int) -> list[Payload]:
    """Everything that one site has sent."""
    return [unpack(m.content) for way, m in apart.grid.sent if way == "up" and m.metadata.src_node_id == node]


def tensors(payloads: list[Payload]) -> list[Tensor]:
    return [t for payload in payloads for tree in payload.trees.values() for t in tree.values()]


def pieces_of(t: Tensor) -> Tensor:
    """Runs of rows, as long as no sum or count looks like by chance."""
    table = t.reshape(len(t), -1).float()
    runs = table.unfold(0, RUN, 1).transpose(1, 2).flatten(1)
    return runs[runs.min(1).values < runs.max(1).values]


def private(apart: Apart, k: int, kept: Tree) -> dict[str, Tensor]:
    """What must not be found in a message: inputs, runs of labels and of row memory, personal weights."""
    holding, scale = apart.holdings[k], apart.server.central.scale([h.info() for h in apart.holdings])
    secrets = {"inputs": holding.x.flatten(1).float(), "scaled": scale(holding.x).flatten(1)}
    secrets["labels"] = pieces_of(holding.labels.values)
    secrets |= {name: pieces_of(t) for name, t in kept.items() if name.startswith("rows/")}
    if len(kept["personal"]) >= RUN:
        secrets["personal"] = kept["personal"].unfold(0, RUN, RUN)
    return secrets


def assert_nothing_private(apart: Apart) -> None:
    """No row, no labels, no row memory, no personal weight and no unexpected word has left any site."""
    for k, holding in enumerate(apart.holdings):
        payloads = letters_from(apart, 100 + k)
        assert payloads
        for payload in payloads:
            assert payload.words.keys() <= SAID
            assert not set(holding.ids) & {str(word) for word in payload.words.values() if isinstance(word, str)}
        secrets = private(apart, k, apart.site(k))
        for name, pieces in secrets.items():
            assert not any(found(pieces, t) for t in tensors(payloads)), (holding.name, name)
