"""The common part of the defences that protect one group of people from one class."""

from __future__ import annotations

from dataclasses import dataclass

from imperfed.core.components import Defence
from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Attribute


@dataclass(frozen=True)
class ProtectsGroup(Defence):
    """A defence of a named group, against one class."""

    target: str = ""  # g_t, the group to protect: a value of the sensitive attribute
    unprivileged: str = ""  # y_u, the class that the group must not be given more often than others

    def groups(self, attribute: Attribute | None) -> Attribute:
        """Return the sensitive attribute; refuse data without one."""
        if attribute is None:
            raise UsageError(f"{self.name} protects a group, but the data have no sensitive attribute")
        return attribute

    def roles(self, attribute: Attribute | None, classes: tuple[str, ...]) -> tuple[int, int]:
        """Return the input column of the target group and the index of the unprivileged class."""
        attribute = self.groups(attribute)
        self._refuse_unnamed(target=attribute.values, unprivileged=classes)
        group = self.pick("target", self.target, attribute.values)
        return attribute.first + group, self.pick("unprivileged", self.unprivileged, classes)

    def pick(self, setting: str, name: str, known: tuple[str, ...]) -> int:
        """Return the index of the name that a setting holds."""
        self._refuse_unnamed(**{setting: known})
        if name not in known:
            raise unknown(f"defence.{setting}", name, known)
        return known.index(name)

    def _refuse_unnamed(self, **known: tuple[str, ...]) -> None:
        """Refuse settings that hold no name, all at once; `known`: the names that each may hold."""
        unnamed = [setting for setting in known if not getattr(self, setting)]
        if unnamed:
            fixes = (f"defence.{setting} to one of {', '.join(known[setting])}" for setting in unnamed)
            raise UsageError(
                f"{self.name} protects one group and class, which must be named: set {' and '.join(fixes)}"
            )
