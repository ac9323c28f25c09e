"""A dataset written out as files and read back trains to the same models, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from imperfed.data.corruption.candidates.flip import FlippedSets
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, SensitiveColumn
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.sources import load
from imperfed.data.split import SplitConfig
from imperfed.experiments.resolving import resolve
from imperfed.experiments.starting import start
from imperfed.experiments.watch import Watch
from tests.support.written_files import Apart, Columns, declare, numeric, write_images, write_table

FLIP = {"labels.candidates": "flip"}
DIGITS = tuple(map(str, range(10)))


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)


def trained(method: str, data: object, out: Path, **settings: Any) -> dict[str, bytes]:
    """What a run gives back, byte by byte."""
    tiny = {"rounds": 2, "steps": 4, "hidden": 16, "workers": 1}
    folder, _ = start(resolve(words={"method": method, "data": str(data)} | tiny | settings), out, Watch())
    files = [*folder.path.glob("models/*"), *folder.path.glob("labels/*"), folder.path / "split.parquet"]
    return {path.name: path.read_bytes() for path in files} | {"metrics": (folder.path / "metrics.jsonl").read_bytes()}


def same(ours: dict[str, bytes], theirs: dict[str, bytes], without: tuple[str, ...] = ()) -> None:
    assert any(name.endswith(".safetensors") for name in theirs)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name] and name not in without] == []


def inputs(x: torch.Tensor, form: str) -> Columns:
    return {"x": x.flatten(1).numpy()} if form == "npz" else numeric(x)


def said(form: str, width: int, standardise: bool) -> Inputs:
    if form == "npz":
        return Inputs(array="x", standardise=standardise)
    return Inputs(numeric=tuple(f"f{j}" for j in range(width)), standardise=standardise)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Apart, dict[str, bytes]]:
    """Digits with candidate sets, and what a run on them gives back."""
    apart = Apart(load("digits"), SplitConfig(), LabelConfig(candidates=FlippedSets()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
        return apart, trained("pfedpll", "digits", tmp_path_factory.mktemp("builtin"), **FLIP)


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "npz", "columns", "one"])
def test_candidate_sets(form: str, digits: tuple[Apart, dict[str, bytes]], tmp_path: Path) -> None:
    apart, theirs = digits
    ending = {"columns": "parquet", "one": "csv"}.get(form, form)
    whole: dict[str, list[Any]] = {}
    for k, name in enumerate(apart.names):
        x, labels, y, ids = apart.site(k)
        sets = [[DIGITS[c] for c in row.nonzero().flatten().tolist()] for row in labels.values]
        told: Columns = {"labels": labels.values.numpy() if form == "npz" else sets}
        if form == "columns":
            told = {f"is {c}": labels.values[:, c].numpy() for c in range(10)}
        columns = {"name": ids, "true": y.numpy()} | told | inputs(x, form)
        if form == "one":
            for key, values in ({"where": [name] * len(x)} | columns).items():
                whole.setdefault(key, []).extend(values)
        else:
            write_table(tmp_path / f"sites/{name}.{ending}", columns)
        test_x, test_y = apart.test(k)
        write_table(tmp_path / f"test/{name}.{ending}", {"true": test_y.numpy()} | inputs(test_x, form))
    write_table(tmp_path / f"public.{ending}", inputs(apart.cut.public, form))
    if form == "one":
        write_table(tmp_path / "all.csv", whole)
    columns_of = {"columns": tuple(f"is {c}" for c in DIGITS)} if form == "columns" else {"column": "labels"}
    declared = Declaration(
        name="digits",
        sites="all.csv" if form == "one" else f"sites/*.{ending}",
        site_column="where" if form == "one" else "",
        id="name",
        test=f"test/*.{ending}",
        public=f"public.{ending}",
        inputs=said(form, 64, False),
        labels=LabelColumns("candidates", DIGITS, truth="true", **columns_of),  # type: ignore[arg-type]
    )
    same(trained("pfedpll", declare(tmp_path, declared), tmp_path / "out"), theirs)


@pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
def test_missing_labels_of_a_standardised_table(form: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(240, 6)) * [1, 2, 3, 40, 500, 0.1] + [0, 1, -7, 3, 4, 5]
    y = (x[:, :3] + draw.normal(size=(240, 3)) > [0, 1, -7]).astype(np.int8)
    np.savez(tmp_path / "mine.npz", x=x, y=y, classes=np.array(["a", "b", "c"]))
    split = {"partition": "iid", "sites": 3}
    theirs = trained("masked-bce", tmp_path / "mine.npz", tmp_path / "theirs", **split)
    apart = Apart(load(str(tmp_path / "mine.npz")), SplitConfig(3, IIDPartition()), LabelConfig())
    assert (apart.scene.federation.labels.values == -1).any()
    for k, name in enumerate(apart.names):
        x_k, labels, truth, ids = apart.site(k)
        marks = np.where(labels.values.numpy() < 0, np.nan, labels.values.numpy())
        told = {"marks": marks} if form == "npz" else {c: marks[:, j] for j, c in enumerate("abc")}
        true = (
            {"true": truth.numpy()}
            if form == "npz"
            else {f"true {c}": truth[:, j].numpy() for j, c in enumerate("abc")}
        )
        write_table(tmp_path / f"sites/{name}.{form}", {"id": ids} | told | true | inputs(x_k, form))
        test_x, test_y = apart.test(k)
        clean = {"marks": test_y.numpy()} if form == "npz" else {c: test_y[:, j].numpy() for j, c in enumerate("abc")}
        write_table(tmp_path / f"test/{name}.{form}", clean | inputs(test_x, form))
    write_table(tmp_path / f"public.{form}", inputs(apart.cut.public, form))
    truth_of: Any = "true" if form == "npz" else tuple(f"true {c}" for c in "abc")
    declared = Declaration(
        name="mine",
        sites=f"sites/*.{form}",
        id="id",
        test=f"test/*.{form}",
        public=f"public.{form}",
        inputs=said(form, 6, True),
        labels=LabelColumns("annotated", ("a", "b", "c"), column="marks" if form == "npz" else "", truth=truth_of),
    )
    same(trained("masked-bce", declare(tmp_path, declared), tmp_path / "ours"), theirs)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_sensitive_attribute(form: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    y, groups = np.arange(200) % 3, np.eye(3, dtype=int)[draw.integers(3, size=200)]
    x = draw.normal(size=(200, 4)) + 3 * np.eye(3, 4)[y]
    names = np.array(["red", "green", "blue"])
    np.savez(tmp_path / "mine.npz", x=x, y=y, attribute=groups, attribute_values=names)
    split, fair = {"partition": "iid", "sites": 3}, {"fairness.target": "green", "fairness.unprivileged": "1"}
    theirs = trained("cc", tmp_path / "mine.npz", tmp_path / "theirs", **split, **FLIP, **fair)
    apart = Apart(
        load(str(tmp_path / "mine.npz")), SplitConfig(3, IIDPartition()), LabelConfig(candidates=FlippedSets())
    )
    attribute, starts = apart.scene.federation.attribute, apart.scene.federation.starts
    assert attribute is not None
    for k, site in enumerate(apart.names):
        x_k, labels, truth, ids = apart.site(k)
        blurred = attribute.of(apart.scene.federation.x[starts[k] : starts[k + 1]])
        sets = [[str(c) for c in row.nonzero().flatten().tolist()] for row in labels.values]
        columns = {
            "id": ids,
            "labels": sets,
            "true": truth.numpy(),
            "colour": named(blurred, names),
            "was": named(attribute.of(x_k), names),
        }
        write_table(tmp_path / f"sites/{site}.{form}", columns | numeric(x_k[:, :4]))
        test_x, test_y = apart.test(k)
        seen = attribute.of(apart.scene.oracle.test_x[k])
        columns = {"true": test_y.numpy(), "colour": named(seen, names), "was": named(attribute.of(test_x), names)}
        write_table(tmp_path / f"test/{site}.{form}", columns | numeric(test_x[:, :4]))
    write_table(
        tmp_path / f"public.{form}",
        {"colour": named(attribute.of(apart.cut.public), names)} | numeric(apart.cut.public[:, :4]),
    )
    declared = Declaration(
        name="mine",
        sites=f"sites/*.{form}",
        id="id",
        test=f"test/*.{form}",
        public=f"public.{form}",
        inputs=said(form, 4, True),
        labels=LabelColumns("candidates", ("0", "1", "2"), "labels", truth="true"),
        attribute=SensitiveColumn("colour", tuple(names.tolist()), truth="was"),
    )
    same(trained("cc", declare(tmp_path, declared), tmp_path / "ours", **fair), theirs)


def named(members: torch.Tensor, names: Any) -> list[list[str]]:
    return [[str(names[v]) for v in row.nonzero().flatten().tolist()] for row in members]


@pytest.mark.parametrize("form", ["folders", "paths"])
def test_images_with_exact_labels(form: str, tmp_path: Path) -> None:
    whole = load("digits")
    order = torch.argsort(whole.y[:300], stable=True)  # type: ignore[index]
    np.savez(tmp_path / "mine.npz", x=(whole.x[order, 0] * 255).byte().numpy(), y=whole.y[order].numpy())  # type: ignore[index]
    split = {"partition": "iid", "sites": 3}
    theirs = trained("fedavg", tmp_path / "mine.npz", tmp_path / "theirs", **split, **{"labels.kind": "exact"})
    apart = Apart(load(str(tmp_path / "mine.npz")), SplitConfig(3, IIDPartition()), LabelConfig(kind="exact"))
    for k, site in enumerate(apart.names):
        x, labels, _, ids = apart.site(k)
        files = [f"{c}/{int(name):04}.png" for c, name in zip(labels.values.tolist(), ids, strict=True)]
        test_x, test_y = apart.test(k)
        tests = [f"{c}/{i:04}.png" for i, c in enumerate(test_y.tolist())]
        for part, images, names, y in (("sites", x, files, labels.values), ("test", test_x, tests, test_y)):
            write_images(tmp_path / part / site, images, names)
            write_table(tmp_path / f"{part}/{site}.csv", {"file": [f"{site}/{f}" for f in names], "y": y.numpy()})
    names = [f"all/{i:04}.png" for i in range(len(apart.cut.public))]
    write_images(tmp_path / "public", apart.cut.public, names)
    write_table(tmp_path / "public.csv", {"file": [f"public/{name}" for name in names]})
    folders = form == "folders"
    declared = Declaration(
        name="mine",
        sites={s: f"sites/{s}" for s in apart.names} if folders else "sites/*.csv",
        test={s: f"test/{s}" for s in apart.names} if folders else "test/*.csv",
        public="public" if folders else "public.csv",
        inputs=Inputs(image="" if folders else "file", size=(8, 8), channels=1),
        labels=LabelColumns("exact", DIGITS, "" if folders else "y"),
    )
    ours = trained("fedavg", declare(tmp_path, declared), tmp_path / "ours")
    same(ours, theirs, without=("split.parquet",))  # an image is called after its file
