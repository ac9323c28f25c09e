"""The schema of experiment files: what runs is valid, mistakes are not, and it says what settings mean."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from imperfed.algorithms import catalogue
from imperfed.experiments.resolving import resolve
from imperfed.experiments.schema import file_schema
from tests.support.terminal import done

DEMO = {"method": "pfedpll", "data": "digits"}


def schema_of(any_parts: bool = False, **words: str) -> dict[str, Any]:
    schema = file_schema(resolve(words=words), any_parts)
    Draft4Validator.check_schema(schema)
    return json.loads(json.dumps(schema))


def errors(schema: dict[str, Any], file: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft4Validator(schema).iter_errors(file)]


@pytest.mark.parametrize("any_parts", [False, True])
def test_the_file_of_the_demo_is_valid(any_parts: bool) -> None:
    file = tomllib.loads(resolve(words=DEMO).toml())
    assert errors(schema_of(any_parts, **DEMO), file) == []


@pytest.mark.parametrize("method", catalogue())
def test_every_method_has_a_schema_that_takes_its_own_file(method: str) -> None:
    words = {"method": method, "repair": "fb-nll", "attack": "plfa", "defence": "krum"}
    words |= {"partition": "quantity", "sizes": "3,4", "labels.noise": "uniform"}
    file = tomllib.loads(resolve(words=words).toml())
    assert errors(schema_of(**words), file) == []
    assert errors(schema_of(any_parts=True), file) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("local", "lr", "fast", "'fast' is not of type 'number'"),
        ("rounds", "rounds", 2.5, "2.5 is not of type 'integer'"),
        ("rounds", "on_failure", "skp", "'skp' is not one of ['retry', 'skip', 'stop']"),
        ("partition", "min_size", "b", "'b' is not of type 'integer'"),
        ("split", "standardise", "yes", "'yes' is not of type 'boolean'"),
        ("split", "partition", 3, "3 is not of type 'string'"),
        ("partition", "sizes", [1], "Additional properties are not allowed ('sizes' was unexpected)"),
        ("local", "rate", 0.1, "Additional properties are not allowed ('rate' was unexpected)"),
        ("method", "size", "large", "'large' is not of type 'integer'"),
        ("objective", "lambda1", "x", "'x' is not of type 'number'"),
        ("repair", "groups", 2, "Additional properties are not allowed ('repair' was unexpected)"),
    ],
)
def test_a_mistake_is_marked(section: str, key: str, value: Any, message: str) -> None:
    assert errors(schema_of(**DEMO), {section: {key: value}}) == [message]


def test_settings_are_explained_and_have_their_defaults() -> None:
    schema = schema_of(method="fedavg", data="mnist", lr="0.25", repair="fb-nll")["properties"]
    assert schema["local"]["properties"]["lr"]["default"] == 0.25
    assert schema["rounds"]["properties"]["rounds"]["description"] == "T"
    assert schema["rounds"]["description"] == "How a run proceeds."
    assert schema["repair"]["properties"]["linkage"]["enum"] == ["average", "complete", "ward"]
    assert "attack" not in schema


def test_the_command(tmp_path: Path) -> None:
    written = json.loads(done("schema").out)
    assert set(written["properties"]) >= {"run", "local", "method", "objective", "repair", "attack", "defence", "noise"}
    assert errors(written, {"method": {"anything": 1}, "local": {"lr": "x"}}) == ["'x' is not of type 'number'"]
    own = json.loads(done("schema", "fedprox", "-s", "defence=krum").out)["properties"]
    assert "mu" in own["method"]["properties"]
    assert "neighbours" in own["defence"]["properties"]
    file = tmp_path / "experiment.toml"
    file.write_text('[run]\nmethod = "fedprox"\n[method]\nmu = 3\n')
    assert json.loads(done("schema", file).out)["properties"]["method"]["properties"]["mu"]["default"] == 3.0
