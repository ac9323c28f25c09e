"""What a run leaves: its folder, models, labels, metrics and summary."""
