"""How fast are two-view batches (weak + AutoAugment): ours against torchvision's transforms and DataLoader?

    python -m benchmarks.speed.data_pipeline [--workers 1] [--repeats 7]

Two cases, each with the same images and the same transforms on both sides, float32 and normalised at the end:

- `cifar`: 32 x 32 in memory, crop with padding 4, flip, AutoAugment's CIFAR-10 policy. CIFAR-10 if
`LONGTAIL_DATA`
  has it, else generated images. Bar: at least 3 times the reference with one worker.
- `folder`: JPEG files of about 500 x 375, RandomResizedCrop to 224, flip, AutoAugment's ImageNet policy;
generated.
  Bar: not slower than the reference.

The reference is torchvision as its documentation has it: `v2` transforms image by image in a DataLoader. It
is measured on PIL images, which its data sets give, and on tensors, and the faster one counts. All take
turns in each repeat, so that a busy machine slows all of them; a ratio is the median of the repeats'
ratios.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets
from torchvision.transforms import v2

from benchmarks.record import append_record
from benchmarks.speed import RESULTS
from longtail.data.images import ArrayImages, FileImages
from longtail.data.loader import train_loader
from longtail.data.preprocessing import Preprocessing

BARS = {"cifar": 3.0, "folder": 1.0}
BATCH = {"cifar": 128, "folder": 32}
CIFAR_IMAGES, FOLDER_IMAGES = 12_800, 256


class TwoViews:
    """The reference's transforms: two views of one image."""

    def __init__(self, crop: Callable[[], v2.Transform], policy: v2.AutoAugmentPolicy, like: Preprocessing) -> None:
        end = [
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(like.mean), list(like.std)),
        ]
        self.weak = v2.Compose([crop(), v2.RandomHorizontalFlip(), *end])
        self.strong = v2.Compose([crop(), v2.RandomHorizontalFlip(), v2.AutoAugment(policy), *end])

    def __call__(self, image: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Weak and strong."""
        return self.weak(image), self.strong(image)


class PerImage(Dataset[tuple[tuple[torch.Tensor, torch.Tensor], int]]):
    """Images in memory, given one at a time as torchvision's CIFAR10 gives them."""

    def __init__(self, images: Sequence[Any], transform: TwoViews) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[tuple[torch.Tensor, torch.Tensor], int]:
        return self.transform(self.images[index]), 0


def generated(count: int, height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Smooth images with a little noise, which compress about as photographs do."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 8, 8, generator=generator) * 255
    images = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    images += torch.randn(images.shape, generator=generator) * 6
    array: NDArray[np.uint8] = images.clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
    return array


def cifar_images() -> tuple[NDArray[np.uint8], str]:
    """CIFAR-10's if they are there."""
    root = os.environ.get("LONGTAIL_DATA")
    if root:
        try:
            return datasets.CIFAR10(root).data[:CIFAR_IMAGES], "CIFAR-10"
        except RuntimeError:
            pass
    return generated(CIFAR_IMAGES, 32, 32, seed=0), "generated"


def cifar_contenders(workers: int) -> tuple[dict[str, Iterable[Any]], str]:
    """Ours and the references on images in memory."""
    like = Preprocessing(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "cifar10")
    images, source = cifar_images()
    two_views = TwoViews(lambda: v2.RandomCrop(32, padding=4), v2.AutoAugmentPolicy.CIFAR10, like)
    few = images[:2560]
    return {
        "longtail": train_loader(
            ArrayImages(images, np.zeros(len(images), np.int64)),
            like,
            batch_size=BATCH["cifar"],
            views=("weak", "strong"),
            workers=workers,
        ),
        "torchvision, PIL": reference(PerImage([Image.fromarray(i) for i in few], two_views), "cifar", workers),
        "torchvision, tensors": reference(
            PerImage(list(torch.from_numpy(few).permute(0, 3, 1, 2).contiguous()), two_views),
            "cifar",
            workers,
        ),
    }, source


def folder_contenders(workers: int, root: Path) -> tuple[dict[str, Iterable[Any]], str]:
    """Ours and the references on JPEG files."""
    like = Preprocessing(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "imagenet", resized=True)
    paths = [root / "class" / f"{number:04}.jpg" for number in range(FOLDER_IMAGES)]
    paths[0].parent.mkdir()
    for start in range(0, FOLDER_IMAGES, 32):
        for path, image in zip(paths[start:], generated(32, 375, 500, seed=start), strict=False):
            Image.fromarray(image).save(path, quality=90)
    two_views = TwoViews(lambda: v2.RandomResizedCrop(224, antialias=True), v2.AutoAugmentPolicy.IMAGENET, like)
    return {
        "longtail": train_loader(
            FileImages(paths, np.zeros(FOLDER_IMAGES, np.int64)),
            like,
            batch_size=BATCH["folder"],
            views=("weak", "strong"),
            workers=workers,
        ),
        "torchvision, PIL": reference(datasets.ImageFolder(root, two_views), "folder", workers),
        "torchvision, tensors": reference(
            datasets.ImageFolder(root, v2.Compose([v2.PILToTensor(), two_views])), "folder", workers
        ),
    }, "generated"


def reference(images: Dataset[Any], case: str, workers: int) -> Iterable[Any]:
    """Torchvision's transforms in an ordinary DataLoader."""
    return DataLoader(
        images,
        batch_size=BATCH[case],
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
    )


def images_per_second(loader: Iterable[Any], case: str) -> float:
    """Of one epoch, from its first request to its last batch."""
    start = time.perf_counter()
    batches = sum(1 for _ in loader)
    return batches * BATCH[case] / (time.perf_counter() - start)


def measure(contenders: dict[str, Iterable[Any]], case: str, repeats: int) -> dict[str, object]:
    """Let all take turns, after an epoch each to start the workers."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, loader in contenders.items():
            speed = images_per_second(loader, case)
            if turn:
                speeds[name].append(speed)
    others = [values for name, values in speeds.items() if name != "longtail"]
    ratios = [ours / max(theirs) for ours, *theirs in zip(speeds["longtail"], *others, strict=True)]
    return {
        "images_per_second": {name: spread(values) for name, values in speeds.items()},
        "ratio": spread(ratios),
        "bar": BARS[case],
    }


def spread(values: list[float]) -> dict[str, float]:
    """Median and range, to three digits."""
    numbers = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: float(f"{value:.3g}") for name, value in numbers.items()}


def show(case: str, found: dict[str, Any]) -> None:
    """Print the table of a case."""
    print(f"\n{case} (bar: {found['bar']:g}x the faster torchvision)")
    for name, speed in found["images_per_second"].items():
        print(f"  {name:22} {speed['median']:9,.0f} images/s   ({speed['least']:,.0f} to {speed['most']:,.0f})")
    ratio = found["ratio"]
    print(f"  {'ratio':22} {ratio['median']:9.2f}x           ({ratio['least']:.2f} to {ratio['most']:.2f})")


def main() -> None:
    """Measure both cases and append the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cases: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in BARS:
            contenders, source = (
                cifar_contenders(arguments.workers)
                if case == "cifar"
                else folder_contenders(arguments.workers, Path(folder))
            )
            found = measure(contenders, case, arguments.repeats)
            cases[case] = {"images": source, "batch_size": BATCH[case], **found}
            show(case, found)
    append_record(
        RESULTS,
        labels={"benchmark": "data_pipeline"},
        command=f"python -m benchmarks.speed.data_pipeline --workers {arguments.workers} --repeats {arguments.repeats}",
        settings={"workers": arguments.workers, "repeats": arguments.repeats},
        metrics=cases,
    )


if __name__ == "__main__":
    main()
