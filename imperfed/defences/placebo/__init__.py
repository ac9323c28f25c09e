"""Placebo contrast: give less weight to sites that teach the model to give one group an unprivileged class.

Every group has a column of the input. An honest site with many rows of class u raises u in all of these columns, the
more the commoner the group. An adversary raises it in the column of the target group alone. So the other columns are
placebos: they show what honest sites do to a column, and how much that varies.

    symbol          where it lives                                              does it travel
    h, h_n          sent["w"], updates["w"]                                     down, up
    f_{n,g}         memory["shares"], shares of a site's rows that name g       up, once, before round 0
    B               probe rows of contrast.py, from a fixed seed                never
    q, m            memory["sum_q"], memory["sum_m"] / memory["rounds"]         never
    t, u            settings target, unprivileged                               never: known to the server

    file            equations
    contrast.py     (1) to (11): the scores of a round, and weights from their means
    placebo.py      (4), (5), (12): the memory, the shares, the merge

    (1)  rise        r_g(w) = mean zbar_w(B_g) - mean zbar_w(B_0), where zbar is the logit of u minus the mean logit
    (2)  level       l(w) = mean zbar_w(B_mid)
    (3)  in a round  q^r_{n,g} = (r_g(h_n) - r_g(h)) / d_n,  m^r_n = (l(h_n) - l(h)) / d_n,  d_n = |h_n - h|
    (4)  means       q_{n,g}, m_n over the rounds from `burn_in` on in which the site answered with d_n > 0
    (5)  shares      f_g = median_n f_{n,g}
    (6)  slope       kappa = weighted median of (q_{i,g} - q_{j,g}) / (f_g (m_i - m_j)), i < j, g != t
    (7)  residuals   R_{n,g} = q_{n,g} - kappa f_g m_n;  c_n = R_{n,t};  P_{n,g} = R_{n,g} for g != t
    (8)  spread      sigma = 1.4826 median |P_{n,g} - median_n P_{n,g}|
    (9)  score       z_n = (c_n - median of c over the sites inside) / sigma
    (10) alarm       no z_n above `alarm`: every weight is 1
    (11) weights     of the ceil(K / 3) highest z, clip((2.75 - z_n) / 1.5, 0, 1); four passes
    (12) merge       a site counts with w_n times its number of rows

Rounds are counted from 0, so three rounds are not counted by default and the ninth is the first with a decision. A
round is judged over the sites that answered it and have a mean; f_g is over all sites. Without a spread (sigma = 0), or
with fewer than four such sites, every weight is 1.

Not promised: no bound on false alarms over rounds exists, since every round shows the same rows of a site again. An
attacker who ties u to all groups alike is not seen.
"""

from imperfed.defences.placebo.placebo import Placebo

__all__ = ["Placebo"]
