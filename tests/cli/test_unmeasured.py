"""Why a figure of a run is blank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

import imperfed
from imperfed.cli.unmeasured import why_blank

pytestmark = pytest.mark.usefixtures("no_page")


def phones(seed: int) -> pandas.DataFrame:
    """Rows of three phones, each of which knows positives of one word only."""
    word = np.repeat(["on", "off", "up"], 12)
    return pandas.DataFrame(
        {"x": np.random.default_rng(seed).normal(size=36) + 2 * (word == "on"), "word": word, "phone": "of " + word}
    )


def test_test_rows_of_one_class_at_every_site_are_not_said_to_be_missing(tmp_path: Path) -> None:
    test = {site: rows.drop(columns="phone") for site, rows in phones(1).groupby("phone")}
    told = {"label": "word", "site": "phone", "kind": "positive", "rounds": 1, "workers": 1}
    summary = imperfed.run("fedaws", phones(0), tmp_path, test=test, **told).summary
    assert [site.test for site in summary.sites] == [12, 12, 12]
    assert [*why_blank(summary)] == ["auroc is blank at of off, of on, of up: its test rows hold one class only"]
    without = imperfed.run("fedaws", phones(0), tmp_path, **told).summary
    assert [*why_blank(without)] == ["there are no test rows (they need true labels), so no model was measured"]
