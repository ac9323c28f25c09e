"""A small grid of settings of one method: chosen by rows that the sites hold out, and only then tested."""
