"""The benchmark of the field: every method for a kind of labels on every dataset, tuned alike, and what it shows."""
