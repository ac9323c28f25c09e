"""The figures of all parts on the pages: `python -m benchmarks.scale fill` writes them there from the result files."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale import lazy, ranks, sites, tables

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("scale.md", "ranks.md", "larger-than-memory.md")
BLOCK = re.compile(r"(<!-- scale (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A part of a page that is rewritten: its start marker, its name, its end marker."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Format a number with two or three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.3g}"


def crowd(found: dict[str, Any]) -> str:
    """Return one line per method and number of sites."""
    times = ("data", "a round", "evaluating after a round", "a checkpoint", "results of the run")
    sizes = ("before the rounds", "after the rounds", "peak")
    columns = ("method", "sites", *(f"{what}, s" for what in times), *(f"{what}, MB" for what in sizes))
    return table(
        columns,
        (
            [f"`{row['method']}`", f"{row['sites']:,}", *(number(row[column]) for column in columns[2:])]
            for row in found["crowd"]
        ),
    )


def labels(found: dict[str, Any]) -> str:
    """Return one line per method and shape."""
    columns = ("method", "shape of", "labels", "examples", "share of them", "positive labels")
    measured = ("before round 1, s", "a round, s", "of it the pass over the rows, s", "peak, MB")
    return table(
        (*columns, *measured),
        (
            [
                *(f"`{row['method']}`", row["shape"], f"{row['labels']:,}", f"{row['examples']:,}"),
                *(f"{row['examples'] / sites.SHAPES[row['shape']].examples:.0%}", f"{row['rows']:,}"),
                *(number(row[column]) for column in measured),
            ]
            for row in found["labels"]
        ),
    )


def shared(found: dict[str, Any]) -> str:
    """Return one line per shape over two ranks."""
    alone = {(row["method"], row["shape"]): row["peak, MB"] for row in found["labels"]}
    columns = ("class matrix, MB", "peak, MB", "peak of rank 1, MB", "server's memory, MB a round", "sums, MB a round")
    heads = ("class matrix, MB", "rank 0, MB", "rank 1, MB", "model to rank 1, MB a round", "sums from it, MB a round")
    return table(
        ("method", "shape of", "labels", "one process, MB", *heads),
        (
            [
                *(f"`{row['method']}`", row["shape"], f"{row['labels']:,}"),
                number(alone[row["method"], row["shape"]]),
                *(number(row[column]) for column in columns),
            ]
            for row in found["shared"]
        ),
    )


def works(found: dict[str, Any]) -> str:
    """Return one line per work and number of ranks."""
    columns = ("work", "ranks", "one process, s", "ranks / one process", "of processor time", "MB a round")
    rows = [(name, count, row) for name, by_count in found["works"].items() for count, row in by_count.items()]
    return table(
        (*columns, "largest difference", "rounds", "cores taken by others"),
        (
            [
                *(name, count, number(row["seconds"]), f"{row['ratio']:.2f}", f"{row['processor_ratio']:.2f}"),
                *(number(sum(row["bytes_per_round"].values()) / 1e6), f"{row['largest_difference']:.1e}"),
                *(str(row["rounds"]), f"{row['cores_taken_by_others']:.1f}"),
            ]
            for name, count, row in rows
        ),
    )


def methods(found: dict[str, Any]) -> str:
    """Return the methods by what rank 0 looks at one by one, and how far they end from one process."""
    gathered: dict[str, tuple[set[str], list[float]]] = {}
    for row in found["methods"]:
        names, gaps = gathered.setdefault(row["method"], (set(), []))
        names.update(row["one by one"])
        gaps.append(row["gap"])
    return table(
        ("method", "looked at one by one", "after two rounds"),
        (
            [
                f"`{name}`",
                ", ".join(f"`{one}`" for one in sorted(names)) or "nothing",
                "equal" if max(gaps) == 0 else f"{max(gaps):.1e}",
            ]
            for name, (names, gaps) in sorted(gathered.items(), key=lambda one: (not one[1][0], one[0]))
        ),
    )


def lazily(found: dict[str, Any]) -> str:
    """Return what lazy images cost beside images in memory."""
    by_clock = [[f"epoch {clock}, {name}" for name in ("lazy", "memory")] for clock in ("s", "CPU s")]
    rows = [
        ["images", *(f"{found[name]['images']:,}" for name in ("lazy", "memory"))],
        *(
            [f"an epoch of {found['images']:,} images, {what}", *(f"{found[key]:.0f} s" for key in keys)]
            for what, keys in zip(("wall time", "processor time"), by_clock, strict=True)
        ),
        *(
            [f"peak, {kind}", *(f"{found[name][f'{key} GB']:.2f} GB" for name in ("lazy", "memory"))]
            for kind, key in (("anonymous memory", "anonymous"), ("with mapped files", "with mapped files"))
        ),
    ]
    speed = found["speed of memory by s"], found["speed of memory by CPU s"]
    return (
        table(("", "lazy", "from memory"), rows)
        + f"\n\nLazy training has {speed[0]:.2f} of the speed from memory by wall time, {speed[1]:.2f} by processor "
        f"time; the first pass, which decodes and keeps {found['images']:,} images, took {found['decoding s']:.0f} s."
    )


def large(found: dict[str, Any]) -> str:
    """Return the memory of commands on large tables."""
    commands = {
        "inspect": "`imperfed inspect`, CSV",
        "run": "`imperfed run fedavg`, CSV",
        "lazy": "`imperfed run fedavg`, Parquet, `lazy = true`",
    }
    columns = ("command", "rows", "files, GB", "anonymous memory, GB", "with mapped files, GB", "bytes a row", "s")
    return table(
        columns,
        (
            [
                *(words, f"{row['rows']:,}", f"{row['files GB']:.2f}", f"{row['anonymous GB']:.2f}"),
                *(f"{row['with mapped files GB']:.2f}", f"{1e9 * row['anonymous GB'] / row['rows']:.0f}"),
                f"{row['seconds']:.0f}",
            ]
            for what, words in commands.items()
            if (row := found.get(what))
        ),
    )


PARTS: dict[str, tuple[Path, Callable[[dict[str, Any]], str]]] = {
    "crowd": (sites.RESULTS, crowd),
    "labels": (sites.RESULTS, labels),
    "shared": (sites.RESULTS, shared),
    "works": (ranks.RESULTS, works),
    "methods": (ranks.RESULTS, methods),
    "lazy": (lazy.RESULTS, lazily),
    "tables": (tables.RESULTS, large),
}


def filled(page: str) -> str:
    """Return a page with the figures of the result files."""

    def block(found: re.Match[str]) -> str:
        path, written = PARTS[found[2]]
        if not path.exists():  # not measured yet
            return found[0]
        return f"{found[1]}\n{written(json.loads(path.read_text()))}\n\n{found[3]}"

    return BLOCK.sub(block, page)


def main(argv: list[str]) -> int:
    """Write the figures into the pages."""
    argparse.ArgumentParser("python -m benchmarks.scale fill", description=__doc__).parse_args(argv)
    for name in PAGES:
        path = DOCS / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0
