import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from longtail.heads import LinearHead, balanced_accuracy, choose_head, is_better
from longtail.heads.choose_head import deal_folds
from tests.heads.test_contract import clusters

COUNTS = [30, 10, 4, 1]


def test_each_fold_has_its_share_of_every_class() -> None:
    labels = np.repeat([0, 1, 2], [30, 10, 4])
    fold = deal_folds(labels, 4)
    for k in range(3):
        sizes = np.bincount(fold[labels == k], minlength=4)
        assert sizes.max() - sizes.min() <= 1


def test_images_that_were_taken_one_after_the_other_are_in_one_fold() -> None:
    labels = np.repeat([0, 1], [40, 7])
    fold = deal_folds(labels, 4)
    for k in (0, 1):
        changes = np.count_nonzero(np.diff(fold[labels == k]))
        assert changes == 3
    bursts = np.repeat(np.arange(4), 10)  # four bursts of ten images
    assert all(len(set(fold[:40][bursts == burst])) == 1 for burst in range(4))


def test_few_images_of_many_classes_do_not_all_fall_into_the_first_folds() -> None:
    fold = deal_folds(np.repeat(np.arange(40), 2), 4)
    assert np.bincount(fold, minlength=4).min() >= 10


def test_validation_images_of_another_kind_decide() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(120) % 3
    signal = torch.eye(3)[target] + 0.3 * torch.randn(120, 3, generator=generator)
    latent = 5 * torch.randn(120, 8, generator=generator)  # in which the images of a class differ among themselves
    rest = 0.05 * torch.randn(120, 100, generator=generator)
    features = torch.cat([signal, latent, rest], 1)
    other = torch.cat([signal, 4 * latent[torch.randperm(120, generator=generator)], rest], 1)  # and validation more so
    found = choose_head(features, target, [40, 40, 40], validation=(other, target))
    assert found.logits.shape == (120, 3)
    kept = LinearHead([40, 40, 40], **found.settings).fit(features, target)
    np.testing.assert_allclose(found.logits, kept(other).numpy(), rtol=1e-4, atol=1e-4)
    assert found.balanced == pytest.approx(balanced_accuracy_score(target, found.logits.argmax(1)))
    assert found.settings["whitening"] is not None


def test_a_single_image_always_trains_and_is_not_scored() -> None:
    features, target = clusters(COUNTS)
    found = choose_head(features, target, COUNTS, folds=3)
    assert np.isnan(found.logits[-1]).all()
    assert not np.isnan(found.logits[:-1]).any()


def test_the_score_is_the_balanced_accuracy_of_images_that_were_not_trained_on() -> None:
    features, target = clusters([30, 10, 6], spread=3.0)
    found = choose_head(features, target, [30, 10, 6], settings={"weight_decay": 0.03}, folds=3)
    expected = balanced_accuracy_score(target, found.logits.argmax(1))
    assert found.balanced == pytest.approx(expected)
    assert list(found.tried) == [None]


def test_noise_is_not_learnt_by_heart() -> None:
    generator = torch.Generator().manual_seed(0)
    features, target = torch.randn(60, 40, generator=generator), torch.arange(60) % 3
    assert choose_head(features, target, [20, 20, 20], folds=5).balanced < 0.6  # chance is a third


def test_a_clearly_better_strength_is_taken() -> None:
    features, target = clusters([100, 20, 20], spread=2.5, columns=4)
    found = choose_head(features, target, [100, 20, 20], name="tau_norm", folds=4)
    assert found.balanced >= found.tried[1.0]
    assert found.settings["tau"] in found.tried


def test_no_time_tries_the_default_alone() -> None:
    features, target = clusters(COUNTS)
    assert list(choose_head(features, target, COUNTS, seconds=0.0).tried) == [0.03]


def test_large_classes_are_cut_to_the_most_images() -> None:
    fold = deal_folds(np.repeat([0, 1], [50, 5]), 5, most_images=10)
    assert (fold[:50] >= 0).sum() == 10
    assert (fold[50:] >= 0).all()


def test_one_fold_is_refused() -> None:
    features, target = clusters(COUNTS)
    with pytest.raises(ValueError, match="folds must be at least 2, got 1"):
        choose_head(features, target, COUNTS, folds=1)


def test_a_change_within_noise_is_not_better_and_a_large_one_is() -> None:
    labels = np.repeat([0, 1], [50, 50])
    old = np.tile([True, False], 50)
    one_more = old.copy()
    one_more[1] = True
    assert not is_better(old, old, labels)
    assert is_better(np.ones(100, bool), old, labels)


def test_balanced_accuracy_weighs_classes_equally() -> None:
    labels = np.repeat([0, 1], [90, 10])
    correct = labels == 0
    assert balanced_accuracy(correct, labels) == balanced_accuracy_score(labels, np.zeros(100, int))
