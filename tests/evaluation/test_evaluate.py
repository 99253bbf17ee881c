import numpy as np
import pytest
import sklearn.metrics
import torch
from scipy.stats import norm
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from longtail.class_counts import GROUPS
from longtail.evaluation import evaluate
from longtail.evaluation.confusion_matrix import wilson_interval
from tests.support.simulated_logits import simulate

DATA = simulate(100, images_per_class=10)
FOUND = evaluate(DATA.logits, DATA.target, DATA.counts, DATA.classes)


def test_summary_numbers_equal_sklearn() -> None:
    prediction = DATA.logits.argmax(axis=1)
    metrics = FOUND.metrics
    assert metrics["top1"] == pytest.approx(sklearn.metrics.accuracy_score(DATA.target, prediction))
    assert metrics["top5"] == pytest.approx(sklearn.metrics.top_k_accuracy_score(DATA.target, DATA.logits, k=5))
    assert metrics["balanced"] == pytest.approx(sklearn.metrics.balanced_accuracy_score(DATA.target, prediction))
    for group, members in DATA.counts.groups().items():
        expected = sklearn.metrics.recall_score(DATA.target, prediction, labels=members, average="macro")
        assert metrics[group] == pytest.approx(expected)
    many, few = metrics["many"], metrics["few"]
    assert many is not None
    assert few is not None
    assert metrics["head_tail_gap"] == pytest.approx(many - few)
    np.testing.assert_array_equal(FOUND.confusion_matrix, sklearn.metrics.confusion_matrix(DATA.target, prediction))


def test_calibration_overall_and_by_group_equals_torchmetrics() -> None:
    probs = torch.from_numpy(DATA.logits).double().softmax(dim=1)
    target = torch.from_numpy(DATA.target)
    whole = multiclass_calibration_error(probs, target, num_classes=100, n_bins=15)
    assert FOUND.ece.value == pytest.approx(float(whole), abs=1e-5)
    for group, members in DATA.counts.groups().items():
        mine = torch.isin(target, torch.tensor(members))
        expected = multiclass_calibration_error(probs[mine], target[mine], num_classes=100, n_bins=15)
        result = FOUND.groups[group]
        assert result.ece is not None
        assert result.ece.value == pytest.approx(float(expected), abs=1e-5)
        assert result.reliability.error == pytest.approx(float(expected), abs=1e-5)


def test_each_class_has_the_recall_and_precision_of_sklearn() -> None:
    precision, recall, _, support = sklearn.metrics.precision_recall_fscore_support(
        DATA.target, DATA.logits.argmax(axis=1), labels=range(100), zero_division=np.nan
    )
    np.testing.assert_allclose(np.array([c.recall for c in FOUND.classes], dtype=float), recall)
    np.testing.assert_allclose(np.array([c.precision for c in FOUND.classes], dtype=float), precision)
    assert [c.support for c in FOUND.classes] == support.tolist()


def test_classwise_calibration_is_the_mean_over_classes_of_the_binary_error_of_torchmetrics() -> None:
    probs = torch.from_numpy(DATA.logits).double().softmax(dim=1)
    target = torch.from_numpy(DATA.target)
    errors = np.array([float(binary_calibration_error(probs[:, k].clone(), (target == k).int())) for k in range(100)])
    assert FOUND.classwise_ece == pytest.approx(errors.mean(), abs=1e-6)
    for group, members in DATA.counts.groups().items():
        assert FOUND.groups[group].classwise_ece == pytest.approx(errors[members].mean(), abs=1e-6)


def test_interval_of_balanced_accuracy_is_that_of_the_normal_approximation() -> None:
    # With equal classes, balanced accuracy is a mean of independent recalls: var = Σ r(1 − r)/n / K².
    recall = np.array([c.recall for c in FOUND.classes], dtype=float)
    deviation = np.sqrt((recall * (1 - recall) / 10).sum()) / 100
    low, high = norm.interval(0.95, FOUND.balanced.value, deviation)
    assert FOUND.balanced.low == pytest.approx(low, abs=0.15 * deviation)
    assert FOUND.balanced.high == pytest.approx(high, abs=0.15 * deviation)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    population = simulate(20, images_per_class=2000)
    truth = evaluate(population.logits, population.target, population.counts, replicates=1)
    rows = [np.flatnonzero(population.target == k) for k in range(20)]
    rng = np.random.default_rng(0)
    held = {"balanced": 0, "ece": 0}
    for seed in range(100):
        drawn = np.concatenate([rng.choice(r, 50, replace=False) for r in rows])
        found = evaluate(
            population.logits[drawn], population.target[drawn], population.counts, replicates=200, seed=seed
        )
        for name, estimate in (("balanced", found.balanced), ("ece", found.ece)):
            value = truth.metrics[name]
            assert value is not None
            assert estimate.low is not None
            assert estimate.high is not None
            held[name] += estimate.low <= value <= estimate.high
    # 95 are expected; fewer than 88 happen once in 300 times.
    assert held["balanced"] >= 88
    assert held["ece"] >= 85


def test_every_estimate_lies_in_its_interval() -> None:
    estimates = [FOUND.top1, FOUND.top5, FOUND.balanced, FOUND.head_tail_gap, FOUND.ece]
    estimates += [e for group in FOUND.groups.values() for e in (group.accuracy, group.ece)]
    for estimate in estimates:
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high


def test_each_class_names_what_it_is_most_confused_with() -> None:
    matrix = FOUND.confusion_matrix
    np.fill_diagonal(matrix, -1)
    for k, result in enumerate(FOUND.classes):
        if result.confused_with is not None:
            assert matrix[k, result.confused_with] == matrix[k].max() > 0
        else:
            assert result.recall == 1


def test_worst_class_has_the_lowest_recall() -> None:
    assert FOUND.classes[FOUND.worst_class].recall == min(c.recall for c in FOUND.classes if c.recall is not None)


def test_an_empty_group_is_absent() -> None:
    data = simulate(10, largest=5000, imbalance_factor=100)
    found = evaluate(data.logits, data.target, data.counts, replicates=10)
    assert set(found.groups) == {"many", "medium"}
    assert found.metrics["few"] is None
    many, medium = found.metrics["many"], found.metrics["medium"]
    assert many is not None
    assert medium is not None
    assert found.metrics["head_tail_gap"] == pytest.approx(many - medium)


def test_thresholds_are_arguments_and_are_named() -> None:
    found = evaluate(DATA.logits, DATA.target, DATA.counts, many=50, few=10, replicates=10)
    assert found.groups["many"].classes == sum(n > 50 for n in DATA.counts)
    assert found.definition == "many: more than 50, medium: 10 to 50, few: fewer than 10 training images"


def test_one_test_image_gives_numbers_without_intervals() -> None:
    found = evaluate([[0.0, 2.0, 1.0]], [1], [200, 50, 5])
    assert found.balanced.value == 1
    assert found.balanced.low is None
    assert found.measured == 1
    assert found.metrics["many"] is None
    assert found.metrics["head_tail_gap"] is None
    assert found.groups["many"].accuracy is None
    assert found.classes[0].recall is None


def test_five_classes_have_no_top_5() -> None:
    assert evaluate(np.eye(5), np.arange(5), [9] * 5, replicates=10).top5 is None


def test_all_predictions_equal_give_one_class_all_recall() -> None:
    logits = np.tile([3.0, 0.0, 0.0, 0.0], (40, 1))
    found = evaluate(logits, np.repeat(np.arange(4), 10), [200, 50, 50, 5])
    assert found.balanced.value == 0.25
    assert [c.recall for c in found.classes] == [1, 0, 0, 0]
    assert [c.precision for c in found.classes] == [0.25, None, None, None]
    # exp(3) / (exp(3) + 3) is its constant confidence, a quarter of the images are right.
    assert found.ece.value == pytest.approx(np.exp(3) / (np.exp(3) + 3) - 0.25)


def test_a_class_missing_from_the_test_set_is_counted_as_not_measured() -> None:
    kept = DATA.target != 7
    found = evaluate(DATA.logits[kept], DATA.target[kept], DATA.counts, replicates=10)
    assert found.measured == 99
    assert found.classes[7].recall is None
    assert found.balanced.value == pytest.approx(np.mean([c.recall for c in found.classes if c.recall is not None]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_tensors_are_taken_as_arrays_are(dtype: torch.dtype) -> None:
    logits = torch.from_numpy(DATA.logits).to(dtype).requires_grad_()
    found = evaluate(logits, torch.from_numpy(DATA.target), DATA.counts, replicates=10)
    rounded = logits.detach().double().numpy()
    assert found.top1.value == pytest.approx((rounded.argmax(axis=1) == DATA.target).mean())


def test_the_seed_decides_the_intervals() -> None:
    def interval(seed: int) -> tuple[float | None, float | None]:
        found = evaluate(DATA.logits, DATA.target, DATA.counts, replicates=50, seed=seed)
        return found.balanced.low, found.balanced.high

    assert interval(0) == interval(0) != interval(1)


def test_groups_stand_in_their_order() -> None:
    assert tuple(FOUND.groups) == GROUPS


@pytest.mark.parametrize(
    ("logits", "target", "counts", "message"),
    [
        ([[1.0, float("nan")]], [0], [5, 5], r"logits must be finite, got NaN or infinity in 1 of 1 rows"),
        ([[1.0, float("inf")]], [0], [5, 5], "logits must be finite"),
        ([1.0, 2.0], [0], [5, 5], r"logits must have the shape \(images, classes\).*\(2,\)"),
        (np.zeros((0, 2)), [], [5, 5], "at least one of each"),
        ([[1.0, 2.0]], [2], [5, 5], "target must be 0 to 1, got 2 to 2"),
        ([[1.0, 2.0]], [-1], [5, 5], "target must be 0 to 1, got -1"),
        ([[1.0, 2.0]], [0, 1], [5, 5], r"one label for each image, the shape \(1,\), got \(2,\)"),
        ([[1.0, 2.0]], [0], [5, 5, 5], "class_counts must have one number for each of 2 classes, got 3"),
    ],
)
def test_bad_input_is_named(logits: list[list[float]], target: list[int], counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(logits, target, counts)


def test_labels_that_are_no_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="target must hold class indices"):
        evaluate([[1.0, 2.0]], [0.5], [5, 5])


@pytest.mark.parametrize(
    ("classes", "message"), [(["a"], "classes must name each of the 2"), (["a", "a"], "'a' twice")]
)
def test_bad_class_names_are_refused(classes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate([[1.0, 2.0]], [0], [5, 5], classes)


@pytest.mark.parametrize("right", [True, False])
def test_where_all_or_none_are_right_the_intervals_are_wilsons(right: bool) -> None:
    target = np.arange(40) % 4
    found = evaluate(9 * np.eye(4)[target if right else (target + 1) % 4], target, class_counts=[500, 400, 10, 5])
    low, high = wilson_interval(np.array([40 * right]), np.array([40]))
    assert [found.balanced.low, found.balanced.high] == pytest.approx([low[0], high[0]])
    assert [found.top1.low, found.top1.high] == pytest.approx([low[0], high[0]])
    low, high = wilson_interval(np.array([20 * right]), np.array([20]))
    many, gap = found.groups["many"].accuracy, found.head_tail_gap
    assert many is not None
    assert gap is not None
    assert [many.low, many.high] == pytest.approx([low[0], high[0]])
    assert gap.low is not None
    assert gap.low < 0
