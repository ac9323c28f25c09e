"""Numerical pieces that several methods share: losses, embeddings, optimizers, second derivatives."""
