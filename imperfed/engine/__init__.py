"""Runs any algorithm: rounds, sampling, seeds, messages, failures, checkpoints. Names no algorithm."""
