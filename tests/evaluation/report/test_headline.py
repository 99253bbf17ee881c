import numpy as np

from longtail.evaluation import Evaluation, evaluate
from longtail.evaluation.report.headline import headline, remarks, worst_classes

TARGET = np.repeat(np.arange(3), 40)
COUNTS = [500, 50, 5]


def model(*recalls: float, scale: float = 3.0) -> Evaluation:
    """A model that recognises the given share of each class, and takes the rest for the next class."""
    logits = np.zeros((120, 3))
    for i, k in enumerate(TARGET):
        logits[i, k if i % 40 < 40 * recalls[k] else (k + 1) % 3] = scale
    return evaluate(logits, TARGET, COUNTS, ["a", "b", "c"], replicates=200)


def test_the_headline_compares_rare_classes_with_frequent_ones() -> None:
    assert headline(model(0.9, 0.6, 0.1)).startswith("Rare classes are left behind: 90\u00a0% on many-shot")
    assert headline(model(0.9, 0.8, 0.6)).startswith("Rare classes do worse than frequent ones: 90")
    assert headline(model(0.5, 0.5, 0.5)).startswith("No gap shown between frequent and rare classes")
    assert headline(model(0.3, 0.5, 0.9)).startswith("Rare classes do better than frequent ones")


def test_one_group_has_no_gap_to_speak_of() -> None:
    assert (
        headline(evaluate(np.eye(2), [0, 1], [500, 500])) == "All measured classes are many-shot: 100\u00a0% accuracy."
    )


def test_one_image_shows_no_gap() -> None:
    found = evaluate([[1.0, 0.0]], [0], [500, 5])
    assert headline(found).startswith("All measured classes are many-shot")
    assert "One test image gives no interval." in remarks(found)


def test_remarks_name_what_is_never_recognised_and_never_predicted() -> None:
    found = evaluate(np.tile([9.0, 0.0, 0.0], (120, 1)), TARGET, COUNTS)
    assert remarks(found)[:2] == [
        "2 of 3 classes are never recognised.",
        "2 of 3 classes are never predicted.",
    ]
    assert remarks(found)[-1].startswith("The model is overconfident: its confidence is off by 67 points")


def test_remarks_name_classes_without_test_images() -> None:
    found = evaluate(np.eye(3)[:2], [0, 1], COUNTS)
    assert "Balanced over 2 of 3 classes: 1 has no test image." in remarks(found)


def test_a_timid_model_is_called_underconfident() -> None:
    assert any("underconfident" in r for r in remarks(model(1.0, 1.0, 1.0, scale=0.1)))


def test_a_good_model_needs_no_remark() -> None:
    assert remarks(model(1.0, 1.0, 1.0, scale=20.0)) == []


def test_classes_that_are_equally_bad_are_counted() -> None:
    logits, target = 9 * np.eye(6)[[0, 1, 0, 0, 0, 0]], np.arange(6)
    found = evaluate(logits, target, [60, 50, 40, 30, 20, 10], ["a", "b", "c", "d", "e", "f"], replicates=5)
    assert worst_classes(found) == "Worst: 4 classes at 0.0\u00a0% (c, d, e, ...)."
    one = evaluate(9 * np.eye(3)[[0, 1, 0]], [0, 1, 2], [60, 50, 40], ["a", "b", "c"], replicates=5)
    assert worst_classes(one) == "Worst class: c, 0.0\u00a0%."


def test_a_training_that_was_too_short_is_told() -> None:
    found = evaluate(9 * np.eye(3), [0, 1, 2], [60, 50, 40], replicates=5)
    short = [{"epoch": 1.0, "train/accuracy": 0.15}, {"epoch": 2.0, "train/accuracy": 0.22}]
    assert remarks(found, short)[0] == (
        "The training may have been too short: 22\u00a0% of its augmented training images were right at its end, "
        "and the share was still rising. Train for more epochs."
    )
    assert not any("too short" in remark for remark in remarks(found, [{"train/accuracy": 0.9}]))
    assert not any("too short" in remark for remark in remarks(found))
