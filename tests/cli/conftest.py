"""Runs that several tests look at, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terminal import QUICK, Said, done


@pytest.fixture(scope="session")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What a finished run of pFedPLL on digits said."""
    return done("run", "pfedpll", *QUICK, "--out", tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def finished(said: Said) -> Path:
    """The folder of that run; for looking only."""
    return said.folder


@pytest.fixture(autouse=True)
def without_pages(no_page: None) -> None:
    """Leave out the report page in these tests; the finished run, made before this, has one."""
