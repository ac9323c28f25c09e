"""How far a run is, from its folder alone; and the page that shows it."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path

import pytest

import imperfed
from imperfed.core.errors import UsageError
from imperfed.live import LivePage, RunStatus
from imperfed.live.live_server import is_local
from imperfed.live.run_status import SiteStatus, pace_of

ROUNDS = 4


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    result = imperfed.run("fedavg", data="digits", rounds=ROUNDS, workers=1, out=out, kind="exact")
    return Path(result.folder)


@pytest.fixture
def under_way(ended: Path, tmp_path: Path) -> Path:
    """A run of four rounds after its second one, with ten seconds between rounds and a site that failed."""
    folder = tmp_path / "run"
    shutil.copytree(ended, folder)
    (folder / "summary.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["round"] <= 2))
    began = datetime(2026, 1, 1)
    (folder / "log.txt").write_text(
        f"{began.isoformat()} round 1: 4 of 4 sites answered, loss 2.0\n"
        f"{(began + timedelta(seconds=9)).isoformat()} round 2: <b>site-1</b> failed: no answer\n"
        f"{(began + timedelta(seconds=10)).isoformat()} round 2: 3 of 4 sites answered, loss 1.5\n"
    )
    return folder


def test_a_run_that_has_ended_says_so(ended: Path) -> None:
    status = RunStatus.of(ended)
    assert (status.state, status.round, status.rounds, status.seconds_left) == ("ended", ROUNDS, ROUNDS, None)
    assert [round for round, _ in status.loss] == [1, 2, 3, 4]
    assert status.sentences()[0] == f"fedavg on digits: ended, round {ROUNDS} of {ROUNDS}"


def test_sites_that_a_defence_leaves_out_are_named_while_the_run_goes_on(under_way: Path) -> None:
    verdicts = [(1, "site-0", 1), (1, "site-2", 1), (2, "site-0", 0), (2, "site-2", 1)]
    with (under_way / "metrics.jsonl").open("a") as lines:
        for round, site, out in verdicts:
            line = {"round": round, "site": site, "metric": "defence/out", "value": float(out)}
            lines.write(json.dumps(line) + "\n")
    status = RunStatus.of(under_way)
    assert {row.site: (row.out, row.out_now) for row in status.sites} == {
        "site-0": (1, False),
        "site-1": (0, False),
        "site-2": (2, True),
        "site-3": (0, False),
    }
    assert "left out by the defence: site-2" in status.sentences()


def test_without_a_defence_nothing_is_said_of_one(under_way: Path) -> None:
    status = RunStatus.of(under_way)
    assert all(row.out is None for row in status.sites)
    assert not any("defence" in line for line in status.sentences())


def test_a_run_under_way_knows_its_pace_and_what_went_wrong(under_way: Path) -> None:
    status = RunStatus.of(under_way)
    assert (status.state, status.round, status.seconds_left) == ("running", 2, 20.0)
    assert status.events == ("round 2: <b>site-1</b> failed: no answer",)
    assert status.sentences()[0].endswith("running, round 2 of 4, about 20 s left")
    assert status.mean == pytest.approx(status.figure[-1][1])


def test_the_time_left_of_short_rounds_comes_from_several_and_a_pause_is_none_of_them() -> None:
    short = [100.0 + k // 4 for k in range(41)]  # four rounds in a second, stamped in whole seconds
    assert pace_of(short) == pytest.approx(0.25)
    assert pace_of([*short[:30], *(stamp + 3600 for stamp in short[30:])]) == pytest.approx(0.25, abs=0.02)
    assert pace_of([0.0, 30.0, 60.0, 7000.0, 7030.0]) == 30
    assert pace_of([3.0]) is None


def test_where_no_site_sends_its_loss_nobody_is_said_to_be_missing(under_way: Path) -> None:
    """With privacy, losses stay at the sites."""
    lines = (under_way / "metrics.jsonl").read_text().splitlines(keepends=True)
    (under_way / "metrics.jsonl").write_text("".join(line for line in lines if "train/loss" not in line))
    status = RunStatus.of(under_way)
    assert {row.last_round for row in status.sites} == {None}
    assert not any("not in the last round" in line for line in status.sentences())


def test_of_many_sites_that_are_not_on_duty_a_few_are_named(under_way: Path) -> None:
    sites = tuple(SiteStatus(f"s{k}", None, 1) for k in range(500))
    (line,) = [line for line in replace(RunStatus.of(under_way), sites=sites).sentences() if "last round" in line]
    assert line == "not in the last round: s0, s1, s2, s3, s4, s5, s6, s7 and 492 more"


def test_a_run_that_writes_nothing_for_long_is_silent(under_way: Path) -> None:
    newest = max(path.stat().st_mtime for path in under_way.glob("*.*"))
    assert RunStatus.of(under_way, now=newest + 100).state == "running"
    assert RunStatus.of(under_way, now=newest + 130).state == "silent"


def test_an_interrupted_run_is_not_said_to_be_running(under_way: Path) -> None:
    with (under_way / "log.txt").open("a") as log:
        log.write("2026-01-01T00:00:11 interrupted after round 2; checkpoint written\n")
    status = RunStatus.of(under_way)
    assert status.state == "interrupted"
    assert status.sentences()[0] == "fedavg on digits: interrupted, round 2 of 4; `imperfed resume` continues it"
    with (under_way / "log.txt").open("a") as log:
        log.write("2026-01-01T00:01:00 resumed after round 2\n")
    assert RunStatus.of(under_way).state == "running"


def test_a_search_is_called_one_and_may_be_quiet_until_it_has_chosen(under_way: Path) -> None:
    (under_way / "auto.json").write_text('{"budget": 5.0}')
    newest = max(path.stat().st_mtime for path in under_way.glob("*.*"))
    assert RunStatus.of(under_way, now=newest + 600).sentences()[0] == "auto on digits: running, in the search"
    assert RunStatus.of(under_way, now=newest + 3600).state == "silent"
    (under_way / "trials.json").write_text("{}")
    assert RunStatus.of(under_way).title == "fedavg"


@pytest.fixture
def page(under_way: Path) -> Iterator[LivePage]:
    served = LivePage(under_way, port=0)
    threading.Thread(target=served.run, daemon=True).start()
    yield served
    served.server.shutdown()


def test_the_page_and_its_figures_are_served_and_nothing_else(page: LivePage) -> None:
    with urllib.request.urlopen(page.address) as answer:
        assert b"<title>imperfed" in answer.read()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    with urllib.request.urlopen(f"{page.address}status.json") as answer:
        assert json.load(answer)["round"] == 2
    for path in ("config.toml", "../config.toml", "%2e%2e/etc/passwd", "models/global.safetensors"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{page.address}{path}")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(urllib.request.Request(page.address, data=b"x"))


def test_who_is_not_on_this_machine_needs_the_token(page: LivePage) -> None:
    assert page.admits("127.0.0.1", "127.0.0.1", "")
    assert page.admits("::1", "localhost", "")
    assert not page.admits("192.0.2.7", "192.0.2.1", "")
    assert not page.admits("192.0.2.7", "localhost", "")
    assert not page.admits("192.0.2.7", "192.0.2.1", "wrong")
    assert page.admits("192.0.2.7", "192.0.2.1", page.token)


def asked(page: LivePage, path: str, **headers: str) -> tuple[int, HTTPMessage]:
    """Return the status and the headers of an answer."""
    host, port = page.server.server_address[:2]
    line = HTTPConnection(str(host), port)
    line.request("GET", path, headers=headers)
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status, answer.headers


def test_another_site_that_points_its_own_name_at_this_machine_reads_nothing(page: LivePage) -> None:
    assert asked(page, "/status.json", Host="strange.example:8765")[0] == 403
    assert asked(page, "/status.json", Host="[::1]:8765")[0] == 200
    assert asked(page, "/status.json", Host="[::1")[0] == 403
    assert asked(page, f"/status.json?token={page.token}", Host="lab.example")[0] == 200


def test_an_address_puts_nothing_into_the_headers(page: LivePage) -> None:
    status, headers = asked(page, "/?token=x%0d%0aX-Planted:%20yes")
    assert (status, headers["X-Planted"], headers["Set-Cookie"]) == (200, None, None)
    assert asked(page, f"/?token={page.token}")[1]["Set-Cookie"].startswith(f"token={page.token};")


def test_cookies_of_other_servers_on_this_machine_do_no_harm(page: LivePage) -> None:
    assert asked(page, "/status.json", Cookie="a,b=1")[0] == 200


def test_the_address_shows_the_token_only_where_it_is_needed(under_way: Path) -> None:
    local, everywhere = LivePage(under_way, port=0), LivePage(under_way, "0.0.0.0", port=0)
    assert "token" not in local.address
    assert everywhere.address.endswith(f"?token={everywhere.token}")
    local.server.server_close()
    everywhere.server.server_close()
    assert is_local("localhost")
    assert not is_local("fed.example.org")


def test_what_is_no_run_and_ports_in_use_are_refused(under_way: Path, tmp_path: Path, page: LivePage) -> None:
    with pytest.raises(UsageError, match="not a run's folder"):
        LivePage(tmp_path)
    with pytest.raises(UsageError, match="choose another --port"):
        LivePage(under_way, port=page.server.server_address[1])
