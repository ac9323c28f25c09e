"""The user's functions by `module:function`."""

import importlib
import sys

import pytest

from imperfed.core.errors import UsageError
from imperfed.core.loading import load_function


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "owncode.py").write_text("def double(x):\n    return 2 * x\n\ndef _hidden():\n    pass\n\nnumber = 3\n")
    (tmp_path / "failing.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "owncode", raising=False)
    importlib.invalidate_caches()
    before = list(sys.path)
    yield
    assert sys.path == before, "the import path was left changed"


def test_a_function_in_the_current_folder():
    assert load_function("model", "owncode:double")(4) == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuchmodule:f", "thing 'nosuchmodule:f': cannot import 'nosuchmodule'; run from the folder that holds it"),
        ("failing:f", r"cannot import 'failing'.*\(ZeroDivisionError: division by zero\)"),
        ("owncode:doubel", r"unknown function in module 'owncode' 'doubel'. Did you mean 'double'\?"),
        ("owncode:number", r"unknown function in module 'owncode' 'number'.*double(?!.*_hidden)"),
        ("owncode", "unknown function in module 'owncode' ''"),
    ],
)
def test_what_cannot_be_loaded_says_why(name, message):
    with pytest.raises(UsageError, match=message):
        load_function("thing", name)
