"""Which hooks of a base class a class defines itself; backends take shortcuts where a hook has its default."""

from __future__ import annotations


def overridden_hooks(cls: type, base: type) -> frozenset[str]:
    """Return the names of the base class's public methods that a class replaces, itself or by one of its parents."""
    hooks = {name: hook for name, hook in vars(base).items() if callable(hook) and not name.startswith("_")}
    return frozenset(name for name, hook in hooks.items() if getattr(cls, name) is not hook)
