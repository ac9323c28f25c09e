"""Figures of models and labels. Only this package and `data`, which creates it, read the truth."""
