"""Runs in which sites have no test sets of their own: the common one leads everywhere."""

import json
from pathlib import Path

import numpy as np
import pytest

import imperfed
from imperfed.core.errors import DataError
from imperfed.data.sources import load
from tests.support.terminal import done
from tests.support.terminal import imperfed as command

LIGHT = ("-s", "model=text", "-s", "widths=8,8", "-s", "local.steps=2", "-s", "partition=label", "-s", "public=0")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file in the Extreme Classification format: the features 5 c .. 5 c + 4 speak for label c."""
    draw = np.random.default_rng(0)
    lines = []
    for _ in range(120):
        labels = sorted(set(draw.choice(4, draw.integers(1, 3))))
        features = sorted({5 * c + f for c in labels for f in draw.choice(5, 3)})
        lines.append(",".join(map(str, labels)) + " " + " ".join(f"{f}:1.0" for f in features))
    path = tmp_path / "tags.txt"
    path.write_text("120 20 4\n" + "\n".join(lines) + "\n")
    return path


def summary(out: Path) -> dict:
    (path,) = out.glob("*/summary.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("way", ["local steps", "one pass"])
def test_a_run_leads_with_the_common_figure(own: Path, tmp_path: Path, way: str):
    more = ("-s", "one_pass=true", "-s", "lr_theta=1") if way == "one pass" else ()
    out = tmp_path / "out"
    said = done("run", "fedalc", "--data", own, "--rounds", "30", *LIGHT, *more, "-s", "validation=0.2", "--out", out)
    made = summary(out)
    assert made["metric"] == "p@1"
    assert made["personal"]["mean"] is None
    assert made["global"]["p@1"]["value"] > made["facts"]["most_frequent"]["p@1"]
    assert {"p@3", "p@5", "map", "validation p@1"} <= made["global"].keys()
    assert f"common test set: p@1 {100 * made['global']['p@1']['value']:.2f} %" in said.out
    assert "validation rows: p@1" in said.out
    assert [row["site"] for row in made["sites"]] == ["0", "1", "2", "3"]
    (folder,) = out.iterdir()
    done("report", folder)
    page = (folder / "report.html").read_text()
    assert "common test set, n = 24" in page
    assert "on the common test set" in page
    assert "Always predicting the most frequent labels: P@1" in page
    assert "Settings are chosen on 24 further rows." in page
    assert '<th scope="col">training rows</th>' in page
    assert '<th scope="col">test rows</th>' not in page  # no site has any
    figures = json.loads(done("evaluate", folder, "--json").out)
    assert figures["common test set"]["p@1"]["value"] == pytest.approx(made["global"]["p@1"]["value"])


def test_methods_are_compared_by_it(own: Path, tmp_path: Path):
    out = tmp_path / "out"
    said = done(
        "compare", "--no-alone", "fedaws,fedavg-fixed,fedavg", "--data", own, "--rounds", "3", *LIGHT, "--out", out
    )
    assert "p@1 on the common test set" in said.out
    (table,) = out.glob("*/table.md")
    assert "| method | p@1 on the common test set, % |" in table.read_text()


def test_from_python(own: Path, tmp_path: Path):
    settings = {"model": "text", "widths": "8,8", "partition": "label", "public": 0.0, "rounds": 2}
    result = imperfed.run("fedaws", data=str(own), out=tmp_path / "out", **settings)
    x = load(str(own)).x[:3]
    assert result.predict(x, "2").shape == (3, 4)
    fewer = x[:, :, : int((x[:, 1] != 0).sum(1).max())]  # without the slots that pad rows
    assert fewer.shape != x.shape
    assert result.predict(fewer, "2").shape == (3, 4)


def test_a_method_of_other_labels_is_an_error_that_names_those_that_fit(own: Path, tmp_path: Path):
    said = command("run", "pfedpll", "--data", own, *LIGHT, "--out", tmp_path / "out")
    assert said.code == 2
    assert "comes with positive labels here" in said.err
    assert "positive-hinge" in said.err


def test_a_bad_line_is_named(tmp_path: Path):
    path = tmp_path / "tags.txt"
    path.write_text("1 2 2\n0 1:x\n")
    with pytest.raises(DataError, match=r"tags\.txt, line 2: 'x' is not a number"):
        load(str(path))


def test_the_summary_says_what_private_steps_on_w_cost(own: Path, tmp_path: Path):
    pytest.importorskip("dp_accounting")
    private = ("-s", "one_pass=true", "-s", "noise_w=6", "-s", "method.noise=4")
    done("run", "fedalc", "--data", own, "--rounds", "5", *LIGHT, *private, "--out", tmp_path / "out")
    account = summary(tmp_path / "out")["account"]
    assert account["releases_w"] == 5
    assert account["delta"] == 1e-5
    assert 0 < account["epsilon"] < account["epsilon_w"]
