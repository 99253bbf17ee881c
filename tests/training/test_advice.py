"""What a run advises, on numbers that call for it and on numbers that do not."""

from pathlib import Path

import numpy as np

from longtail.evaluation import Evaluation, evaluate
from longtail.training.advice import advice

PATH = Path("runs/a b")


def found(recalls: list[float], train: list[int]) -> Evaluation:
    target = np.repeat(np.arange(len(train)), 10)
    logits = np.zeros((len(target), len(train)), np.float32)
    for row, label in enumerate(target):
        right = row % 10 < 10 * recalls[label]
        logits[row, label if right else (label + 1) % len(train)] = 1
    return evaluate(logits, target, train, [f"class {k}" for k in range(len(train))])


GOOD = found([1.0, 1.0], [200, 4])


def test_a_training_that_learnt_nothing_was_too_short() -> None:
    rows = [{"epoch": 5.0, "train/accuracy": 0.22, "val/accuracy": 0.2}]
    said = advice(PATH, GOOD, rows, epochs=5)
    assert said == ["training accuracy is only 22%: train longer with longtail train --resume 'runs/a b' --epochs 10"]
    assert advice(PATH, GOOD, [{"epoch": 5.0, "train/accuracy": 0.22, "val/accuracy": 0.9}], epochs=5) == []


def test_one_that_still_rises_may_go_on() -> None:
    rising = [{"epoch": n, "train/accuracy": 0.9, "val/balanced": 0.1 * n} for n in range(1, 7)]
    assert advice(PATH, GOOD, rising, epochs=6)[0].startswith("still improving on validation at the end: longtail")
    flat = [row | {"val/balanced": 0.5} for row in rising]
    assert advice(PATH, GOOD, flat, epochs=6) == []
    assert advice(PATH, GOOD, [], epochs=0) == []


def test_classes_with_few_images_that_are_not_recognised_are_named() -> None:
    said = advice(PATH, found([1.0, 0.2, 0.3, 0.9, 0.1, 0.4], [200, 4, 1, 2, 150, 8]), [], epochs=0)
    assert said == ["class 2 has 1 image, class 1 has 4 images, class 5 has 8 images: collect more"]


def test_one_class_beyond_those_that_are_named_is_a_class() -> None:
    said = advice(PATH, found([1.0, 0.1, 0.1, 0.1, 0.1], [200, 1, 2, 3, 4]), [], epochs=0)
    assert said[0].endswith("class 3 has 3 images, and 1 more class has few: collect more")


def test_a_name_that_is_cut_shows_it() -> None:
    named = evaluate(np.eye(2, dtype=np.float32)[[0, 0]], np.array([0, 1]), [200, 1], ["a", "x " * 50])
    (said,) = advice(PATH, named, [], epochs=0)
    assert said.startswith("x x x")
    assert "… has 1 image" in said
