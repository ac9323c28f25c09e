"""The processes around Flower: SuperLink, SuperNode, gate, keys."""
