"""The last answer of a site, on its disk: a message that comes a second time is answered at once, with the same bits.

The coordinator asks again when an answer is late (`messages/answer_times.py`). The site may have answered already, and
its answer was lost; then nothing is computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.flower.messages.payload import ASKED, FAILED, Payload
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.store import Store

NAME = "last-answer"
WORDS = "words"


def answer_once(place: LocalSite, kind: str, payload: Payload, handler: Callable[..., Payload]) -> Payload:
    """Return a handler's answer; the one it gave already, if this is the last message that came, once more."""
    digest = digest_of(kind, payload)
    if (before := last_answer(place.state, digest)) is not None:
        now = datetime.now().isoformat(timespec="seconds")
        place.log(f"{now} {kind}: asked again; the answer is that of the first time")
        return before
    answer = handler(place, payload)
    keep_answer(place.state, digest, answer)
    return answer


def digest_of(kind: str, payload: Payload) -> str:
    """Return a digest of all that a message asks, without the word that is new each time."""
    words = sorted((name, word) for name, word in payload.words.items() if name != ASKED)
    digest = hashlib.sha256(json.dumps([kind, words]).encode())
    for part, tree in sorted(payload.trees.items()):
        for name, t in sorted(tree.items()):
            digest.update(f"{part}/{name} {t.dtype} {tuple(t.shape)} ".encode())
            digest.update(t.contiguous().numpy().tobytes())
    return digest.hexdigest()


def last_answer(state: Path, digest: str) -> Payload | None:
    """Return the answer to a message with this digest, if it was the last one that the site answered."""
    try:
        tree = Store(state).kept(NAME)
    except DataError:  # damaged: the answer is computed again
        return None
    if tree is None:
        return None
    kept = json.loads(tree.pop(WORDS).numpy().tobytes())
    if kept["digest"] != digest:
        return None
    trees: dict[str, Tree] = {part: {} for part in kept["parts"]}
    for name, t in tree.items():
        part, _, own = name.partition("/")
        trees[part][own] = t
    return Payload(kept["words"], trees)


def keep_answer(state: Path, digest: str, answer: Payload) -> None:
    """Keep an answer in place of the one before; a failure is not kept, since the next try may succeed."""
    if FAILED in answer.words:
        return
    words = {"digest": digest, "words": dict(answer.words), "parts": list(answer.trees)}
    tree = {f"{part}/{name}": t.cpu().clone() for part, own in answer.trees.items() for name, t in own.items()}
    with suppress(OSError):  # a full disk costs only time
        Store(state).keep(NAME, tree | {WORDS: _bytes(json.dumps(words))})


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
