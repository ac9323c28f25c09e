"""From settings to results: one run, several runs compared, the tables of the papers."""
