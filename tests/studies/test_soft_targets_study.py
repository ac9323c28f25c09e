"""The study of training after a repair: its cells, and its table."""

from __future__ import annotations

from dataclasses import asdict

from studies.soft_targets import WAYS, cell_of, cells, table


def test_every_noise_rate_and_number_of_sites_with_every_seed() -> None:
    found = list(cells([0, 1, 2]))
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 3


def test_the_table_by_hand() -> None:
    first, second = list(cells([0, 1]))[:2]
    shares = dict(zip(WAYS, (0.5, 0.75, 0.8, 0.9), strict=True))
    records = [asdict(first) | shares, asdict(second) | shares | {"repaired": 0.85}]
    assert cell_of(records[1]) == second
    lines = list(table(records))
    assert len(lines) == 3
    assert lines[2] == ("| flipped uniformly | 20 % | 5 | 2 | 50.0 (50.0) | 80.0 (75.0) | 80.0 (80.0) | 90.0 (90.0) |")
