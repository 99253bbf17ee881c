"""The operations of AutoAugment on whole batches, where each image has its own magnitude.

Each is a function `(images, parameters) -> images` of a uint8 batch and one row of parameters per image: where
each pixel comes from (shear, translate, rotate), which value replaces which (brightness, posterize, solarize,
invert), a factor (color, contrast, sharpness: see `adjust`), or nothing (autocontrast, equalize).

The results are those of `torchvision.transforms.v2.functional` on a uint8 tensor with nearest interpolation
and no fill (0 outside): torchvision itself makes the places of pixels and the tables of values, applied once to
an image of pixel numbers and to the 256 values.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from longtail.data.transforms.adjust import adjust_color, adjust_contrast, adjust_sharpness
from longtail.data.transforms.autocontrast import autocontrast, equalize
from longtail.data.transforms.pixels import gather_pixels, look_up

BatchFunction = Callable[[Tensor, Tensor], Tensor]


class Operation(NamedTuple):
    """An operation of AutoAugment.

    Attributes:
        run: the batched function.
        parameters: one image's row for it, from (magnitude, height, width).
        magnitude: the magnitude of a level from 0 to 9, from (level, height, width).
        signed: whether the magnitude is negative half of the time.
    """

    run: BatchFunction
    parameters: Callable[[float, int, int], Tensor]
    magnitude: Callable[[int, int, int], float]
    signed: bool


def _factor(magnitude: float, _height: int, _width: int) -> Tensor:
    return torch.tensor(1.0 + magnitude, dtype=torch.float64)


def _nothing(_magnitude: float, _height: int, _width: int) -> Tensor:
    return torch.zeros(0)


def _table(function: Callable[[Tensor, float], Tensor]) -> Callable[[float, int, int], Tensor]:
    def parameters(magnitude: float, _height: int, _width: int) -> Tensor:
        values = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
        return function(values, magnitude).view(1, 256)

    return parameters


def _places(function: Callable[[Tensor, float], Tensor]) -> Callable[[float, int, int], Tensor]:
    def parameters(magnitude: float, height: int, width: int) -> Tensor:
        # Numbers from 1, since 0 means outside the image; float32 holds them up to 4096 x 4096 pixels.
        numbers = torch.arange(1.0, height * width + 1).view(1, height, width)
        moved = function(numbers, magnitude).flatten().to(torch.int64)
        return torch.where(moved == 0, height * width, moved - 1)

    return parameters


def _affine(
    image: Tensor,
    translate: tuple[int, int] = (0, 0),
    shear: tuple[float, float] = (0.0, 0.0),
    center: list[float] | None = None,
) -> Tensor:
    moved: Tensor = F.affine(image, angle=0.0, translate=list(translate), scale=1.0, shear=list(shear), center=center)
    return moved


def _shear_x(image: Tensor, magnitude: float) -> Tensor:
    return _affine(image, shear=(math.degrees(math.atan(magnitude)), 0.0), center=[0, 0])


def _shear_y(image: Tensor, magnitude: float) -> Tensor:
    return _affine(image, shear=(0.0, math.degrees(math.atan(magnitude))), center=[0, 0])


def _levels(highest: float) -> Callable[[int, int, int], float]:
    return lambda level, _height, _width: float(torch.linspace(0.0, highest, 10)[level])


def _no_level(_level: int, _height: int, _width: int) -> float:
    return 0.0


# The ranges of the magnitudes are the paper's (appendix), with the longest translation, 150 of 331 pixels, in
# proportion to the image.
OPERATIONS: dict[str, Operation] = {
    "ShearX": Operation(gather_pixels, _places(_shear_x), _levels(0.3), True),
    "ShearY": Operation(gather_pixels, _places(_shear_y), _levels(0.3), True),
    "TranslateX": Operation(
        gather_pixels,
        _places(lambda image, magnitude: _affine(image, translate=(int(magnitude), 0))),
        lambda level, height, width: _levels(150 / 331 * width)(level, height, width),
        True,
    ),
    "TranslateY": Operation(
        gather_pixels,
        _places(lambda image, magnitude: _affine(image, translate=(0, int(magnitude)))),
        lambda level, height, width: _levels(150 / 331 * height)(level, height, width),
        True,
    ),
    "Rotate": Operation(gather_pixels, _places(F.rotate), _levels(30.0), True),
    "Brightness": Operation(
        look_up,
        _table(lambda values, magnitude: F.adjust_brightness(values, 1.0 + magnitude)),
        _levels(0.9),
        True,
    ),
    "Posterize": Operation(
        look_up,
        _table(lambda values, magnitude: F.posterize(values, int(magnitude))),
        lambda level, _height, _width: float(round(8 - level / (9 / 4))),
        False,
    ),
    "Solarize": Operation(
        look_up,
        _table(lambda values, magnitude: F.solarize(values, 255 * magnitude)),
        lambda level, _height, _width: float(torch.linspace(1.0, 0.0, 10)[level]),
        False,
    ),
    "Invert": Operation(look_up, _table(lambda values, _: F.invert(values)), _no_level, False),
    "Color": Operation(adjust_color, _factor, _levels(0.9), True),
    "Contrast": Operation(adjust_contrast, _factor, _levels(0.9), True),
    "Sharpness": Operation(adjust_sharpness, _factor, _levels(0.9), True),
    "AutoContrast": Operation(autocontrast, _nothing, _no_level, False),
    "Equalize": Operation(equalize, _nothing, _no_level, False),
}
