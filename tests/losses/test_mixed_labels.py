"""The advice that stands in for soft targets: mix the losses."""

import pytest
import torch
import torch.nn.functional as F

from longtail.losses import LOSSES

COUNTS = [500, 90, 7, 1]


@pytest.mark.parametrize("name", ["cross_entropy", "balanced_softmax", "logit_adjustment"])
def test_a_mix_of_losses_is_the_loss_of_the_mixed_label(name: str) -> None:
    logits, first, second, share = torch.randn(12, 4), torch.arange(12) % 4, torch.arange(12) // 3, 0.3
    loss = LOSSES[name](COUNTS)
    mixed_label = share * F.one_hot(first, 4) + (1 - share) * F.one_hot(second, 4)
    shift = torch.zeros(4) if name == "cross_entropy" else torch.tensor(COUNTS).log()
    torch.testing.assert_close(
        share * loss(logits, first) + (1 - share) * loss(logits, second),
        F.cross_entropy(logits + shift, mixed_label),
    )
