"""What `import imperfed` says where it does not run, or was not tried."""

from __future__ import annotations

import subprocess
import sys

import pytest


def imported(pretence: str) -> subprocess.CompletedProcess[str]:
    """Import the package in an interpreter that pretends to be on another system."""
    code = f"import os, sys; {pretence}; import imperfed"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pretence", "code", "said"),
    [
        ("del os.fork; sys.platform = 'win32'", 1, "ImportError: imperfed runs on Linux: its workers are forked"),
        ("sys.platform = 'darwin'", 0, "UserWarning: imperfed was tried on Linux only; this is darwin"),
        ("pass", 0, ""),
    ],
)
def test_other_systems_are_told(pretence: str, code: int, said: str) -> None:
    found = imported(pretence)
    assert found.returncode == code
    assert said in found.stderr if said else not found.stderr
