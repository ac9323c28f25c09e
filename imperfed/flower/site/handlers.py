"""A site's answers to messages, from its own rows; it keeps its own state and logs everything that leaves it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from imperfed import __version__
from imperfed.core.batch import Tree
from imperfed.core.context import SiteView
from imperfed.core.errors import DataError, ImperfedError, UsageError
from imperfed.core.exchange import Train, WeightedGradient
from imperfed.core.mechanism import SumMechanism
from imperfed.core.threads import one_thread
from imperfed.engine.backends.weighted_gradient import Route, weighted_gradient
from imperfed.engine.failures import Crashed, Declined
from imperfed.engine.schedule import RoundReport
from imperfed.engine.server import questions
from imperfed.engine.site import OPENING, SiteUpdate, validate
from imperfed.flower.messages.ending import NEVER
from imperfed.flower.messages.payload import (
    ASKED,
    NO_EXCHANGE,
    REPAIR,
    WORDS,
    Payload,
    RefusedError,
    Word,
    failure_payload,
    pack,
    scores_words,
    size,
    unpack,
    validity_words,
)
from imperfed.flower.messages.run_info import NO_TRIAL, RunInfo, info_payload
from imperfed.flower.site.admission import admit, described
from imperfed.flower.site.agreement import digest, end, ended_with
from imperfed.flower.site.asked_before import count_question
from imperfed.flower.site.audit_results import write_own_audit
from imperfed.flower.site.delivery import judge
from imperfed.flower.site.grid_counts import count, refuse_few
from imperfed.flower.site.last_answer import answer_once
from imperfed.flower.site.masked_shares import hold_back, unite
from imperfed.flower.site.privacy_ledger import charge
from imperfed.flower.site.reading_ledger import ReadingLedger
from imperfed.flower.site.refusals import log_refusal
from imperfed.flower.site.runtime import (
    REPAIRED,
    LocalSite,
    RemoteSite,
    hardware_of,
    keyed,
    on_device,
    open_site,
    own_files,
    refuse_few_between,
    rows_held_out,
)
from imperfed.flower.site.search_answers import agree, apply, calibrate, fit_family, keep, mix, settle
from imperfed.flower.site.site_folder import LOG
from imperfed.flower.site.site_results import finish
from imperfed.flower.site.store import key_in
from imperfed.flower.site.withheld import WithheldError
from imperfed.repairs.posterior import suited
from imperfed.results.folder import RunFolder
from imperfed.results.metrics import metrics

Handler = Callable[[LocalSite, Payload], Payload]


def hello(place: LocalSite, payload: Payload) -> Payload:
    """Return the site's name and what it holds, in numbers that describe no single row."""
    run_info = RunInfo.of(payload)
    config = run_info.config()
    files = place.files(config, run_info.declaration)
    refuse_few_between(place, run_info, config, files)
    held_out = rows_held_out(files, config)
    place.refuse_few_rows(config, len(files.x) - held_out)
    info = replace(files.info(config.split.standardise, held_out), digest=keyed(files.digest, place.secret))
    if info.sums or config.model.wanted_bins or questions(config.defence, files.attribute):
        refuse_few(place.name, len(files.x))
    return info_payload(info)


def answer(place: LocalSite, payload: Payload) -> Payload:
    """Answer one exchange, measure the model received, or both: one message does all that a round needs."""
    run_info = RunInfo.of(payload)
    round, number = payload.number("round"), payload.number("exchange")
    if round == REPAIR:
        return repair(place, run_info, number, bool(payload.number("trusted")), payload.trees.get("down", {}))
    is_trial = run_info.trial != NO_TRIAL
    ended = bool(ended_with(place, run_info.run))  # what it has left here stays as it is
    if not ended:
        place.forget_trials(run_info.run, run_info.alive)  # when the run itself begins, all of them
    remote = open_site(place, run_info, key_in(payload, "from")).on(hardware_of(place).device)
    store = place.states(run_info)
    words, trees = dict[str, Word](), dict[str, Tree]()
    if payload.number("evaluate"):
        # A search chooses by the rows held out; it never sees test rows.
        report = measure(remote, payload.trees.get("model") or payload.trees["down"], round - 1, tests=not is_trial)
        words |= scores_words(report.personal.get(0, {})) | validity_words(report.validation)
        if not ended:
            keep_figures(place, run_info, report, remote)
    if number != NO_EXCHANGE:
        refuse_other_rounds(place, remote, round)
        charge(remote, place, run_info, payload)
        update = respond(remote, payload.trees["down"], round, number)
        trees["up"] = update.up
        if remote.config.privacy is None:
            words["loss"] = update.loss
        if isinstance(remote.config.privacy, SumMechanism):
            hold_back(store, (round, number), payload, trees.pop("up"))
        report = RoundReport(round, (0,), {}, {})
        if isinstance(remote.runtime.spec.exchange(round, number), Train):
            store.save((round, number), remote.remembered())
            report.losses = {0: update.loss} if remote.config.privacy is None else {}
        report.sent = {name: tuple(t.shape) for name, t in update.up.items() if t.numel()}
        keep_figures(place, run_info, report, remote)
    if not ended:
        store.forget_before(key_in(payload, "base"), key_in(payload, "best"))
    return Payload(words, trees)


def refuse_other_rounds(place: LocalSite, remote: RemoteSite, round: int) -> None:
    """Refuse to train beyond the rounds to which the site has agreed."""
    rounds = remote.config.rounds.rounds
    if not OPENING <= round < rounds:
        raise WithheldError(Declined(f"{place.name} refuses round {round + 1}: it has agreed to {rounds} for this run"))


def measure(remote: RemoteSite, model: Tree, round: int, tests: bool = True) -> RoundReport:
    """Return the figures of a model on the rows that the site holds out and on its test rows, where there are such.

    `tests`: whether test rows may be looked at.
    """
    net, report = remote.load(model), RoundReport(round, (), {}, {})
    if remote.evaluator.sites and tests:
        report.personal = {0: remote.evaluator.site(0, net)}
    if (held := remote.data.federation.validation) is not None:
        report.validation = validate(net, held, 0)
        report.validity = {0: report.validation}
    return report


def respond(remote: RemoteSite, down: Tree, round: int, number: int) -> SiteUpdate:
    """Return a site's answer to an exchange, checked, after the site has kept its new state."""
    runtime, site = remote.runtime, remote.site
    exchange, device = runtime.spec.exchange(round, number), site.data.x.device
    down = on_device(down, device)
    if isinstance(exchange, WeightedGradient):
        net, data, route = remote.load(down), site.data, Route.of_one(site.data)
        g, losses = weighted_gradient(
            runtime.spec, data.x, data.labels, net, data.rows, route, torch.ones(1, device=device)
        )
        update = SiteUpdate({"g": g}, float(losses[0]), site.personal, {}, {})
    else:
        update = runtime.respond(site, down, round, number)
    if failure := update.check(site.memory, exchange, down):
        raise WithheldError(failure)
    site.keep(update)
    return update


def rehearse(place: LocalSite, payload: Payload) -> Payload:
    """Do everything that a round will need once, with a single step, and keep nothing: what cannot work fails now."""
    if (theirs := payload.text("version")) != __version__:
        raise RefusedError(
            f"it has imperfed {__version__}, and the coordinator {theirs}; install one version everywhere"
        )
    run_info, (round, number) = RunInfo.of(payload), (payload.number("round"), payload.number("exchange"))
    hardware = hardware_of(place)
    place.log(f"{_now()} {place.name} computes on {hardware.described()['device']}")
    remote = open_site(place, run_info, key_in(payload, "from")).on(hardware.device)
    local = replace(remote.runtime.spec.local, steps=1, epochs=0, min_steps=0, max_steps=0)
    remote.runtime.spec = replace(remote.runtime.spec, local=local)
    measure(remote, payload.trees.get("model") or payload.trees["down"], round - 1)
    respond(remote, payload.trees["down"], round, number)
    return Payload({"done": 1})


def repair(place: LocalSite, run_info: RunInfo, number: int, trusted: bool, down: Tree) -> Payload:
    """Answer one exchange of a repair, from the labels as given. What the site computes stays in its store."""
    config, store = run_info.config(), place.store(run_info.run)
    federation = own_files(place, run_info, config).data(run_info.scale).federation
    kind = type(federation.labels)
    method = None if config.repair is None else suited(config.repair, kind)
    if method is None or kind is not method.labels:
        raise UsageError(f"this repair is not made for {kind.kind} labels, which the site holds")
    exchanges = method.conversation(federation.classes, trusted)
    if number == 0:
        store.drop("repair-*")  # of a repair that was broken off
    before = store.latest_before("repair", number) if number else {}
    if before is None:
        raise DataError(f"{store.path}: what the site computed earlier in this repair is missing; start the run again")
    memory = dict(before)
    up = exchanges[number].respond(SiteView(run_info.index, federation.x, federation.labels, down, memory))
    if number == len(exchanges) - 1:
        store.keep(REPAIRED, memory)
        store.drop("repair-*")  # features of all rows, which are no longer needed
    elif number == 0 or memory.keys() != before.keys() or any(memory[name] is not before[name] for name in memory):
        store.keep(f"repair-{number:06}", memory)  # most of several hundred exchanges leave it as it is
    return Payload({}, {"up": up})


def keep_figures(place: LocalSite, run_info: RunInfo, report: RoundReport, remote: RemoteSite) -> None:
    """Add the site's own lines to its `metrics.jsonl`; if an exchange is repeated, its last lines count.

    The rounds of a trial are not rounds of the run.
    """
    if run_info.trial != NO_TRIAL:
        return
    folder, names = RunFolder(place.state / run_info.run), (place.name,)
    folder.path.mkdir(parents=True, exist_ok=True)
    lines = metrics(report, names, names, figure=remote.data.federation.labels.validity_name())
    folder.append(line for line in lines if not line["metric"].startswith("bytes/"))


def leave(place: LocalSite, payload: Payload) -> Payload:
    """End a run: write the site's own results, once, and for `imperfed join` what has to be said about them.

    `join` draws the report, when it is connected no more: the other sites need not wait for that.
    """
    run_info, model = RunInfo.of(payload), digest(payload.trees["model"])
    if before := ended_with(place, run_info.run):
        if model != before:
            why = f"another model at the end of {run_info.run}: it has ended here, and its results stay as they are"
            raise WithheldError(Declined(f"{place.name} refuses {why}"))
        place.has_results(run_info.run)  # whoever joined again to hear of the end has heard of it
        return Payload({"done": 1})
    try:
        done = finish(place, run_info, key_in(payload, "from"), payload)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        place.end(run_info.run, f"{place.name} could not write its results ({reason}); join again to try again")
        raise
    end(place, run_info.run, model)
    if never := payload.words.get(NEVER):
        place.end(run_info.run, f"{place.name} failed in every round: {never}; {place.state / LOG} says more")
    place.has_results(run_info.run)
    return done


HANDLERS: dict[str, Handler] = {
    "query.hello": hello,
    "query.count": count,
    "query.ready": rehearse,
    "query.unite": unite,
    "query.answer": answer,
    "train": answer,
    "evaluate": answer,
    "query.apply": apply,
    "query.agree": agree,
    "query.calibrate": calibrate,
    "query.alone": fit_family,
    "query.mix": mix,
    "query.settle": settle,
    "query.keep": keep,
    "query.judge": judge,
    "query.leave": leave,
    "query.audit": write_own_audit,
}
ALWAYS_NEW = ("query.hello", "query.ready", "query.leave")
"""Messages that are cheap to answer, or whose answer may be another one the next time."""


def handle(place: LocalSite, kind: str, records: RecordDict) -> Payload:
    """Return a handler's answer, or why there is none; a reason that could quote a row stays in the site's log."""
    try:
        with one_thread():
            payload = unpack(records)
            reading = admit(place, kind, payload)
            count_question(place, kind, payload)
            handler = HANDLERS[kind]
            answer = handler(place, payload) if kind in ALWAYS_NEW else answer_once(place, kind, payload, handler)
            ReadingLedger.read(place.state).answered(reading).write(place.state)
            return answer
    except WithheldError as error:
        if isinstance(error.failure, Declined):
            log_refusal(place, error.failure.reason, described(place, RunInfo.of(payload)))
        return failure_payload(error.failure)
    except Exception as error:
        place.log(f"{_now()} {kind}: {traceback.format_exc().rstrip()}")
        may_be_sent = isinstance(error, ImperfedError) and not isinstance(error, DataError)
        return failure_payload(Crashed(str(error) if may_be_sent else f"{type(error).__name__}; its log says why"))


def make_app(place_of: Callable[[Mapping[str, object]], LocalSite]) -> ClientApp:
    """Return the app of a site; `place_of` returns the site from the node's configuration."""
    app = ClientApp()

    def reply(message: Message, context: Context) -> Message:
        place, kind = place_of(context.node_config), message.metadata.message_type
        payload = handle(place, kind, message.content)
        asked = str(message.content.config_records[WORDS].get(ASKED)) if WORDS in message.content else ""
        content = pack(replace(payload, words={**payload.words, ASKED: asked}))
        place.log(
            f"{_now()} {kind} {message.metadata.group_id}: received {size(message.content)} bytes, "
            f"sent {size(content)}: {', '.join(payload.parts())}"
        )
        return Message(content, reply_to=message)

    for kind in HANDLERS:
        category, _, action = kind.partition(".")
        register = getattr(app, category)
        register(*([action] if action else []))(reply)
    return app


def _now() -> str:
    return datetime.now().isoformat(timespec="seconds")
