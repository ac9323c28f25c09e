"""The command line, and how runs are shown on a terminal."""
