"""imperfed: federated learning from imperfect labels."""

__version__ = "0.1.0"
