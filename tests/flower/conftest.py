"""Puts this folder on the path, so that settings can name the network of these tests."""
