"""What the sites are given instead of the truth: noisy labels, candidate sets, missing annotations."""
