"""Long-tailed data: the named benchmarks and your own images."""

from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.open_dataset import LongTailData, open_dataset
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
