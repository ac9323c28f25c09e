"""Data: reading it, splitting it over sites, and making its labels imperfect."""
