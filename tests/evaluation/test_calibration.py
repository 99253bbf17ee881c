import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from longtail.evaluation._arrays import softmax
from longtail.evaluation.calibration import calibration_error_per_class, reliability
from tests.support.simulated_logits import simulate

DATA = simulate(12, images_per_class=40)
PROBS = softmax(DATA.logits.astype(np.float64))
CORRECT = (PROBS.argmax(axis=1) == DATA.target).astype(float)


@pytest.mark.parametrize("bins", [10, 15])
def test_calibration_error_equals_torchmetrics(bins: int) -> None:
    expected = multiclass_calibration_error(
        torch.from_numpy(PROBS), torch.from_numpy(DATA.target), num_classes=12, n_bins=bins, norm="l1"
    )
    assert reliability(PROBS.max(axis=1), CORRECT, bins=bins).error == pytest.approx(float(expected), abs=1e-6)


def test_calibration_error_of_each_class_equals_the_binary_one_of_torchmetrics() -> None:
    # torchmetrics' binary error compares p with "is the positive class", which is the class-wise definition.
    expected = [
        float(
            binary_calibration_error(
                torch.tensor(PROBS[:, k]),
                torch.from_numpy(DATA.target == k).int(),
                n_bins=15,
                norm="l1",
            )
        )
        for k in range(12)
    ]
    np.testing.assert_allclose(calibration_error_per_class(PROBS, DATA.target), expected, atol=1e-6)


def test_a_class_without_images_has_no_calibration_error() -> None:
    errors = calibration_error_per_class(np.full((3, 3), 1 / 3), np.array([0, 0, 1]))
    assert np.isnan(errors[2])
    assert not np.isnan(errors[:2]).any()


def test_an_empty_bin_is_absent_and_certainty_falls_in_the_last_bin() -> None:
    found = reliability(np.array([1.0, 0.05]), np.array([1.0, 0.0]), bins=10)
    assert found.counts == (1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    assert found.accuracy[1] is None
    assert found.error == pytest.approx(0.025)


def test_no_images_have_no_calibration_error() -> None:
    assert reliability(np.zeros(0), np.zeros(0)).error is None
