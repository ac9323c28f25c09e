"""A real site: its data, its answers, what it keeps and its results."""
