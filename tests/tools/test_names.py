"""One name means one thing, and the script that checks it finds a name that is defined twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "names.py"


def check(script: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_package_defines_no_name_twice() -> None:
    assert check(SCRIPT) == (0, "names: each means one thing\n")


def test_names_that_are_defined_twice_are_found(tmp_path: Path) -> None:
    copy = tmp_path / "tools" / "names.py"
    copy.parent.mkdir()
    copy.write_text(SCRIPT.read_text())
    for file, code in {
        "a/__init__.py": "",
        "b/__init__.py": "",
        "a/base.py": "class One: ...\n",
        "b/base.py": "def one():\n    class One: ...\n",
        "a/rows.py": "",
        "b/rows.py": "",
    }.items():
        path = tmp_path / "imperfed" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    code, lines = check(copy)
    assert code == 1
    assert lines.splitlines() == [
        "class One is defined in imperfed/a/base.py and in imperfed/b/base.py",
        "module rows is defined in imperfed/a/rows.py and in imperfed/b/rows.py",
    ]
