"""The interface of `import imperfed`: runs as Python calls, and their results as objects."""
