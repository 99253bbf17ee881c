"""Mixing the images of a batch with each other, one file for each way. `MIXINGS` has them by name."""

from longtail.data.mixing.base import MIXINGS, Mixed
from longtail.data.mixing.cmo import cmo
from longtail.data.mixing.cutmix import cutmix
from longtail.data.mixing.mixup import mixup
from longtail.data.mixing.remix import remix
from longtail.data.mixing.unimix import unimix

__all__ = ["MIXINGS", "Mixed", "cmo", "cutmix", "mixup", "remix", "unimix"]
