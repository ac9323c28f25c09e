"""The folder of a run: which file holds what. Every file is written whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from imperfed.core.atomic import append_lines, saying_if_full, write_whole
from imperfed.core.errors import DataError, DiskFullError, UsageError
from imperfed.data.files.declaration import called
from imperfed.data.scale import Scale
from imperfed.experiments.config import Config
from imperfed.experiments.experiment_file import read
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.plugins import missing_plugin
from imperfed.experiments.resolving import resolve
from imperfed.results.damaged_files import parse_file
from imperfed.results.environment import environment
from imperfed.results.folder_names import created_folder
from imperfed.results.split_table import SPLIT, read_index, read_split, split_columns
from imperfed.results.summary import Summary

Record = dict[str, Any]
"""A line of `metrics.jsonl`."""
SERVED, OWN = "serve.json", "site.json"
"""The files that mark the coordinator's and a site's own folder of a run with real sites."""
REQUEST, TRIALS = "auto.json", "trials.json"
"""What a search was asked for, and what it found; without the latter, it has not ended."""
AT_THE_SITES = (
    "the rows of a run with real sites, and models that are not the same for all, are at the sites: each has them in "
    "the folder that it joined with as --state. Type there: imperfed {} STATE/{}"
)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run; `docs/run-folder.md` describes its files."""

    path: Path
    made_with: Config | None = field(default=None, repr=False, compare=False)
    """The settings of a run of this process, whose parts may be objects that no import finds."""

    @classmethod
    def create(cls, out: Path, config: Config, place: Mapping[str, Any], title: str = "") -> RunFolder:
        """Create a new folder below `out`, or raise an error that says why not; `place`: the hardware of the run.

        `title`: what the run is called, if not by its method.
        """
        title = title or config.run.title
        title = re.sub(r":|\.<locals>\.", ".", title)  # an import path; not all of it fits into file names
        try:
            path = created_folder(out, f"{title}-{called(config.run.data)}", config.digest())
        except OSError as error:
            raise UsageError(f"cannot write to {out} ({error.strerror}); choose another folder with --out") from error
        folder = cls(path, config)
        folder.write("config.toml", config.toml())
        folder.write("env.json", json.dumps(environment(config) | dict(place), indent=2))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of an existing run."""
        if not (path / "config.toml").is_file():
            runs = sorted((run.parent for run in path.glob("*/config.toml")), key=lambda run: run.stat().st_mtime)
            within = ""
            if runs:
                several = f"one of the {len(runs)} runs in it, such as the newest" if len(runs) > 1 else "the run in it"
                within = f"; name {several}: {runs[-1]}"
            raise UsageError(f"{path} is not a run's folder: it has no config.toml{within}")
        return cls(path)

    @property
    def served(self) -> bool:
        """Whether this is the coordinator's folder of a run with real sites."""
        return (self.path / SERVED).exists()

    @property
    def site(self) -> str:
        """The site whose own folder of a run with real sites this is; empty if it is none."""
        path = self.path / OWN
        return str(json.loads(path.read_text(encoding="utf-8"))["site"]) if path.exists() else ""

    @property
    def searching(self) -> bool:
        """Whether this is the folder of a search that has not ended."""
        return (self.path / REQUEST).exists() and not (self.path / TRIALS).exists()

    @property
    def budget(self) -> float:
        """The minutes of the search of this folder."""
        return float(parse_file(self.path / REQUEST, json.loads, "delete it")["budget"])

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoints" / "last.safetensors"

    def settings(self) -> dict[str, Any]:
        """Return the sections of `config.toml`, which can be read even if a plug-in is missing."""
        return read(self.path / "config.toml")

    def config(self, objects: Objects = NO_OBJECTS) -> Config:
        """Return the settings of this run; `objects`: those of its parts that were handed over again."""
        if self.made_with is not None and self.made_with.toml() == (self.path / "config.toml").read_text("utf-8"):
            return self.made_with
        with self.naming_missing_plugins(objects):
            return resolve(self.settings(), objects=objects.beginning_with(self.initial()))

    @contextmanager
    def naming_missing_plugins(self, objects: Objects = NO_OBJECTS) -> Iterator[None]:
        """Turn an error into one that says which plug-in of this run cannot be imported, if that is so."""
        try:
            yield
        except UsageError as error:
            missing = missing_plugin(self.environment(), objects.classes)
            raise (error if missing is None else UsageError(f"{self.path} {missing}")) from error

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Let the error of a full disk say how to continue this run."""
        try:
            with saying_if_full(self.path):
                yield
        except DiskFullError as error:
            raise DiskFullError(f"{error}; make room, then continue with: imperfed resume {self.path}") from error

    def summary(self) -> Summary | None:
        """Return the summary; None if the run has not finished all its rounds."""
        path = self.path / "summary.json"
        if not path.exists():
            return None
        summary = parse_file(path, Summary.from_json, "delete it, and `imperfed resume` the run to write it again")
        return summary if summary.early or summary.rounds >= self.rounds() else None

    def ended(self) -> Summary:
        """Return the summary; a run that has not ended is refused with the command that continues it."""
        summary = self.summary()
        if summary is None:
            raise UsageError(f"{self.path}: this run has not ended; continue with: imperfed resume {self.path}")
        return summary

    def rounds(self) -> int:
        """Return the number of rounds that the run is to have."""
        rounds = self.settings().get("rounds", {}).get("rounds")
        return rounds if isinstance(rounds, int) else self.config().rounds.rounds

    def environment(self) -> dict[str, Any]:
        """Return the hardware and the versions of the run; empty if the file was deleted."""
        path = self.path / "env.json"
        return parse_file(path, json.loads, "delete it to continue without it") if path.exists() else {}

    def write(self, name: str, text: str) -> Path:
        """Write a text file, whole or not at all."""
        return write_whole(self.path / name, lambda partly: partly.write_text(text, encoding="utf-8"))

    def append(self, records: Iterable[Record]) -> None:
        """Append lines to `metrics.jsonl`."""
        append_lines(self.path / "metrics.jsonl", (json.dumps(record, allow_nan=False) for record in records))

    def records(self) -> Iterator[Record]:
        """Yield the lines of `metrics.jsonl`, except one cut short by a crash."""
        path = self.path / "metrics.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)

    def forget_from(self, round: int) -> None:
        """Drop the records of rounds that a resumed run will repeat."""
        kept = [json.dumps(r) + "\n" for r in self.records() if r["round"] <= round]
        self.write("metrics.jsonl", "".join(kept))

    def log(self, line: str) -> None:
        """Append a line to `log.txt`."""
        append_lines(self.path / "log.txt", [f"{datetime.now().isoformat(timespec='seconds')} {line}"])

    def save_model(self, name: str, tree: dict[str, Tensor]) -> Path:
        """Write the named tensors of a model."""
        return self.save_tensors(f"models/{name}.safetensors", tree)

    def save_tensors(self, name: str, tree: dict[str, Tensor]) -> Path:
        """Write a file of named tensors."""
        from safetensors.torch import save

        # Not save_file, which ignores the umask and makes files that only their owner can read.
        return write_whole(self.path / name, lambda partly: partly.write_bytes(save(tree)))

    def load_model(self, name: str) -> dict[str, Tensor]:
        """Return the model of a site, or the global one if sites have no models of their own."""
        own = self.path / "models" / f"{name}.safetensors"
        path = own if own.exists() else self.path / "models" / "global.safetensors"
        if not path.exists() and not self.served:
            self.ended()  # models are written at the end
        return self.load_tensors(path)

    def scale(self) -> Scale:
        """Return how inputs are scaled, filled and binned for a model; as they are if nothing is stored."""
        path = self.path / "models" / "scale.safetensors"
        return Scale.of_tree(self.load_tensors(path)) if path.exists() else Scale.none()

    def load_tensors(self, path: Path) -> dict[str, Tensor]:
        """Return the tensors of a file of this run."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tree: dict[str, Tensor] = load_file(path)
        except (OSError, SafetensorError) as error:
            if not path.exists() and self.served:
                raise DataError(f"{path}: no such file; {AT_THE_SITES.format('predict', self.path.name)}") from error
            delete_first = "" if self.summary() is None else f"delete {self.path / 'summary.json'} and "
            what = f"not a readable model ({error})" if path.exists() else "no such file"
            raise DataError(f"{path}: {what}; {delete_first}`imperfed resume {self.path}` to write it again") from error
        return tree

    def save_initial(self, weights: Mapping[str, Tensor]) -> Path:
        """Write the initial weights of a model that was handed over as an object."""
        from safetensors.torch import save

        return write_whole(self._initial, lambda partly: partly.write_bytes(save(dict(weights))))

    def initial(self) -> dict[str, Tensor] | None:
        """Return these weights; None for a model that the settings name."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self._initial.exists():
            return None
        try:
            return load_file(self._initial)
        except SafetensorError as error:
            raise DataError(
                f"{self._initial}: cut short or damaged ({error}); delete it to begin with the weights handed over"
            ) from error

    @property
    def _initial(self) -> Path:
        return self.checkpoint.with_name("initial.safetensors")

    def save_table(self, name: str, columns: dict[str, Any]) -> Path:
        """Write a Parquet table."""
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table(columns)
        return write_whole(self.path / name, lambda partly: parquet.write_table(table, partly))

    def save_split(
        self, split: Mapping[str, Sequence[str]], index: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Path:
        """Write the ids of the training rows by site; `index`: the caller's own name of each row, by site and id."""
        return self.save_table(SPLIT, split_columns(split, index))

    def index(self) -> Any:
        """Return the caller's own names of the training rows, by site, as pyarrow arrays; empty if there are none."""
        return read_index(self.path / SPLIT)

    def split(self) -> dict[str, list[str]]:
        """Return the ids of the training rows by site; empty if the run has not written them yet."""
        return read_split(self.path / SPLIT)
