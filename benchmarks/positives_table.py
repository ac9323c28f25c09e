"""Tables of the runs recorded by `positives.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import mean, stdev
from typing import Any

Record = dict[str, Any]

PAPER = {
    ("bibtex", "SLEEC, all rows in one place"): "65.08 / 39.64 / 28.87",
    ("bibtex", "FedALC"): "59.67 / 36.04 / 27.18",
    ("bibtex", "FedAwS, K = 5"): "49.22 / 30.74 / 23.11",
    ("bibtex", "FedAvg"): "11.6 / 9.11 / 7.84",
    ("bibtex", "FedAvg as printed"): "11.6 / 9.11 / 7.84",
}
"""P@1 / P@3 / P@5 of the paper's table VI, each at its best lambda."""


def read(path: Path) -> Iterator[Record]:
    """Return the runs in a file of JSON lines; none if it does not exist. Incomplete lines are skipped."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def append(path: Path, record: Record) -> None:
    """Append a line, after a line break if the last line is incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a") as file:
        file.write(("" if whole else "\n") + json.dumps(record) + "\n")


def told(record: Record) -> str:
    """Describe a run in one line."""
    figures = list(record["figures"].values())[-1]
    p = ", ".join(f"{name} {100 * figures[name]:.1f}" for name in ("p@1", "p@3", "p@5"))
    seconds = f"{record.get('opening_s', 0)} s before, {record.get('rounds_s', 0)} s of rounds"
    return f"{record['data']}, {record['line']}, {step(record['settings'])}, seed {record['seed']}: {p}; {seconds}"


def lines_of(records: list[Record], data: str) -> dict[str, list[Record]]:
    """Return the runs of every table line with the settings chosen on the first seed's validation rows."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        if record["data"] == data:
            found.setdefault(record["line"], []).append(record)
    for line, runs in found.items():
        first = [run for run in runs if run["seed"] == runs[0]["seed"]]
        kept = [run for run in runs if run["settings"] == chosen(first)["settings"]]
        found[line] = sorted(kept, key=lambda run: run["seed"])
    many = str(records[0]["stops"][-1])
    return dict(sorted(found.items(), key=lambda item: -mean(run["figures"][many]["p@1"] for run in item[1])))


def chosen(runs: list[Record]) -> Record:
    """Return the best run on validation rows; among equals the one with the smaller step."""
    return max(runs, key=lambda run: (run.get("validation", 0.0), -swept(run["settings"])))


def swept(settings: Record) -> float:
    """Return the value of the setting that a line sweeps."""
    return next((settings[name] for name in ("lr_fixed", "lam", "lr_w") if settings.get(name)), 0.0)


def spread(values: list[float]) -> str:
    """Format mean and sample standard deviation, in per cent."""
    told = f"{100 * mean(values):.1f}"
    return f"{told} ± {100 * stdev(values):.1f}" if len(values) > 1 else told


def step(settings: Record) -> str:
    """Describe the setting that a line sweeps, with its value."""
    if settings.get("lam"):
        return f"λη {settings['lam'] * settings['lr_server']:g}"
    return next((f"{name} {settings[name]:g}" for name in ("lr_fixed", "lr_w") if name in settings), "")


def table(records: list[Record], data: str) -> str:
    """Return all lines of a dataset, the best first; the second to last column is at the first stop."""
    if not any(record["data"] == data for record in records):
        return "Not run."
    found = lines_of(records, data)
    stops = next(iter(found.values()))[0]["stops"]
    few, many = str(stops[0]), str(stops[-1])
    early = few != many
    head = ["method", "P@1", "P@3", "P@5", "mAP", "chosen", "runs"]
    head += [f"P@1 within {few} rounds"] * early + ["paper, P@1 / P@3 / P@5"]
    rows = [head, ["---"] * len(head)]
    for line, runs in found.items():
        figures = [run["figures"][many] for run in runs]
        cells = [spread([f[name] for f in figures]) for name in ("p@1", "p@3", "p@5")]
        cells += [spread([f["map"] for f in figures]) if "map" in figures[0] else "", step(runs[0]["settings"])]
        cells += [str(len(runs))] + [spread([run["figures"][few]["p@1"] for run in runs])] * early
        rows.append([line, *cells, PAPER.get((data, line), "")])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def sweep(records: list[Record], data: str) -> str:
    """Return P@1 on validation rows for every setting tried with the first seed."""
    mine = [record for record in records if record["data"] == data and "validation" in record]
    mine.sort(key=lambda record: record["seed"])
    if not mine:
        return "Not run."
    tried: dict[str, list[Record]] = {}
    for record in mine:
        if record["seed"] == mine[0]["seed"]:
            tried.setdefault(record["line"], []).append(record)
    rows = ["| method | validation P@1, per cent, by setting |", "| --- | --- |"]
    for line, runs in tried.items():
        runs.sort(key=lambda run: swept(run["settings"]))
        cells = (f"{step(run['settings'])}: {100 * run['validation']:.1f}".removeprefix(": ") for run in runs)
        rows.append(f"| {line} | {', '.join(cells)} |")
    return "\n".join(rows)
