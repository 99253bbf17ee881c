"""The preprocessing of a data set: image size, normalisation, AutoAugment policy, flips."""

from dataclasses import dataclass
from typing import Literal

from longtail.data.images import FileImages
from longtail.data.open_dataset import LongTailData
from longtail.data.transforms.auto_augment import AutoAugment
from longtail.data.transforms.crop import CentreCrop, Crop, PadCrop, ResizedCrop
from longtail.data.views import VIEWS, View

Augment = Literal["none", "weak", "strong"]


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
        augment: "strong" as the views say; "weak" makes the strong view weak; "none" trains on the evaluation's view.
        crop_scale: the smallest share of the area that a random crop of a resized image keeps.
        whole: whether the evaluation sees all of the shorter side of a resized image, rather than seven eighths.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    policy: str
    flip: bool = True
    resized: bool = False
    augment: Augment = "strong"
    crop_scale: float = 0.08
    whole: bool = False

    @VIEWS.register("weak")
    def weak(self) -> View:
        """Cropped and flipped."""
        return self.evaluation() if self.augment == "none" else View(self._training())

    @VIEWS.register("strong")
    def strong(self) -> View:
        """Cropped, flipped, and augmented by AutoAugment."""
        if self.augment != "strong":
            return self.weak()
        return View(self._training(), AutoAugment(self.policy, self.size, self.size))

    def evaluation(self) -> View:
        """Nothing random; images of other sizes are resized, unless `whole` to 8/7 (256 for 224), and cropped."""
        return View(CentreCrop(self.size, self.size * 8 // 7 if self.resized and not self.whole else self.size))

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
_SIZE = 224
# Images of one size up to this are used as they are; larger ones are resized.
_SMALL = 96


def preprocessing_of(
    data: LongTailData,
    size: int | None = None,
    *,
    flip: bool | None = None,
    augment: Augment | None = None,
    crop_scale: float | None = None,
) -> Preprocessing:
    """The usual preprocessing of a data set.

    Args:
        data: from `open_dataset`; its name decides on the policy and on flips.
        size: the size of the network's input. Defaults to that of the images if all are square, small and of one
            size; else to their typical side in steps of 32, from 32 to 224. Images of another size are resized.
        flip: whether to mirror; defaults to whether that suits the data.
        augment: see `Preprocessing`.
        crop_scale: see `Preprocessing`.

    Example:
        >>> from longtail.data import open_dataset
        >>> found = preprocessing_of(open_dataset("digits-lt:10"))
        >>> found.size, found.policy, found.flip, found.resized
        (8, 'svhn', False, False)
    """
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    stored = data.image_size[0] if data.image_size and len(set(data.image_size)) == 1 else None
    if stored and stored > _SMALL and isinstance(data.train, FileImages):
        stored = None  # so large that they are cropped at random
    name = data.name.partition(":")[0]
    side = data.typical_side or _SIZE
    wanted = size or stored or min(max(side // 32 * 32, 32), _SIZE)
    return Preprocessing(
        wanted,
        data.mean,
        data.std,
        policy=_POLICIES.get(name, "imagenet"),
        flip=name not in _NOT_FLIPPED if flip is None else flip,
        resized=wanted != stored,
        augment=augment or "strong",
        crop_scale=0.08 if crop_scale is None else crop_scale,
    )
