import torch

from longtail.losses import logit_adjustment_loss, vs_loss

COUNTS = [500, 90, 7, 1]


def test_without_stretch_it_is_logit_adjustment() -> None:
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    torch.testing.assert_close(
        vs_loss(logits, target, class_counts=COUNTS, stretch=0.0, shift=0.8, reduction="none"),
        logit_adjustment_loss(logits, target, class_counts=COUNTS, strength=0.8, reduction="none"),
    )


def test_without_shift_it_is_class_dependent_temperatures() -> None:
    """CDT (Ye et al., 2020): the logits of class k are divided by its temperature, (n_max / n_k)^γ."""
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    found = vs_loss(logits, target, class_counts=COUNTS, stretch=0.3, shift=0.0, reduction="none")
    for i in range(12):
        powers = [torch.exp(logits[i, k] / (500 / COUNTS[k]) ** 0.3) for k in range(4)]
        torch.testing.assert_close(found[i], torch.stack(powers).sum().log() - powers[target[i]].log())


def test_the_largest_class_is_not_stretched_and_a_rare_one_is_shrunk() -> None:
    """A rare class needs a larger logit for the same loss, which is its margin."""
    frequent, rare = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    losses = [
        vs_loss(logits, target, class_counts=[16, 1], stretch=0.25, shift=0.0)
        for logits, target in ((frequent, torch.tensor([0])), (rare, torch.tensor([1])))
    ]
    torch.testing.assert_close(torch.stack(losses), torch.tensor([-2.0, -1.0]).exp().log1p())
