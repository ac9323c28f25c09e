"""Puts this folder on the path of every test below it, and makes property tests draw the same examples every time."""

import os

from hypothesis import settings

# Tests fork workers, which a process that sees a GPU cannot (`engine/crew.py`). For tests/engine/test_gpu.py: set it.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")
