"""FedALC: federated averaging by exploring label correlations, and FedALC-fixed.

Paper: An et al., "Federated learning with only positive labels by exploring label correlations". Equation numbers: the
journal version. Every row carries one known class, and a site usually holds one class only: training on the positive
loss alone (Eq. 14, `positive_hinge.py`) would let all class embeddings collapse into one.

1. Label collection, once: sites send keyed digests of their examples and labels. The server counts how often two
   classes occur together, without seeing an example.
2. FedALC: after every round of FedAwS the server pushes the class embeddings apart, two classes that rarely occur
   together harder than two that often do.
   FedALC-fixed: the server learns the class embeddings once from the counts, before round 0; sites train only theta.

    symbol       where it lives                          does it travel
    theta        server["w"] without its head            down and up, mean of all
    W            the head of server["w"], [C, D]         FedALC: down and up; fixed: down and up, unmoved
    w_y          a row of W                              in the paper alone, where class y is held
    g_0(x)       label_collection.py, float64            never: the representation of the common initial model
    M_i          digests.py                              up, once
    n_u, co_uu'  correlations.py, counts at the server   never
    sigma_uu'    correlations.py, Eq. 9                  never
    N_K(u)       nn/embeddings.py, in each round         never

    file                  part of the paper
    fedalc.py             FedALC: Algorithm 1, Eqs. 8 to 11
    fixed.py              FedALC-fixed: Sec. IV-C, Algorithm 2, Eq. 12
    label_collection.py   Sec. IV-E; Algorithm 1, lines 6 to 10
    digests.py            the keyed digests for it
    correlations.py       Eqs. 9, 10 and 12: counts of pairs of classes, weights and forces computed from them

What FedALC shares with FedAwS (`fedaws.py`) and FedAvg-fixed (`fedavg_fixed.py`) is in `_class_embeddings.py` and
`_private_rows.py`.

Departs from the paper in: the weights gamma of Eq. 10 are multiplied by C - 1, so that their mean is 1 and lambda means
the same as in FedAwS; the margin nu is 1 also with neighbours (see FedAwS); the step sizes are FedAwS's; reg_fc
(Eq. 12) is expressed by counts of pairs of classes, so that the cost of a step does not depend on the number of
examples; digests are keyed, and noise is added to the counts instead of to every gradient (see label_collection.py).
"""

from imperfed.algorithms.fedalc.fedalc import FedALC
from imperfed.algorithms.fedalc.fixed import FedALCFixed

__all__ = ["FedALC", "FedALCFixed"]
