"""Posterior repair: which labels are wrong, and what they should be, from features and the labels themselves.

A method of imperfed's own. With clean rows at the server it is called B1 below, without them B2.

1. Axes: the sites' features are standardised and turned to their leading directions, all sites together.
2. Probe: logistic regression on these coordinates, in five folds, so that a row's logits never come from itself.
3. Noise: an EM algorithm finds the noise T that all sites share, then each site its own noise J_k near it. A row's
   posterior Q(y) weighs what its features say, R(y), by how often its site gives class y the label that the row has.
4. The probe is fitted again to the posteriors: twice with clean rows (after a fit on these alone), else twice after
   the fit on the labels as given.
5. Gate, at the site: a label is changed to the most probable class only where that leads by enough. With clean rows
   the sites and the server measure how many right labels a gate would harm; without, a site where little seems wrong
   is left alone.
6. Support: before, the sites compare the noise that they claim with what the first fit, on the labels as given, says
   of their surest rows. Where it does not support the noise, and clean rows do not either, labels stay as they are.
   This check is an addition to the equations.

    symbol                where it lives             does it travel
    x, z, a               axes.py, Eqs. 1-3          stay at the site; sums over its rows up
    mu, sd, V             axes.py, Eqs. 1-2          down
    W                     cross_fit.py, Eqs. 4-7     down; gradient sums up
    p, R, tau             noise_model.py, Eq. 8      stay at the site; sums of p up; tau and mean p down
    T, pi                 noise_model.py, Eqs. 9-11  down; expected counts N up
    J_k, Q, lead          noise_model.py, Eqs. 12-18 stay at the site
    likelihoods           noise_model.py, Eq. 17     up, one sum for each of 12 temperatures (B2)
    net_k(h)              gates.py, Eqs. 19-24       up, 41 numbers (B1); before: R of the clean rows down
    labels                posterior.py, Eqs. 24, 26  stay at the site, as given and as decided
    S, e, e_sk            set_model.py, Eqs. 27-33   S, e_sk stay at the site; e down; expected misses M up

    file              part of the method
    posterior.py      the settings, the order of the exchanges, the decision
    axes.py           moments and directions
    cross_fit.py      the probe
    noise_model.py    temperature, noise, posterior
    gates.py          which leads suffice
    support.py        whether features, or clean rows, support the noise
    set_model.py      the same for candidate sets, which may miss the true class
    set_posterior.py  their exchanges; they are ranked, and stay as they are

Everything is float64, on one thread per site: the same bits in one process and over messages.
"""

from imperfed.repairs.posterior.posterior import PosteriorRepair
from imperfed.repairs.posterior.set_posterior import SetPosterior, suited

__all__ = ["PosteriorRepair", "SetPosterior", "suited"]
