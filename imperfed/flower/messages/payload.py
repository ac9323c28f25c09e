"""The content of a message, and the Flower records in which it travels."""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from imperfed.core.batch import Tree
from imperfed.core.errors import ImperfedError
from imperfed.core.foreign_text import printable
from imperfed.core.labels.validity import UNKNOWN, Validity
from imperfed.engine.failures import KINDS, Crashed, Failure, Unreadable
from imperfed.engine.population import Scores
from imperfed.evaluation.fairness import FAIR

Word = str | int | float | list[str] | list[int] | list[float]

WORDS = "words"
"""The record that holds all words; every other record is a tree of tensors."""
FAILED, FAILED_KIND = "failed", "failed as"
"""The words under which a site says why it does not answer, and what kind of failure that is."""
REPAIR = -2
"""The round number given to the exchanges of a repair."""
NO_EXCHANGE = -1
"""The exchange number in a message that asks only for metrics."""
ASKED = "asked"
"""The word by which an answer belongs to its message: a random number, repeated by the site."""
EMPTY = "without tensors"
"""The word that lists trees without tensors."""
TRAVELS = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.float32, torch.float64, torch.bool,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
"""The types of tensors that can be sent, by name."""
PLAIN = "plain"
"""The encoding of an array: the numbers as they are in memory, little end first, salted."""
PIECE = 5 * 2**20
"""The bytes of an array that Flower sends as one object."""
SALT = 16
"""Random bytes at the beginning of every piece. Flower names an object by its content, and whoever knows a name may
register it first with wrong parts, so that the honest sender is refused; no one can guess the names of salted pieces.
"""
LONGEST_NAME = 200
MOST_LENGTHS = 16
"""The most lengths in the shape of a tensor; inputs of any kind and their batches have at most five."""


class RefusedError(ImperfedError):
    """A message that cannot be sent or understood; says what is wrong with it."""


@dataclass(frozen=True)
class Payload:
    """The content of one message: plain words, and trees of named tensors."""

    words: Mapping[str, Word] = field(default_factory=dict)
    trees: Mapping[str, Tree] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return a word that is text."""
        return cast(str, self._word(name, str))

    def number(self, name: str) -> int:
        """Return a word that is a whole number."""
        return cast(int, self._word(name, int))

    def real(self, name: str) -> float:
        """Return a word that is a real number."""
        return cast(float, self._word(name, float))

    def several(self, name: str) -> list[str] | list[int] | list[float]:
        """Return a word that is a list."""
        return cast(list[str], self._word(name, list))

    def _word(self, name: str, kind: type) -> Word:
        word = self.words.get(name)
        if word is None or type(word) is not kind:
            raise RefusedError(f"{name!r} should be of type {kind.__name__}, found {printable(repr(word), 100)}")
        return word

    def parts(self) -> list[str]:
        """Return the name, shape and type of every tensor, and the names of all words, for a log."""
        tensors = [
            f"{part}/{name} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}"
            for part, tree in self.trees.items()
            for name, t in tree.items()
        ]
        return [*tensors, *self.words]


def new_salt() -> bytes:
    """Return random bytes that make the names of a message's objects unpredictable."""
    return secrets.token_bytes(SALT)


def pack(payload: Payload, salt: bytes | None = None) -> RecordDict:
    """Return a payload as records; refuse tensors that cannot travel, by name.

    `salt`: the same for messages with equal tensors, so that each tensor is sent to Flower once.
    """
    salt = salt or new_salt()
    words: dict[str, Any] = dict(payload.words)
    if empty := [part for part, tree in payload.trees.items() if not tree]:
        words[EMPTY] = empty
    records = RecordDict({WORDS: ConfigRecord(words)})
    for part, tree in payload.trees.items():
        for name, t in tree.items():
            if t.dtype not in TRAVELS.values():
                raise RefusedError(f"{name!r} holds {t.dtype}, which cannot travel; send it as torch.float32")
        if tree:
            records[part] = ArrayRecord({name: _array(t, salt) for name, t in tree.items()})
    return records


def _array(t: torch.Tensor, salt: bytes) -> Array:
    content = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data if t.numel() else b""
    step = PIECE - SALT
    pieces = [content[at : at + step] for at in range(0, len(content) or 1, step)]
    data = b"".join(part for piece in pieces for part in (salt, piece))
    return Array(dtype=str(t.dtype).removeprefix("torch."), shape=tuple(t.shape), stype=PLAIN, data=data)


def unpack(records: RecordDict) -> Payload:
    """Return the payload that was sent; raise an error naming the part that cannot be read."""
    words: dict[str, Word] = {}
    trees: dict[str, Tree] = {}
    for part, record in records.items():
        if isinstance(record, ConfigRecord):
            words |= cast(dict[str, Word], dict(record))
        elif isinstance(record, ArrayRecord):
            named = {checked_name(name): array for name, array in record.items()}
            trees[checked_name(part)] = {name: _tensor(f"{part}/{name}", array) for name, array in named.items()}
    for part in cast(list[str], words.pop(EMPTY, [])):
        trees.setdefault(checked_name(part), {})
    return Payload(words, trees)


def checked_name(name: str) -> str:
    """Return the name of a tensor, which is from another machine and goes into logs and reports."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise RefusedError(f"{printable(name, LONGEST_NAME)!r} cannot be the name of a tensor")
    return name


def _tensor(name: str, array: Array) -> torch.Tensor:
    """Return an array's values. It is from another machine: anything wrong with it is one kind of error."""
    try:
        dtype, shape = TRAVELS[array.dtype], tuple(array.shape)
        if len(shape) > MOST_LENGTHS:
            raise ValueError(f"declared a shape of {len(shape)} lengths")
        count, found = math.prod(shape), len(array.data) - SALT * max(1, math.ceil(len(array.data) / PIECE))
        if array.stype != PLAIN or any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(f"declared {array.stype} {shape}")
        if found != count * dtype.itemsize:
            raise ValueError(f"declared {array.dtype} {shape}, holds {found} bytes")
        content = bytearray().join(array.data[at + SALT : at + PIECE] for at in range(0, len(array.data), PIECE))
        if not count:
            return torch.empty(shape, dtype=dtype)
        read_as = torch.uint8 if dtype is torch.bool else dtype  # a bool other than 0 and 1 is undefined
        return torch.frombuffer(content, dtype=read_as).to(dtype).view(shape)
    except Exception as error:
        raise RefusedError(f"{name!r} cannot be read ({error})") from error


def size(records: RecordDict) -> int:
    """Return the bytes of all words and arrays; what the transport adds is not counted."""
    total = 0
    for record in records.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(name.encode()) + len(array.data) for name, array in record.items())
        else:
            total += len(record.deflate())
    return total


def failure_payload(failure: Failure) -> Payload:
    """Return a message that says why a site does not answer."""
    return Payload({FAILED: failure.reason, FAILED_KIND: failure.kind})


def failure_of(payload: Payload) -> Failure | None:
    """Return why a site does not answer, if its message says so.

    A file that cannot be read ends a run in one process; elsewhere it is the failure of one site.
    """
    if FAILED not in payload.words:
        return None
    kind = KINDS.get(str(payload.words.get(FAILED_KIND)), Failure)
    return (Crashed if kind is Unreadable else kind)(printable(str(payload.words[FAILED])))


def scores_words(scores: Scores) -> dict[str, Word]:
    """Return metrics as words: name, value and number of examples."""
    return {
        "metrics": list(scores),
        "values": [float(value) for value, _ in scores.values()],
        "counts": [int(n) for _, n in scores.values()],
    }


def scores_of(payload: Payload, tests: int, known: Collection[tuple[str, ...]]) -> Scores:
    """Return the metrics in a message, checked: they are only a claim; empty if the site has none.

    `tests`: the site's number of test rows. `known`: the names that the figures of one site can have, in order.
    """
    names, values, counts = (payload.several(word) for word in ("metrics", "values", "counts"))
    typed = ((names, str), (values, float), (counts, int))
    if len({len(part) for part, _ in typed}) > 1 or any(type(x) is not kind for part, kind in typed for x in part):
        raise RefusedError("its metrics are not a name, a value and a count each")
    if names and tuple(cast(list[str], names)) not in known:
        expected = " or ".join(map(", ".join, known)) or "there are none"
        raise RefusedError(f"its metrics are called {printable(', '.join(map(str, names[:10])), 100)}, not {expected}")
    scores: Scores = {}
    for name, value, count in zip(
        cast(list[str], names), cast(list[float], values), cast(list[int], counts), strict=True
    ):
        of_groups = name.startswith(FAIR)  # of some of the rows, perhaps of none; then it is undefined
        undefined = math.isnan(value) and not (of_groups and count)
        fewest = 0 if of_groups else tests
        if not (undefined or (0 <= value <= 1 and count)) or not fewest <= count <= tests:
            raise RefusedError(f"{name!r} cannot be {value:g} on {count} of its {tests} test rows")
        scores[name] = value, count
    return scores


def validity_words(validity: Validity) -> dict[str, Word]:
    """Return how far a model agrees with the rows that a site holds out, as words; none where nothing is known."""
    return {"validation": [validity.score, validity.weight]} if validity.known else {}


def validity_of(payload: Payload, cells: int, classes: int) -> Validity:
    """Return it from a message, checked: it is only a claim. `cells`: the most that its weight can be.

    No score is below minus the number of classes.
    """
    if "validation" not in payload.words:
        return UNKNOWN
    words = payload.several("validation")
    if len(words) != 2 or any(type(word) is not float or not math.isfinite(word) for word in words):
        raise RefusedError("its validation is not a score and a weight")
    score, weight = cast(list[float], words)
    if not (-classes <= score <= 1 and 0 < weight <= cells):
        raise RefusedError(f"its validation, {score:g} with weight {weight:g}, cannot be")
    return Validity(score, weight)
