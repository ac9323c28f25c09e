"""The result of a run as an object: labels and predictions keyed by the caller's own rows, figures, progress."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import imperfed
from imperfed.core.errors import DataError, UsageError
from imperfed.engine.schedule import RoundReport

pytestmark = pytest.mark.usefixtures("no_page")

FEW = {"rounds": 2, "steps": 5, "workers": 1, "label": "breed", "site": "clinic", "truth": "really"}


@pytest.fixture
def result(frame: pandas.DataFrame, tmp_path: Path) -> imperfed.RunResult:
    return imperfed.run("pfedpll", frame, tmp_path, **FEW)


def test_labels_of_all_sites_join_the_frame_they_came_from(frame: pandas.DataFrame, result: imperfed.RunResult) -> None:
    table = imperfed.load(result.folder).labels()
    assert table.column_names[:4] == ["index", "site", "id", "given"]
    assert table.num_rows == sum(row.train for row in result.summary.sites)
    joined = frame.join(table.to_pandas().set_index("index"), how="inner")
    assert len(joined) == table.num_rows
    assert (joined["site"] == joined["clinic"]).all()
    assert (joined["given"].str.replace("|", ";") == joined["breed"]).all()
    assert result.labels("north").column_names == table.column_names[2:]


def test_labels_are_keyed_by_the_ids_of_the_caller(frame: pandas.DataFrame, tmp_path: Path) -> None:
    named = frame.assign(animal_id=[f"a{i}" for i in range(80)]).reset_index(drop=True)
    table = imperfed.run("pfedpll", named, tmp_path, **FEW).labels()
    assert [f"a{i}" for i in table["index"].to_pylist()] == table["id"].to_pylist()


def test_every_label_of_a_row_has_its_index(frame: pandas.DataFrame, tmp_path: Path) -> None:
    """Where each class is a question of its own, a row of the frame has a label for each."""
    read = frame.assign(old=(frame["age"] > 0).astype(float), heavy=float("nan"))
    read.loc[read["clinic"] == "north", "heavy"] = (read["weight"] > 0).astype(float)
    described = {"label": ["old", "heavy"], "inputs": ["age", "weight"], "truth": None}
    table = imperfed.run("fedpsl", read, tmp_path, test=0, **FEW | described).labels().to_pandas()
    assert len(table) == 2 * len(frame)
    marks = {"present": 1.0, "absent": 0.0}
    given = table[table["given"] != ""]
    assert [marks[mark] for mark in given["given"]] == [
        read.loc[index, name] for index, name in zip(given["index"], given["class"], strict=True)
    ]


def test_columns_in_another_order_give_the_same_predictions(
    frame: pandas.DataFrame, result: imperfed.RunResult
) -> None:
    predicted = result.predict(frame, "north")
    shuffled = frame[["really", "colour", "weight", "age", "breed", "clinic"]]
    assert result.predict(shuffled, "north").equals(predicted)
    assert predicted.column_names == ["index", "id", "cat", "dog", "fox", "predicted"]
    assert predicted["index"].to_pylist() == list(frame.index)
    x = np.column_stack([frame["age"], frame["weight"], frame["colour"] == "blue", frame["colour"] == "red"])
    array = result.predict(x.astype(np.float32), "north")
    assert np.array_equal(array.numpy(), np.column_stack([predicted[name] for name in ("cat", "dog", "fox")]))


def test_rows_that_name_their_site_are_predicted_by_its_model(
    frame: pandas.DataFrame, result: imperfed.RunResult
) -> None:
    own, north, south = result.predict(frame), result.predict(frame, "north"), result.predict(frame, "south")
    assert not north.equals(south)
    at_north = (frame["clinic"] == "north").tolist()
    expected = [a if here else b for here, a, b in zip(at_north, north["cat"], south["cat"], strict=True)]
    assert own["cat"].to_pylist() == [value.as_py() for value in expected]


def test_a_shared_model_predicts_rows_of_a_site_that_took_no_part(frame: pandas.DataFrame, tmp_path: Path) -> None:
    shared = imperfed.run("fedavg+cc", frame, tmp_path, **FEW)
    assert shared.predict(frame.assign(clinic="west")).equals(shared.predict(frame, "north"))
    own = imperfed.run("pfedpll", frame, tmp_path, **FEW)
    with pytest.raises(
        UsageError, match=r"unknown site 'west'\. .*Known: north, south; choose whose model predicts such"
    ):
        own.predict(frame.assign(clinic="west"))


def test_new_rows_are_encoded_by_the_bins_of_the_run(frame: pandas.DataFrame, tmp_path: Path) -> None:
    result = imperfed.load(imperfed.run("fedavg+cc", frame, tmp_path, model="mlp-ple", **FEW).folder)
    whole = result.predict(frame)["cat"].to_pylist()
    assert result.predict(frame[:5])["cat"].to_pylist() == pytest.approx(whole[:5], rel=1e-5)  # 5 rows are no bins
    assert len(set(whole)) > 5
    (result.folder / "models" / "scale.safetensors").unlink()
    with pytest.raises(DataError, match="put it back"):
        result.predict(frame)


def test_a_missing_column_is_named(frame: pandas.DataFrame, result: imperfed.RunResult) -> None:
    with pytest.raises(DataError, match=r"^rows, column age: found no such column"):
        result.predict(frame.drop(columns="age"), "north")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda f: f[:0], "rows: no rows; hand over at least one"),
        (lambda f: f.iloc[0], "rows: cannot read a Series as a table (Could not convert 'red' with type str: tried to"),
        (lambda f: {"age": [1.0]}, "rows: found a value of type dict, expected numbers; hand over an array [n, ...]"),
        (lambda f: "new.csv", "rows: found a value of type str, expected numbers; hand over an array [n, ...]"),
        (lambda f: np.zeros(4), "rows: found float64 of shape (4,), expected numbers, one row per example; hand over"),
        (lambda f: np.zeros((1, 3)), "rows: expected rows of shape [4], [n, ...]; got [1, 3]"),
        (lambda f: [[1, 2], [3]], "rows: rows of different lengths; hand over one array [n, ...]"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(
    rows: Callable[[pandas.DataFrame], Any], message: str, frame: pandas.DataFrame, result: imperfed.RunResult
) -> None:
    with pytest.raises(UsageError) as error:
        result.predict(rows(frame), "north")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_an_export_asks_for_a_site_by_the_argument(result: imperfed.RunResult, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"each site has its own model; choose one with site=\.\.\.: north, south"):
        result.export(tmp_path / "model")


def test_a_result_whose_folder_is_not_there_says_so(
    frame: pandas.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are looked for from the working directory, which may have changed since the run."""
    monkeypatch.chdir(tmp_path)
    result = imperfed.run("pfedpll", frame, **FEW)
    asked: list[Callable[[], object]] = [
        lambda: result.predict(frame),
        lambda: result.predict(np.zeros((1, 4)), "north"),
        lambda: result.model("north"),
        lambda: result.labels("north"),
        lambda: result.history,
        lambda: result.export("model", site="north"),
        lambda: result.leak(frame),
    ]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for ask in asked:
        with pytest.raises(DataError, match=rf"{result.folder}: no such folder in .*elsewhere; go back to where"):
            ask()
    monkeypatch.chdir(tmp_path)
    assert result.history.num_rows


def test_the_figures_are_tables_and_pages(result: imperfed.RunResult) -> None:
    history = result.history.to_pandas()
    losses = history[history["metric"] == "train/loss"]
    assert sorted(zip(losses["round"], losses["site"], strict=True)) == [
        *((1, "north"), (1, "south")),
        *((2, "north"), (2, "south")),
    ]
    assert result.report == result.folder / "report.html"
    assert "<td>north</td>" in result._repr_html_()


def test_results_print_what_the_command_line_prints(frame: pandas.DataFrame, result: imperfed.RunResult) -> None:
    mean = 100 * (result.summary.personal.mean or 0)
    assert repr(result) == f"<RunResult pfedpll on data, 2 sites: accuracy {mean:.1f} %; {result.folder}>"
    assert f"{mean:.2f}" in str(result)
    assert str(result.folder / "summary.json") in str(result)
    compared = imperfed.compare(["pfedpll", "fedavg+cc"], frame, (0, 1), result.folder.parent, alone=False, **FEW)
    assert repr(compared) == f"<Comparison of pfedpll, fedavg+cc; {compared.folder}>"
    spreads = [f"{100 * line.spread:.2f}" for line in compared.lines]
    assert all(spread in str(compared) for spread in spreads)
    assert f"<td>{100 * compared.lines[0].mean:.1f}</td>" in compared._repr_html_()


def test_names_and_paths_are_printed_as_they_are(frame: pandas.DataFrame, tmp_path: Path) -> None:
    """Text in brackets is markup to the library that prints tables, unless it is told otherwise."""
    named = frame.assign(clinic=[f"[red]{name}" for name in frame["clinic"]])
    out = tmp_path / ("long" * 30)
    result = imperfed.run("pfedpll", named, out, **FEW)
    assert "[red]north" in str(result)
    assert str(result.folder / "summary.json") in str(result)


def test_a_callback_sees_every_round_and_can_end_the_run(frame: pandas.DataFrame, tmp_path: Path) -> None:
    seen: list[int] = []

    def on_round(report: RoundReport) -> bool:
        seen.append(report.round)
        return report.round == 1

    stopped = imperfed.run("pfedpll", frame, tmp_path, on_round=on_round, **FEW | {"rounds": 9})
    assert seen == [0, 1]
    assert imperfed.load(stopped.folder).summary.rounds == 2
    whole = imperfed.run("pfedpll", frame, tmp_path, **FEW)
    assert stopped.labels().equals(whole.labels())


def test_a_figure_that_is_compared_by_numpy_ends_a_run_too(frame: pandas.DataFrame, tmp_path: Path) -> None:
    def on_round(report: RoundReport) -> Any:
        return np.mean([scores["accuracy"][0] for scores in report.personal.values()]) >= 0

    stopped = imperfed.run("pfedpll", frame, tmp_path, on_round=on_round, **FEW | {"rounds": 9})
    assert stopped.summary.rounds == 1


def test_progress_is_printed_on_request(
    frame: pandas.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imperfed.run("pfedpll", frame, tmp_path, **FEW)
    assert capsys.readouterr().out == ""  # neither a terminal nor a notebook
    imperfed.run("pfedpll", frame, tmp_path, progress=True, **FEW | {"rounds": 20})
    lines = capsys.readouterr().out.splitlines()
    assert "guessed: inputs: 2 columns of numbers, 1 of words with all their categories" in lines
    assert [line.partition(":")[0] for line in lines if line.startswith("round")] == [
        f"round {done}/20" for done in range(2, 21, 2)
    ]


@pytest.mark.parametrize("call", [imperfed.run, imperfed.compare, imperfed.inspect, imperfed.audit])
def test_an_editor_can_show_what_every_table_needs(call: Callable[..., object]) -> None:
    assert {"data", "label", "site"} <= inspect.signature(call).parameters.keys()
    assert call.__doc__


def test_the_package_shows_its_names_and_shadows_no_builtin() -> None:
    assert {"run", "load", "resume", "compare", "inspect", "Algorithm", "Objective", "Candidates"} <= set(dir(imperfed))
    assert not set(imperfed.__all__) & set(dir(builtins))
    assert all(getattr(imperfed, name) for name in imperfed.__all__)


def test_sites_that_are_called_by_numbers_are_asked_for_by_numbers(frame: pandas.DataFrame, tmp_path: Path) -> None:
    """A site 0 is one like any other, and not the absence of one."""
    numbered = frame.assign(clinic=(frame["clinic"] == "south").astype(int))
    result = imperfed.run("pfedpll", numbered, tmp_path, **FEW)
    assert result.sites == ("0", "1")
    for number in (0, 1):
        assert result.predict(numbered, number).equals(result.predict(numbered, str(number)))
        assert result.labels(number).equals(result.labels(str(number)))
        assert result.model(number).head.out_features == 3
    assert not result.predict(numbered, 0).equals(result.predict(numbered))
    with pytest.raises(UsageError, match=r"unknown site '7'. Known: 0, 1"):
        result.labels(7)
