"""The folder above a run's own is a frequent mistake: the message names the run that is probably meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imperfed.core.errors import UsageError
from imperfed.results.folder import RunFolder


def test_of_a_folder_of_runs_the_newest_is_named(tmp_path: Path) -> None:
    for age, name in enumerate(("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
        os.utime(tmp_path / name, (100 + age, 100 + age))
    with pytest.raises(UsageError, match=rf"no config.toml; name one of the 2 runs in it, .* {tmp_path}/a$"):
        RunFolder.open(tmp_path)
    with pytest.raises(UsageError, match=r"no config.toml$"):
        RunFolder.open(tmp_path / "elsewhere")
