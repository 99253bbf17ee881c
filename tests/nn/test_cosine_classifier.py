import pytest
import torch
import torch.nn.functional as F

from longtail.nn.cosine_classifier import CosineClassifier, cosine_logits


def test_logits_are_torch_s_cosine_similarities_times_the_scale() -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(5, 8), torch.randn(3, 8)
    expected = 30 * F.cosine_similarity(features[:, None], weight[None], dim=2)
    torch.testing.assert_close(cosine_logits(features, weight), expected)


def test_lengths_play_no_part() -> None:
    torch.manual_seed(0)
    classifier, features = CosineClassifier(8, 3, scale=2.0), torch.randn(5, 8)
    logits = classifier(features)
    with torch.no_grad():
        classifier.weight.mul_(torch.tensor([[0.1], [7.0], [100.0]]))
    torch.testing.assert_close(classifier(3 * features), logits)
    assert logits.abs().max() <= 2


def test_it_starts_with_random_directions_of_length_one() -> None:
    classifier = CosineClassifier(8, 3)
    first = classifier.weight.detach().clone()
    classifier.reset_parameters()
    assert not torch.equal(classifier.weight, first)
    torch.testing.assert_close(classifier.weight.norm(dim=1), torch.ones(3))


def test_features_of_zeros_have_finite_logits_and_gradients() -> None:
    features = torch.zeros(2, 8, requires_grad=True)
    logits = CosineClassifier(8, 3)(features)
    logits.sum().backward()
    assert torch.equal(logits, torch.zeros(2, 3))
    assert features.grad is not None
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf")])
def test_a_scale_that_is_not_positive_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=f"scale must be positive and finite, got {scale}"):
        CosineClassifier(8, 3, scale=scale)
