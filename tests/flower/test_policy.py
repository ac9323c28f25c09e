"""What a coordinator must not get from a site: its policy refuses it, by name, at both ends, and nothing changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imperfed.core.errors import RefusedBySiteError, UsageError
from imperfed.core.labels import Exact
from imperfed.data.scale import Scale
from imperfed.engine.failures import Declined, Undecided
from imperfed.experiments.resolving import resolve
from imperfed.experiments.watch import Watch
from imperfed.flower.messages.payload import Payload, failure_of, pack
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.agreement import Agreement
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.joining import Consent
from imperfed.flower.site.policy import SitePolicy, template
from imperfed.flower.site.runtime import LocalSite
from imperfed.flower.site.site_data import read_files
from tests.support.rehearsal import Apart, raw, settled

FEW = {"local.batch": 1, "local.steps": 1, "model.name": "logistic"}
DECLARED = """
sites = "*.csv"
[inputs]
numeric = [{columns}]
[labels]
kind = "exact"
column = "sick"
classes = ["no", "yes"]
"""


class Guarded(Apart):
    """Sites with a policy of their own, whose users may be asked."""

    policy, accepts = SitePolicy(modules=("tests.*",)), True

    def place(self, holding: Any) -> LocalSite:
        return replace(super().place(holding), policy=self.policy, accepts=self.accepts)


def asked(place: LocalSite, kind: str, run_info: RunInfo, **words: Any) -> Payload:
    return handle(place, kind, pack(run_info.payload(words)))


def greeting(declaration: str = "", run: str = "run", **settings: Any) -> RunInfo:
    config = resolve(words={"method": "fedavg", "model": "logistic", "batch": 8} | settings)
    return RunInfo(run, config.toml(), declaration, 0, Scale.none(), {})


@pytest.fixture
def clinic(tmp_path: Path) -> LocalSite:
    """A site whose file has columns that nobody has declared."""
    lines = [f"{40 + k},{1000 * k},{k % 2},{('no', 'yes')[k % 2]}" for k in range(12)]
    (tmp_path / "north.csv").write_text("\n".join(["age,income,hiv,sick", *lines]) + "\n")
    read = lambda config, declared: read_files("north", tmp_path / "north.csv", None, config, declared)  # noqa: E731
    return LocalSite("north", read, tmp_path / "state")


def declared(*columns: str) -> str:
    return DECLARED.format(columns=", ".join(f'"{column}"' for column in columns))


# -- one row at a time -------------------------------------------------------------------------------------------------


def test_one_row_per_step_is_refused_before_round_1_by_name(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **FEW), raw(Exact), tmp_path)
    with pytest.raises(
        RefusedBySiteError, match=r"site0 refuses local.batch = 1: this site asks for 8 or more"
    ) as refusal:
        apart.start()
    assert refusal.value.exit_code == 6
    assert all(not message.content.array_records for way, message in apart.grid.sent if way == "up")
    log = (tmp_path / "site0" / "log.txt").read_text()
    assert "refused: local.batch = 1" in log
    assert "[local] steps = 1" in log  # with the settings


def test_steps_that_rest_on_few_rows_are_refused_whatever_the_batch(tmp_path: Path) -> None:
    apart = Guarded(settled("fedavg", **{"local.batch": 8}), raw(Exact), tmp_path)
    apart.policy = replace(apart.policy, rows_per_step=7)  # a pass over 12 rows has two batches of 6
    with pytest.raises(
        RefusedBySiteError, match="with 12 rows a step would rest on 6, and this site asks for 7 or more"
    ):
        apart.start()


def test_settings_that_change_in_mid_run_are_refused_and_charged(tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **{"rounds.participation": 1.0}), raw(Exact), tmp_path).start()
    apart.go(rounds=1)
    backend = apart.engine.backend
    smaller = replace(backend.run_infos[2], settings=backend.run_infos[2].settings.replace("batch = 8", "batch = 16"))
    backend.run_infos = [*backend.run_infos[:2], smaller, *backend.run_infos[3:]]
    backend.early.clear()
    apart.go(rounds=2)
    failure = apart.reports[1].failures[2]
    assert isinstance(failure, Declined)
    assert failure.reason == "site2 refuses local.batch = 16: this site agreed to 8 for this run"


# -- code --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '[model]\nname = "cleanup:go"',
        '[run]\nmethod = "cleanup:Go"',
        '[run]\nmethod = "fedavg+cleanup:Go"',
        '[run]\nrepair = "cleanup:Go"',
        '[run]\nrepair = "posterior"\n[repair]\nfeatures = "cleanup:go"',
        '[run]\nrepair = "fb-nll"\n[repair]\nclass_features = "cleanup:go"',
        '[split]\npartition = "cleanup:Go"',
    ],
)
def test_nothing_is_imported_that_the_policy_does_not_name(
    text: str, clinic: LocalSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cleanup.py").write_text("from pathlib import Path\nPath('gone').touch()\ndef go(*_): return None\n")
    for kind in ("query.hello", "train"):
        failure = failure_of(asked(clinic, kind, replace(greeting(declared("age")), settings=text)))
        assert isinstance(failure, Declined)
        assert "this site imports what its own policy names, and nothing else (modules)" in failure.reason
    assert not (tmp_path / "gone").exists()
    assert "cleanup" not in sys.modules


# -- columns -----------------------------------------------------------------------------------------------------------


def test_sums_of_columns_that_were_not_agreed_to_do_not_leave(clinic: LocalSite) -> None:
    first = asked(clinic, "query.hello", greeting(declared("age")))
    assert first.trees["sums"]["sum"].shape == (1,)
    later = asked(clinic, "query.hello", greeting(declared("age", "income", "hiv")))
    assert not later.trees
    assert "the declaration of the files has changed" in str(later.words["failed"])
    assert "federation.toml: numeric" in (clinic.state / "log.txt").read_text()


def test_a_policy_lists_columns(clinic: LocalSite) -> None:
    place = replace(clinic, policy=SitePolicy(columns=("age", "sick")))
    refused = failure_of(asked(place, "query.hello", greeting(declared("age", "income"))))
    assert refused == Declined("north refuses column 'income': this site allows age, sick (columns)")
    assert failure_of(asked(place, "query.hello", greeting(declared("age"), run="other"))) is None


def test_a_pattern_of_columns_is_refused(clinic: LocalSite) -> None:
    failure = failure_of(asked(clinic, "query.hello", greeting(declared("*"))))
    assert isinstance(failure, Declined)
    assert "inputs.numeric has *" in failure.reason


# -- names and folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flower", "lock", "log.txt", "../old", "x" * 201])
def test_a_run_is_not_named_after_other_files(name: str, clinic: LocalSite) -> None:
    (clinic.state / "flower").mkdir(parents=True)
    assert "cannot be the name of a run" in str(asked(clinic, "query.hello", greeting(run=name)).words["failed"])
    assert not [*(clinic.state / "flower").iterdir()]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """A run that has ended, with results at every site."""
    folder = tmp_path_factory.mktemp("ended")
    apart = Apart(settled("fedper", **{"rounds.rounds": 1}), raw(Exact), folder)
    apart.server = apart.coordinator()
    apart.server.folder.write("config.toml", apart.config.toml())
    apart.server.run(Watch())
    return apart


def test_another_run_of_the_same_name_touches_nothing(ended: Apart, tmp_path: Path) -> None:
    own = ended.folder / "site1" / "run"
    before = snapshot(own)
    assert "report.html" in before
    other = Apart(settled("fedavg"), raw(Exact), tmp_path)
    other.grid = ended.grid  # the same sites, the same name of the run
    with pytest.raises(RefusedBySiteError, match=r"run.method = 'fedavg': this site agreed to 'fedper' for this run"):
        other.start()
    assert snapshot(own) == before


def test_an_ended_run_answers_what_a_killed_coordinator_asks_again_and_nothing_else(ended: Apart) -> None:
    place, backend = ended.place(ended.holdings[1]), ended.server.backend
    own = ended.folder / "site1" / "run"
    before = snapshot(own)
    last = backend.with_models(lambda k: {})[1]
    assert handle(place, "query.leave", pack(last)).words == {"done": 1}
    other = replace(last, trees={**last.trees, "model": {n: t + 1 for n, t in last.trees["model"].items()}})
    assert "another model at the end of run" in str(handle(place, "query.leave", pack(other)).words["failed"])
    figures = handle(place, "evaluate", pack(backend._payload(1, 1, -1, evaluate=True)))
    assert "metrics" in figures.words
    trained = handle(place, "train", pack(backend._payload(1, 0, 0)))
    assert "this run has ended here, and its results stay as they are" in str(trained.words["failed"])
    assert snapshot(own) == before


def test_a_folder_that_no_run_has_made_is_left_alone(clinic: LocalSite) -> None:
    (clinic.state / "holiday").mkdir(parents=True)
    (clinic.state / "holiday" / "photo.jpg").write_text("us")
    failure = failure_of(asked(clinic, "query.hello", greeting(declared("age"), run="holiday")))
    assert isinstance(failure, Declined)
    assert "keeps other files under it" in failure.reason
    assert [path.name for path in (clinic.state / "holiday").iterdir()] == ["photo.jpg"]


# -- the rest of a policy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "settings", "reason"),
    [
        ({"methods": ["fedp*"]}, {}, "run.method = 'fedavg': this site allows fedp* (methods)"),
        ({"models": ["mlp"]}, {}, "model.name = 'logistic': this site allows mlp (models)"),
        (
            {"objectives": ["mse"]},
            {"objective": "cross-entropy"},
            "run.objective = 'cross-entropy': this site allows mse",
        ),
        ({"repairs": []}, {"repair": "posterior"}, "run.repair = 'posterior': this site allows none (repairs)"),
        ({"defences": []}, {"defence": "median"}, "run.defence = 'median': this site allows none (defences)"),
        ({"most_rounds": 5}, {"rounds": 6}, "rounds.rounds = 6: this site takes part in 5 at most (most_rounds)"),
        ({"settings": {"local.lr": {"most": 0.1}}}, {"lr": 0.2}, "local.lr = 0.2: this site allows a number from -inf"),
        ({"settings": {"local.steps": [1, 2]}}, {"steps": 3}, "local.steps = 3: this site allows one of 1, 2"),
        ({"settings": {"local.optimizer": "sgd"}}, {"optimizer": "adam"}, "this site allows one of sgd (settings)"),
    ],
)
def test_each_key_of_a_policy_refuses(
    policy: dict[str, Any], settings: dict[str, Any], reason: str, clinic: LocalSite
) -> None:
    run_info = greeting(declared("age"), **settings)
    refused = SitePolicy.of(policy).objections(run_info.settings, run_info.declaration, False)
    assert len(refused) == 1
    assert reason in refused[0]
    assert SitePolicy().objections(run_info.settings, run_info.declaration, False) == []


def test_a_search_is_one_kind_of_run_that_a_site_may_refuse(clinic: LocalSite) -> None:
    run_info = replace(greeting(declared("age")), search=True)
    place = replace(clinic, policy=SitePolicy(search=False))
    assert "a search by auto (search = false)" in str(asked(place, "query.hello", run_info).words["failed"])
    assert failure_of(asked(clinic, "query.hello", run_info)) is None
    trial = replace(run_info, settings=run_info.settings.replace("batch = 8", "batch = 16"))
    assert failure_of(asked(clinic, "query.hello", trial)) is None  # settings vary, within the policy
    trial = replace(run_info, settings=run_info.settings.replace("batch = 8", "batch = 4"))
    assert isinstance(failure_of(asked(clinic, "query.hello", trial)), Declined)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smallest_bach = 8", "policy.toml: unknown key of a policy 'smallest_bach'. Did you mean 'smallest_batch'"),
        ("models = 3", "policy.toml: models takes a list of names; got 3"),
        ("most_rounds = 0", "policy.toml: setting policy.most_rounds must be above 0"),
        ('[settings]\n"local.lr" = { min = 1 }', "policy.toml: unknown bound of local.lr 'min'"),
        ("settings = 1", "policy.toml: settings is a table"),
        ("[", "policy.toml: not a TOML file"),
    ],
)
def test_mistakes_in_a_policy_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        SitePolicy.read(tmp_path / "policy.toml")
    assert message in str(error.value)


def test_the_template_says_what_holds_without_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(template())
    assert SitePolicy.read(tmp_path / "policy.toml") == SitePolicy()


# -- consent -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("yes", [True, False])
def test_a_run_waits_for_a_yes(yes: bool, clinic: LocalSite) -> None:
    place, run_info = replace(clinic, accepts=False), greeting(declared("age"))
    questions: list[str] = []
    say: Callable[[str], bool] = lambda question: (questions.append(question), yes)[1]  # noqa: E731
    consent = Consent(place.state, say)
    for _ in range(2):
        assert failure_of(asked(place, "query.hello", run_info)) == Undecided(
            "north was shown this run and has not accepted it yet"
        )
    consent.seek()
    assert questions == ["take part in run?"]
    reply = asked(place, "query.hello", run_info)
    if yes:
        assert reply.words["rows"] == 10
        return
    assert failure_of(reply) == Declined("north refuses this run: it was declined by hand")
    with pytest.raises(RefusedBySiteError, match="run was declined; the coordinator was told so"):
        consent.seek()
    again = Consent(place.state, lambda question: True)
    again.seek()
    assert asked(place, "query.hello", run_info).words["rows"] == 10


def test_a_coordinator_waits_for_a_site_that_has_not_decided(tmp_path: Path) -> None:
    apart = Guarded(settled("fedavg", **{"rounds.rounds": 1}), raw(Exact), tmp_path)
    apart.accepts = False
    server = apart.coordinator()
    server.transport.look()
    assert server.transport.missing() == ["site0", "site1", "site2", "site3"]
    assert not server.transport.declined
    for k in range(4):
        folder = tmp_path / f"site{k}" / "run"
        agreement = Agreement.read(folder)
        assert agreement is not None
        agreement.decided("accepted").write(folder)
    server.transport.refused.clear()
    server.transport.look()
    assert server.transport.missing() == []


def test_text_of_the_coordinator_does_not_steer_the_terminal(clinic: LocalSite) -> None:
    run_info = greeting(declared("age"))
    red = replace(run_info, declaration=run_info.declaration.replace("age", "\\u001b[31mage"))
    asked(clinic, "query.hello", red)
    assert "\x1b" not in (clinic.state / "log.txt").read_text()
