"""Reading data, splitting it across sites, and making its labels imperfect."""
