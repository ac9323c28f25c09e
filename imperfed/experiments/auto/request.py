"""What `auto` is asked for: the settings that a user has fixed, and how long the search may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from imperfed.core.errors import UsageError
from imperfed.data.sources import sources
from imperfed.experiments.config import AUTO, Config
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.resolving import resolve
from imperfed.experiments.values import typed

BUDGET = 5.0
"""Minutes of a search on two cores of an ordinary machine."""
HELD_OUT = 0.2
"""The share of its rows that each site holds out during the search."""
PLAIN = "fedavg"
"""The method whose settings stand for those of any method, until one is chosen."""
OWN = {"method", "run.method", "objective", "run.objective", "budget", "auto.budget"}


@dataclass(frozen=True)
class AutoRequest:
    """The settings of a file and the words of a user, which the search leaves as they are, and its budget."""

    file: Mapping[str, Mapping[str, Any]]
    words: Mapping[str, Any]
    budget: float = BUDGET
    objects: Objects = NO_OBJECTS
    """Parts that were handed over from Python; neither a method nor a model is among them."""

    @classmethod
    def of(
        cls, file: Mapping[str, Any] | None, words: Mapping[str, Any], objects: Objects = NO_OBJECTS
    ) -> AutoRequest | None:
        """Return the request if the settings name `auto` as their method; None if they name another one."""
        file = file or {}
        in_file, named = file.get("run", {}), objects.names
        if named.get("run.method", words.get("run.method", words.get("method", in_file.get("method")))) != AUTO:
            return None
        if objects.model is not None:
            raise UsageError(
                "model: auto compares models that can be built from a name; name a method for this object, such as "
                "imperfed.run('fedavg', model=...)"
            )
        in_words = words.get("objective", words.get("run.objective", in_file.get("objective")))
        if objective := named.get("run.objective", in_words):
            raise UsageError(f"auto chooses the objective itself; leave {objective!r} out, or name a method")
        minutes = words.get("auto.budget", words.get("budget", file.get("auto", {}).get("budget", BUDGET)))
        budget = typed(minutes, float, "auto.budget")
        if not budget > 0:
            raise UsageError(f"auto.budget: minutes above 0; got {budget:g}")
        kept = {section: entries for section, entries in file.items() if section not in ("auto", "method", "objective")}
        kept["run"] = {key: value for key, value in kept.get("run", {}).items() if key not in ("method", "objective")}
        return cls(kept, {key: value for key, value in words.items() if key not in OWN}, budget, objects)

    def config(self, method: str, settings: Mapping[str, Any]) -> Config:
        """Return the settings of a trial; what the user has fixed is kept."""
        return resolve(self.file, {**settings, **self.words, "method": method}, self.objects)

    @cached_property
    def base(self) -> Config:
        """The settings before anything is chosen."""
        return self.config(PLAIN, {})

    @cached_property
    def fixed(self) -> frozenset[str]:
        """The settings that the user has fixed, as section.key."""
        words, default = self.base.flat(), resolve(words={"method": PLAIN, "data": self.base.run.data}).flat()
        named = {f"{section}.{key}" for section, entries in self.file.items() for key in entries}
        named |= {*self.objects.names, *self.objects.settings}
        last = {word.rpartition(".")[2] for word in self.words}
        return frozenset(
            name
            for name in words
            if name in named or name.rpartition(".")[2] in last or words[name] != default.get(name)
        )

    def plain(self) -> dict[str, Any]:
        """Return the request as plain values, from which `read` makes it again."""
        words = {**self.words, **self.objects.names, **self.objects.settings}
        return {"file": {s: dict(e) for s, e in self.file.items()}, "words": words, "budget": self.budget}

    def tracked_by(self, track: str) -> AutoRequest:
        """Return the request with another tool that tracks the run."""
        words = {key: value for key, value in self.words.items() if key not in ("track", "run.track")}
        return replace(self, words=words | {"track": track})

    def without_public(self) -> AutoRequest:
        """Return the request with no test inputs given to the server, unless the user or a built-in dataset says so."""
        if "split.public" in self.fixed or self.base.run.data in sources():
            return self
        return replace(self, words={**self.words, "split.public": 0})

    @classmethod
    def read(cls, values: Mapping[str, Any], objects: Objects = NO_OBJECTS) -> AutoRequest:
        """Return the request from its plain values; `objects`: classes that are handed over again."""
        return cls(values["file"], values["words"], float(values["budget"]), objects)
