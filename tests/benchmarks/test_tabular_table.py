"""The table of networks and trees is read off the file in which runs are kept."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import tabular


def test_means_over_seeds_have_standard_errors_and_blanks_are_runs_to_come(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    runs = [("iid", 0, "mlp", 80.0), ("iid", 1, "mlp", 84.0), ("iid", 0, "forest", 70.0), ("skewed", 0, "mlp", 60.0)]
    lines = ({"table": "iris", "partition": p, "seed": s, "what": w, "test": t} for p, s, w, t in runs)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tabular.table(out).splitlines() == [
        "| table | mlp | forest |",
        "| --- | --- | --- |",
        "| iris, iid | 82.0 ± 2.0 | 70.0 |",
        "| iris, skewed | 60.0 |  |",
        "| mean | 71.0 |  |",
    ]
    some = [(("iris", "iid", 0), 1.0), (("iris", "iid", 1), 3.0), (("wine", "iid", 0), 0.0)]
    assert tabular.difference(some) == "+1.00 (1.00), above in 1 and level in 1 of 2"
    assert ("iris", "iid", 1, "mlp") in tabular.known(out)
    assert ("iris", "iid", 1, "forest") not in tabular.known(out)
