"""The files of checkpoints: sealed, written whole, and the one before the last kept under another name."""

from __future__ import annotations

import shutil
from pathlib import Path

from imperfed.core.atomic import write_durably, write_whole
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.tensor_files import check_seal, read_tensors, sealed


def older_of(path: Path) -> Path:
    """Return where the checkpoint before the last one is kept."""
    return path.with_name(f"before-{path.name}")


def keep_older(path: Path) -> None:
    """Keep a checkpoint under another name before a new one takes its place; at any moment there is one under both."""
    if path.exists():
        also_as(path, older_of(path))


def also_as(path: Path, other: Path) -> None:
    """Give a file another name as well, without a copy where the disk can do that."""

    def link(partial: Path) -> None:
        try:
            partial.unlink(missing_ok=True)
            partial.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, partial)

    if not (other.exists() and other.samefile(path)):
        write_whole(other, link)


def write_checkpoint(path: Path, tree: Tree, metadata: dict[str, str]) -> None:
    """Write tensors and words to a file that also survives if the machine stops."""
    from safetensors.torch import save_file

    contiguous = {name: t.contiguous() for name, t in tree.items()}
    words = sealed(contiguous, metadata)
    write_durably(path, lambda partial: save_file(contiguous, partial, words))


def read_checkpoint(path: Path, like: Tree) -> tuple[Tree, dict[str, str]]:
    """Return the tensors of a checkpoint, which must have the names, shapes and types of `like`, and its words."""
    saved, words = read_tensors(path, "checkpoint")
    if {n: (t.shape, t.dtype) for n, t in saved.items()} != {n: (t.shape, t.dtype) for n, t in like.items()}:
        raise DataError(f"{path}: the checkpoint belongs to another configuration or to other data than this run")
    check_seal(path, "checkpoint", saved, words)
    return saved, words
