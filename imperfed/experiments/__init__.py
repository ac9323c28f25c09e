"""From settings to results: one run, several runs side by side, the tables of the papers."""
