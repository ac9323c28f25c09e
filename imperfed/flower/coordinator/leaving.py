"""The end of a run: every site gets its last model and writes its own results, now or whenever it is back.

What each site will be sent is on disk before the first of them is: a coordinator that is killed meanwhile, or a site
that is away, loses nothing. `imperfed resume` then waits for the sites that have not confirmed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imperfed.core.atomic import write_durably
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.engine.failures import Away, Failure, Silent
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.transport import Transport
from imperfed.flower.site.store import Store
from imperfed.results.folder import RunFolder

WORDS, TREE = "leaving.json", "leaving"
"""The file that names the sites which have not confirmed, and how the names of the trees begin."""


@dataclass
class Leaving:
    """The last messages of a run, by site; each is dropped once its site has confirmed it."""

    path: Path
    """The folder of the checkpoints."""
    waiting: dict[str, dict[str, Any]]
    """By site: the words of its message, and the name of each of its trees."""

    @classmethod
    def write(cls, folder: RunFolder, names: Sequence[str], payloads: Mapping[int, Payload]) -> Leaving:
        """Keep the last message to every site; trees that several sites are sent are kept once."""
        path, waiting = folder.checkpoint.parent, {}
        for k, payload in payloads.items():
            trees = {part: f"{TREE}-{_digest(tree)}" for part, tree in payload.trees.items()}
            for part, name in trees.items():
                if not (path / f"{name}.safetensors").exists():
                    Store(path).keep(name, payload.trees[part])
            waiting[names[k]] = {"words": dict(payload.words), "trees": trees}
        leaving = cls(path, waiting)
        leaving._save()
        return leaving

    @classmethod
    def read(cls, folder: RunFolder) -> Leaving | None:
        """Return the messages that are not yet confirmed; None if the run has not come to its end."""
        path = folder.checkpoint.parent
        if not (path / WORDS).exists():
            return None
        return cls(path, json.loads((path / WORDS).read_text(encoding="utf-8")))

    def finish(self, transport: Transport, seconds: float) -> dict[str, str]:
        """Send every site its message as soon as it is connected; return why some have not confirmed it.

        `seconds`: how long to wait for sites that are away.
        """
        began, failed, reported = time.monotonic(), dict[str, str](), ""
        while self.waiting.keys() - failed:
            transport.look()
            due = self.waiting.keys() - failed - set(transport.missing())
            payloads = {k: self._payload(name) for k, name in enumerate(transport.names) if name in due}
            for k, reply in transport.send("query.leave", payloads, "the end").items():
                if not isinstance(reply, Failure):
                    self._confirm(transport.names[k])
                elif not isinstance(reply, Away | Silent):
                    failed[transport.names[k]] = reply.reason
            absent = ", ".join(name for name in transport.names if name in self.waiting and name not in failed)
            if not absent or time.monotonic() - began > seconds:
                break
            if absent != reported:
                transport.tell(f"waiting for {absent}, which has yet to get its results")
                reported = absent
            time.sleep(transport.timeouts.poll)
        return dict.fromkeys(self.waiting, "it was away or did not answer") | failed

    def _payload(self, name: str) -> Payload:
        kept = self.waiting[name]
        return Payload(kept["words"], {part: self._tree(stored) for part, stored in kept["trees"].items()})

    def _tree(self, name: str) -> Tree:
        tree = Store(self.path).kept(name)
        if tree is None:
            raise DataError(f"{self.path / name}.safetensors is missing; delete {self.path / WORDS} and resume the run")
        return tree

    def _confirm(self, name: str) -> None:
        """Note that a site has written its results, and drop what no other site will be sent."""
        del self.waiting[name]
        self._save()
        needed = {stored for kept in self.waiting.values() for stored in kept["trees"].values()}
        for path in self.path.glob(f"{TREE}-*.safetensors"):
            if path.stem not in needed:
                path.unlink(missing_ok=True)

    def _save(self) -> None:
        text = json.dumps(self.waiting, indent=2)
        write_durably(self.path / WORDS, lambda partly: partly.write_text(text, encoding="utf-8"))


def _digest(tree: Tree) -> str:
    digest = hashlib.sha256()
    for name, t in sorted(tree.items()):
        digest.update(f"{name} {t.dtype} {tuple(t.shape)} ".encode())
        digest.update(t.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
