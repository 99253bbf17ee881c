"""The named data sets, one file for each or for each family. `DATASETS` has them by name."""

from longtail.data.datasets.base import DATASETS, NamedDataset
from longtail.data.datasets.cifar import CIFAR10_LT, CIFAR100_LT
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.datasets.fashion_mnist import FASHION_MNIST_LT
from longtail.data.datasets.listed import IMAGENET_LT, INATURALIST2018, PLACES_LT

__all__ = [
    "CIFAR10_LT",
    "CIFAR100_LT",
    "DATASETS",
    "DIGITS_LT",
    "FASHION_MNIST_LT",
    "IMAGENET_LT",
    "INATURALIST2018",
    "PLACES_LT",
    "NamedDataset",
]
