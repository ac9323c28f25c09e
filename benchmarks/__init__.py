"""Measurements of speed, memory and accuracy: `python -m benchmarks.cpu` and so on, from the root of the repository."""
