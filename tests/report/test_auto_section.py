"""The part of the report on a search: what each site predicts with, and every trial, in tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.made_run import make, source, text

TRIALS: list[dict[str, Any]] = [
    {"method": "fedavg+cc", "model": "mlp", "settings": {}, "rounds": 9, "best_round": 4, "score": 0.5},
    {
        "method": "fedprox+cc",
        "model": "linear",
        "settings": {"local.lr": 0.1, "objective.q": 2},
        "rounds": 27,
        "best_round": 20,
        "score": 0.75,
    },
    {
        "method": "fedavg+lw",
        "model": "mlp",
        "settings": {},
        "rounds": 3,
        "best_round": 0,
        "score": None,
        "failure": "diverged",
    },
]


def searched(told: dict[str, Any], sites: list[dict[str, Any]]) -> None:
    """Put a search of three trials in."""
    told["auto"] = {
        "method": "fedprox+cc",
        "model": "linear",
        "settings": {},
        "rounds": 20,
        "federated": True,
        "budget": 1.0,
        "combinations": 3,
        "rungs": [3, 9],
        "held_out": 0.2,
        "temperature": 1.0,
        "trials": TRIALS,
        "sites": sites,
    }


def test_a_search_shows_what_each_site_predicts_with_and_its_trials_from_the_best(tmp_path: Path) -> None:
    mixed = [
        {"site": "north", "weight": 0.25, "alone": "forest", "value": 0.6},
        {"site": "south", "weight": 1.0},
    ]
    folder = make(tmp_path, lambda told: searched(told, mixed))
    shown = text(folder)
    assert "were tried within a budget of 1 min. Each site held out 20 % of its rows" in shown
    assert "of its rows; after 3 rounds about a third of the trials went on, up to round 9. Chosen" in shown
    assert "site fedprox+cc own model which test accuracy with it alone north 25 % 75 % forest 60.00 %" in shown
    assert "south 100 % 0 % none \N{EN DASH}" in shown
    best = "3 trials, the best first method model settings rows held out rounds best round fedprox+cc linear"
    assert f"{best} lr=0.1, q=2 75.00 % 27 20 fedavg+cc mlp defaults 50.00 % 9 4" in shown
    assert "fedavg+lw mlp defaults diverged 3 0" in shown
    assert "<h1>auto: " in source(folder)


def test_where_sites_do_best_alone_the_title_names_no_federated_method(tmp_path: Path) -> None:
    alone = [{"site": name, "weight": 0.0, "alone": "forest"} for name in ("north", "south")]
    assert "<h1>auto: models of single sites on " in source(make(tmp_path, lambda told: searched(told, alone)))


def test_where_all_sites_predict_with_one_model_no_table_says_so(tmp_path: Path) -> None:
    alike = [{"site": name, "weight": 1.0} for name in ("north", "south")]
    assert "own model" not in text(make(tmp_path, lambda told: searched(told, alike)))
