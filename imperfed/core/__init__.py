"""The contract between an algorithm and the engine that runs it.

An algorithm says what a site does in one local step and what the server does with the answers. The engine owns loops,
batches, devices, seeds, messages and checkpoints. All memory is in flat dictionaries of named tensors (`Tree`):

    server    what the server remembers                          "w": shared weights [S], "buffers": shared buffers
    down      what a site receives                               the server's "w", "buffers" and what `send` adds
    up        what a site answers                                "w", "buffers" and what `reply` adds
    memory    what a site remembers and never sends              opened by `Algorithm.open`
    rows      what a site remembers of each of its examples      opened by `Objective.open`

A local step keeps fixed shapes and never waits for the host: no `.item()`, no boolean indexing, no branch on a tensor.
"""
