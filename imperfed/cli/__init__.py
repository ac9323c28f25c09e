"""The command line, and how runs look on a terminal."""
