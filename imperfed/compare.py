"""Several methods on the same splits, several seeds, one table; the paper's figure beside ours where there is one."""

from __future__ import annotations

import hashlib
import json
import statistics
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from imperfed.config import Config
from imperfed.errors import UsageError
from imperfed.experiment import Watch, start
from imperfed.folder import Record, free, whole
from imperfed.products import headline


@dataclass(frozen=True)
class Line:
    """A method's figures over the seeds, as fractions."""

    method: str
    values: tuple[float, ...]
    labels: tuple[float, ...]
    seconds: float
    paper: float | None
    over: str = "mean over sites"
    """What the figures are of."""

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Sample standard deviation over the seeds; 0 for one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def paper_figures(data: str) -> dict[str, float]:
    """The papers' figures for a dataset by method, in per cent."""
    figures: dict[str, float] = {}
    for study in resources.files("imperfed.studies").iterdir():
        if study.name.endswith(".toml"):
            figures |= tomllib.loads(study.read_text(encoding="utf-8")).get("figures", {}).get(data, {})
    return figures


def compare(
    methods: Sequence[str],
    seeds: Sequence[int],
    config: Callable[[str, int], Config],
    out: Path,
    watch: Callable[[], Watch],
) -> tuple[Path, list[Line]]:
    """Run every method with every seed (which is also the seed of the split) in a new folder below `out`."""
    if not methods:
        raise UsageError("no method was named; give names with commas between them")
    # all settings are checked before any run
    configs = [[config(method, seed) for seed in seeds] for method in methods]
    if configs[0][0].split.test == 0:
        raise UsageError("compare measures methods on test rows; set test above 0")
    folder = free(out, "compare", hashlib.sha256(repr(configs).encode()).hexdigest()[:6])
    paper = paper_figures(configs[0][0].run.data)
    lines: list[Line] = []
    for method, runs in zip(methods, configs, strict=True):
        summaries = [start(one, folder, watch())[1] for one in runs]
        lines.append(line(method, summaries, paper))
        write(folder, lines, seeds)
    return folder, lines


def line(method: str, summaries: Sequence[Record], paper: dict[str, float]) -> Line:
    """A method's line from the summaries of its runs."""
    resolved = [s["labels"]["accuracy"] for s in summaries if s["labels"].get("accuracy") is not None]
    return Line(
        method,
        tuple(headline(s) or 0.0 for s in summaries),
        tuple(resolved),
        statistics.fmean(s["seconds"] for s in summaries),
        paper.get(method),
        "mean over sites" if summaries[0]["personal"]["n"] else f"{summaries[0]['metric']} on the common test set",
    )


def markdown(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """The table as it stands on a results page."""
    best = max(line.mean for line in lines)
    rows = [
        f"| method | {lines[0].over}, % | paper, % | labels resolved, % | s a run |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in lines:
        figure = f"{100 * one.mean:.2f} ± {100 * one.spread:.2f}"
        figure = f"**{figure}**" if one.mean == best else figure
        paper = f"{one.paper:.2f}" if one.paper is not None else ""
        labels = f"{100 * statistics.fmean(one.labels):.2f}" if one.labels else ""
        rows.append(f"| {one.method} | {figure} | {paper} | {labels} | {one.seconds:.1f} |")
    rows.append(
        f"\nSeeds {', '.join(map(str, seeds))}, each with its own split; ± is the sample standard deviation over them."
    )
    return "\n".join(rows) + "\n"


def write(out: Path, lines: Sequence[Line], seeds: Sequence[int]) -> None:
    """`table.md` and `results.json`, anew after every method, so that nothing is lost."""
    results = [{"method": one.method, "values": one.values, "labels": one.labels, "paper": one.paper} for one in lines]
    whole(
        out / "results.json",
        lambda path: path.write_text(json.dumps({"seeds": list(seeds), "lines": results}, indent=2)),
    )
    whole(out / "table.md", lambda path: path.write_text(markdown(lines, seeds), encoding="utf-8"))
