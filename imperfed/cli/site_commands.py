"""The commands for real sites: keys, serve, join, policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imperfed.cli import completion
from imperfed.cli.options import Budget, Features, Model, Rounds, Seed, Set
from imperfed.cli.screen import console
from imperfed.cli.typed_words import assigned, given

if TYPE_CHECKING:
    from imperfed.experiments.auto.request import AutoRequest
    from imperfed.experiments.config import Config
    from imperfed.results.folder import RunFolder

Keys = Annotated[Path | None, typer.Option("--keys", help="The folder that `imperfed keys` made for you.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="No keys and no encryption, even beyond this machine.")]


def keys(
    out: Annotated[Path, typer.Argument(help="A new folder, to hold one folder for the coordinator and one per site.")],
    sites: Annotated[str, typer.Option("--sites", help="The sites' names, comma-separated.")],
    host: Annotated[str, typer.Option("--host", help="Names and addresses of the coordinator, comma-separated.")],
    days: Annotated[float, typer.Option("--days", help="How long the certificates are valid.")] = 365,
) -> None:
    """Make the certificates and keys of a consortium in one step."""
    from imperfed.flower.processes.keys import make_keys

    names = _names(sites)
    expires = make_keys(out, names, _names(host), days)
    typer.echo(f"{out / 'coordinator'}: for the coordinator, known as {host}")
    for name in names:
        typer.echo(f"{out / f'site-{name}'}: for {name}, and nobody else")
    typer.echo(f"valid until {expires:%Y-%m-%d %H:%M} UTC; hand them over by a channel that others cannot read")


def serve(
    federation: Annotated[Path, typer.Argument(help="A federation.toml: labels and columns, the same for all sites.")],
    method: Annotated[
        str,
        typer.Argument(
            help="A method's name; audit: judge labels only; default: search for a method.",
            autocompletion=completion.served,
        ),
    ] = "auto",
    rounds: Rounds = None,
    model: Model = None,
    seed: Seed = None,
    settings: Set = [],  # noqa: B006 (never modified; the option parser needs a list)
    budget: Budget = None,
    features: Features = None,
    sites: Annotated[str, typer.Option("--sites", help="Sites that take part; default: all declared by name.")] = "",
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port to listen on.")] = 8443,
    keys: Keys = None,
    insecure: Insecure = False,
    patience: Annotated[float, typer.Option("--patience", help="Seconds for a site to answer in a round.")] = 600,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where the run's folder is created, or the folder of a run to continue; default: runs or audits.",
        ),
    ] = None,
) -> None:
    """Coordinate a run with real sites: wait for them, train, and write the run's folder.

    Without a method's name, search with the sites for the best model that can be had (`auto`). With `audit`, let the
    sites judge their labels; nothing is trained, and each site gets the findings about its own labels.
    """
    from imperfed.data.files.declaration import read_declaration
    from imperfed.flower.coordinator.serving import Service, begin, named
    from imperfed.flower.processes.keys import CoordinatorKeys
    from imperfed.label_audit.audit_folder import AUDITS
    from imperfed.label_audit.audit_settings import AUDIT

    declaration = read_declaration(federation)
    # No row leaves a site; images are standardised as declared.
    words = {"split.public": "0", "split.standardise": str(bool(declaration.inputs.standardise))}
    words |= assigned(settings) | given(rounds=rounds, model=model, seed=seed, budget=budget)
    config, request = _asked_for(method, str(federation), words, features)
    names = named(declaration, _names(sites), CoordinatorKeys.read(keys) if keys else None)
    key_folder = str(keys.resolve()) if keys else ""
    audit = method == AUDIT
    service = Service(str(federation.resolve()), names, host, port, key_folder, insecure, patience, audit)
    serve_on(begin(out or (AUDITS if audit else Path("runs")), config, service, request))


def _asked_for(
    method: str, data: str, words: dict[str, str], features: str | None
) -> tuple[Config, AutoRequest | None]:
    """Return the settings of a run or an audit, and what `auto` is asked for if it is to choose a method."""
    from imperfed.core.errors import UsageError
    from imperfed.experiments.auto.request import AutoRequest
    from imperfed.experiments.auto.run import settings_of
    from imperfed.label_audit.audit_settings import AUDIT, audit_config

    if method == AUDIT:
        if "budget" in words:
            raise UsageError("budget bounds the search of auto; an audit searches for nothing, leave it out")
        return audit_config(data, words | given(**{"repair.features": features})), None
    if features is not None:
        raise UsageError("--features belongs to an audit; in a run with a repair, write --set repair.features=NAME")
    words |= {"method": method, "data": data}
    request = AutoRequest.of(None, words)
    return (settings_of(None, words), None) if request is None else (request.base, request)


def serve_on(folder: RunFolder) -> None:
    """Continue a run with real sites; if it has ended, wait for sites that missed its end. An audit begins again."""
    from imperfed.cli.tables import run_table
    from imperfed.flower.coordinator.serving import Service, has_ended, serve_audit
    from imperfed.flower.coordinator.serving import serve as serve_run
    from imperfed.label_audit.audit_table import print_overview

    screen = console()
    if Service.of(folder).audit:
        print_overview(screen, serve_audit(folder, screen.print), folder.path)
        return
    try:
        if has_ended(folder):
            screen.print(f"{folder.path}: this run has already ended, and every site has its results")
        else:
            serve_run(folder, screen.print)
    finally:  # also where only a site has failed
        if (summary := folder.summary()) is not None:
            run_table(screen, summary, folder.path)


def join(
    coordinator: Annotated[str, typer.Argument(help="HOST:PORT of the coordinator.")],
    data: Annotated[Path, typer.Option("--data", help="The site's own file or folder.")],
    state: Annotated[Path, typer.Option("--state", help="A folder for the site's state, which never leaves it.")],
    test: Annotated[Path | None, typer.Option("--test", help="The site's own test file.")] = None,
    keys: Keys = None,
    insecure: Insecure = False,
    name: Annotated[str, typer.Option("--name", help="The site's name; default: that of its keys or its file.")] = "",
    device: Annotated[str, typer.Option("--device", help="Where the site trains: cpu or cuda.")] = "cpu",
    policy: Annotated[
        Path | None, typer.Option("--policy", help="What this site allows: a file that `imperfed policy` began.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept whatever the defaults allow, without a question.")
    ] = False,
) -> None:
    """Take part in a run as a site: answer the coordinator from the site's own rows.

    The run is shown first. It is joined if the site's policy allows it, or after a yes.
    """
    from imperfed.flower.site.joining import Joining
    from imperfed.flower.site.joining import join as join_run

    screen, accepts = console(), accept or policy is not None
    joining = Joining(coordinator, data, state, keys, name, test, insecure, device, policy, accepts)
    join_run(joining, screen.print, typer.confirm if sys.stdin.isatty() else None)


def policy(
    out: Annotated[Path, typer.Argument(help="The new file.")] = Path("policy.toml"),
) -> None:
    """Write a site's policy to begin with: what a coordinator may ask of the site, with a comment on every line."""
    from imperfed.core.errors import UsageError
    from imperfed.flower.site.policy import template

    if out.exists():
        raise UsageError(f"{out} exists already; give another name, or edit it")
    out.write_text(template(), encoding="utf-8")
    typer.echo(f"{out}: edit it, then imperfed join HOST:PORT ... --policy {out}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
