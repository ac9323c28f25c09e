"""Tables of GPU measurements for the pages, made from the result file of `gpu.py`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from imperfed.algorithms import catalogue
from imperfed.testing.cases import cases

Result = dict[str, Any]

BLOCK = re.compile(r"(<!-- gpu (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A part of the page that is rewritten: its start marker, its name, its end marker."""


def milliseconds(seconds: float) -> str:
    """Format milliseconds with three significant digits."""
    value = 1000 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def speed(result: Result) -> str:
    """Return one line per work, our fastest in bold."""
    columns = ("work", "precision", "eager loop", "our loop", "captured", "captured and compiled", "gain (aim)")
    lines = [f"| {' | '.join(columns)} | before | ours / before |", "| --- " * 9 + "|"]
    for row in result["speed"]:
        ways = [milliseconds(row[way]) for way in ("eager loop", "our loop", "graph", "graph, compiled")]
        best = 2 if row["ours"] == row["graph"] else 3
        ways[best] = f"**{ways[best]}**"
        aim = f" ({row['gain wanted']})" if row["gain wanted"] else ""
        gain = f"{row['gain']:.3g}{aim}"
        before = (milliseconds(row["best before"]), f"{row['ratio to it']:.2f}")
        lines.append(f"| {' | '.join((row['work'], row['precision'], *ways, gain, *before))} |")
    return "\n".join(lines)


def weights(result: Result) -> str:
    """Describe how many pairs ran captured, how far they are from the loop, which failed, and which were not tried."""
    rows = result["weights"]
    known, failed = [row for row in rows if "distance" in row], [row["case"] for row in rows if not row["same"]]
    captured, equal = sum(row["captured"] is True for row in known), sum(row["distance"] == 0 for row in known)
    loops = [f"`{row['case']}` ({row['why']})" for row in known if row["captured"] is False]
    farthest = max(row["distance"] for row in known)
    return (
        f"{len(rows)} pairs, {captured} of them captured; relative distance from the loop at most {farthest:.1e}, and "
        f"{equal} of them equal bit for bit."
        + (f" Not captured: {', '.join(loops)}." if loops else "")
        + (f" **Failed: {', '.join(failed)}.**" if failed else "")
        + (f"\n\nNot tried on a GPU yet: {', '.join(f'`{name}`' for name in left)}." if (left := untried(rows)) else "")
    )


def untried(rows: Iterable[Result]) -> list[str]:
    """Return the methods of the catalogue none of whose pairs is among these."""
    tried = {row["case"] for row in rows}
    found = {name for case in cases() if str(case) in tried for name in (case.algorithm.name, case.objective.name)}
    return sorted(catalogue().keys() - found)


def repeats(result: Result) -> str:
    """Return one line per work: milliseconds per round, and whether two runs were equal, by choice of kernels."""
    lines = ["| work | precision | any kernels | two runs | `deterministic` | two runs |", "| --- " * 6 + "|"]
    rows = result["repeats"]
    for any_kernel, fixed in zip(rows[::2], rows[1::2], strict=True):
        cells = [any_kernel["work"], any_kernel["precision"]]
        for row in (any_kernel, fixed):
            cells += [milliseconds(row["seconds"]), "equal" if row["equal"] else "differ"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def memory(result: Result) -> str:
    """Return the peaks by the number of sites."""
    return "; ".join(f"{row['sites']} sites: {row['peak MB']} MB" for row in result["memory"]) + "."


def gaps(result: Result) -> str:
    """Return one line per work: milliseconds per round of the loop on the GPU and of the graph."""
    lines = ["| work | loop | captured | loop / captured |", "| --- " * 4 + "|"]
    for row in result["gaps"]:
        ways = (milliseconds(row["loop"]), milliseconds(row["graph"]), f"{row['loop'] / row['graph']:.2g}")
        lines.append(f"| {' | '.join((row['work'], *ways))} |")
    return "\n".join(lines)


def repairs(result: Result) -> str:
    """Return one line per repair: seconds on the GPU and on the processor."""
    lines = ["| repair of 20,000 rows, 1,280 features, 10 classes | GPU, s | 16 cores, s |", "| --- " * 3 + "|"]
    lines += [f"| {row['repair']} | {row['gpu']:.1f} | {row['cpu']:.1f} |" for row in result["repairs"]]
    return "\n".join(lines)


def one_rank(result: Result) -> str:
    """Compare a run with the same run as the single rank of torchrun."""
    (row,) = result["one_rank"]
    plain, other = (statistics.median(row["seconds"][way]) for way in ("plain", "torchrun"))
    models = f"all {row['models']} models equal bit for bit" if row["equal"] else "**the models differ**"
    return (
        f"`imperfed run {row['command']}`: {plain:.2f} s, as the one rank of torchrun {other:.2f} s "
        f"({100 * (other / plain - 1):+.1f} %; medians of three, in turn), {models}."
    )


def table(result: Result) -> str:
    """Return a command, the table it printed, and how long it took, including its start."""
    (row,) = result["table"]
    return f"```\n{row['command']}\n```\n\n{row['table']}\nWith the start of the program: {row['seconds']:.0f} s."


PARTS: dict[str, Callable[[Result], str]] = {
    "speed": speed,
    "weights": weights,
    "repeats": repeats,
    "memory": memory,
    "gaps": gaps,
    "repairs": repairs,
    "one_rank": one_rank,
    "table": table,
}


def filled(page: str, result: Result) -> str:
    """Return the page with its figures replaced."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{PARTS[m[2]](result)}\n\n{m[3]}", page)
