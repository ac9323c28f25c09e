"""FairFedPAPL: detect the sites that teach the model to treat one group unfairly, and leave them out.

Equation and line numbers: the thesis, chapter 5, Algorithm 8.

1. Inversion: from each site's update of the model, the server reconstructs rows that the site might have trained on.
2. Scores: f_n says how much more often reconstructed rows of the protected group have the unprivileged class as label.
3. Split: 2-means cuts the scores in two, and a guard decides whether the cut is significant.
4. Trust: a site in the higher group loses confidence, the others gain. Only sites with enough confidence are merged.

    symbol                  where it lives                                  does it travel
    h^r, h_n                sent["w"], updates["w"]                         down, up
    v_n                     fairfedpapl.py, computed from both              never
    D_rep                   `Reconstruction` of nn/inversion.py             never: computed by the server
    f_n                     memory["f"], smoothed over rounds               never
    q_n                     memory["q"], confidence in a site               never
    rho, theta, kappa       settings                                        never
    g_t, y_u                settings target, unprivileged                   never: known to the server

    file                    part of the thesis
    fairfedpapl.py          Algorithm 8: the settings, the scores, the trust
    nn/inversion.py         Eq. 5.2, Alg. 8, line 5
    evidence.py             the scores f_n, Alg. 8, line 6
    splitting.py            2-means, Alg. 8, line 9, and its guards

`variant = "thesis"` is Algorithm 8 as written: v_n = (h_n - h) / eta, although that is minus a gradient, matched by
gradients at h_n; f_n is the equal-opportunity difference of h_n on the reconstruction; every round is split, by the
scores of that round alone; q_n is frozen outside theta. The thesis does not say which group of scores is the bad one or
which optimiser its descent uses; both variants take the higher group, and Adam.

Departs from the thesis, by default (`variant = "ours"`), in: the sign of v_n; gradients at the global model h; f_n is
one of the scores in evidence.py; scores are smoothed over rounds; a guard may decide that there is no split, and then
no confidence changes; a trusted site can still lose its trust. In both variants h is the model sent to the site,
2-means is exact, and a site whose score is undefined is left out of the split of that round.
"""

from imperfed.defences.fairfedpapl.fairfedpapl import FairFedPAPL

__all__ = ["FairFedPAPL"]
