from dataclasses import replace

import numpy as np
import pytest

from longtail.evaluation import Predictions, align_predictions
from tests.support.simulated_logits import simulate

DATA = simulate(8, images_per_class=5)
PATHS = tuple(f"{i}.png" for i in range(40))
FIRST = Predictions(PATHS, DATA.target, DATA.logits, tuple(DATA.classes))


def shuffled(seed: int = 0) -> Predictions:
    """The same predictions, with the images and the classes in another order."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(40), rng.permutation(8)
    place = np.argsort(columns)
    return Predictions(
        tuple(PATHS[r] for r in rows),
        place[DATA.target[rows]],
        DATA.logits[np.ix_(rows, columns)],
        tuple(DATA.classes[c] for c in columns),
    )


def test_another_order_of_images_and_classes_is_undone() -> None:
    logits, target = align_predictions({"a": FIRST, "b": shuffled()})
    np.testing.assert_array_equal(logits["b"], FIRST.logits)
    np.testing.assert_array_equal(target, FIRST.target)


def test_other_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"b lacks 1 test image of a, first '3\.png'"):
        align_predictions({"a": FIRST, "b": replace(FIRST, paths=(*PATHS[:3], "new.png", *PATHS[4:]))})
    more = Predictions(
        (*PATHS, "new.png"),
        np.append(DATA.target, 0),
        np.vstack([DATA.logits, DATA.logits[:1]]),
        FIRST.classes,
    )
    with pytest.raises(ValueError, match=r"b has the test image 'new\.png', which a lacks"):
        align_predictions({"a": FIRST, "b": more})


def test_an_image_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"b lists the test image '0\.png' more than once"):
        align_predictions({"a": FIRST, "b": replace(FIRST, paths=("0.png", "0.png", *PATHS[2:]))})


def test_other_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="b lacks 1 class of a, first"):
        align_predictions({"a": FIRST, "b": replace(FIRST, classes=("else", *FIRST.classes[1:]))})


def test_other_labels_are_refused() -> None:
    target = DATA.target.copy()
    target[5] = (target[5] + 1) % 8
    with pytest.raises(ValueError, match=r"agree on the true classes, but '5\.png' is .* \(1 such image\)"):
        align_predictions({"a": FIRST, "b": replace(FIRST, target=target)})


def test_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        align_predictions({})
