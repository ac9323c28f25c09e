"""Exports: the file alone computes what `predict` computes."""

import json
import math
from statistics import fmean, stdev

import numpy as np
import pandas
import pytest
import torch

import imperfed
from imperfed.alone import alone_models, fit
from imperfed.core.errors import UsageError
from imperfed.core.labels import KINDS
from imperfed.data.scale import Scale
from imperfed.export import export_model
from imperfed.export.delivered_model import DeliveredModel
from imperfed.export.export_formats import write_onnx, write_program
from imperfed.export.model_card import accuracy_interval
from imperfed.models import ModelSpec, build
from imperfed.report.words import per_cent
from imperfed.results.mixture import Mixture


def a_frame(rows: int = 60) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=rows)
    width = 100 * kind + rng.normal(size=rows)
    width[::7] = np.nan
    return pandas.DataFrame(
        {
            "width": width,
            "colour": np.where(rng.random(rows) < 0.5, "red", "blue"),
            "kind": np.array(["ant", "bee", "cat"])[kind],
            "site": np.where(np.arange(rows) % 2, "north", "south"),
        }
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return imperfed.run(
        "fedper",
        data=a_frame(),
        label="kind",
        site="site",
        rounds=2,
        out=tmp_path_factory.mktemp("runs"),
        workers=1,
    )


INPUTS = np.array([[3.0, 1, 0, 0], [np.nan, 0, 1, 1], [250.0, 1, 0, 0], [100.0, 0, 1, 0]], np.float32)
ROWS = pandas.DataFrame({"width": [3.0, None, 250.0, 100.0], "colour": ["blue", "red", "blue", "red"]})


def expected(result, site):
    table = result.predict(ROWS, site=site)
    return np.stack([table[name].to_numpy() for name in ("ant", "bee", "cat")], 1)


def run_onnx(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(path).run(None, {"x": x})[0]


def test_an_onnx_file_predicts_as_the_run_does_with_its_scaling_and_blanks_inside(result, tmp_path):
    pytest.importorskip("onnxscript")
    files = export_model(result, tmp_path / "out", "onnx", "north")
    columns = json.loads((files.folder / "model.json").read_text())["input"]["columns"]
    assert columns == ["width", "colour = blue", "colour = red", "width is blank"]
    found = run_onnx(files.model, INPUTS)
    np.testing.assert_allclose(found, expected(result, "north"), atol=1e-6)
    assert not np.allclose(found, expected(result, "south"), atol=1e-3)


def test_a_torch_program_predicts_as_the_run_does(result, tmp_path):
    files = export_model(result, tmp_path / "out", "pt2", "south")
    loaded = torch.export.load(files.model).module()(torch.from_numpy(INPUTS))
    np.testing.assert_allclose(loaded, expected(result, "south"), atol=1e-6)


def test_tensors_have_names_and_a_header_that_describes_them(result, tmp_path):
    from safetensors import safe_open

    files = export_model(result, tmp_path / "out", "safetensors", "north")
    with safe_open(files.model, "pt") as opened:
        description = json.loads(opened.metadata()["description"])
        names = set(opened.keys())
    assert description["output"]["classes"] == ["ant", "bee", "cat"]
    assert {"scale.mean", "scale.spread", "scale.fill", "temperature"} <= names
    assert any(name.startswith("network.") for name in names)


def test_the_card_says_what_the_model_is_and_how_good(result, tmp_path):
    card = (export_model(result, tmp_path / "out", "safetensors", "north").folder / "MODEL_CARD.md").read_text()
    for words in ("the model of north", "`ant`, `bee`, `cat`", "95 % interval", "differentially private"):
        assert words in card


def test_the_card_of_a_shared_model_is_about_the_rows_of_all_sites(tmp_path):
    shared = imperfed.run("fedavg", data=a_frame(), label="kind", site="site", rounds=1, out=tmp_path, workers=1)
    card = (export_model(shared, tmp_path / "out", "safetensors").folder / "MODEL_CARD.md").read_text()
    overall, sites = shared.summary.personal, shared.summary.sites
    assert overall.n == sum(site.test for site in sites) < 100
    figures = card.partition("## Figures")[2]
    told = f"On the {overall.n} test rows of all sites: accuracy {100 * overall.weighted:.2f}\N{NO-BREAK SPACE}% (95"
    assert told in figures
    assert f"All sites: {overall.n} test rows, so the figure is rough." in figures


def test_of_sites_with_models_of_their_own_one_must_be_named(result, tmp_path):
    with pytest.raises(UsageError, match="--site: north, south"):
        export_model(result, tmp_path / "out", "onnx")


def test_unknown_formats_and_folders_in_use_are_refused(result, tmp_path):
    with pytest.raises(UsageError, match=r"unknown format .onx.[^!]*onnx"):
        export_model(result, tmp_path / "out", "onx", "north")
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        export_model(result, tmp_path / "out", "pt2", "north")


@pytest.mark.parametrize("family", sorted(alone_models()))
def test_a_mixture_with_any_family_is_exported_whole(family, tmp_path):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    kind = KINDS["exact"]
    labels = kind((x[:, 0] > 0).long() + 2 * (x[:, 1] > 1).long(), 4)
    own = fit(alone_models()[family](), x, labels, seed=0)
    mixture = Mixture(own, weight=0.25, temperature=1.5, mixture_temperature=0.7)
    network = build(ModelSpec("mlp", hidden=8), (4,), 4, 0)
    scale = Scale(torch.tensor([1.0, 0, 0, 0]).double(), torch.tensor([2.0, 1, 1, 1]).double())
    model = DeliveredModel(scale, network, kind, 1.0, mixture)
    with torch.no_grad():
        by_hand = mixture.probabilities(network(scale(x)), scale(x), kind)
    torch.testing.assert_close(model(x), by_hand)
    write_program(model, x[:3], {}, tmp_path / "model.pt2")
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(x), by_hand, atol=1e-6, rtol=0)
    pytest.importorskip("onnxscript")
    write_onnx(model, x[:3], {"input": {}, "output": {}}, tmp_path / "model.onnx")
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", x.numpy()), by_hand, atol=1e-6)


def test_the_interval_of_a_share_is_wilsons():
    low, high = accuracy_interval(0.9, 10)  # Wilson's score interval of 9 of 10
    assert (round(low, 4), round(high, 4)) == (0.5958, 0.9821)
    assert accuracy_interval(1.0, 5)[1] == pytest.approx(1.0)


@pytest.mark.parametrize(("sites", "told"), [(2, False), (3, True)])
def test_the_mean_over_sites_has_an_interval_where_there_are_three(sites, told, tmp_path):
    frame = a_frame().assign(site=lambda rows: [f"s{k % sites}" for k in range(len(rows))])
    run = imperfed.run("fedavg", data=frame, label="kind", site="site", rounds=1, out=tmp_path, workers=1)
    card = (export_model(run, tmp_path / "out", "safetensors").folder / "MODEL_CARD.md").read_text()
    assert (f"interval for sites like these {sites}: " in card) == told
    if told:
        values = [site.value for site in run.summary.sites]
        reach = 4.302653 * stdev(values) / math.sqrt(3)  # Student's t with two degrees of freedom
        low, high = max(fmean(values) - reach, 0.0), min(fmean(values) + reach, 1.0)
        assert f"{per_cent(low)} to {per_cent(high)}); worst" in card


def test_a_folder_beside_the_export_stays_as_it_is(result, tmp_path):
    """An export is written under a hidden name first; no folder that a user may have is taken for it."""
    own = tmp_path / "exported.partly"
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    result.export(tmp_path / "exported", "safetensors", "north")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported", "exported.partly"]
    assert (own / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match=r"cannot write to .*/notes\.txt/exported"):
        result.export(own / "notes.txt" / "exported", "safetensors", "north")
