"""What is done to the images of each data set: size, normalisation, AutoAugment's policy, mirroring.

Means and standard deviations are those of the whole balanced training set, as is custom, so that runs at
different imbalance factors see the same values. The policy is the one found on that data set or on its
nearest kin: SVHN's for digits, which are not mirrored since a mirrored digit is another sign.
"""

from dataclasses import dataclass, replace

from longtail.data.transforms.auto_augment import AutoAugment
from longtail.data.transforms.framing import CentreCrop, Framing, PadCrop, ResizedCrop
from longtail.data.views import View


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


# Of the 50,000 training images of each, by channel.
_CIFAR10 = Preprocessing(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "cifar10")
_CIFAR100 = Preprocessing(32, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), "cifar10")
# Of ImageNet's training images; pretrained backbones expect these.
_IMAGENET = Preprocessing(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "imagenet", resized=True)

PREPROCESSING: dict[str, Preprocessing] = {
    "cifar10-lt": _CIFAR10,
    "cifar100-lt": _CIFAR100,
    "fashion-mnist-lt": Preprocessing(28, (0.2860,), (0.3530,), "cifar10"),
    "digits-lt": Preprocessing(8, (0.3053,), (0.3760,), "svhn", flip=False),
    "imagenet-lt": _IMAGENET,
    "places-lt": _IMAGENET,
    "inaturalist2018": _IMAGENET,
}


def preprocessing_of(name: str, size: int | None = None) -> Preprocessing:
    """That of a data set: a name, with or without `:imbalance_factor`, or anybody's own images.

    Args:
        name: of the data set; an unknown one is treated as ImageNet's images are.
        size: of what the network sees, where that can be chosen: for images that are resized.
    """
    found = PREPROCESSING.get(name.partition(":")[0], _IMAGENET)
    if size is None or size == found.size:
        return found
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    if not found.resized:
        raise ValueError(f"size must be {found.size} for {name}, whose images are stored at it, got {size}")
    return replace(found, size=size)
