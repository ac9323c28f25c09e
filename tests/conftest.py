"""Puts this folder on the path of every test below it, and makes property tests draw the same examples every time."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")
