"""Figures of models and labels. With `data`, which makes it, the only reader of the truth."""
