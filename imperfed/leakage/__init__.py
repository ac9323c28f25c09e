"""What a curious coordinator could reconstruct from what a site sends in one round of a run.

observed.py         what the coordinator sends and receives, taken from the engine's own exchanges
first_layer.py      rows as quotients of gradients of a layer that stands on the inputs: exact where it applies
chosen_weights.py   weights that a dishonest coordinator sends to single out rows
label_shares.py     labels from the gradient of the last layer's bias
curious.py          what the coordinator knows about a site's round, and its attacks
visited.py          the truth: the rows and labels that the site really visited
matching.py         the comparison of reconstructions with these rows, and with rows that the site never saw
one_site.py         the attacks on one site, beside the truth
leak_run.py         from a run's folder, or from settings alone, to the result
"""
