"""The engine, which runs any algorithm: rounds, sampling, seeds, messages, failures, checkpoints."""
