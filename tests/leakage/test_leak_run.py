"""`imperfed leak` from beginning to end, on two rounds of digits."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

import imperfed
from imperfed.cli.app import app
from imperfed.core.errors import UsageError
from imperfed.core.labels import Exact
from imperfed.engine.local_training import Local
from imperfed.engine.site import SiteRuntime, SiteUpdate
from imperfed.experiments.resolving import resolve
from imperfed.leakage.leak_run import LeakOptions, leak_of_settings
from imperfed.leakage.observed import ObservingBackend, observe
from imperfed.leakage.observed import attacked as attacked_exchange
from imperfed.leakage.visited import visited_rows
from imperfed.results.folder import SERVED, RunFolder
from imperfed.results.leak_summary import LeakSummary
from imperfed.testing.toy import OneStep, Plain, engine, network, world
from tests.support.transcription import near

ONE_ROW = {"labels.kind": "exact", "model": "logistic", "batch": 1, "steps": 1, "rounds": 2, "workers": 1}


def attacked(method: str = "fedavg", iterations: int = 3, sites: int = 2, **words: object) -> LeakSummary:
    settings = ONE_ROW | {"method": method, "data": "digits"} | words
    return leak_of_settings(resolve(words=settings), LeakOptions(sites, iterations=iterations))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> imperfed.RunResult:
    return imperfed.run("fedavg", out=tmp_path_factory.mktemp("runs"), **ONE_ROW)


def test_one_step_on_one_row_gives_the_row_and_its_label_away(result: imperfed.RunResult):
    for trained in (False, True):
        leak = result.leak(iterations=3, trained=trained)
        assert (leak.rows, leak.exact, leak.recovered, leak.by_chance) == (4, 4, 4, 0)
        assert leak.labels() == (0.0, pytest.approx(0.9, abs=0.4))
        assert leak.round == (3 if trained else 1)
        assert LeakSummary.from_json((result.folder / "leak.json").read_text()) == leak


def test_the_findings_are_in_the_report_and_what_they_do_not_show(result: imperfed.RunResult):
    result.leak(iterations=3)
    page = result.report.read_text()
    assert "What a curious coordinator could reconstruct" in page
    assert "Recovered: 4 of 4 rows that 4 sites visited, 4 of them exactly; by chance: 0." in page
    assert "A failed attack proves nothing" in page
    assert "the 4 best reconstructions below the real rows" in page


def test_the_command_prints_the_findings_and_json(result: imperfed.RunResult):
    made = CliRunner().invoke(app, ["leak", str(result.folder), "--iterations", "3", "--sites", "1", "--json"])
    assert json.loads(made.stdout)["sites"][0]["exact"] == 1
    assert "Recovered: 1 of 1 row that 1 site visited, 1 of them exactly; by chance: 0." in made.stderr
    assert "leak.json" in made.stderr
    words = ["leak", "fedavg", "-s", "labels.kind=exact", "-s", "batch=1", "-s", "steps=1", "--iterations", "3"]
    made = CliRunner().invoke(app, words)
    assert "1 local step of up to 1 row, model mlp, fedavg on digits, round 1:" in made.stdout
    assert "written" not in made.stdout


def test_what_a_site_does_before_it_sends_is_part_of_what_is_attacked():
    honest = SiteRuntime.update

    def noisy(self: SiteRuntime, *arguments: object) -> SiteUpdate:
        update = honest(self, *arguments)  # type: ignore[arg-type]
        update.up["w"].add_(0.01 * torch.randn(update.up["w"].shape, generator=torch.Generator().manual_seed(1)))
        return update

    with patch.object(SiteRuntime, "update", noisy):
        leak = attacked()
    assert (leak.rows, leak.recovered) == (2, 0)
    assert all(site.distance > 0.5 for site in leak.sites)


def test_noise_at_the_sites_is_part_of_what_is_attacked():
    leak = attacked(privacy="site")
    assert (leak.recovered, leak.exact) == (0, 0)
    assert "fedavg with privacy=site" in str(leak)


def test_many_steps_on_many_rows_give_less_away():
    leak = attacked(batch=32, steps=3, sites=1)
    assert leak.rows > 60
    assert leak.recovered == 0
    assert leak.labels() is not None
    assert leak.labels()[0] < leak.labels()[1]  # type: ignore[index]
    assert leak.sites[0].attempted < leak.rows


def test_a_search_finds_rows_that_no_quotient_gives():
    leak = attacked(batch=8, iterations=400, sites=1, model="mlp", **{"model.hidden": 32})
    assert leak.exact < leak.recovered
    assert leak.by_chance == 0


def test_a_dishonest_coordinator_finds_rows_of_larger_batches():
    words = {"method": "fedavg", "data": "digits"} | ONE_ROW | {"model": "mlp", "batch": 16}
    dishonest = leak_of_settings(resolve(words=words), LeakOptions(sites=1, iterations=1, dishonest=True))
    assert dishonest.recovered > 3
    assert "with weights chosen to single out rows" in str(dishonest)
    assert attacked(model="mlp", batch=16, sites=1, iterations=1).recovered == 0
    with pytest.raises(UsageError, match="one model of two layers"):
        leak_of_settings(resolve(words=words | {"model": "logistic"}), LeakOptions(dishonest=True))


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("pooled", "pools the rows of all sites"),
        ("local-only", "sends nothing of a model"),
        ("fedavg privacy=sum", "gets the sum of the sites' updates and no single one"),
    ],
)
def test_where_nothing_is_sent_there_is_nothing_to_reconstruct(method: str, why: str):
    name, *settings = method.split()
    leak = attacked(name, **dict(setting.split("=") for setting in settings))
    assert why in str(leak)
    assert not leak.sites


@pytest.mark.parametrize(("method", "also"), [("scaffold", ("dc",)), ("ifca", ("losses",)), ("fedper", ())])
def test_methods_that_send_more_or_less(method: str, also: tuple[str, ...]):
    leak = attacked(method, sites=1, model="mlp")
    assert leak.exact == 1
    assert leak.also_sent == also
    assert (leak.labels() is None) == (method == "fedper")  # its last layer stays at the sites


def test_a_site_that_sends_a_gradient_is_attacked_at_that_gradient():
    local, watched = Local(steps=1), lambda population, *_: ObservingBackend(population)
    toy = engine(OneStep(), Plain(), world(Exact), local, make_backend=watched)
    round, seen = observe(toy, 2)
    population = toy.population
    x, labels = population.federation.inputs(0, population.sizes[0]), population.federation.labels
    net = network()
    loss = cross_entropy(net(x), labels.values[: len(x)])
    whole = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
    sent = attacked_exchange(seen[0])
    assert sorted(seen) == [0, 1]
    assert sent is not None
    assert not sent.trained
    near(sent.moved, whole, tolerance=1e-6)  # of its own rows, not of all
    assert len(visited_rows(toy, round, 0, len(x))) == len(x)


def test_wrong_calls_say_what_to_do(result: imperfed.RunResult, tmp_path: Path):
    with pytest.raises(UsageError, match="above 0"):
        result.leak(sites=0)
    with pytest.raises(UsageError, match="leave out `trained`"):
        imperfed.leak("fedavg", trained=True)
    made = CliRunner().invoke(app, ["leak", str(result.folder), "--model", "mlp"])
    assert "in its folder; for other ones, type the name of a method" in str(made.exception)
    config = (result.folder / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / SERVED).write_text("{}")
    with pytest.raises(UsageError, match=r"imperfed leak fedavg --data FOLDER --model logistic -s local\.batch=1 "):
        imperfed.leak(RunFolder.open(tmp_path).path)
    noisy = config.replace('privacy = ""', 'privacy = "site"').replace(
        "[partition]", "[privacy]\nnoise = 4.0\n[partition]"
    )
    (tmp_path / "config.toml").write_text(noisy)
    with pytest.raises(UsageError, match=r"-s privacy=site -s privacy\.delta=1e-05 .* -s privacy\.noise=4\.0"):
        imperfed.leak(RunFolder.open(tmp_path).path)
