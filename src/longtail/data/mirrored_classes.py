"""Find classes that are mirror images of each other, such as the signs "turn left" and "turn right".

Mirroring an image of such a class in training gives it the wrong label. So it must be left out where there are any.

Each image becomes a grey thumbnail x of 16 x 16 pixels, standardised. Class means are compared in a space in which
the scatter Σ within the classes is alike in all directions, so that backgrounds count little:

    d_k(x) = (x − m_k)ᵀ (Σ + λ t I)⁻¹ (x − m_k)

with the mean m_k of class k (without x itself if x is of class k), the mean t of Σ's eigenvalues, and λ = 0.3. Σ is
that of the images and of the mirrored ones together. A mean of few images is noisy, which adds to d_k; what it adds on
average is subtracted.

Of two classes a and b, an image x of a is a witness if x is nearer to a, and mirrored, x' is nearer to b. The same
holds of b with a. The two are mirrored classes if

- in each class three in four images are witnesses, and so many of both would come by tossing coins with a probability
  of less than 0.001, after Bonferroni's correction for all pairs of classes; and
- mirrored images prefer the other class almost as clearly as its own images do: the differences d_a(x') − d_b(x') of
  mirrored images of a, with those of b the other way round, are on average at least 0.6 of the differences
  d_a(y) − d_b(y) of images of b, with those of a. The ratio is 1 for exact mirror images. Of products that are merely
  photographed from different sides it was below 0.5.

Classes that look the same when mirrored have no witnesses, nor have photographs of things that face both ways.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.data.images import ArrayImages
from longtail.data.inventory import FileList
from longtail.data.scan import Progress, on_all_processors

Floats = NDArray[np.float64]

_SIDE = 16
_RIDGE = 0.3
_FEWEST_WITNESSES, _CLARITY, _P_VALUE = 0.75, 0.6, 0.001

# Of each class at most 40 images are looked at, and fewer of many or large ones, but 10; of many classes, the largest.
_MOST_IMAGES, _ENOUGH_IMAGES, _FEWEST_IMAGES = 40, 10, 4
_MOST_CLASSES, _MOST_IN_ALL, _MOST_PIXELS = 400, 4_000, 2**31


def mirrored_classes(
    images: ArrayImages | FileList, classes: Sequence[str], *, progress: Progress | None = None
) -> list[tuple[str, str]]:
    """The pairs of classes that are mirror images of each other, the clearest first.

    At most 4,000 images are decoded. A class with fewer than 4 images is left out.

    Args:
        images: training images.
        classes: the class names, in the order of the labels.
        progress: called with the number of images done and the number of all.
    """
    chosen = images.select(_choose(images))
    if not len(chosen):
        return []
    if isinstance(chosen, FileList):
        files = [str(chosen.root / path) for path in chosen.paths]
        found = on_all_processors(_thumbnail_of_file, files, decode=True, progress=progress)
    else:
        found = [_thumbnail(image) for image in chosen.images]
    seen = [i for i, thumbnail in enumerate(found) if thumbnail is not None]
    thumbnails = np.array([found[i] for i in seen], dtype=np.float64).reshape(-1, _SIDE, _SIDE)
    return [(classes[a], classes[b]) for a, b in mirrored_pairs(thumbnails, chosen.targets[seen])]


def mirrored_pairs(thumbnails: Floats, targets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The labels of mirrored classes; see the module's docstring.

    Args:
        thumbnails: grey images of shape (n, 16, 16).
        targets: their labels.
    """
    labels, places, counts = np.unique(targets, return_inverse=True, return_counts=True)
    usable = counts >= _FEWEST_IMAGES
    if usable.sum() < 2:
        return []
    plain, mirrored = _preferences(_standardise(thumbnails), places, counts)
    member = np.eye(len(labels))[places] / counts[places, None]
    witnesses = member.T @ ((plain > 0) & (mirrored > 0))
    own, other = member.T @ plain, member.T @ mirrored
    pairs = list(itertools.combinations(np.flatnonzero(usable).tolist(), 2))
    found = []
    for a, b in pairs:
        share = min(witnesses[a, b], witnesses[b, a])
        clear = other[a, b] + other[b, a] >= _CLARITY * (own[a, b] + own[b, a])
        if share >= _FEWEST_WITNESSES and clear:
            successes = round(witnesses[a, b] * counts[a] + witnesses[b, a] * counts[b])
            if _tail(successes, int(counts[a] + counts[b])) * len(pairs) < _P_VALUE:
                found.append((-share, int(labels[a]), int(labels[b])))
    return [(a, b) for _, a, b in sorted(found)]


def _choose(images: ArrayImages | FileList) -> NDArray[np.int64]:
    """Images of each class, spread evenly over its list: neighbours in it are often shots of one thing."""
    labels, counts = np.unique(images.targets, return_counts=True)
    largest = labels[np.argsort(-counts, kind="stable")[:_MOST_CLASSES]]
    sizes = images.sizes if isinstance(images, FileList) else None
    pixels = float(np.prod(sizes, axis=1).mean()) if sizes is not None and len(sizes) else 1.0
    most = min(_MOST_IN_ALL, _MOST_PIXELS / pixels) / max(1, len(largest))
    number = int(np.clip(most, _ENOUGH_IMAGES, _MOST_IMAGES))
    members = (np.flatnonzero(images.targets == k) for k in largest)
    parts = [one[np.linspace(0, len(one) - 1, min(number, len(one))).round().astype(np.int64)] for one in members]
    return np.concatenate([np.empty(0, np.int64), *(part for part in parts if len(part) >= _FEWEST_IMAGES)])


def _thumbnail_of_file(path: str) -> NDArray[np.uint8] | None:
    """The thumbnail of a file; None if it cannot be decoded."""
    from longtail.data.decode_image import UNREADABLE, decode_image

    try:
        return _thumbnail(decode_image(path, 2 * _SIDE))
    except UNREADABLE:
        return None


def _thumbnail(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey thumbnail of an image of shape (height, width, 1 or 3)."""
    from PIL import Image

    picture = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0]).convert("L")
    return np.array(picture.resize((_SIDE, _SIDE), Image.Resampling.BOX))


def _standardise(thumbnails: Floats) -> Floats:
    """Mean 0 and standard deviation 1 for each image; an image of one grey stays 0."""
    centred = thumbnails - thumbnails.mean((1, 2), keepdims=True)
    spread = centred.std((1, 2), keepdims=True)
    scaled: Floats = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-6)
    return scaled


def _preferences(images: Floats, places: NDArray[np.intp], counts: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """By how much each image is nearer to its own class than to each other, and mirrored, nearer to the other."""
    number = len(images)
    plain, mirrored = (view.reshape(number, -1) for view in (images, images[:, :, ::-1]))
    sums = np.eye(len(counts))[places].T
    residuals = plain - (sums @ plain / counts[:, None])[places]
    turned = residuals.reshape(images.shape)[:, :, ::-1].reshape(number, -1)
    freedom = max(1, number - len(counts))
    values, vectors = np.linalg.eigh((residuals.T @ residuals + turned.T @ turned) / (2 * freedom))
    whitening = (vectors / np.sqrt(np.maximum(values, 0) + _RIDGE * max(values.mean(), 1e-9))) @ vectors.T
    plain, mirrored, residuals = plain @ whitening, mirrored @ whitening, residuals @ whitening
    means = sums @ plain / counts[:, None]
    scatter = float((residuals**2).sum()) / freedom
    others = np.maximum(counts[places] - 1, 1)
    own_mean = (counts[places, None] * means[places] - plain) / others[:, None]

    def preference(view: Floats) -> Floats:
        to_class = (view**2).sum(1)[:, None] - 2 * view @ means.T + (means**2).sum(1) - scatter / counts
        to_own = ((view - own_mean) ** 2).sum(1) - scatter / others
        to_class[np.arange(number), places] = to_own
        nearer: Floats = to_class - to_own[:, None]
        return nearer

    return preference(plain), -preference(mirrored)


def _tail(successes: int, number: int) -> float:
    """The probability of so many heads, or more, in `number` tosses of a coin."""
    ways = sum(math.comb(number, heads) for heads in range(successes, number + 1))
    return float(ways / 2**number)
