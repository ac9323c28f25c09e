"""What the sites are told instead of the truth: wrong labels, candidate sets, missing annotations."""
