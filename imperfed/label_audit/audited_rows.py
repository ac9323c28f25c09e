"""The rows of an audit: files of the user's own, with or without a federation.toml, or a dataset by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imperfed.census.inspect import declaration_of, read_checked
from imperfed.core.errors import UsageError
from imperfed.data.federate import FederatedData
from imperfed.data.files.declaration import FILE
from imperfed.data.files.reading import Reading
from imperfed.data.own_files import federate_files
from imperfed.data.sources import OWN_FILES, sources
from imperfed.experiments.config import Config
from imperfed.experiments.run_data import load_data


@dataclass(frozen=True)
class DeclaredFiles:
    """Files of the user's own that have been read."""

    reading: Reading
    text: str
    """The text of federation.toml."""
    guessed: tuple[str, ...] = ()
    """One sentence for everything that was guessed; empty if there was a federation.toml."""

    def federate(self, config: Config) -> FederatedData:
        """Return what the sites and the server hold, in the order of the files."""
        return federate_files(self.reading, config.split, config.labels, config.run.data_seed)


def read_declared(path: Path) -> DeclaredFiles:
    """Read the files of a folder, or of its federation.toml; a missing one is guessed, and not written."""
    declaration, guessed = declaration_of(path)
    reading = read_checked(declaration, guessed)
    if guessed is not None:
        return DeclaredFiles(reading, guessed.text(), guessed.why)
    file = path.expanduser() if path.name == FILE else declaration.file
    return DeclaredFiles(reading, file.read_bytes().decode("utf-8-sig"))


def load_rows(config: Config) -> tuple[FederatedData, tuple[str, ...]]:
    """Return the data of an audit by name or path, and one sentence for everything that was guessed about files."""
    path = Path(config.run.data).expanduser()
    if config.run.data in sources() or path.suffix.lower() in OWN_FILES or not path.exists():
        return load_data(config), ()
    files = read_declared(path)
    return files.federate(config), files.guessed


def refuse_without_files(data: str) -> None:
    """Refuse data that no federation.toml describes, for commands that write files again."""
    path = Path(data).expanduser()
    if data in sources() and not path.exists():
        raise UsageError(f"{data}: a dataset of imperfed's, not files of yours; `imperfed audit {data}` judges it")
    if path.suffix.lower() in OWN_FILES and path.is_file():
        raise UsageError(
            f"{path}: repair writes files that a {FILE} describes; `imperfed audit {path}` lists the labels of this one"
        )
