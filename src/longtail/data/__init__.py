"""Long-tailed data: the named benchmarks and anybody's own images.

What takes torch is imported on first use: a folder can be looked at without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.open_dataset import LongTailData, open_dataset

if TYPE_CHECKING:
    from longtail.data.preprocessing import Preprocessing, preprocessing_of
    from longtail.data.views import VIEWS, Batch

__all__ = [
    "VIEWS",
    "ArrayImages",
    "Batch",
    "FileImages",
    "ImageDataset",
    "LongTailData",
    "Preprocessing",
    "open_dataset",
    "preprocessing_of",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'longtail.data' has no attribute {name!r}")
    importlib.import_module("longtail.data.preprocessing")  # which registers our views
    home = "views" if name in ("VIEWS", "Batch") else "preprocessing"
    return getattr(importlib.import_module(f"longtail.data.{home}"), name)
