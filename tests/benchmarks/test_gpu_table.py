"""The figures of the page on GPUs are read off the result file."""

from __future__ import annotations

from typing import Any

from benchmarks import gpu_table as tables
from imperfed.algorithms import catalogue
from imperfed.testing.cases import cases

ROW = {"work": "MLP", "precision": "tf32", "eager loop": 0.391, "our loop": 0.363, "graph": 0.0038144}
RESULT: dict[str, Any] = {
    "speed": [
        ROW
        | {"graph, compiled": 0.0031657, "ours": 0.0031657, "gain": 123.4, "gain wanted": 100}
        | {"best before": 0.0038, "ratio to it": 0.833},
        ROW
        | {"graph, compiled": 0.005, "ours": 0.0038144, "gain": 102.5, "gain wanted": None}
        | {"best before": 0.0038, "ratio to it": 1.0038},
    ],
    "weights": [
        {"case": "a", "captured": True, "distance": 0.0, "same": True},
        {"case": "b", "captured": "no local steps", "distance": 1.4e-6, "same": True},
        {"case": "e", "captured": False, "why": "it waits", "distance": 0.0, "same": True},
    ],
    "repeats": [
        {"work": "MLP", "precision": "tf32", "deterministic": False, "equal": False, "seconds": 0.0283},
        {"work": "MLP", "precision": "tf32", "deterministic": True, "equal": True, "seconds": 0.0482},
    ],
    "memory": [{"sites": 10, "peak MB": 2466.5}],
    "gaps": [{"work": "dropout", "loop": 0.67, "graph": 0.0105, "why": None}],
    "repairs": [{"repair": "posterior", "start": 2.96, "gpu": 2.84, "cpu": 6.09}],
    "one_rank": [
        {
            "command": "this",
            "seconds": {"plain": [4.0, 9.0, 3.0], "torchrun": [4.2, 1.0, 5.0]},
            "models": 5,
            "equal": True,
        }
    ],
    "table": [{"command": "imperfed reproduce this", "seconds": 279.7, "table": "| 96.85 |\n\nTime: 273 s in all.\n"}],
}
PAGE = """before

<!-- gpu speed -->
old
<!-- end -->

<!-- gpu weights -->
<!-- end -->
<!-- gpu repeats -->
<!-- end -->
<!-- gpu memory -->
<!-- end -->
<!-- gpu gaps -->
<!-- end -->
<!-- gpu repairs -->
<!-- end -->
<!-- gpu one_rank -->
<!-- end -->
<!-- gpu table -->
<!-- end -->
after
"""


def test_the_page_has_the_files_figures() -> None:
    page = tables.filled(PAGE, RESULT)
    assert "| MLP | tf32 | 391 | 363 | 3.81 | **3.17** | 123 (100) | 3.8 | 0.83 |" in page
    assert "| MLP | tf32 | 391 | 363 | **3.81** | 5 | 102 | 3.8 | 1.00 |" in page
    assert "3 pairs, 1 of them captured; relative distance from the loop at most 1.4e-06, and 2 of them equal" in page
    assert "equal bit for bit. Not captured: `e` (it waits)." in page
    assert "| dropout | 670 | 10.5 | 64 |" in page
    assert "| posterior | 2.8 | 6.1 |" in page
    assert "4.00 s, as the one rank of torchrun 4.20 s (+5.0 %; medians of three, in turn), all 5 models equal" in page
    assert "| MLP | tf32 | 28.3 | differ | 48.2 | equal |" in page
    assert "10 sites: 2466.5 MB." in page
    assert "imperfed reproduce this\n" in page
    assert "| 96.85 |\n\nTime: 273 s in all.\n\nWith the start of the program: 280 s." in page
    assert "\nold\n" not in page
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert tables.filled(page, RESULT) == page


def test_a_pair_that_failed_is_named() -> None:
    failed = [
        {"case": "c", "captured": True, "distance": 0.2, "same": False},
        {"case": "d", "same": False, "error": "?"},
    ]
    told, _, _ = tables.weights({"weights": RESULT["weights"] + failed}).partition("\n")
    assert told.startswith("5 pairs, 2 of them captured; relative distance from the loop at most 2.0e-01")
    assert told.endswith("**Failed: c, d.**")
    assert "Failed" not in tables.weights(RESULT)


def test_models_that_differ_are_said_to() -> None:
    other = [RESULT["one_rank"][0] | {"equal": False}]
    assert tables.one_rank({"one_rank": other}).endswith("**the models differ**.")


def test_methods_that_were_not_tried_are_named() -> None:
    _, _, left = tables.weights(RESULT).partition("\n\nNot tried on a GPU yet: ")
    assert set(left.rstrip(".").replace("`", "").split(", ")) == set(catalogue())
    tried = [{"case": str(case), "captured": True, "distance": 0.0, "same": True} for case in cases()]
    assert "Not tried" not in tables.weights({"weights": tried})
    without = [row for row in tried if not row["case"].startswith(("flag-", "fedavg-rc"))]
    assert tables.weights({"weights": without}).endswith("Not tried on a GPU yet: `flag`, `rc`.")
