"""What a method is when nothing is set: another value is another method, and every figure of the pages would change."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from imperfed.algorithms import catalogue
from imperfed.attacks import attacks
from imperfed.defences import defences
from imperfed.privacy import mechanisms
from imperfed.repairs import repairs

STEPS = {"lr_theta": 0.5, "by_size": True, "one_pass": False}
AWS = (
    STEPS
    | {"lam": 10.0, "lr_server": 0.001, "lr_w": 0.1, "neighbours": 0, "nu": 1.0, "mined": False}
    | {
        "clip_w": 0.001,
        "drawn": 0,
        "noise_w": 0.0,
        "delta": 1e-5,
    }
)
COLLECTING = {"noise": 0.0, "hashed": "embedding", "most": 10, "delta": 1e-5}
FEDMATCH = {"tau": 0.75, "J": 2, "h_interval": 10, "helpers": "keep", "lambda_s": 10.0, "lambda_i": 0.01} | {
    "lambda_a": 0.01,
    "lambda_L1": 1e-4,
    "lambda_L2": 10.0,
    "l1_thres": 5e-6,
}
PRETRAINING = {"pretrain": 10, "dim": 0, "pred_dim": 0}
NAMED = {"target": "", "unprivileged": ""}
PLACEBO = {"burn_in": 3, "first_decision": 8, "probe_rows": 64, "alarm": 4.0}
FAIRFEDPAPL = (
    NAMED
    | {"variant": "ours", "score": "label", "dummy_rows": 100, "dummy_steps": 20, "dummy_lr": 0.1}
    | {
        "mu": 1e-4,
        "smoothing": 0.8,
        "guard": "",
        "deviations": 4.0,
        "gap": 0.3,
        "level": 0.01,
        "rho": 0.1,
        "theta_low": 0.1,
        "theta_high": 0.9,
        "kappa": 0.5,
        "freeze": "",
    }
)
PRIVATE = {"delta": 1e-5, "epsilon_max": 0.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.01, "aggregation": "weighted"},
    "scaffold": {"option": 2, "alpha": 1.0},
    "fedmom": {"beta": 0.9, "alpha": 1.0},
    "slowmo": {"beta": 0.5, "alpha": 1.0, "buffer_strategy": "reset"},
    "fednag": {"gamma": 0.9, "public_weight": 0.0},
    "mime": {"beta": 0.9, "lite": False, "form": "accumulate", "alpha": 1.0},
    "fastslowmo": {"gamma": 0.5, "gamma_a": 0.5, "form": "velocity"},
    "domo": {"mu_s": 0.9, "alpha": 1.0, "b": 0.9, "fusion": "start", "keep": False},
    "fedadc": {"beta_local": 0.9, "beta_global": 0.9, "alpha": 1.0, "nesterov": True},
    "pfedmo": {"gamma": 0.5, "pi": 1.0, "reading": "velocity", "representation": "continue", "aggregation": "weighted"}
    | {"score_on": "public", "scored": 64},
    "pfedpll": {"lci": True, "kl": True, "batches": 8, "size": 256},
    "lcp": {"lambda1": 1.0, "lambda2": 1.0, "lambda3": 1.0},
    "laar": {"alpha": 0.2, "lambda_mix": 1.0, "lambda_ga": 1.0, "global_grad": "pseudo"},
    "laar-disambiguation": {"mu": 0.99},
    "lw": {"psi": "ce", "beta": 1.0},
    "cavl": {"product": False, "smoothing": 0.0},
    "abs-gce": {"q": 0.7},
    "clpl": {"scores": "logits", "naive": False},
    "masked-bce": {"balance": True},
    "fedmlh": {"tables": 4, "buckets": 500},
    "flag": {"adapt": "rows"},
    "iml": {"balance": True},
    "fedssp": PRETRAINING,
    "fedmatch": FEDMATCH,
    "fedmatch-plus": FEDMATCH | PRETRAINING,
    "fixmatch": {"balance": True, "tau": 0.95, "lambda_u": 1.0, "rule": "cells"},
    "mixup-pme": {"balance": True, "a": 1.0, "counted": "either", "fill": "half", "tau": 0.95},
    "fedpsl": {"tdma": True, "tadl": True, "order": 2, "a": 0.001},
    "fedaws": AWS,
    "fedalc": AWS | COLLECTING | {"weights": "normalised"},
    "fedavg-fixed": STEPS,
    "fedalc-fixed": STEPS | COLLECTING | {"steps": 2000, "lr_fixed": 0.1, "alpha": 1.0, "beta": 1.0, "nu": 1.0},
    "ifca": {"clusters": 2, "weighted": False},
    "cfl": {"clusters": 4, "eps1": 0.4, "eps2": 1.6, "warmup": 20, "gamma": 0.0, "weighted": False},
    "clipfl": {"scoring": 10, "noisy": 0.3, "merge_flagged": False},
    "fedcorr": {
        "stage1": 5,
        "stage2": 50,
        "beta": 5.0,
        "neighbours": 20,
        "relabel": 0.5,
        "confidence": 0.5,
        "kappa": 0.1,
    },
    "fedlsr": {"gamma": 0.4, "warmup": 20, "lambda_e": 0.6, "jitter": 0.1},
    "fedned": {"warmup": 10, "excess": 1.2, "passes": 10, "inputs": 128, "steps": 100, "rate": 0.001}
    | {"temperature": 2.0, "confidence": 0.95},
    "fednoro": {"warmup": 10, "ramp_until": 49, "lambda_max": 0.8, "temperature": 0.8},
    "rhfl": {"ce": 0.1, "eta": 0.5, "public_batch": 64},
    "rofl": {"forget_rate": 0.2, "forget_rounds": 10, "pseudo_from": 100, "lambda_cen": 1.0, "lambda_e": 0.8},
    "alie": {"adversaries": 3, "z": 0.0},
    "ipm": {"adversaries": 3, "epsilon": 0.5},
    "scaled": {"adversaries": 3, "boost": 10.0},
    "sign-flip": {"adversaries": 3, "strength": 1.0},
    "plfa": {"adversaries": 3, "keep": "others"} | NAMED,
    "pafa": {"adversaries": 3, "keep": "set"} | NAMED,
    "mixup": {"adversaries": 3, "alpha": 0.5} | NAMED,
    "krum": {"adversaries": 3, "neighbours": "n-f-2"},
    "multi-krum": {"adversaries": 3, "neighbours": "n-f-2", "m": 0},
    "median": {"adversaries": 3},
    "trimmed-mean": {"adversaries": 3},
    "bulyan": {"adversaries": 1},
    "placebo": PLACEBO | NAMED,
    "fairfedpapl": FAIRFEDPAPL,
    "fairfedpapl+placebo": FAIRFEDPAPL | PLACEBO,
    "site": PRIVATE | {"clip": 1.0, "noise": 1.0},
    "sum": PRIVATE | {"clip": 10.0, "noise": 0.0},
    "fltrust": {"alpha": 1.0},
    "rfa": {"adversaries": 3, "steps": 4, "nu": 1e-5, "tolerance": 1e-6, "weights": "uniform"},
    "positive-hinge": {"threshold": 0.9},
    "posterior": {"clean_rows": "auto", "features": "auto", "insist": False},
    "fb-nll": {"groups": 1, "M": 10, "linkage": "average", "center": False, "correct": True, "phase1": "margin"}
    | {"threshold": 0.5, "gate": 0.05, "rank": 10, "features": "auto", "class_features": ""},
}


COMPONENTS = {**catalogue(), **repairs(), **attacks(), **defences(), **mechanisms()}
OURS = [name for name, kind in COMPONENTS.items() if kind.__module__.startswith("imperfed.") and fields(kind)]


@pytest.mark.parametrize("name", OURS)
def test_defaults(name: str) -> None:
    component = COMPONENTS[name]()
    values = {field.name: getattr(component, field.name) for field in fields(component)}
    plain = {setting: value for setting, value in values.items() if isinstance(value, bool | int | float | str)}
    assert plain == DEFAULTS.get(name, {})


def test_methods_that_mix_or_shake_inputs_say_so() -> None:
    """They cannot have sparse features, which are stored by their numbers."""
    names = {"fedcorr", "fedlsr", "fedmatch", "fedmatch-plus", "fedssp", "fixmatch", "laar", "mixup-pme"}
    assert {name for name in OURS if name in catalogue() and COMPONENTS[name].changes_inputs} == names
