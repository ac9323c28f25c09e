"""How far the trials of a search have come, on the coordinator's disk: a search that was stopped goes on from there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from imperfed.core.atomic import write_durably
from imperfed.core.batch import Tree
from imperfed.core.errors import DataError
from imperfed.core.tensor_files import check_seal, read_tensors, sealed
from imperfed.engine.failures import Crashed, Failure
from imperfed.experiments.auto.trials import Arrays, Progress

FAILED, WORDS = "failed", ("round", "score", "best", "waited", "sites", "seconds")
"""The word of a trial that failed, and the fields of `Progress` that are not tensors."""


@dataclass(frozen=True)
class SearchCheckpoint:
    """One file for each trial and each rung that it has reached."""

    path: Path

    def save(self, trial: int, rounds: int, result: Progress | Failure) -> None:
        """Keep what became of a trial up to a round."""
        from safetensors.torch import save

        tree: Tree = {}
        if isinstance(result, Failure):
            words: dict[str, Any] = {FAILED: result.reason}
        else:
            words = {name: getattr(result, name) for name in WORDS}
            parts = {"state": result.state, "best": result.best_state}
            tree = {
                f"{part}/{name}": torch.from_numpy(array).contiguous()
                for part, arrays in parts.items()
                for name, array in arrays.items()
            }
        content = save(tree, sealed(tree, {"words": json.dumps(words)}))
        write_durably(self._file(trial, rounds), lambda partly: partly.write_bytes(content))

    def load(self, trial: int, rounds: int) -> Progress | Failure | None:
        """Return what became of a trial up to a round; None if that is not known yet."""
        path = self._file(trial, rounds)
        if not path.exists():
            return None
        try:
            tree, words = read_tensors(path, "checkpoint")
            check_seal(path, "checkpoint", tree, words)
            return _result(json.loads(words["words"]), {name: t.numpy() for name, t in tree.items()})
        except DataError as error:
            raise DataError(f"{error}; delete it to try this one again") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a readable checkpoint ({error}); delete it to try this one again") from error

    def forget(self) -> None:
        """Remove everything, once the search has ended."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _file(self, trial: int, rounds: int) -> Path:
        return self.path / f"trial-{trial:04}-{rounds:06}.safetensors"


def _result(words: Mapping[str, Any], tree: Mapping[str, np.ndarray[Any, Any]]) -> Progress | Failure:
    if FAILED in words:
        return Crashed(str(words[FAILED]))

    def part(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in tree.items() if name.startswith(prefix)}

    fields = {name: words[name] for name in WORDS} | {"sites": [(score, weight) for score, weight in words["sites"]]}
    return Progress(**fields, state=part("state/"), best_state=part("best/"))
