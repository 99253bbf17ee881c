"""What holds for every head."""

import pytest
import torch
from torch import Tensor

from longtail.heads import HEADS


def clusters(counts: list[int], *, spread: float = 0.3, columns: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Standardised Gaussian clusters, one a class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(len(counts), columns, generator=torch.Generator().manual_seed(99)) * 2
    target = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    features = centres[target] + spread * torch.randn(len(target), columns, generator=generator)
    return features, target


@pytest.mark.parametrize("name", HEADS)
class TestEveryHead:
    def test_separates_clusters_of_unequal_size(self, name: str) -> None:
        features, target = clusters([60, 12, 3])
        fresh, labels = clusters([30, 30, 30], seed=1)
        classifier = HEADS[name]([60, 12, 3]).fit(features, target)
        assert (classifier(fresh).argmax(1) == labels).float().mean() > 0.95

    def test_gives_the_same_classifier_twice(self, name: str) -> None:
        features, target = clusters([20, 5])
        one, two = (HEADS[name]([20, 5]).fit(features, target) for _ in range(2))
        assert torch.equal(one(features), two(features))

    def test_weights_fit_into_a_blank_classifier(self, name: str) -> None:
        features, target = clusters([20, 5])
        head = HEADS[name]([20, 5])
        fitted, blank = head.fit(features, target), head.blank(features.shape[1])
        blank.load_state_dict(fitted.state_dict())
        assert torch.equal(blank.eval()(features), fitted(features))

    def test_takes_a_class_with_one_image_and_constant_features(self, name: str) -> None:
        features, target = clusters([6, 1])
        features[:, 0] = 0.0
        logits = HEADS[name]([6, 1]).fit(features, target)(features)
        assert logits.isfinite().all()
        assert (logits.argmax(1) == target).all()

    def test_takes_fewer_images_than_classes_have_columns(self, name: str) -> None:
        features, target = clusters([2, 1, 1], columns=50)
        assert HEADS[name]([2, 1, 1]).fit(features, target)(features).shape == (4, 3)

    def test_settings_build_it_again(self, name: str) -> None:
        head = HEADS[name]([3, 1])
        assert HEADS[name]([3, 1], **head.settings()).settings() == head.settings()

    def test_the_default_of_its_knob_is_the_first_to_be_tried(self, name: str) -> None:
        head = HEADS[name]
        if head.knob is not None:
            assert head([3, 1]).settings()[head.knob] == head.values[0]
