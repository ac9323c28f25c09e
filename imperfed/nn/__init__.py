"""Numerical building blocks shared by several methods: losses, embeddings, optimizers, second derivatives."""
