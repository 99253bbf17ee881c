"""The method's own diagnostics of a model, recorded after some epochs for the report."""

import json
import math

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from longtail.data.loader import eval_loader
from longtail.training.build import Parts

# Test images that the method looks at, in the end and, to cost little, during training.
_IMAGES, _IMAGES_MEANWHILE = 512, 256
# Records of a run at most, the last epoch apart.
_RECORDS = 20


def method_record(model: nn.Module, parts: Parts, fabric: Fabric, *, epoch: int) -> list[str]:
    """What the method sees in the model after `epoch` epochs, as a line of JSON; no line if it sees nothing.

    Looking changes nothing: the images are the same each time, and torch's generators are left as they were. So a run
    that is looked at goes through the same states as one that is not.
    """
    images = parts.data.test
    most = _IMAGES if epoch == parts.config.planned_epochs else _IMAGES_MEANWHILE
    chosen = np.linspace(0, len(images) - 1, min(most, len(images))).astype(np.int64)
    loader = eval_loader(images.select(chosen), parts.preprocessing, batch_size=128)
    model.eval()
    # A loader draws a seed when it starts; a compiled model would be compiled anew for hooks.
    with torch.no_grad(), torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
        found = parts.method.diagnose(model, (fabric.to_device(batch) for batch in loader))
    return [json.dumps({"epoch": epoch, **found})] if found else []


def record_due(epoch: int, *, epochs: int, every: int) -> bool:
    """Whether a record is made after `epoch` epochs, of which each `every`-th is evaluated.

    Example:
        >>> [epoch for epoch in range(1, 101) if record_due(epoch, epochs=100, every=3)]
        [6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72, 78, 84, 90, 96, 100]
    """
    stride = every * max(1, math.ceil(epochs / every / _RECORDS))
    return epoch % stride == 0 or epoch == epochs
