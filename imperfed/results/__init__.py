"""The results of a run: its folder, models, labels, metrics and summary."""
