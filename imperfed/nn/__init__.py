"""Numerical pieces that several methods share: losses, embeddings, second derivatives."""
