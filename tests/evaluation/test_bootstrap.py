import numpy as np
import pytest
from scipy.stats import bootstrap

from longtail.evaluation.bootstrap import bootstrap_interval, choose_resampling, resample

TARGET = np.repeat(np.arange(4), [5, 10, 20, 40])


def draw(resampling: str, *, replicates: int = 50, seed: int = 0) -> np.ndarray:
    assert resampling in ("stratified", "plain")
    return np.concatenate(
        list(
            resample(
                TARGET,
                replicates=replicates,
                resampling="stratified" if resampling == "stratified" else "plain",
                seed=seed,
            )
        )
    )


def test_stratified_resamples_keep_the_size_of_each_class() -> None:
    rows = draw("stratified")
    assert rows.shape == (50, 75)
    for row in rows:
        np.testing.assert_array_equal(np.bincount(TARGET[row]), [5, 10, 20, 40])


def test_every_image_of_a_class_is_drawn_equally_often() -> None:
    for resampling in ("stratified", "plain"):
        drawn = np.bincount(draw(resampling, replicates=4000).ravel(), minlength=75)
        # Each count is nearly Poisson with mean 4000: six standard deviations are 380.
        assert np.abs(drawn - 4000).max() < 380


def test_plain_resamples_let_the_size_of_a_class_vary() -> None:
    sizes = {tuple(np.bincount(TARGET[row], minlength=4)) for row in draw("plain")}
    assert len(sizes) > 10


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    np.testing.assert_array_equal(draw("stratified"), draw("stratified"))
    assert (draw("stratified") != draw("stratified", seed=1)).any()


def test_small_classes_make_the_resampling_plain() -> None:
    assert choose_resampling(TARGET) == "stratified"
    assert choose_resampling(np.array([0, 0, 0, 0, 0, 1])) == "plain"
    assert choose_resampling(np.array([3] * 5)) == "stratified"  # classes without images do not count


def test_interval_of_a_mean_equals_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    sample = rng.random(200) < 0.3
    rows = np.concatenate(list(resample(np.zeros(200, dtype=np.int64), replicates=9999, resampling="plain", seed=0)))
    low, high = bootstrap_interval(float(sample.mean()), sample[rows].mean(axis=1))
    expected = bootstrap((sample,), np.mean, method="percentile", rng=rng).confidence_interval
    assert low == pytest.approx(expected.low, abs=0.006)  # the means are multiples of 0.005
    assert high == pytest.approx(expected.high, abs=0.006)


@pytest.mark.parametrize("bias", [0.4, -0.4])
def test_an_interval_reaches_from_the_estimate_to_the_estimate_freed_of_its_bias(bias: float) -> None:
    values = np.random.default_rng(0).normal(0.1 + bias, 0.01, 4000)
    low, high = bootstrap_interval(0.1, values)
    assert low == pytest.approx(min(0.1, 0.1 - bias) - 1.96 * 0.01, abs=0.002)
    assert high == pytest.approx(max(0.1, 0.1 - bias) + 1.96 * 0.01, abs=0.002)


def test_no_replicates_are_refused() -> None:
    with pytest.raises(ValueError, match="replicates must be at least 1, got 0"):
        draw("plain", replicates=0)
