"""Data in files of the user's own: a declaration says which column is what, and readers turn files into sites."""
