"""The versions and the kind of machine that a run was made with."""

from __future__ import annotations

import platform
from typing import Any

from imperfed.experiments.config import Config
from imperfed.experiments.plugins import KEY, plugins_in


def environment(config: Config) -> dict[str, Any]:
    """Return versions and the kind of machine; nothing that identifies a person or a place."""
    import numpy
    import torch

    from imperfed import __version__
    from imperfed.engine.backends.task_pool import cores

    return {
        "imperfed": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": cores(),
        "threads per worker": 1,
        **({KEY: plugins} if (plugins := plugins_in(config)) else {}),
    }
