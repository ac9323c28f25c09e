"""A cache of a site's rows, kept with its states: files are parsed once, not again for every message.

Every message is handled by its own process, so what one has read must be on disk for the next. The copy is named after
everything that it depends on: if a file or the declaration changes, the files are read again. So they are if a bit of
the copy has changed on disk. The copy is removed when the run ends, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed import __version__
from imperfed.core.atomic import write_whole
from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute
from imperfed.core.labels import KINDS
from imperfed.core.lazy import LazyRows
from imperfed.core.tensor_files import check_seal, read_tensors, sealed
from imperfed.data.fill import ColumnFill
from imperfed.data.site_files import SiteFiles

PATTERN = "rows-*.safetensors"
LARGE = ("x", "test_x")


def read_once(state: Path, sources: tuple[Path, ...], about: str, read: Callable[[], SiteFiles]) -> SiteFiles:
    """Return what `read` returns, from the copy in `state` where there is one.

    `sources`: the files and folders that it reads; `about`: everything else that it depends on.
    """
    path = state / PATTERN.replace("*", fingerprint(sources, about))
    if (kept := load(path)) is not None:
        return kept
    files = read()
    files = replace(files, digest=digest_of(files))
    forget(state)
    if isinstance(files.x, LazyRows):  # what they decode is kept already
        return files
    with suppress(OSError):  # a full disk costs only time
        save(path, files)
    return files


def digest_of(files: SiteFiles) -> str:
    """Return a digest of all rows: inputs, labels, ids and test rows."""
    total = hashlib.sha256(json.dumps([files.name, [*files.ids], files.classes]).encode())
    for t in (files.x, files.labels.values, *(files.test or ())):
        total.update(json.dumps([str(t.dtype), list(t.shape)]).encode())
        if isinstance(t, LazyRows):  # files, their sizes and their times stand for what is in them
            total.update(json.dumps([source.identity for source in t.sources]).encode())
            t = t.at
        total.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().data if t.numel() else b"")
    return total.hexdigest()


def forget(state: Path) -> None:
    """Remove all copies."""
    for path in state.glob(PATTERN):
        path.unlink(missing_ok=True)


def fingerprint(sources: tuple[Path, ...], about: str) -> str:
    """Return a name that changes with the files' sizes and modification times."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in _files(sources)]
    return hashlib.sha256(json.dumps([__version__, about, stamps]).encode()).hexdigest()[:32]


def _files(sources: tuple[Path, ...]) -> Iterator[Path]:
    for source in sources:
        yield from sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else (source,)


def save(path: Path, files: SiteFiles) -> None:
    """Write a site's rows, completely or not at all."""
    from safetensors.torch import save as serialise

    words = {
        "name": files.name,
        "kind": files.labels.kind,
        "ids": [*files.ids],
        "classes": files.classes,
        "attribute": files.attribute and [files.attribute.name, files.attribute.values, files.attribute.first],
        "scales": files.scales,
        "digest": files.digest,
        "fills": [asdict(fill) for fill in files.fills],
    }
    tree = {"x": files.x, "labels": files.labels.values, "words": _bytes(json.dumps(words))}
    if files.test is not None:
        tree |= {"test_x": files.test[0], "test_y": files.test[1]}
    optional = {"test_group": files.test_group, "truth": files.truth, "together": files.together}
    tree |= {name: t for name, t in optional.items() if t is not None}
    # Truth may be the labels themselves, and safetensors refuses tensors that share memory.
    tree = {name: t.contiguous() if name in LARGE else t.clone() for name, t in tree.items()}
    content = serialise(tree, sealed(tree))
    write_whole(path, lambda partly: partly.write_bytes(content))


def load(path: Path) -> SiteFiles | None:
    """Return the rows in a copy; None if it is missing, or is not what was written."""
    if not path.exists():
        return None
    try:
        tree, seal = read_tensors(path, "copy of rows")
        check_seal(path, "copy of rows", tree, seal)
    except DataError:
        return None
    words: dict[str, Any] = json.loads(tree["words"].numpy().tobytes())
    classes = tuple(words["classes"])
    attribute = words["attribute"]
    return SiteFiles(
        words["name"],
        tree["x"],
        KINDS[words["kind"]](tree["labels"], len(classes)),
        tuple(words["ids"]),
        classes,
        (tree["test_x"], tree["test_y"]) if "test_x" in tree else None,
        tree.get("test_group"),
        tree.get("truth"),
        attribute and Attribute(attribute[0], tuple(attribute[1]), attribute[2]),
        words["scales"],
        tree.get("together"),
        tuple(ColumnFill(**fill | {"value": tuple(fill["value"])}) for fill in words["fills"]),
        words["digest"],
    )


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
