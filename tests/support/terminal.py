"""The command line as the tests use it: called in this process, where that is enough, or as a real program."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from imperfed.cli.app import main

FLIP = ("--set", "labels.candidates=flip")  # the default generator trains a network first
QUICK = ("--rounds", "2", "--set", "steps=5", "--workers", "1", *FLIP)
TINY = (*QUICK, "--set", "partition=iid")  # for files too small to be cut unevenly


@dataclass(frozen=True)
class Said:
    """What a command said, and the exit code it ended with."""

    code: int
    out: str
    err: str

    @property
    def folder(self) -> Path:
        """The folder of the run, from the paths that were printed."""
        return next(Path(line.strip()).parent for line in self.out.splitlines() if line.endswith("summary.json"))


def surroundings(**more: str) -> dict[str, str]:
    """This process's environment, without anything that points to data or chooses a terminal."""
    chosen = ("IMPERFED_DATA", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    rest = {key: value for key, value in os.environ.items() if key not in chosen}
    return rest | {"IMPERFED_DATA": "/nowhere", "COLUMNS": "200"} | more


def imperfed(*words: object, **environment: str) -> Said:
    """Call the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["imperfed", *map(str, words)]),
        patch.dict(os.environ, surroundings(**environment), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
    return Said(code or 0, out.getvalue(), err.getvalue())


def done(*words: object, **environment: str) -> Said:
    """The same, of a command that must succeed."""
    said = imperfed(*words, **environment)
    assert said.code == 0, said.err
    assert said.err == ""
    return said


def program(*words: object, **options: Any) -> subprocess.Popen[str]:
    """Start the command line as a program of its own, at the head of a process group as a shell would."""
    return subprocess.Popen(
        [sys.executable, "-m", "imperfed", *map(str, words)],
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def strict(text: str) -> Any:
    """JSON as the standard has it: without NaN and infinities."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def summary(folder: Path) -> dict[str, Any]:
    """A run's summary without the time it took."""
    found: dict[str, Any] = strict((folder / "summary.json").read_text())
    del found["seconds"]
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's `metrics.jsonl`."""
    return [strict(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def products(folder: Path) -> dict[str, Any]:
    """All that a run gives back, byte by byte; of the summary all but the seconds."""
    names = [f for pattern in ("models/*", "labels/*", "*.jsonl", "split.parquet") for f in folder.glob(pattern)]
    assert len(names) > 3
    files: dict[str, Any] = {str(path.relative_to(folder)): path.read_bytes() for path in names}
    return files | {"summary": summary(folder)}


def arrays(rows: int = 40, classes: int = 3) -> dict[str, Any]:
    """A small dataset with candidate sets, as an .npz file holds it."""
    draw = np.random.default_rng(0)
    y = np.arange(rows) % classes
    x = draw.normal(size=(rows, 4)) + 3 * np.eye(classes, 4)[y]
    candidates = (draw.random((rows, classes)) < 0.4) | np.eye(classes, dtype=bool)[y]
    return {"x": x.astype(np.float32), "y": y, "candidates": candidates}


def write(path: Path, **changed: Any) -> Path:
    """The small dataset as a file; an array given as None is left out."""
    np.savez(path, **{name: array for name, array in (arrays() | changed).items() if array is not None})
    return path


def on_ranks(
    *words: object, ranks: int = 2, launcher: str = "torch.distributed.run", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line under torchrun, one thread to a rank."""
    torchrun = [sys.executable, "-m", launcher, "--standalone", "--nproc-per-node", str(ranks)]
    where = surroundings(OMP_NUM_THREADS="1", **variables)
    command = [*torchrun, "-m", "imperfed", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=where, timeout=120, check=False)
