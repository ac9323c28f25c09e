"""The contents of a federation's files, site by site, before anything is trained."""
