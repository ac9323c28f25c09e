"""`imperfed keys`, `serve` and `join` as an administrator types them: two sites, real processes, TLS and keys."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

import httpx
from flwr.proto.control_pb2 import ListRunsRequest, RegisterNodeRequest, StartRunRequest
from safetensors.torch import load_file
from typer.testing import CliRunner

from imperfed.api.runs import load
from imperfed.cli.app import app
from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.experiments.auto.request import AutoRequest
from imperfed.experiments.resolving import resolve
from imperfed.experiments.stored_run import evaluate
from imperfed.flower.coordinator.serving import Service, begin
from imperfed.flower.processes.child import free_port
from imperfed.flower.processes.control import Control
from imperfed.flower.processes.coordinator_address import CoordinatorAddress
from imperfed.flower.processes.keys import SiteKeys, make_keys
from imperfed.flower.site.joining import Joining
from imperfed.flower.site.joining import join as join_run
from imperfed.results.predict import predict_file
from imperfed.testing.toy import differences

SITES = ("north", "south")
SETTINGS = ["--rounds", "2", "--model", "tests.support.rehearsal:normalised"]  # one that is not stacked in one process
WORDS = ["local.steps=3", "batch=8"]
HERE = Path(__file__).parent
LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


def write_federation(folder: Path) -> Path:
    """Two clinics with candidate sets; test rows in files of their own."""
    draw, classes = np.random.default_rng(0), ["asthma", "flu", "none"]
    centres = 3 * draw.normal(size=(3, 4))
    for part in ("sites", "test"):
        (folder / part).mkdir(parents=True)
        for name, rows in zip(SITES, (30, 41), strict=True):
            y = draw.integers(0, 3, rows)
            x = centres[y] + draw.normal(size=(rows, 4))
            others = draw.integers(0, 3, rows) if part == "sites" else y
            cells = ["|".join(classes[c] for c in sorted({a, b})) for a, b in zip(y, others, strict=True)]
            lines = [",".join([*(f"{v:.3f}" for v in row), cell]) for row, cell in zip(x, cells, strict=True)]
            (folder / part / f"{name}.csv").write_text("\n".join(["a,b,c,d,diagnosis", *lines]) + "\n")
    (folder / "federation.toml").write_text(
        'name = "clinics"\nsites = "sites/*.csv"\ntest = "test/*.csv"\n[inputs]\nnumeric = ["a", "b", "c", "d"]\n'
        f'[labels]\nkind = "candidates"\ncolumn = "diagnosis"\nclasses = {json.dumps(classes)}\n'
    )
    return folder


def allowing(folder: Path) -> list[object]:
    """The words of a site that lets its coordinator name the network of these tests."""
    (folder / "policy.toml").write_text(f"modules = [{json.dumps(SETTINGS[-1])}]")
    return ["--policy", folder / "policy.toml"]


def imperfed(*words: object) -> list[str]:
    return [sys.executable, "-m", "imperfed", *map(str, words)]


def settings() -> list[str]:
    return [*SETTINGS, *(part for word in WORDS for part in ("--set", word))]


@contextmanager
def started(out: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A verb in a process of its own; ended if it has not by itself."""
    with out.open("wb") as file:
        process = subprocess.Popen(imperfed(*words), stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def with_mark(mark: str) -> list[tuple[int, str]]:
    """All processes of this test, by a variable that their environment has."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ, line = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in environ and int(path.name) != os.getpid() and line:
            found.append((int(path.name), line.replace(b"\0", b" ").decode()))
    return found


def wait_for(file: Path, text: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while text not in (file.read_text() if file.exists() else ""):
        assert time.monotonic() < deadline, file.read_text() if file.exists() else f"no {file}"
        threading.Event().wait(0.2)


def refused_at(port: int, keys: Path) -> None:
    """With all that a site holds, nobody can see runs, let a key in or submit a run through the gate."""
    site = SiteKeys.read(keys / "site-north")
    control = Control(f"127.0.0.1:{port}", site.ca, keys / "site-north" / "secret")
    with pytest.raises(httpx.TransportError):  # without a certificate there is no answer at all
        control.client.ListRuns(ListRunsRequest())
    control.client._client = httpx.Client(verify=site.tls())
    for ask in (
        lambda: control.client.ListRuns(ListRunsRequest()),
        lambda: control.client.RegisterNode(RegisterNodeRequest(public_key=b"k", name="thief")),
        lambda: control.client.StartRun(StartRunRequest()),
        lambda: control.submit("echo:server", "echo:site", {}),
    ):
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            ask()
    control.client.close()


def no_port_at_a_site(mark: str) -> None:
    """Another user of a site's machine finds no port there from which a task, and with it the model, could be had."""
    words = ("imperfed.flower.processes.site_node", "imperfed join")
    pids = [pid for pid, line in with_mark(mark) if any(word in line for word in words)]
    assert len(pids) >= 3 * len(SITES)
    for pid in pids:
        with suppress(FileNotFoundError):  # one that worked on a message has ended meanwhile
            sockets = {os.readlink(path)[8:-1] for path in Path(f"/proc/{pid}/fd").iterdir() if is_socket(path)}
            lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
            assert not [line for line in lines if line[9] in sockets and line[3] == LISTENS]


def is_socket(path: Path) -> bool:
    return path.is_symlink() and os.readlink(path).startswith("socket:[")


def open_to_others(*folders: Path) -> list[str]:
    """Return everything in folders that other users of the machine could read."""
    every = (path for folder in folders for path in (folder, *folder.rglob("*")))
    return [str(path) for path in every if path.stat().st_mode & 0o077]


def test_the_run_of_one_process_by_two_sites_with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"IMPERFED_TEST={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (Path.cwd(), HERE.parents[1]))))
    data, keys, port = write_federation(tmp_path / "data"), tmp_path / "keys", free_port()
    make_keys(keys, SITES, ["127.0.0.1"], days=1)
    make_keys(tmp_path / "others", SITES, ["127.0.0.1"], days=1)
    where = ["--host", "127.0.0.1", "--port", port, "--keys", keys / "coordinator", "--out", tmp_path / "runs"]
    site = {n: ["--data", data / "sites" / f"{n}.csv", "--test", data / "test" / f"{n}.csv"] for n in SITES}
    join = {n: [f"127.0.0.1:{port}", *site[n], "--state", tmp_path / n, "--keys", keys / f"site-{n}"] for n in SITES}
    join = {n: [*words, *allowing(tmp_path)] for n, words in join.items()}
    with (
        started(tmp_path / "serve.out", "serve", data / "federation.toml", "pfedpll", *settings(), *where) as serving,
        started(tmp_path / "north.out", "join", *join["north"]) as north,
        started(tmp_path / "south.out", "join", *join["south"]) as south,
    ):
        wait_for(tmp_path / "serve.out", "serving north, south", 300)
        refused_at(port, keys)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        with pytest.raises(DataError, match="cannot prove that it is the coordinator"):
            CoordinatorAddress("127.0.0.1", port, SiteKeys.read(tmp_path / "others" / "site-north")).knock()
        alone = run_alone(data, tmp_path / "one")
        wait_for(tmp_path / "serve.out", "round 1: north answered after", 300)
        no_port_at_a_site(mark)
        assert serving.wait(300) == 0, (tmp_path / "serve.out").read_text()
        assert (north.wait(300), south.wait(300)) == (0, 0)
    for one in idle:
        one.close()
    [run] = (tmp_path / "runs").iterdir()
    assert open_to_others(run, *(tmp_path / name for name in SITES)) == []
    for name in SITES:
        here, there = alone / "models" / f"{name}.safetensors", tmp_path / name / run.name / "models"
        assert not differences(load_file(here), load_file(there / f"{name}.safetensors"))
        assert not (run / "models" / f"{name}.safetensors").exists()  # personal weights stay at the site
        assert (tmp_path / name / run.name / "labels" / f"{name}.parquet").exists()
        assert "joined 127.0.0.1" in (tmp_path / f"{name}.out").read_text()
        told = [tmp_path / f"{name}-{k}.csv" for k in range(2)]
        for folder, file in zip((alone, tmp_path / name / run.name), told, strict=True):  # also where the site is
            predict_file(load(folder), data / "test" / f"{name}.csv", name, file)
        assert told[0].read_text() == told[1].read_text()
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (alone, run)]
    assert summaries[0]["personal"] == summaries[1]["personal"]
    said = (tmp_path / "serve.out").read_text()
    assert "round 1: north answered after" in said
    assert "round 2/2: loss" in said
    assert with_mark(mark) == []


def run_alone(data: Path, out: Path) -> Path:
    """The same run in one process."""
    words = ["--data", data, "--out", out, "--workers", 1, "--set", "split.public=0"]
    result = CliRunner().invoke(app, ["run", "pfedpll", *settings(), *map(str, words)])
    assert result.exit_code == 0, result.output
    [folder] = out.iterdir()
    return folder


def test_what_serve_refuses(tmp_path: Path) -> None:
    data = write_federation(tmp_path / "data") / "federation.toml"
    make_keys(tmp_path / "keys", ["north"], ["h"], days=1)
    own = tmp_path / "keys" / "coordinator"

    def refused(*words: object) -> ImperfedError:
        result = CliRunner().invoke(app, ["serve", *map(str, words), "--out", str(tmp_path / "runs")])
        assert isinstance(result.exception, ImperfedError), result.output
        assert not (tmp_path / "runs").exists()
        return result.exception

    assert "the sites are not named" in str(refused(data, "pfedpll"))
    assert "'scale', which is the name of another file" in str(refused(data, "pfedpll", "--sites", "north,scale"))
    assert "no key for south" in str(refused(data, "pfedpll", "--sites", "north,south", "--keys", own))
    assert "--insecure" in str(refused(data, "pfedpll", "--sites", "a", "--host", "192.0.2.1"))
    assert "do not give rows away" in str(refused(data, "pfedpll", "--keys", own, "--set", "split.public=0.5"))
    assert "unknown" in str(refused(data, "pfedpl", "--keys", own))
    own_labels = str(refused(data, "cross-entropy", "--keys", own))
    assert "learns from exact labels, but clinics comes with candidates labels here" in own_labels
    assert "corrects exact labels" in str(refused(data, "pfedpll", "--keys", own, "-s", "repair=posterior"))
    assert "brings all rows to one place" in str(refused(data, "pooled", "--keys", own))
    assert "needs labelled rows at the server" in str(refused(data, "pfedmo", "--keys", own))
    assert "imperfed join --device cuda" in str(refused(data, "pfedpll", "--keys", own, "-s", "device=cuda"))
    assert "this run names its method" in str(refused(data, "pfedpll", "--keys", own, "--budget", 1))
    assert "auto with real sites does not repair labels" in str(refused(data, "--keys", own, "-s", "repair=posterior"))


def test_what_lies_at_the_sites_is_said_to(tmp_path: Path) -> None:
    data = write_federation(tmp_path / "data") / "federation.toml"
    config = resolve(words={"method": "pfedpll", "data": str(data), "split.public": "0"})
    served = begin(tmp_path / "runs", config, Service(str(data), SITES, "127.0.0.1", 1))
    with pytest.raises(UsageError, match=rf"are at the sites: .* imperfed report STATE/{served.path.name}"):
        evaluate(served)
    with pytest.raises(DataError, match=rf"are at the sites: .* imperfed predict STATE/{served.path.name}"):
        served.load_model("north")
    (served.path / "serve.json").rename(served.path / "kept.json")
    served.write("site.json", '{"site": "north"}')
    with pytest.raises(UsageError, match=r"the folder of north in a run with real sites"):
        evaluate(served)


def test_the_folder_of_a_search_is_continued_with_the_same_request(tmp_path: Path) -> None:
    data = write_federation(tmp_path / "data") / "federation.toml"
    service = Service(str(data), SITES, "127.0.0.1", 1)
    words = {"method": "auto", "data": str(data), "split.public": "0"}
    one, other = (AutoRequest.of(None, words | {"budget": budget}) for budget in (1.0, 2.0))
    assert one is not None
    assert other is not None
    folder = begin(tmp_path / "runs", one.base, service, one)
    assert folder.path.name.startswith("auto-data-")
    assert begin(folder.path, one.base, service, one) == folder
    for request in (other, None):
        with pytest.raises(UsageError, match="holds a run with other settings"):
            begin(folder.path, one.base, service, request)


def test_what_join_refuses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nobody is at a terminal to accept the run"):
        join_run(Joining("localhost:1", tmp_path, tmp_path), print)
    file, taken = tmp_path / "a b.csv", tmp_path / "global.csv"
    file.touch()
    taken.touch()
    assert Joining("h:1", file, tmp_path, name="x").site()["name"] == "x"
    for joining, message in (
        (Joining("h", file, tmp_path), "HOST:PORT"),
        (Joining("h:x", file, tmp_path), "HOST:PORT"),
        (Joining("192.0.2.1:1", file, tmp_path), "--insecure"),
    ):
        with pytest.raises(UsageError, match=message):
            joining.way()
    assert Joining("h:1", file, tmp_path).site()["name"] == "a b"
    with pytest.raises(UsageError, match=r"'global', which is the name of another file of a run; .* --name"):
        Joining("h:1", taken, tmp_path).site()
    with pytest.raises(DataError, match="no such file"):
        Joining("h:1", tmp_path / "absent.csv", tmp_path).site()
    make_keys(tmp_path / "keys", ["north"], ["h"], days=1)
    assert Joining("h:1", file, tmp_path, keys=tmp_path / "keys" / "site-north").site()["name"] == "north"
    assert Joining("[::1]:7", file, tmp_path).way().address == "[::1]:7"
