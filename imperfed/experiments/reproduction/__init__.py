"""Reproductions of the papers' tables and figures: their runs, results, standing, tables and drawings."""
