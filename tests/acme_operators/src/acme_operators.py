"""Four custom operators for tests: on pixel values, on tensors, with a different image size, and with errors for some
images.
"""

import numpy as np

import pixprep as pp


@pp.operator("acme.denoise", version=1)
def denoise(pixels, *, strength: float = 0.5):
    """Average each pixel with the mean of the pixel and its four neighbours."""
    padded = np.pad(pixels.astype(np.float32), ((1, 1), (1, 1), (0, 0)), mode="edge")
    shifted = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] + padded[1:-1, 1:-1]
    return np.rint(pixels + strength * (shifted / 5 - pixels)).astype(np.uint8)


@pp.operator("acme.patches", version=2, place="tensor", shape=(16, 3 * 8 * 8), dtype="float16")
def patches(tensor, *, backwards: bool = False):
    """Split a tensor [3, 32, 32] into 16 rows. Each row contains a patch of 8 x 8 pixels."""
    rows = tensor.reshape(3, 4, 8, 4, 8).transpose(1, 3, 0, 2, 4).reshape(16, -1).astype(np.float16)
    return rows[::-1] if backwards else rows


@pp.operator("acme.corner", version=1, shape=(24, 20))
def corner(pixels):
    """Crop the image to its upper left corner."""
    return pixels[:24, :20]


@pp.operator("acme.faulty", version=1)
def faulty(pixels, *, what: str = "raise"):
    """Fail in the given way if the first pixel value of the image is below 128."""
    if pixels[0, 0, 0] >= 128:
        return pixels
    if what == "say":
        raise pp.ImageError("OPERATOR", "too dark")
    if what == "shape":
        return pixels[1:]
    raise RuntimeError("/secret/path of the operator")
