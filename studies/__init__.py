"""Scripts that make the larger tables of the papers: `python -m studies.NAME --help` from the project's folder."""
