"""`imperfed.leak` of a run's folder, or of a method with data and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from imperfed.api.call_rows import again, loaded, prepared
from imperfed.api.declared import PARTS
from imperfed.api.parts import objects_again, split_objects
from imperfed.experiments.resolving import resolve
from imperfed.leakage.leak_run import LeakOptions, leak_of_folder, leak_of_settings
from imperfed.results.folder import RunFolder
from imperfed.results.leak_summary import LeakSummary


def leak(
    what: Any,
    data: Any = None,
    *,
    sites: int = 4,
    trained: bool = False,
    iterations: int = 500,
    dishonest: bool = False,
    **keywords: Any,
) -> LeakSummary:
    """Return what a curious coordinator could reconstruct of the sites' rows and labels from one round.

    `what`: the folder of a run, into which `leak.json` and the report are written; or a method, with `data` and further
    keywords as for `run`, of which nothing is written. Rows and objects that a run began with are handed over again.
    `sites`: how many are attacked. `trained`: the round after the run's last one, instead of its first. `iterations`:
    steps of the search for rows. `dishonest`: the coordinator sends weights chosen to single out rows.
    """
    options = LeakOptions(sites, trained, iterations, dishonest)
    if isinstance(what, Path) or (isinstance(what, str) and Path(what).is_dir()):
        folder = RunFolder.open(Path(what))
        rows = {key: keywords.pop(key) for key in PARTS if key in keywords}
        objects = objects_again(folder, keywords)
        federated = None if data is None else again(folder, data, rows, folder.config(objects))
        return leak_of_folder(folder, options, federated, objects)
    objects, words = split_objects({"method": what, **keywords})
    rows_given, name, settings = prepared("digits" if data is None else data, words)
    config = resolve(None, {"data": name, **settings}, objects)
    return leak_of_settings(config, options, loaded(rows_given, config)[0])
