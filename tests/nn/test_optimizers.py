"""Adam as it is shared: against PyTorch's own, and the forms that its users had, bit for bit."""

import pytest
import torch
from torch import Tensor

from imperfed.nn.optimizers import Adam

LR = 0.01


def gradients(steps: int = 40) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return list(torch.randn(steps, 7, 5, generator=random))


def test_the_steps_are_torchs():
    w, adam = torch.ones(7, 5), Adam.of(torch.ones(7, 5))
    theirs = torch.ones(7, 5, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], lr=LR)
    for t, g in enumerate(gradients(), 1):
        theirs.grad = g.clone()
        optimizer.step()
        w -= adam.move(g, LR, t)
    torch.testing.assert_close(w, theirs.detach(), rtol=1e-6, atol=1e-7)


def test_a_part_of_the_moments_moves_as_the_whole_does():
    whole, parted = Adam.of(torch.ones(7, 5)), Adam.of(torch.ones(7, 5))
    for t, g in enumerate(gradients(), 1):
        parts = [Adam(parted.m[rows], parted.v[rows]).move(g[rows], LR, t) for rows in (slice(3), slice(3, None))]
        assert torch.equal(whole.move(g, LR, t), torch.cat(parts))


@pytest.mark.parametrize("rate_first", [False, True])
def test_the_order_of_the_operations_is_kept(rate_first):
    adam, m, s = Adam.of(torch.ones(7, 5)), torch.zeros(7, 5), torch.zeros(7, 5)
    for t, g in enumerate(gradients(), 1):
        m.lerp_(g, 1 - 0.9)
        s.lerp_(g.square(), 1 - 0.999)
        spread = (s / (1 - 0.999**t)).sqrt() + 1e-8
        expected = LR * m / (1 - 0.9**t) / spread if rate_first else LR * (m / (1 - 0.9**t)) / spread
        assert torch.equal(adam.move(g, LR, t, rate_first), expected)


def test_corrections_in_the_rate_are_those_of_the_clean_network():
    """The form in which candidate sets were generated: other bits would be other sets."""
    adam, m, s = Adam.of(torch.ones(7, 5)), torch.zeros(7, 5), torch.zeros(7, 5)
    for t, g in enumerate(gradients(), 1):
        rate = LR * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        m.lerp_(g, 0.1)
        s.lerp_(g.square(), 0.001)
        assert torch.equal(adam.move_by_rate(g, LR, t), rate * m / (s.sqrt() + 1e-8))


@pytest.mark.parametrize("t", [1, 7])
def test_both_forms_agree_up_to_epsilon(t):
    g = gradients(1)[0]
    torch.testing.assert_close(Adam.of(g).move(g, LR, t), Adam.of(g).move_by_rate(g, LR, t), rtol=1e-4, atol=1e-7)
