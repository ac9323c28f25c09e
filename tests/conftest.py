"""What holds for every test: no GPU unless asked for, and property tests that draw the same examples every time."""

import os

from hypothesis import settings

# Tests fork workers, which a process that has a GPU in use cannot. tests/engine/test_gpu.py needs it set to "0".
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")
