"""Each head against somebody else's, or against the equation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from torch import nn

from longtail.heads import ClassMeansHead, CRTHead, LinearHead, LWSHead, MaxNormHead, TauNormHead
from longtail.heads.whiten_within_classes import whiten_within_classes
from longtail.nn.aligned_classifier import AlignedClassifier
from tests.heads.test_contract import clusters

COUNTS = [40, 20, 8]


def test_plain_linear_is_logistic_regression() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    decay = 0.05
    head = LinearHead(COUNTS, strength=0, label_smoothing=0, weight_decay=decay, iterations=500)
    found = head.fit(features, target)(features).log_softmax(1)
    oracle = LogisticRegression(C=1 / (decay * len(target)), tol=1e-10, max_iter=5000).fit(features, target)
    np.testing.assert_allclose(found.numpy(), oracle.predict_log_proba(features), rtol=1e-3, atol=2e-3)


def test_whitening_is_that_of_linear_discriminant_analysis() -> None:
    features, target = clusters([200, 100, 60], spread=1.5)
    features = features - features.mean(0)
    white = whiten_within_classes(features, target, 1e-9)
    oracle = LinearDiscriminantAnalysis(solver="eigen", store_covariance=True).fit(features, target)
    inside = oracle.covariance_ * len(target) / (len(target) - 3)  # scikit-learn divides by N
    expected = features.numpy() @ np.linalg.inv(inside) @ features.numpy().T
    found = white.apply(features) / white.scale
    np.testing.assert_allclose((found @ found.T).numpy(), expected, rtol=1e-2, atol=1e-2)
    assert float(white.apply(features).square().mean()) == pytest.approx(1.0)


def test_a_whitened_layer_is_folded_into_one_on_plain_features() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    white = whiten_within_classes(features, target, 0.5)
    inside = LinearHead(COUNTS).fit(white.apply(features), target)
    found = LinearHead(COUNTS, whitening=0.5).fit(features, target)
    np.testing.assert_allclose(found(features).numpy(), inside(white.apply(features)).numpy(), atol=1e-4)
    assert found.weight.shape == (3, features.shape[1])


def test_a_large_ridge_leaves_the_features_as_they_are() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    features = features / features.square().mean().sqrt()
    np.testing.assert_allclose(whiten_within_classes(features, target, 1e6).apply(features), features, atol=1e-4)


def test_crt_is_logistic_regression_with_balanced_weights() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    decay = 0.05
    found = CRTHead(COUNTS, weight_decay=decay, iterations=500).fit(features, target)(features).log_softmax(1)
    balanced = LogisticRegression(C=1 / (decay * len(target)), class_weight="balanced", tol=1e-10, max_iter=5000).fit(
        features, target
    )
    np.testing.assert_allclose(found.numpy(), balanced.predict_log_proba(features), rtol=1e-3, atol=2e-3)


def test_logit_adjustment_and_smoothing_are_at_a_minimum_of_their_loss() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    layer = LinearHead(COUNTS, weight_decay=0.1, iterations=500).fit(features, target).requires_grad_(True)
    prior = torch.tensor(COUNTS) / sum(COUNTS)
    smooth = 0.9 * F.one_hot(target).float() + 0.1 * prior**0.75 / (prior**0.75).sum()
    loss = F.cross_entropy(layer(features) + prior.log(), smooth)
    (loss + 0.05 * layer.get_parameter("weight").square().sum()).backward()
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() < 1e-3


def test_any_loss_of_the_house_can_be_taken() -> None:
    features, target = clusters(COUNTS)
    balanced = LinearHead(COUNTS, loss="balanced_softmax").fit(features, target)(features)
    adjusted = LinearHead(COUNTS, label_smoothing=0).fit(features, target)(features)
    torch.testing.assert_close(balanced, adjusted, atol=1e-2, rtol=0)


def test_class_means_are_nearest_centroids_of_directions() -> None:
    features, target = clusters(COUNTS, spread=1.5)
    found = ClassMeansHead(COUNTS).fit(features, target).get_parameter("weight")
    oracle = NearestCentroid().fit(F.normalize(features), target).centroids_
    torch.testing.assert_close(found, F.normalize(torch.tensor(oracle, dtype=torch.float32)))


def test_tau_0_leaves_the_weights_and_tau_1_gives_them_length_1() -> None:
    features, target = clusters(COUNTS)
    plain = LinearHead(COUNTS, strength=0, label_smoothing=0, weight_decay=0.01).fit(features, target)
    weight = plain.get_parameter("weight")
    same = TauNormHead(COUNTS, tau=0).fit(features, target).get_parameter("weight")
    unit = TauNormHead(COUNTS, tau=1).fit(features, target).get_parameter("weight")
    torch.testing.assert_close(same, weight)
    torch.testing.assert_close(unit, F.normalize(weight))


def test_scales_that_may_not_move_leave_the_layer_as_it_was() -> None:
    features, target = clusters(COUNTS)
    plain = LinearHead(COUNTS, strength=0, label_smoothing=0, weight_decay=0.01).fit(features, target)
    held = LWSHead(COUNTS, scale_decay=1e9).fit(features, target)
    torch.testing.assert_close(held(features), plain(features))


def test_a_gate_of_0_leaves_the_logits_as_they_were() -> None:
    linear = nn.Linear(4, 3)
    aligned = AlignedClassifier(linear)
    nn.init.constant_(aligned.gate.bias, -1e9)
    nn.init.ones_(aligned.scale)
    nn.init.ones_(aligned.offset)
    features = torch.randn(5, 4)
    torch.testing.assert_close(aligned(features), linear(features))


@pytest.mark.parametrize("radius", [0.1, 0.5])
def test_no_row_is_longer_than_the_radius(radius: float) -> None:
    features, target = clusters(COUNTS)
    weight = MaxNormHead(COUNTS, radius=radius).fit(features, target).get_parameter("weight")
    assert weight.norm(dim=1).max() <= radius * (1 + 1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strength": -1.0}, "strength must be from 0 to 10, got -1"),
        ({"weight_decay": -1.0}, "weight_decay must be from 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and less than 1, got 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearHead(COUNTS, **settings)  # type: ignore[arg-type] # each has its own type


def test_frequent_classes_are_not_given_to_a_class_that_is_very_rare() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.tensor([0] * 300 + [1] * 5)
    features = torch.randn(305, 8, generator=generator) + 3.0 * target[:, None]
    found = LinearHead([300, 5]).fit(features, target)(features).argmax(1)
    assert float((found[:300] == 0).float().mean()) > 0.9
