"""How it looks: a bar on a terminal, a line a round in a pipe, no colour where none is wanted, help at once."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console

from imperfed import __version__
from imperfed.cli.app import app
from imperfed.cli.command_groups import GROUPS
from imperfed.engine.schedule import RoundReport
from imperfed.experiments.progress import Show
from imperfed.experiments.watch import Interrupted
from tests.support.terminal import TINY, done, imperfed, surroundings, write

COLOUR = re.compile(r"\x1b\[[\d;]*\b(3[0-8]|4[0-8]|9\d)\b[\d;]*m")
HEAVY = ("torch", "numpy", "scipy", "sklearn", "pyarrow", "matplotlib", "PIL")


def on_a_terminal(tmp_path: Path, **environment: str) -> str:
    """What a run of a small file writes to a terminal."""
    words = ("run", "cc", "--data", write(tmp_path / "mine.npz"), *TINY, "--out", tmp_path / "out")
    return done(*words, FORCE_COLOR="1", TERM="xterm-256color", **environment).out


def test_a_terminal_shows_a_bar_and_no_lines(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path)
    assert COLOUR.search(shown)
    assert "2/2" in shown
    assert "round 1/2:" not in shown
    assert "mean over sites" in shown


def test_no_color_is_honoured(tmp_path: Path) -> None:
    assert not COLOUR.search(on_a_terminal(tmp_path, NO_COLOR="1"))


def test_a_pipe_gets_one_plain_line_a_round(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.npz")
    shown = done("run", "cc", "--data", data, *TINY, "--rounds", 5, "--out", tmp_path / "out", COLUMNS="40").out
    lines = [line for line in shown.splitlines() if line.startswith("round ")]
    pattern = r"round \d/5: loss \d\.\d{3}, accuracy \d+\.\d % \(worst site \d+\.\d %\), \d+\.\d\d s, \d+ s left"
    assert len(lines) == 5
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert "\x1b" not in shown


def test_every_verb_has_help() -> None:
    shown = done("--help").out
    for verb in ("run", "compare", "resume", "evaluate", "report", "list", "show"):
        assert f"  {verb} " in shown
        assert "Usage:" in done(verb, "--help").out
    run = " ".join(done("run", "--help").out.split())
    assert "[WHAT] A method's name, or an experiment file (.toml)." in run
    assert "[default: runs]" in run
    assert "\\" not in run


def test_every_verb_stands_in_one_group_and_none_of_the_lines_is_cut() -> None:
    shown = done("--help").out
    listed = re.findall(r"^  ([a-z]+)  +\S", shown.partition("See what you have:")[2], re.MULTILINE)
    grouped = [name for names in GROUPS.values() for name in names]
    assert listed == grouped
    assert set(grouped) == set(typer.main.get_command(app).list_commands(None))  # type: ignore[attr-defined,arg-type]
    assert "..." not in shown.partition("Options:")[2]


@pytest.mark.parametrize("verb", ["run", "compare", "reproduce", "serve", "schema"])
def test_help_says_where_settings_are_listed(verb: str) -> None:
    shown = " ".join(done(verb, "--help").out.split())
    assert "`imperfed show NAME` lists those of a method and of every run" in shown
    assert "`imperfed schema NAME`" in shown


def test_the_version() -> None:
    assert done("--version").out == f"imperfed {__version__}\n"


def test_a_misspelt_verb_is_guessed_once() -> None:
    assert imperfed("runn").err.count("Did you mean 'run'?") == 1


def test_help_waits_for_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['imperfed', '--help']\n"
        "try:\n    from imperfed.__main__ import main; main()\n"
        f"except SystemExit: print([name for name in {HEAVY} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings(), check=True)
    assert ran.stdout.startswith("Usage: imperfed")
    assert ran.stdout.splitlines()[-1] == "[]"


def test_the_second_interruption_stops_at_once() -> None:
    show, before = Show(Console(file=StringIO())), signal.getsignal(signal.SIGINT)

    def impatient() -> None:
        with show.interruptible():
            signal.raise_signal(signal.SIGINT)
            assert show.stopping
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="last checkpoint"):
        impatient()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interruption_that_torchrun_passes_on_is_still_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    now = 1000.0
    monkeypatch.setattr("imperfed.experiments.progress.time.monotonic", lambda: now)
    show = Show(Console(file=StringIO()))

    def patient() -> None:
        nonlocal now
        with show.interruptible():
            for seconds in (0.0, 0.1, 1.0):
                now += seconds
                signal.raise_signal(signal.SIGINT)
            assert show.stopping
            now += 2.0
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped at once"):
        patient()
    assert now == 1003.1


def test_an_interruption_ends_with_130_and_the_way_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_round(self: Show, report: RoundReport, seconds: float) -> None:
        if report.round == 0:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Show, "round", first_round)
    data = write(tmp_path / "mine.npz")
    for words, whole in ((("run", "cc"), ""), (("compare", "--no-alone", "cc,lw"), " the whole comparison")):
        out = tmp_path / words[0]
        said = imperfed(*words, "--data", data, *TINY, "--rounds", 4, "--out", out)
        ((run,), (folder,)) = ([path.parent for path in out.rglob("config.toml")], out.iterdir())
        assert said.code == 130
        assert said.err == f"interrupted; continue{whole} with: imperfed resume {folder}\n"
        assert "stopping after this round" in said.out
        assert (run / "checkpoints" / "last.safetensors").exists()


def test_the_first_site_may_be_away() -> None:
    said = StringIO()
    show = Show(Console(file=said))
    show.total = 3
    show.round(RoundReport(1, (0, 1), {1: 0.5}, {0: "away"}, personal={1: {"accuracy": (0.75, 8)}}), 1.0)
    assert "round 2/3: loss 0.500, accuracy 75.0 % (worst site 75.0 %), 1 failed" in said.getvalue()
