"""Every public name is on a page of the API, with an example, and the examples do what stands there."""

from __future__ import annotations

import doctest
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import imperfed

DOCS = Path(__file__).parents[2] / "docs" / "api"
PAGES = sorted(DOCS.glob("*.md"))
RETURNED = {"imperfed.RunResult": "result.", "imperfed.AuditResult": "audit.", "imperfed.Comparison": "compared."}
"""What calls return, which nobody makes by name."""


def examples(text: str) -> str:
    return "\n".join(re.findall(r"^```pycon\n(.*?)^```", text, re.M | re.S))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("imperfed.experiments.experiment.write_report", lambda folder: None)
    yield
    sys.modules.pop("imperfed_example", None)


def test_every_public_name_is_documented_and_used() -> None:
    sections = re.split(r"^::: ", "\n".join(page.read_text(encoding="utf-8") for page in PAGES), flags=re.M)
    shown = {one.split()[0]: examples(one) for one in sections[1:]}
    assert {f"imperfed.{name}" for name in imperfed.__all__} == {*shown} | {"imperfed.__version__"}
    for name, example in shown.items():
        assert RETURNED.get(name, name) in example, name
    assert "imperfed.__version__" in examples((DOCS / "index.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_do_what_stands_there(page: Path) -> None:
    module = types.ModuleType("imperfed_example")  # where imports find the classes that a page defines
    sys.modules["imperfed_example"] = module
    test = doctest.DocTestParser().get_doctest(examples(page.read_text(encoding="utf-8")), {}, page.stem, str(page), 0)
    test.globs = vars(module)
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
    assert not outcome.failed, "".join(said)
    assert outcome.attempted
