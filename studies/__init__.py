"""Scripts for the larger tables of the papers: `python -m studies.NAME --help` from the project folder."""
