"""A site's state during a run, on its own disk.

A state is a file, named after the exchange in which it was reached. The coordinator says from which state an exchange
starts: the one reached in this site's last accepted answer. So an exchange that is repeated starts from the same state
and gives the same answer, and an answer that came too late or was refused leaves nothing behind. A file is written
under another name, flushed to the disk and then renamed: whenever the process is killed, a state is complete or
absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imperfed.core.atomic import write_durably
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.tensor_files import check_seal, read_tensors, sealed
from imperfed.flower.messages.payload import Payload

Key = tuple[int, int]
"""A round, and the number of an exchange in it."""
FIRST: Key = (-1, 0)
"""Before round 0. This state is not stored: it follows from the settings and the site's own rows."""


def key_in(payload: Payload, name: str) -> Key:
    """Return the state that a message names."""
    round, number = payload.several(name)
    return int(round), int(number)


@dataclass(frozen=True)
class Store:
    """The states of one run at one site."""

    path: Path

    def save(self, key: Key, tree: Tree) -> None:
        """Store the state reached in an exchange."""
        self.keep(f"state-{key[0]:06}-{key[1]}", tree)

    def load(self, key: Key, fresh: Callable[[], Tree], tell: Callable[[str], None] = lambda line: None) -> Tree:
        """Return the state reached in an exchange; before round 0, a fresh one.

        If its file is damaged, return the state before it, as if the answer that led to it had been lost. `tell` is
        then given the name of the file.
        """
        if key == FIRST:
            return fresh()
        try:
            state = self.kept(f"state-{key[0]:06}-{key[1]}")
        except DataError as error:
            before = max((one for one in self.keys() if one < key), default=None)
            if before is None:
                raise
            tell(f"{error}; going on from the state after round {before[0] + 1}")
            return self.load(before, fresh, tell)
        if state is None:
            raise DataError(
                f"{self.path}: the state after round {key[0] + 1} is missing, and the run needs it; was the state "
                "folder changed or replaced? Put the right one back"
            )
        return state

    def keys(self) -> list[Key]:
        """Return the exchanges whose states are on disk."""
        parts = (path.stem.split("-") for path in self.path.glob("state-*.safetensors"))
        return [(int(round), int(number)) for _, round, number in parts]

    def forget_before(self, key: Key, best: Key = FIRST) -> None:
        """Remove states that no exchange will start from again, except that of the best round so far."""
        for one in self.keys():
            if one < key and one != best:
                self.drop(f"state-{one[0]:06}-{one[1]}")

    def latest_before(self, prefix: str, number: int) -> Tree | None:
        """Return the last of the trees named `prefix-000000`, `prefix-000001` ... below a number; None: there is none.

        Those before it are removed: an exchange may be repeated, but only the last one.
        """
        names = sorted(path.stem for path in self.path.glob(f"{prefix}-*.safetensors"))
        earlier = [name for name in names if int(name.rpartition("-")[2]) < number]
        for name in earlier[:-1]:
            self.drop(name)
        return self.kept(earlier[-1]) if earlier else None

    def drop(self, pattern: str) -> None:
        """Remove trees whose names match a pattern."""
        for path in self.path.glob(f"{pattern}.safetensors"):
            path.unlink(missing_ok=True)

    def keep(self, name: str, tree: Tree) -> None:
        """Store a tree under a name."""
        from safetensors.torch import save

        contiguous = {n: t.contiguous() for n, t in tree.items()}
        content = save(contiguous, sealed(contiguous))
        write_durably(self.path / f"{name}.safetensors", lambda partly: partly.write_bytes(content))

    def kept(self, name: str) -> Tree | None:
        """Return the tree under a name, if there is one."""
        path = self.path / f"{name}.safetensors"
        if not path.exists():
            return None
        tree, words = read_tensors(path, "state")
        check_seal(path, "state", tree, words)
        return tree
