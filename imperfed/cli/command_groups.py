"""The list of commands in `imperfed --help`, by what somebody wants to do."""

from __future__ import annotations

import click
import typer.core

GROUPS = {
    "See what you have": ("example", "inspect", "audit", "repair"),
    "Train": ("run", "compare", "sweep", "resume"),
    "Look at results and use them": ("report", "evaluate", "predict", "export", "status", "watch", "leak"),
    "Real sites": ("keys", "serve", "join", "policy"),
    "Look up and extend": ("list", "show", "schema", "new"),
    "Papers and benchmarks": ("reproduce", "benchmark"),
}
"""The commands in the order in which they are listed."""
WIDEST = 100
"""More than the help of any command, so that none is cut; lines are wrapped instead."""


class GroupedCommands(typer.core.TyperGroup):
    """Lists commands by group; one that is in no group stands last."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section per group."""
        grouped = {name for names in GROUPS.values() for name in names}
        further = tuple(name for name in self.commands if name not in grouped)
        for heading, names in {**GROUPS, "Further": further}.items():
            if names:
                with formatter.section(heading):
                    formatter.write_dl([(name, self.commands[name].get_short_help_str(WIDEST)) for name in names])
