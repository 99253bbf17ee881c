"""The preprocessing of a data set: image size, normalisation, AutoAugment policy, flips, strength of augmentation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from longtail._typing import Augment
from longtail.data.open_dataset import LongTailData
from longtail.data.transforms.auto_augment import AutoAugment
from longtail.data.transforms.boxes import SMALLEST
from longtail.data.transforms.crop import CentreCrop, Crop, PadCrop, ResizedCrop
from longtail.data.views import VIEWS, View


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a data set.

    Args:
        size: height and width of the network's input.
        mean: the mean of each channel, for values between 0 and 1.
        std: the standard deviation of each channel.
        policy: the AutoAugment policy of the strong view.
        flip: whether a flipped image still belongs to its class.
        resized: whether images have any size and are resized; if not, all are `size` x `size`, and are padded by
            an eighth (4 at 32 x 32) and cropped.
        augment: the strongest augmentation: `weak` makes the weak view of a strong one, `none` that of evaluation
            of all; `strong` leaves each training view as it is.
        crop_scale: the smallest share of the area that a crop of a resized image keeps.
        whole: whether the evaluation sees all of the shorter side of a resized image, rather than seven eighths.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    policy: str
    flip: bool = True
    resized: bool = False
    augment: Augment = "strong"
    crop_scale: float = SMALLEST
    whole: bool = False

    @VIEWS.register("weak")
    def weak(self) -> View:
        """Cropped and flipped."""
        return View(self._training())

    @VIEWS.register("strong")
    def strong(self) -> View:
        """Cropped, flipped, and augmented by AutoAugment."""
        return View(self._training(), AutoAugment(self.policy, self.size, self.size))

    def evaluation(self) -> View:
        """Nothing random; images of other sizes are resized to 8/7 of the size (256 for 224) and cropped."""
        return View(CentreCrop(self.size, self.size * 8 // 7 if self.resized and not self.whole else self.size))

    def training_view(self, name: str) -> View:
        """The view `name` of `VIEWS`, no stronger than `augment`."""
        if self.augment == "none":
            return self.evaluation()
        return VIEWS["weak" if self.augment == "weak" and name == "strong" else name](self)

    def _training(self) -> Crop:
        if self.resized:
            return ResizedCrop(self.size, self.flip, self.crop_scale)
        return PadCrop(self.size, self.size // 8, self.flip)


# The policy found on the data set or on the most similar one; anything else counts as photographs.
_POLICIES = {
    "cifar10-lt": "cifar10",
    "cifar100-lt": "cifar10",
    "fashion-mnist-lt": "cifar10",
    "digits-lt": "svhn",
}
# A flipped digit is another sign.
_NOT_FLIPPED = {"digits-lt"}
# Images of one size up to _SMALL are used as they are. Others are resized to at most _LARGEST, in steps of _STEP, by
# which most networks reduce an image.
_SMALL, _LARGEST, _STEP = 96, 224, 32


def preprocessing_of(
    data: LongTailData,
    size: int | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    flip: bool | None = None,
    augment: Augment | None = None,
    crop_scale: float | None = None,
) -> Preprocessing:
    """The usual preprocessing of a data set, with what is given in place of it.

    Args:
        data: from `open_dataset`; its name decides on the policy.
        size: the size of the network's input. Defaults to that of the images if all are square and of one size of
            at most 96, else to their typical shorter side, at most 224 and rounded down to a multiple of 32. Images
            of another size are resized.
        mean: the mean of each channel; defaults to that of the data. Pretrained weights expect their own.
        std: the standard deviation of each channel; defaults to that of the data.
        flip: whether to flip; defaults to whether a flipped image still belongs to its class, as far as is known:
            not for digits, nor where a check found mirrored classes.
        augment: the strongest augmentation; defaults to that of the views that a method asks for.
        crop_scale: the smallest share of the area that a crop of a resized image keeps; defaults to 0.08.

    Example:
        >>> from longtail.data import open_dataset
        >>> found = preprocessing_of(open_dataset("digits-lt:10"))
        >>> found.size, found.policy, found.flip, found.resized
        (8, 'svhn', False, False)
    """
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    for word, values in (("mean", mean), ("std", std)):
        if values is not None and len(values) != data.in_channels:
            raise ValueError(f"{word} must have one number per channel, {data.in_channels}, got {len(values)}")
    if crop_scale is not None and not 0 < crop_scale <= 1:
        raise ValueError(f"crop_scale must be above 0 and at most 1, got {crop_scale}")
    if augment not in (None, *get_args(Augment)):
        raise ValueError(f"augment must be {', '.join(get_args(Augment))} or None, got {augment!r}")
    height, width = data.image_size or (0, 1)
    stored = height if height == width <= _SMALL else None
    wanted = size or stored or max(_STEP, min(data.typical_side, _LARGEST) // _STEP * _STEP)
    name = data.name.partition(":")[0]
    return Preprocessing(
        wanted,
        tuple(data.mean if mean is None else mean),
        tuple(data.std if std is None else std),
        policy=_POLICIES.get(name, "imagenet"),
        flip=name not in _NOT_FLIPPED and not data.mirrored if flip is None else flip,
        resized=wanted != stored,
        augment=augment or "strong",
        crop_scale=crop_scale or SMALLEST,
    )
