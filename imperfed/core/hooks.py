"""Which hooks of a base class are overridden; backends take shortcuts where a hook is the default."""

from __future__ import annotations


def overridden_hooks(cls: type, base: type) -> frozenset[str]:
    """Return the names of the base class's public methods that a class or one of its parents overrides."""
    hooks = {name: hook for name, hook in vars(base).items() if callable(hook) and not name.startswith("_")}
    return frozenset(name for name, hook in hooks.items() if getattr(cls, name) is not hook)
