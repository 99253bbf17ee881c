"""Digits-LT: the 1,797 handwritten digits, 8x8 and grey, that come with scikit-learn; needs no network.

scikit-learn publishes no split, so this one is fixed whatever the seed: 54 test and 120 training images of each
digit, drawn once; the few left over are not used. Its values 0 ... 16 become 0 ... 255.
"""

from pathlib import Path

import numpy as np

from longtail.data.datasets.arrays import Arrays, ArraySet, Layout
from longtail.data.datasets.base import DATASETS
from longtail.data.images import ArrayImages
from longtail.data.splits import long_tail_indices

TRAIN_EACH, TEST_EACH = 120, 54


def _read(folder: Path) -> Arrays:
    del folder
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    every = ArrayImages(images, digits.target.astype(np.int64))
    test = long_tail_indices(every.targets, [TEST_EACH] * 10)
    rest = every.select(np.setdiff1d(np.arange(len(every)), test))
    return Arrays(rest.select(long_tail_indices(rest.targets, [TRAIN_EACH] * 10)), every.select(test))


DIGITS_LT = ArraySet(
    name="digits-lt",
    classes=tuple("0123456789"),
    mean=(0.3055,),
    std=(0.3762,),
    # At 100 the smallest class would have one image.
    imbalance_factor=10,
    checksums=(
        "44d5a7503630d3d804cf6764343aef086e53446a81be014c6c2562c6a7923e3a",
        "dd677c05c70d79b951ea9a90e488d0c625c6a98d81962577d009c71c84d33615",
    ),
    layouts=(Layout("", (), _read),),
)
DATASETS.register("digits-lt")(DIGITS_LT)
