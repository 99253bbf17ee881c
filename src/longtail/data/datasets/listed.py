"""ImageNet-LT, Places-LT and iNaturalist 2018: the user's images with the published lists.

The lists (`path label` lines) are those of Liu et al. (CVPR 2019) and, for iNaturalist, of Kang et al. (ICLR
2020). They are in the folder of the images or in one of its subfolders; the paths in them are relative to the
folder of the images:

    imagenet/ImageNet_LT_train.txt    train/n01440764/n01440764_190.JPEG 0
    imagenet/train/n01440764/n01440764_190.JPEG

iNaturalist's test labels are not public: as in all papers, its validation list is the test set.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from longtail._errors import DataError, UsageError
from longtail.data.csv_list import read_list
from longtail.data.datasets.base import DATASETS
from longtail.data.index_classes import missing_from_test
from longtail.data.inventory import FileList, Inventory, Problem
from longtail.data.sources import Report
from longtail.data.splits import SplitName


@dataclass(frozen=True)
class ListedSet:
    """A benchmark of list files.

    Args:
        name: the registered name, which is also the name of its folder below the root.
        num_classes: labels are 0 ... num_classes - 1.
        lists: the list file of each split.
        sizes: the published number of images of each split.
        home: where the images and the lists are published.
    """

    name: str
    num_classes: int
    lists: Mapping[SplitName, str]
    sizes: Mapping[SplitName, int]
    home: str

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> Inventory:
        """Read the lists in `root` itself, or in its folder of this set's name."""
        del seed  # the lists are fixed
        if imbalance_factor is not None:
            raise UsageError(
                f"{self.name}:{imbalance_factor:g} asks for an imbalance factor",
                f"the images of {self.name} are fixed by its lists",
                f"leave out the factor, or name the folder: {self.name}:/path",
            )
        folder = root / self.name if (root / self.name).is_dir() else root
        splits: dict[SplitName, FileList] = {}
        for split, file in self.lists.items():
            found = next((path for path in (folder / file, *sorted(folder.glob(f"*/{file}"))) if path.is_file()), None)
            if found is not None:
                splits[split] = read_list(found, folder, self.num_classes)
            elif split != "val":
                raise DataError(
                    f"{file} is neither in {folder} nor in one of its subfolders",
                    f"{self.name} is defined by its lists",
                    f"get the images and the lists ({self.home}) and name their folder: {self.name}:/path",
                    code="not-fetched",
                    paths=[str(folder)],
                )
        classes = _class_names(splits["train"], self.num_classes)
        problems = [*self._not_official(splits), *missing_from_test(classes, splits)]
        return Inventory(self.name, classes, splits, benchmark=True, problems=tuple(problems))

    def fetch(self, root: Path, report: Report) -> str:
        """Raise an error that says how to get it: its images may not be redistributed."""
        del report
        raise DataError(
            f"{self.name} cannot be fetched by a program",
            "its owners ask you to register and to accept their terms",
            f"get it ({self.home}), then name its folder: {self.name}:/path, or put it in {root / self.name}",
            code="no-source",
        )

    def _not_official(self, splits: Mapping[SplitName, FileList]) -> list[Problem]:
        absent = set(range(self.num_classes)) - set(splits["train"].targets.tolist())
        if absent:
            have = "have" if len(absent) > 1 else "has"
            raise DataError(
                f"{len(absent)} of the {self.num_classes} classes of {self.name} {have} no training image, "
                f"for example class {min(absent)}",
                "a class without images cannot be learned",
                f"use the published list ({self.home})",
                code="empty-class",
                paths=[str(k) for k in sorted(absent)],
            )
        return [
            Problem(
                "not-the-published-list",
                f"{self.lists[split]} has {len(part):,} images, the published one {self.sizes[split]:,}",
                (self.lists[split],),
            )
            for split, part in splits.items()
            if len(part) != self.sizes[split]
        ]


def _class_names(train: FileList, num_classes: int) -> tuple[str, ...]:
    """For each class the folder of its first image, unless two classes share one; then the numbers."""
    first = np.full(num_classes, -1)
    indices = np.arange(len(train))
    first[train.targets[::-1]] = indices[::-1]
    names: Sequence[str] = [PurePosixPath(train.paths[i]).parent.name if i >= 0 else "" for i in first]
    unique = Counter(names).most_common(1)[0][1] == 1 and all(names)
    return tuple(names) if unique else tuple(str(k) for k in range(num_classes))


IMAGENET_LT = ListedSet(
    "imagenet-lt",
    1000,
    {split: f"ImageNet_LT_{split}.txt" for split in ("train", "val", "test")},
    {"train": 115_846, "val": 20_000, "test": 50_000},
    "images: image-net.org; lists: liuziwei7.github.io/projects/LongTail.html",
)
DATASETS.register("imagenet-lt")(IMAGENET_LT)
PLACES_LT = ListedSet(
    "places-lt",
    365,
    {split: f"Places_LT_{split}.txt" for split in ("train", "val", "test")},
    {"train": 62_500, "val": 7_300, "test": 36_500},
    "images: places2.csail.mit.edu; lists: liuziwei7.github.io/projects/LongTail.html",
)
DATASETS.register("places-lt")(PLACES_LT)
INATURALIST2018 = ListedSet(
    "inaturalist2018",
    8142,
    {"train": "iNaturalist18_train.txt", "test": "iNaturalist18_val.txt"},
    {"train": 437_513, "test": 24_426},
    "images: github.com/visipedia/inat_comp; lists: github.com/facebookresearch/classifier-balancing",
)
DATASETS.register("inaturalist2018")(INATURALIST2018)
