"""Long-tailed data: the named benchmarks and anybody's own images."""

from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.open_dataset import LongTailData, open_dataset

__all__ = ["ArrayImages", "FileImages", "ImageDataset", "LongTailData", "open_dataset"]
