"""The contract between an algorithm and the engine that runs it.

An algorithm defines what a site does in one local step and what the server does with the answers. The engine owns
loops, batches, devices, seeds, messages and checkpoints. All memory is in flat dictionaries of named tensors (`Tree`):

    server    what the server remembers                          "w": shared weights [S], "buffers": shared buffers
    down      what a site receives                               "w", "buffers" and what `Exchange.send` adds
    up        what a site answers                                "w", "buffers" and what `Algorithm.reply` adds
    memory    what a site remembers and never sends              set up by `Algorithm.init_site`
    rows      what a site remembers about each example           set up by `Objective.init_rows`

A local step keeps fixed shapes and never waits for the host: no `.item()`, no boolean indexing, no branch on a tensor.
"""
