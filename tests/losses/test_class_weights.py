import pytest
import torch

from longtail.losses import class_weights
from tests.reference import losses as loops

COUNTS = [1_000_000, 5000, 20, 1]


@pytest.mark.parametrize("beta", [0.9, 0.999, 0.9999, 0.999999])
def test_effective_number_equals_the_loop_to_float32(beta: float) -> None:
    want = torch.tensor(loops.effective_number_weights(COUNTS, beta))
    torch.testing.assert_close(class_weights(COUNTS, beta=beta), want)


def test_inverse_frequency_equals_the_loop() -> None:
    want = torch.tensor(loops.inverse_frequency_weights(COUNTS))
    torch.testing.assert_close(class_weights(COUNTS, weighting="inverse_frequency"), want)


def test_beta_goes_from_equal_weights_to_inverse_frequency() -> None:
    assert torch.equal(class_weights(COUNTS, beta=0.0), torch.ones(4))
    near_one = class_weights(COUNTS, beta=1 - 1e-12)
    torch.testing.assert_close(near_one, class_weights(COUNTS, weighting="inverse_frequency"))


def test_none_is_ones() -> None:
    assert torch.equal(class_weights(COUNTS, weighting="none"), torch.ones(4))


def test_the_mean_weight_is_one() -> None:
    assert class_weights(COUNTS).mean().item() == pytest.approx(1)
