"""What is done to the images of a data set: size, normalisation, AutoAugment's policy, mirroring."""

from dataclasses import dataclass

from longtail.data.open_dataset import LongTailData
from longtail.data.transforms.auto_augment import AutoAugment
from longtail.data.transforms.framing import CentreCrop, Framing, PadCrop, ResizedCrop
from longtail.data.views import VIEWS, View


@dataclass(frozen=True)
class Preprocessing:
    """How the images of a data set are seen.

    Args:
        size: height and width of what the network sees.
        mean: of each channel, for values from 0 to 1.
        std: of each channel.
        policy: AutoAugment's, of the strong view.
        flip: whether a mirrored image is still one of its class.
        resized: whether images come in all sizes and are resized; if not, all are `size` x `size`, and are
            padded by an eighth (4 at 32 x 32) and cropped.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    policy: str
    flip: bool = True
    resized: bool = False

    def weak(self) -> View:
        """Cropped and mirrored."""
        return View(self._training())

    def strong(self) -> View:
        """Cropped, mirrored, and augmented by AutoAugment."""
        return View(self._training(), AutoAugment(self.policy, self.size, self.size))

    def evaluation(self) -> View:
        """Without any chance; large images: 8/7 of the size (256 for 224), cut to the middle."""
        return View(CentreCrop(self.size, self.size * 8 // 7 if self.resized else self.size))

    def _training(self) -> Framing:
        if self.resized:
            return ResizedCrop(self.size, self.flip)
        return PadCrop(self.size, self.size // 8, self.flip)


VIEWS.register("weak")(Preprocessing.weak)
VIEWS.register("strong")(Preprocessing.strong)

# The policy found on the data set or on its nearest kin; anything else is treated as photographs.
_POLICIES = {
    "cifar10-lt": "cifar10",
    "cifar100-lt": "cifar10",
    "fashion-mnist-lt": "cifar10",
    "digits-lt": "svhn",
}
# A mirrored digit is another sign.
_NOT_MIRRORED = {"digits-lt"}
_SIZE = 224


def preprocessing_of(data: LongTailData, size: int | None = None) -> Preprocessing:
    """The usual one for a data set.

    Args:
        data: as `open_dataset` gives it; its name decides on the policy and on mirroring.
        size: of what the network sees. By default that of the images if all have the same, and 224 if not;
            with another size images are resized.

    Example:
        >>> from longtail.data import open_dataset
        >>> found = preprocessing_of(open_dataset("digits-lt:10"))
        >>> found.size, found.policy, found.flip, found.resized
        (8, 'svhn', False, False)
    """
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    stored = data.image_size[0] if data.image_size and len(set(data.image_size)) == 1 else None
    name = data.name.partition(":")[0]
    wanted = size or stored or _SIZE
    return Preprocessing(
        wanted,
        data.mean,
        data.std,
        policy=_POLICIES.get(name, "imagenet"),
        flip=name not in _NOT_MIRRORED,
        resized=wanted != stored,
    )
