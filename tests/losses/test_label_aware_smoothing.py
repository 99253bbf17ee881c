import pytest
import torch
import torch.nn.functional as F

from longtail._typing import Reduction
from longtail.losses import label_aware_smoothing_loss


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_one_smoothing_for_all_is_torch_s_label_smoothing(reduction: Reduction) -> None:
    """Torch spreads ε over all K classes, the paper over the K - 1 others: ε_torch = ε K / (K - 1)."""
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    got = label_aware_smoothing_loss(
        logits, target, class_counts=[500, 90, 7, 1], head=0.2, tail=0.2, reduction=reduction
    )
    want = F.cross_entropy(logits, target, label_smoothing=0.2 * 4 / 3, reduction=reduction)
    torch.testing.assert_close(got, want)


def test_classes_of_one_size_are_smoothed_by_the_tail_s_share() -> None:
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    got = label_aware_smoothing_loss(logits, target, class_counts=[7] * 4, head=0.4, tail=0.1)
    torch.testing.assert_close(got, F.cross_entropy(logits, target, label_smoothing=0.1 * 4 / 3))


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="logits must have at least 2 classes to smooth a label over, got 1"):
        label_aware_smoothing_loss(torch.zeros(1, 1), torch.tensor([0]), class_counts=[3])
