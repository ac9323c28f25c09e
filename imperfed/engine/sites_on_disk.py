"""What sites remember, in one file: in memory are only the records of the sites that are at work.

Each site has a record, and the file has slots of equal size. A site that has not been on duty yet has no slot: its
record is worked out when it is asked for. A record that a checkpoint may name is never overwritten; a site that changes
gets another slot. So a checkpoint needs only the number of each site's slot, and a run that was killed at any moment
finds the records as they were. A slot is used again when neither of the last two checkpoints nor the best round names
it.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from imperfed.core.atomic import saying_if_full
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError, UsageError
from imperfed.engine.shared_memory import shared

NOWHERE = -1
"""The slot of a site that has no record in the file."""
HEAD = 8
"""The bytes in front of a record's tensors, which hold their checksum."""
ALIGNED = 8
"""Every tensor begins at a multiple of so many bytes."""


@dataclass(frozen=True)
class RecordForm:
    """How the tensors of one site lie in its record."""

    shapes: dict[str, tuple[torch.Size, torch.dtype]]
    size: int
    """In bytes."""

    @classmethod
    def of(cls, record: Tree) -> RecordForm:
        """Return the form that all sites' records have, given one of them."""
        shapes = {name: (t.shape, t.dtype) for name, t in record.items()}
        return cls(shapes, HEAD + sum(_room(t.numel() * t.element_size()) for t in record.values()))

    def views(self, data: bytearray) -> Tree:
        """Return the tensors of a record, as views of its bytes."""
        record, start = {}, HEAD
        for name, (shape, dtype) in self.shapes.items():
            count = shape.numel()
            t = torch.frombuffer(data, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
            record[name] = t.view(shape)
            start += _room(count * dtype.itemsize)
        return record

    def pack(self, record: Tree) -> bytearray:
        """Return the bytes of a record, sealed."""
        data = bytearray(self.size)
        for name, t in self.views(data).items():
            t.copy_(record[name])
        data[:HEAD] = _checksum(data)
        return data


@dataclass
class SitesOnDisk:
    """The records of all sites. Forked processes share the file and know from shared memory who has which slot."""

    first: Callable[[int], Tree]
    """Returns a site's record before its first round, the same whenever it is asked for."""
    form: RecordForm
    slots: Tensor
    """int64 [K], in shared memory: the slot of each site's record."""
    rooms: Tensor
    """int64 [K], in shared memory: the slot into which each site of an exchange writes."""
    folder: Path | None = None
    """Where the file is; None: where the system keeps temporary files."""
    file: int = NOWHERE
    """The descriptor of the file, which is made when it is first needed."""
    unnamed: set[int] = field(default_factory=set)
    """The sites whose room is named by nothing that a run may go back to."""
    free: list[int] = field(default_factory=list)
    end: int = 0
    """The number of slots in the file."""
    named: deque[Tensor] = field(default_factory=lambda: deque(maxlen=2))
    """The slots that the last two checkpoints name."""

    @classmethod
    def of(cls, sites: int, first: Callable[[int], Tree]) -> SitesOnDisk:
        """Return the records of so many sites, none of which has been on duty; no file is made yet."""
        slots, rooms = shared(torch.full((sites,), NOWHERE)), shared(torch.full((sites,), NOWHERE))
        return cls(first, RecordForm.of(first(0)), slots, rooms)

    @property
    def path(self) -> Path:
        """The file, where it has a name."""
        return (self.folder or Path(tempfile.gettempdir())) / "sites.bin"

    def read(self, k: int) -> Tree:
        """Return a copy of a site's record."""
        slot = int(self.slots[k])
        return self._first(k) if slot == NOWHERE else self.form.views(self._bytes(slot))

    def write(self, k: int, record: Tree) -> None:
        """Replace a site's record; `make_room` must have been called for it."""
        slot = int(self.rooms[k])
        _write(self.file, self.form.pack(record), slot * self.form.size)
        self.slots[k] = slot

    def make_room(self, sites: Iterable[int]) -> None:
        """Let these sites write, before any process does: a full disk is noticed here."""
        if self.file == NOWHERE:
            self._open(os.O_CREAT | os.O_TRUNC)
        for k in sites:
            if k not in self.unnamed:
                slot = self.free.pop() if self.free else self.end
                with saying_if_full(self.path):
                    os.posix_fallocate(self.file, slot * self.form.size, self.form.size)
                self.end = max(self.end, slot + 1)
                self.rooms[k] = slot
                self.unnamed.add(k)

    def keep_all(self) -> None:
        """Overwrite no record that a site has now."""
        self.unnamed.clear()

    def flush(self) -> None:
        """See to it that all records are on the disk."""
        if self.file != NOWHERE:
            os.fsync(self.file)

    def settle(self, also: Sequence[Tensor]) -> None:
        """Free the slots that no checkpoint names, now that one has been written; `also`: further slots it names."""
        self.named.append(torch.cat([self.slots, *also]).clone())
        used = torch.zeros(self.end + 1, dtype=torch.bool)  # the last one stands for no slot
        for slots in self.named:
            used[slots] = True
        self.free = (~used[:-1]).nonzero().flatten().tolist()

    def go_back(self, folder: Path, slots: Tensor) -> None:
        """Open the file of a checkpoint and check the records that it names; raise `DataError` if one is damaged."""
        self.close()
        self.folder, self.free, self.unnamed = folder, [], set()
        if not self.path.exists():
            raise DataError(f"{self.path}: no such file, and the checkpoint needs what sites remember")
        self._open(0)
        self.end = os.fstat(self.file).st_size // self.form.size
        # Which of them the checkpoint before this one names is not known here, so all stay until it is replaced.
        self.named = deque([torch.arange(self.end)], maxlen=2)
        for slot in slots[slots != NOWHERE].tolist():
            self._bytes(slot)

    def close(self) -> None:
        """Close the file; what is in it stays."""
        if self.file != NOWHERE:
            os.close(self.file)
            self.file = NOWHERE

    def _first(self, k: int) -> Tree:
        record = self.first(k)
        if RecordForm.of(record) != self.form:
            raise UsageError(
                f"all sites must remember tensors of the same names, shapes and types; those of sites 0 and {k} differ"
            )
        return {name: t.clone() for name, t in record.items()}

    def _bytes(self, slot: int) -> bytearray:
        """Return the bytes of a record that is as it was written."""
        data = bytearray(self.form.size)
        read = _read(self.file, data, slot * self.form.size)
        if read < len(data) or data[:HEAD] != _checksum(data):
            raise DataError(f"{self.path}: record {slot} is damaged (its checksum is wrong)")
        return data

    def _open(self, flags: int) -> None:
        if self.folder is None:
            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
            return
        with saying_if_full(self.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.file = os.open(self.path, os.O_RDWR | flags, 0o666)


def _room(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _checksum(data: bytearray) -> bytes:
    return zlib.crc32(memoryview(data)[HEAD:]).to_bytes(HEAD, "little")


def _write(file: int, data: bytearray, start: int) -> None:
    """Write all bytes; the system may take a part of them at a time."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(file, rest, start)
        rest, start = rest[done:], start + done


def _read(file: int, into: bytearray, start: int) -> int:
    """Fill a buffer from a file, and return how many bytes there were."""
    rest = memoryview(into)
    while rest and (done := os.preadv(file, [rest], start)):
        rest, start = rest[done:], start + done
    return len(into) - len(rest)
