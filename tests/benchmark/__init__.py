"""The benchmark of the field."""
