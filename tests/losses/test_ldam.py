import pytest
import torch
import torch.nn.functional as F

from longtail.losses import LDAMLoss, class_weights, ldam_loss

COUNTS = [500, 90, 7, 1]
LOGITS = torch.tensor([[0.9, -0.2, 0.1, 0.3], [0.2, 0.1, 0.7, -0.9], [0.3, 0.4, 0.2, 0.5]])
TARGET = torch.tensor([0, 2, 3])


def test_weights_set_in_at_the_paper_s_epoch_160_of_200() -> None:
    loss = LDAMLoss(COUNTS)
    on = []
    for epoch in range(200):
        loss.set_progress(epoch / 200)
        on.append(loss.reweight)
    assert on == [False] * 160 + [True] * 40


def test_the_schedule_follows_the_position_and_not_the_calls() -> None:
    resumed, other = LDAMLoss(COUNTS), LDAMLoss(COUNTS, reweight_from=0.0)
    resumed.set_progress(0.9)
    torch.testing.assert_close(resumed(LOGITS, TARGET), other(LOGITS, TARGET))
    resumed.set_progress(0.1)
    torch.testing.assert_close(resumed(LOGITS, TARGET), ldam_loss(LOGITS, TARGET, class_counts=COUNTS))


def test_weights_never_set_in_when_they_start_at_the_end() -> None:
    loss = LDAMLoss(COUNTS, reweight_from=1.0)
    loss.set_progress(1.0)
    assert not loss.reweight


def test_with_weights_it_is_the_weighted_mean_of_the_margin_losses() -> None:
    rows = ldam_loss(LOGITS, TARGET, class_counts=COUNTS, reduction="none")
    weights = class_weights(COUNTS)[TARGET]
    torch.testing.assert_close(
        ldam_loss(LOGITS, TARGET, class_counts=COUNTS, reweight=True), (weights * rows).sum() / weights.sum()
    )


def test_without_a_margin_it_is_weighted_cross_entropy() -> None:
    torch.testing.assert_close(
        ldam_loss(LOGITS, TARGET, class_counts=COUNTS, max_margin=0.0, scale=1.0, reweight=True),
        F.cross_entropy(LOGITS, TARGET, weight=class_weights(COUNTS)),
    )


def test_a_class_sixteen_times_as_large_has_half_the_margin() -> None:
    """A margin is undone by a logit that is higher by it."""
    for label, margin in ((0, 0.25), (1, 0.5)):
        raised = torch.zeros(1, 2)
        raised[0, label] = margin
        loss = ldam_loss(raised, torch.tensor([label]), class_counts=[16, 1])
        assert loss.item() == pytest.approx(torch.tensor(2.0).log().item())
