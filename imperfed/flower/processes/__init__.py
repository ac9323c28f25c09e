"""Flower's processes and ours around them: SuperLink, SuperNode, the gate, keys."""
