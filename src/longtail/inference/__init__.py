"""Use a trained model: predict, measure on other images, export.

Names are imported on first use, so that `longtail --help` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.inference.classifier import Classifier, load
    from longtail.inference.image_predictions import Guess, ImagePrediction, ImagePredictions

__all__ = ["Classifier", "Guess", "ImagePrediction", "ImagePredictions", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'longtail.inference' has no attribute {name!r}")
    home = "classifier" if name in ("Classifier", "load") else "image_predictions"
    return getattr(importlib.import_module(f"longtail.inference.{home}"), name)
