"""Datasets with several labels per example and sparse features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from imperfed.data.dataset import Dataset
from imperfed.data.source import Source
from imperfed.data.sparse import read_multilabel_mat

MULAN = "a set of the Mulan collection; the copy known here is GitHub SaltedPerson/CLML, {}; licence not stated."


def _read(name: str, path: str) -> Callable[[Path], Dataset]:
    return lambda folder: replace(read_multilabel_mat(folder / path), name=name)


def _source(name: str, title: str, file: str, original: str, digest: str) -> Source:
    path = f"multilabel/{file}"
    return Source(name, title, _read(name, path), MULAN.format(original), {path: digest})


CATALOGUE = (
    _source(
        "bibtex",
        "Bibtex, 7395 entries of a bibliography with 1836 word indicators and 159 tags",
        "bibtex.mat",
        "data/bibtex.mat",
        "56a905781b5b38c8d6e7803e91ff940f5b558e1e0289872f54d268e948114b75",
    ),
    _source(
        "enron",
        "Enron, 1702 e-mails with 1001 word indicators and 53 labels",
        "enron.mat",
        "data/enron.mat",
        "59abe116dc8d600eeef50f7cf652a4687c6142aea8ea055d25d186d688158f50",
    ),
    _source(
        "rcv1",
        "RCV1 subset 1, 6000 news articles with 101 topics; the 944 most useful word indicators of 47236",
        "rcv1subset1_top944.mat",
        "data/rcv1subset1_top944.mat",
        "b2ee886a52fc33753a246afd5025e5e1bc91be8bc95533798e9abf87974f8495",
    ),
    _source(
        "delicious",
        "Delicious, 12920 + 3185 web pages with 500 word indicators and 983 tags",
        "delicious.mat",
        "data/delicious.mat",
        "07a28b6d637cc06d2174b60dcc23f0980d05fd1016ccafc775172e620b5b5312",
    ),
    _source(
        "corel5k",
        "Corel5k, 5000 images as 499 indicators of regions, with 374 keywords",
        "corel5k.mat",
        "data/core15k.mat",
        "3312f551c4dd53a1869814e36262dfeed8e27671aca0f22d86458f0428639ed4",
    ),
)
