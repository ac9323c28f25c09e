"""Larger than one process, or than its memory: `python -m benchmarks.scale PART`."""
