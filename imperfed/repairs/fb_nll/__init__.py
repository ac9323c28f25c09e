"""FB-NLL: groups of sites and corrected labels from features alone, once, before training.

Paper: FB-NLL, A Feature-Based Approach to Tackle Noisy Labels in Personalized Federated Learning.

1. Every site computes features phi(x) of its rows, and from them the M leading directions of their second moment.
2. Grouping: sites exchange directions through the server, and each scores how well the directions of every other site
   describe its rows. The server averages the two scores of each pair and clusters the sites into as many groups as
   there are tasks.
3. Calibration: from a few clean rows the server computes the directions of every class, and how far a row with a
   correct label may lie from its class. It sends both to the sites.
4. Correction, at the site. Phase 1: a label whose rows as a whole look like another class is renamed. Phase 2: a row
   whose features fit another class better than its own is given that class.

    symbol            where it lives         does it travel
    phi(x)            repairs/features.py    stays at the site
    S_i, lambda_i     spectra.py, Eq. 2      stay at the site
    V_i               spectra.py, Eq. 2      up to the server, and down to every other site
    R_{i<-j}          spectra.py, Eq. 5      up
    R_ij, groups      grouping.py, Eq. 6     stay at the server
    V_c of class c    calibration.py         down
    labels            correction.py          stay at the site, as given and as corrected

    file              part of the paper
    fb_nll.py         the settings and the whole method; FB-NLL(-), without correction, is `correct = false`
    spectra.py        Eqs. 2 to 7
    grouping.py       Algorithm 1, steps 2 to 14
    clusters.py       the hierarchical clustering at its end
    calibration.py    thresholds from the server's clean rows, in place of the paper's fixed ones
    correction.py     Procedure 2, both phases

Departs from the paper in: second moments are not centred (`center`); phase 1 requires a lead over the second-best clean
class, which the server calibrates, instead of a threshold (`phase1 = "paper"`); phase 2 changes a label only where the
margin is larger than on a share 1 - `gate` of the server's clean rows (`gate = 1` is the paper's rule).
"""

from imperfed.repairs.fb_nll.fb_nll import FBNLL

__all__ = ["FBNLL"]
