"""Decode image files: every kind becomes upright 8-bit RGB.

| Stored as | Becomes |
|---|---|
| grey, palette, CMYK, YCbCr, 1-bit | RGB by Pillow's conversion |
| 16-bit and 32-bit integer grey | the upper 8 of 16 bits, then RGB; Pillow itself would clip at 255 |
| float grey | clipped to 0 ... 255, then RGB |
| RGBA, grey with alpha, palette with transparency | composited on white, as viewers show it |
| EXIF orientation | rotated and flipped to be upright |

A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that is still large enough (Pillow's draft mode), which
saves most of the work for photographs.
"""

from os import PathLike

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from longtail._files import refuse_special

# What Pillow raises for files that it cannot decode: OSError for unknown formats and truncated files, SyntaxError for
# broken PNG chunks, NotImplementedError for pixel formats of DDS, errors of its own for bombs, and whatever a header
# that makes no sense leads a decoder into. There are fifty decoders, so that no list of kinds is complete.
UNREADABLE = (Exception,)


def decode_image(path: str | PathLike[str], size: int | None = None) -> NDArray[np.uint8]:
    """Read an image as upright RGB, shape (height, width, 3).

    Args:
        path: the file.
        size: the number of pixels that the shorter side needs; None decodes a JPEG in full. The result
            is never smaller than the smaller of the file's own size and `size`.

    Raises:
        One of `UNREADABLE` for a missing, corrupt or truncated file, and for what is no file.
    """
    refuse_special(path)
    with Image.open(path) as image:
        if size is not None:
            image.draft(None, (size, size))
        return np.array(to_rgb(ImageOps.exif_transpose(image)))


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB; see the table in the module's docstring."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        # Mode "I" may also hold 8-bit values in 32-bit integers; I;16 is always deep.
        shift = 8 if image.mode.startswith("I;16") or deep.max(initial=0) > 255 else 0
        return Image.fromarray((deep >> shift).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(np.nan_to_num(np.asarray(image)).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
