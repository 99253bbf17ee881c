"""The boxes of random resized crops: area and aspect ratio are drawn first, then the place.

The area is uniform in 8 to 100 % of the image (or from another share on), and the logarithm of width / height is
uniform between those of 3/4 and 4/3. A box that does not fit is drawn again, at most ten times; after that it is the
largest central box with an aspect ratio within the bounds. Szegedy et al., "Going deeper with convolutions", CVPR 2015,
section 6.
"""

import numpy as np
from numpy.typing import NDArray

TRIES = 10
SMALLEST = 0.08
RATIO = (3 / 4, 4 / 3)


def random_boxes(sizes: NDArray[np.int64], draws: NDArray[np.float64], smallest: float = SMALLEST) -> NDArray[np.int64]:
    """A random box in each image.

    Args:
        sizes: height and width of each image, shape (n, 2).
        draws: uniform numbers of shape (n, 22): ten areas, ten aspect ratios, vertical and horizontal place.
        smallest: the smallest area of a box, as a share of the image's.

    Returns:
        Top, left, height and width of each box, shape (n, 4).
    """
    height, width = sizes[:, :1].astype(np.float64), sizes[:, 1:].astype(np.float64)
    area = height * width * (smallest + (1 - smallest) * draws[:, :TRIES])
    low, high = np.log(RATIO)
    ratio = np.exp(low + (high - low) * draws[:, TRIES : 2 * TRIES])
    # The last column is the box for when none of the tries fits.
    widths = np.concatenate([np.rint(np.sqrt(area * ratio)), _widest(height, width)], axis=1)
    heights = np.concatenate([np.rint(np.sqrt(area / ratio)), _highest(height, width)], axis=1)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    fits[:, TRIES] = True
    first = fits.argmax(axis=1)[:, None]
    box = np.concatenate([np.take_along_axis(side, first, 1) for side in (heights, widths)], axis=1)
    place = np.floor(draws[:, 2 * TRIES :] * (sizes - box + 1))
    place = np.where(first == TRIES, (sizes - box) // 2, place)
    return np.concatenate([place, box], axis=1).astype(np.int64)


def _widest(height: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(width / height > RATIO[1], np.rint(height * RATIO[1]), width)


def _highest(height: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(width / height < RATIO[0], np.rint(width / RATIO[0]), height)
