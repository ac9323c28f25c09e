"""The figures on the pages of results, written from result files: `python -m studies.pages`.

A part of a page between `<!-- study NAME -->` and `<!-- end -->` is the table of a study, from the results that come
with imperfed; `<!-- standing PAPER -->` lists how far its tables and figures are; `<!-- benchmark KIND -->` has the
tables of a benchmark. Text outside stays as it is written. What a study draws lies in `docs/figures`. With `--take
runs`, the results of `imperfed reproduce` and `imperfed benchmark` in that folder are kept first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks import gpu_table, positives_table
from imperfed.benchmark.kept import page_part
from imperfed.benchmark.kinds import kind_of, kinds
from imperfed.benchmark.kinds import results_file as results_file_of_benchmark
from imperfed.benchmark.records import BenchmarkRecords
from imperfed.benchmark.records import digest as digest_of_benchmark
from imperfed.experiments.reproduction.run_study import RESULTS
from imperfed.experiments.reproduction.standing import standing
from imperfed.experiments.reproduction.study_cells import StudyCells, digest, every, kept, results_file
from imperfed.experiments.reproduction.study_table import markdown
from imperfed.experiments.study import Study, studies
from imperfed.experiments.tuning import Tuning
from studies import drawings, fb_nll_accuracy
from studies.imported import RESULTS as MEASURED
from studies.imported import imported

PAGES = [*sorted(Path("docs").glob("results*.md")), Path("docs/gpu.md")]
BLOCK = re.compile(
    r"(<!-- (study|standing|table|sweep|accuracy|gpu|benchmark) ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL
)
"""A part of a page that is written: its start marker, what it is, of what, and its end marker."""


def study_table(words: str) -> str:
    """Return the table of a study; after its name, the columns that are shown, with `;` between."""
    name, _, columns = words.partition(" ")
    study = studies()[name]
    chosen = [study.column(column.strip()) for column in columns.split(";") if column.strip()]
    text = markdown(study, kept(study), chosen or study.runnable)
    reasons: dict[str, list[str]] = {}
    for column in chosen or study.runnable:
        reasons.setdefault(column.substitute, []).append(column.name)
    said = [f"{', '.join(names)}: {why}." for why, names in reasons.items() if why]
    differs = " ".join([*study.differs.split(), *said])
    return "\n\n".join(part for part in (drawings.on_a_page(study), text, differs and f"Here: {differs}") if part)


def standing_table(paper: str) -> str:
    """Return how far the tables and figures of a paper are."""
    lines = ["| name | what it is | status | runs |", "| --- | --- | --- | --- |"]
    notes = []
    for one in (standing(study) for name, study in studies().items() if name.startswith(f"{paper}/")):
        runs = f"{one.done} of {one.runs}" if one.runs else ""
        status = f"{one.status}, needs {one.needs}" if one.needs else one.status
        lines.append(f"| `{one.name}` | {one.title} | {status} | {runs} |")
        notes += [f"- `{one.name}`: {about}" for about in one.about]
    return "\n".join(lines) + ("\n\n" + "\n".join(notes) if notes else "")


@cache
def _positives() -> list[positives_table.Record]:
    return list(positives_table.read(MEASURED / "positives.jsonl"))


def _accuracy(data: str) -> str:
    return "\n".join(fb_nll_accuracy.table(fb_nll_accuracy.known(MEASURED / "fb_nll_accuracy.jsonl"), data.split(",")))


def _gpu(part: str) -> str:
    return gpu_table.PARTS[part](json.loads((MEASURED / "gpu.json").read_text()))


KINDS: dict[str, Callable[[str], str]] = {
    "study": study_table,
    "standing": standing_table,
    "table": lambda data: positives_table.table(_positives(), data),
    "sweep": lambda data: positives_table.sweep(_positives(), data),
    "accuracy": _accuracy,
    "gpu": _gpu,
    "benchmark": lambda kind: page_part(kind_of(kind)),
}


def filled(page: str) -> str:
    """Return a page with its figures as the result files have them."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{KINDS[found[2]](found[3])}\n\n{found[4]}", page)


def taken(runs: Path) -> Iterator[StudyCells]:
    """Yield the results below a folder of `imperfed reproduce`, without those that were made with other settings."""
    for study in studies().values():
        found = StudyCells.read(study.name, runs / "reproduce" / study.name / RESULTS)
        if found.cells:
            wanted, both = _wanted(study), kept(study).with_all(found.cells.values())
            yield StudyCells(study.name).with_all(cell for cell in both.cells.values() if cell.made in wanted)


def _wanted(study: Study) -> set[str]:
    """Return the digests of the cells that the study asks for."""
    return {digest(study, row, column) for row, column in every(study, study.runnable)}


def take_benchmarks(runs: Path) -> None:
    """Keep the trainings of `imperfed benchmark` in a folder that were made as results that come along are."""
    for kind in kinds().values():
        wanted = {digest_of_benchmark(kind, dataset, Tuning()) for dataset in kind.datasets}
        kept = BenchmarkRecords.read(results_file_of_benchmark(kind.name))
        for record in BenchmarkRecords.read(runs / "benchmark" / kind.name / "results.jsonl").known.values():
            if record.made in wanted and record.key not in kept.known:
                kept.add(record)


def main(words: Sequence[str] | None = None) -> int:
    """Keep results, and write the pages; with `--check`, only say which differ."""
    parser = argparse.ArgumentParser(prog="python -m studies.pages", description=__doc__)
    parser.add_argument("--take", type=Path, help="a folder of `imperfed reproduce` whose results are kept first")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page differs")
    options = parser.parse_args(words)
    if not options.check:
        for cells in (*imported(), *(taken(options.take) if options.take else ())):
            cells.write(results_file(cells.name))
        if options.take:
            take_benchmarks(options.take)
    redrawn = list(drawings.stale())
    for study in redrawn:
        print(f"{drawings.file_of(study)} {'differs from' if options.check else 'is drawn from'} the result files")
        if not options.check:
            drawings.draw_again(study)
    differing = [path for path in PAGES if filled(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")]
    for path in differing:
        print(f"{path} {'differs from' if options.check else 'is written from'} the result files")
        if not options.check:
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if options.check and (differing or redrawn) else 0


if __name__ == "__main__":
    sys.exit(main())
