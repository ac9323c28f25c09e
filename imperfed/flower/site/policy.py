"""A site's policy: what the site lets a coordinator ask for. It is the site's own file, and no message changes it."""

from __future__ import annotations

import math
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from imperfed.core.errors import UsageError, not_negative, positive, unknown
from imperfed.data.files.blanks import matches
from imperfed.data.files.declaration import parse
from imperfed.data.files.problems import listed, shown
from imperfed.data.files.wildcards import declared_columns, refuse_patterns
from imperfed.experiments.config import Config
from imperfed.experiments.resolving import resolve
from imperfed.experiments.values import typed
from imperfed.flower.site.site_folder import MOST_BYTES

Names = tuple[str, ...]
ANYTHING: Names = ("*",)


@dataclass(frozen=True)
class Allowed:
    """What one setting may be: one of a list of values, or a number within bounds."""

    values: tuple[Any, ...] | None = None
    least: float = float("-inf")
    most: float = float("inf")

    @classmethod
    def of(cls, key: str, entry: Any) -> Allowed:
        """Read it from an entry of [settings]: a value, a list, or { least = ..., most = ... }."""
        if not isinstance(entry, Mapping):
            return cls(tuple(entry) if isinstance(entry, list) else (entry,))
        for name in entry.keys() - {"least", "most"}:
            raise unknown(f"bound of {key}", name, ("least", "most"))
        return cls(None, **{name: typed(bound, float, f"{key}.{name}") for name, bound in entry.items()})

    def objection(self, value: Any) -> str:
        """Return what is wrong with a value; empty if nothing is."""
        if self.values is not None:
            plain = list(value) if isinstance(value, tuple) else value
            return "" if plain in self.values else f"one of {listed([*map(str, self.values)])}"
        if isinstance(value, int | float) and self.least <= value <= self.most:
            return ""
        return f"a number from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class SitePolicy:
    """What a coordinator may ask of this site. In lists of names, `*` stands for any characters."""

    smallest_batch: int = 8
    rows_per_step: int = 4
    most_rounds: int = 1000
    most_readings: int = 1
    most_runs: int = 100
    most_bytes: int = MOST_BYTES
    most_weights: int = 100_000_000
    methods: Names = ANYTHING
    objectives: Names = ANYTHING
    models: Names = ANYTHING
    repairs: Names = ANYTHING
    defences: Names = ANYTHING
    columns: Names = ANYTHING
    modules: Names = ()
    search: bool = True
    most_epsilon: float = 0.0
    delta: float = 1e-5
    settings: Mapping[str, Allowed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive("policy", smallest_batch=self.smallest_batch, most_rounds=self.most_rounds)
        positive("policy", most_readings=self.most_readings, most_runs=self.most_runs)
        positive("policy", most_bytes=self.most_bytes, most_weights=self.most_weights)
        not_negative("policy", rows_per_step=self.rows_per_step, most_epsilon=self.most_epsilon)
        positive("policy", delta=self.delta)

    @classmethod
    def read(cls, path: Path) -> SitePolicy:
        """Read a policy.toml; an error names the file and the key."""
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls.of(entries)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: not a TOML file ({error})") from error
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> SitePolicy:
        """Return a policy from the entries of a file."""
        kinds = {**typing.get_type_hints(cls)}
        values: dict[str, Any] = {}
        for key, entry in entries.items():
            if key not in kinds:
                raise unknown("key of a policy", key, kinds)
            if key == "settings":
                if not isinstance(entry, Mapping):
                    raise UsageError('settings is a table: [settings], with lines such as "local.lr" = [0.01, 0.1]')
                values[key] = {name: Allowed.of(name, one) for name, one in entry.items()}
            elif kinds[key] == Names and not isinstance(entry, list):
                raise UsageError(f"{key} takes a list of names; got {shown(entry)}")
            else:
                values[key] = typed(entry, kinds[key], key)
        return cls(**values)

    # -- what a run asks for --------------------------------------------------------------------------------------

    def objections(self, settings: str, declaration: str, search: bool) -> list[str]:
        """Return why a run is refused, setting by setting; modules first, since nothing may be imported before."""
        sections = tomllib.loads(settings)
        if strange := list(self._modules(sections)):
            return strange
        config = resolve(sections)
        searched = "a search by auto (search = false)"
        return [
            *([] if self.search or not search else [f"{searched}: this site takes part in runs of one method only"]),
            *self._names(config),
            *self._numbers(config),
            *(self._privacy(config, search) if self.most_epsilon else ()),
            *self._settings(config),
            *(self._columns(declaration) if declaration else ()),
        ]

    def _modules(self, sections: Mapping[str, Any]) -> Iterator[str]:
        for setting, text in _texts(sections):
            for name in text.split("+"):
                if ":" in name and not _any_matches(self.modules, name):  # `package.module:name` is imported and called
                    yield (
                        f"{setting} = {shown(name)}: this site imports what its own policy names, and nothing else "
                        "(modules)"
                    )

    def _names(self, config: Config) -> Iterator[str]:
        own = config.method.objective
        asked = {
            "methods": ("run.method", config.run.method),
            "objectives": ("run.objective", config.run.objective or ("" if own is None else own.name)),
            "models": ("model.name", config.model.name),
            "repairs": ("run.repair", config.run.repair),
            "defences": ("run.defence", config.run.defence),
        }
        for key, (setting, name) in asked.items():
            allowed: Names = getattr(self, key)
            if name and not _any_matches(allowed, name):
                yield f"{setting} = {shown(name)}: this site allows {listed(allowed) or 'none'} ({key})"

    def _numbers(self, config: Config) -> Iterator[str]:
        batch, rounds = config.local.batch, config.rounds.rounds
        if batch < self.smallest_batch:
            yield (
                f"local.batch = {batch}: this site asks for {self.smallest_batch} or more, since the fewer rows a step "
                "has, the more its update gives away (smallest_batch)"
            )
        if rounds > self.most_rounds:
            yield f"rounds.rounds = {rounds}: this site takes part in {self.most_rounds} at most (most_rounds)"

    def _privacy(self, config: Config, search: bool) -> Iterator[str]:
        privacy, most = config.privacy, f"(most_epsilon = {self.most_epsilon:g})"
        if search:
            yield f"a search by auto: it has no noise, and this site sends nothing without {most}"
        elif privacy is None:
            yield f"run.privacy = none: this site sends updates with noise only, such as privacy=site {most}"
        elif not 0 < privacy.epsilon_max <= self.most_epsilon:
            yield f"privacy.epsilon_max = {privacy.epsilon_max:g}: this site asks for a limit {most}"
        elif privacy.delta > self.delta:
            yield f"privacy.delta = {privacy.delta:g}: this site allows {self.delta:g} at most (delta)"
        if config.run.repair:
            yield f"run.repair = {shown(config.run.repair)}: what a repair sends has no noise {most}"
        if config.model.wanted_bins:
            yield f"model.name = {shown(config.model.name)}: counts for its bins have no noise {most}"

    def _settings(self, config: Config) -> Iterator[str]:
        flat = config.flat()
        for name, allowed in self.settings.items():
            if name in flat and (wanted := allowed.objection(flat[name])):
                yield f"{name} = {shown(flat[name])}: this site allows {wanted} (settings)"

    def _columns(self, text: str) -> Iterator[str]:
        declaration = parse(text)
        if why := refuse_patterns(declaration):
            yield why
        refused = [one for one in declared_columns(declaration) if not _any_matches(self.columns, one)]
        if refused:
            what = f"column{'s' if len(refused) > 1 else ''} {', '.join(map(shown, refused))}"
            yield f"{what}: this site allows {listed(self.columns) or 'none'} (columns)"

    def few_rows(self, config: Config, rows: int) -> str:
        """Return why a site with so few rows refuses to train; empty if it does not."""
        batch, left_out = config.local.batch, config.method.leaves_out
        fewest = rows // -(-rows // batch) if rows else 0
        if math.floor((1 - left_out) * fewest + 1e-4) >= self.rows_per_step:
            return ""
        without = f", of which {config.run.method} leaves out up to {left_out:.0%}" if left_out else ""
        return (
            f"local.batch = {batch}: with {rows} rows a step would rest on {fewest}{without}, and this site asks for "
            f"{self.rows_per_step} or more (rows_per_step)"
        )


def _texts(sections: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text in the settings: which of them may be import paths depends on the methods that are installed."""
    for section, keys in sections.items():
        for key, value in keys.items():
            texts = value if isinstance(value, list | tuple) else [value]
            if f"{section}.{key}" != "run.data":  # the coordinator's own path, which a site never reads
                yield from ((f"{section}.{key}", text) for text in texts if isinstance(text, str))


def _any_matches(patterns: Names, name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


TEMPLATE = """\
# What a coordinator may ask of this site: imperfed join ... --policy policy.toml
# A run within these bounds is joined without a question; anything else is refused, at both ends by name.
# In lists of names, * stands for any characters. The values below are those that hold without a policy.

smallest_batch = {smallest_batch}      # rows of a local step: of one row alone, the update gives everything away
rows_per_step = {rows_per_step}       # rows that a step really has, where the site has few or the last batch is short
most_rounds = {most_rounds}
most_readings = {most_readings}       # ways to read and split the rows (declaration, split, data seed), in all runs
most_runs = {most_runs}         # runs in one state folder
most_bytes = {most_bytes}   # of one message
most_weights = {most_weights}  # parameters of a model
methods = ["*"]         # such as ["fedavg", "fedprox", "pfed*"]
objectives = ["*"]      # of those that a run names
models = ["*"]          # such as ["mlp", "cnn"]
repairs = ["*"]         # [] allows none
defences = ["*"]
columns = ["*"]         # columns of this site's files that may be read: inputs, labels, ids, groups
modules = []            # import paths that may be imported here, such as ["ourmodels.nets:small"]
search = true           # whether auto may try several methods, models and settings, each within these bounds
most_epsilon = 0.0      # above 0: only runs with privacy, and so much epsilon in all of them together
delta = 1e-5            # for which this epsilon is counted

[settings]              # any other setting: a value, a list of values, or bounds
# "local.lr" = {{ least = 0.0001, most = 0.5 }}
# "local.optimizer" = ["sgd", "adam"]
"""


def template() -> str:
    """Return a commented policy.toml with the defaults."""
    return TEMPLATE.format(**{one.name: getattr(SitePolicy(), one.name) for one in fields(SitePolicy)})
