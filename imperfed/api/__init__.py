"""What `import imperfed` offers: runs as Python calls, and their results as objects."""
