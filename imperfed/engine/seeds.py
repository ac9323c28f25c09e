"""Explicit randomness: every draw is determined by (seed, round, client, purpose).

The text of a purpose is part of the seed: another text would draw other numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SERVER = -1
"""The client number for draws that belong to no site."""


def seed_of(seed: int, round: int, client: int, purpose: str) -> int:
    """Return a 63-bit seed; neighbouring arguments give unrelated seeds."""
    text = f"{seed}/{round}/{client}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def generator(seed: int, round: int, client: int, purpose: str) -> torch.Generator:
    """Return a fresh generator, so that neither the order nor the number of workers changes a result."""
    return torch.Generator().manual_seed(seed_of(seed, round, client, purpose))


def on_duty_in(seed: int, round: int, sites: int, on_duty: int) -> tuple[int, ...]:
    """Return the sites on duty in a round, in order."""
    draw = generator(seed, round, SERVER, "sample")
    return tuple(sorted(torch.randperm(sites, generator=draw)[:on_duty].tolist()))


@contextmanager
def seeded(seed: int, round: int, client: int, purpose: str) -> Iterator[None]:
    """Seed torch's own generators, for dropout and initial weights, and restore them afterwards."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    number = seed_of(seed, round, client, purpose)
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed(number)
        yield
