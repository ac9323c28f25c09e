"""A site with a small file, which is asked by message in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from imperfed.data.scale import Scale
from imperfed.data.site_files import SiteFiles
from imperfed.engine.failures import Failure
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.flower.messages.payload import Payload, failure_of, pack
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.policy import SitePolicy
from imperfed.flower.site.rows_cache import digest_of
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.site_data import read_files

DECLARED = """
sites = "*.csv"
[inputs]
numeric = ["age", "income"]
[labels]
kind = "exact"
column = "sick"
classes = ["no", "yes"]
"""
ROWS = 40
TRUE = np.c_[np.arange(ROWS) + 40, 1000 * np.arange(ROWS) + 37].astype(float)


def table(rows: np.ndarray[Any, Any]) -> str:
    lines = (f"{a:.0f},{b:.0f},{('no', 'yes')[k % 2]}" for k, (a, b) in enumerate(rows))
    return "\n".join(["age,income,sick", *lines]) + "\n"


def site_of(folder: Path, rows: np.ndarray[Any, Any] = TRUE, test: bool = False, **policy: Any) -> LocalSite:
    folder.mkdir(parents=True, exist_ok=True)
    file, own = folder / "north.csv", folder / "test.csv" if test else None
    file.write_text(table(rows))
    if own is not None:
        own.write_text(table(TRUE[:12]))

    def read(config: Config, declared: str) -> SiteFiles:
        files = read_files("north", file, own, config, declared)
        return replace(files, digest=digest_of(files))

    allowed = SitePolicy(**policy)
    return LocalSite("north", read, folder / "state", b"s" * 32, policy=allowed, source=str(file), own_test=test)


def greeting(run: str = "run", declaration: str = DECLARED, **settings: Any) -> RunInfo:
    words = {"method": "fedavg", "model": "logistic", "batch": 8, "rounds": 3, "split.public": 0, "split.trusted": 0}
    return RunInfo(run, resolve(words=words | settings).toml(), declaration, 0, Scale.none(), {})


def asked(place: LocalSite, kind: str, run_info: RunInfo, words: Any = None, **trees: Any) -> Payload | Failure:
    reply = handle(place, kind, pack(run_info.payload(words, trees)))
    return failure_of(reply) or reply


def reason(answer: Payload | Failure) -> str:
    assert isinstance(answer, Failure), answer
    return answer.reason
