"""Images and sizes for comparing resize profiles with the corresponding libraries, and functions that run a profile or
Pillow.
"""

from functools import cache

import numpy as np
import PIL
from PIL import Image

from pixprep.engine.kernels import resize
from pixprep.engine.kernels.resampling import resampling
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.placement import Placement
from pixprep.plan.profiles import PROFILES
from support import reference
from support.images import checkerboard, gradient, noise, photo, read, scene

INSTALLED = "pillow" if int(PIL.__version__.partition(".")[0]) >= 13 else "pillow12"
"""Profile of the installed Pillow."""
SIZES = [
    (1, 1), (1, 40), (40, 1), (2, 3), (7, 5), (16, 16), (24, 32), (37, 53), (48, 24), (50, 33), (64, 64),
    (98, 74), (130, 131), (224, 160),
]  # fmt: skip
_LARGE = 100 * 1000
"""Images with more values than this are resized to every third size only."""


LEVELS = np.tile(np.arange(256, dtype=np.float32), (4, 1))
"""Pixel values as float32, for each of four channels."""


@cache
def images():
    """Return images, uint8 (height, width, 3 or 1): single rows and columns, odd and even sizes, artificial contents,
    and photos.
    """
    sides = [(1, 1), (1, 2), (2, 1), (1, 17), (19, 1), (2, 2), (3, 5), (5, 3), (8, 64), (64, 8), (33, 100), (97, 131)]
    cases = {f"noise {h} x {w}": noise(h, w) for h, w in sides}
    cases |= {f"gray noise {h} x {w}": noise(h, w, 1) for h, w in [*sides[3:], (196, 148)]}
    cases |= {
        f"scene {h} x {w}": scene(h, w) for h, w in [(16, 16), (24, 36), (31, 29), (48, 64), (96, 128), (120, 90)]
    }
    cases |= {f"lines {h} x {w}": checkerboard(h, w) for h, w in [(37, 53), (64, 64), (50, 49)]}
    cases |= {f"squares {h} x {w}": checkerboard(h, w, cell=3) for h, w in [(63, 65), (100, 75)]}
    cases |= {f"gradient {h} x {w}": gradient(h, w) for h, w in [(128, 48), (300, 20)]}
    for name in ("china", "flower"):
        pixels = photo_pixels(name)
        crops = {
            "": pixels,
            " cropped": pixels[101:250, 33:150],
            " halved": pixels[::2, ::2],
            " thin": pixels[:, 300:311],
        }
        cases |= {name + crop: part.copy() for crop, part in crops.items()}
    return cases


def photo_pixels(name="china"):
    """Return a photo, uint8 (427, 640, 3), as a writable array, which PyTorch requires."""
    return np.array(read(photo(name)))


def cases():
    """Return pairs of (pixels, (height, width)). Every image is combined with every size, but large images only with
    some sizes.
    """
    for index, pixels in enumerate(images().values()):
        sizes = SIZES[index % 3 :: 3] if pixels.size > _LARGE else SIZES
        yield from ((pixels, size) for size in sizes if size != pixels.shape[:2])


def factors(lengths):
    """Return pairs of (one row of noise, (1, length)): rows that are reduced to each of the lengths from many others,
    and rows that are enlarged.
    """
    row = np.random.default_rng(1).integers(0, 256, (1, 2000, 1), np.uint8)
    some = [(length, out) for out in lengths for length in range(out + 1, 500, 7)] + [(2000, out) for out in lengths]
    some += [(length, out) for length in (1, 2, 3, 50) for out in range(length + 1, 500, 11)]
    yield from ((row[:, :length], (1, out)) for length, out in some)


def by_pillow(pixels, size, filter_name, like="pillow"):
    """Resize uint8 pixels with Pillow in two separate passes, in the order of ``pillow`` or ``pillow12``."""
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    between = (
        (size[0], pixels.shape[1]) if reference.is_down_first(pixels.shape, size, like) else (len(pixels), size[1])
    )
    for height, width in (between, size):
        image = image.resize((width, height), Image.Resampling[filter_name.upper()])
    return np.asarray(image).reshape(*size, pixels.shape[2])


def resize_step(like, filter_name, size, *, antialias=False):
    """Return the resize step of a library's profile to (height, width)."""
    return Resize(rule="both", height=size[0], width=size[1], filter=filter_name, antialias=antialias, like=like)


def resized(pixels, size, like, filter_name, *, antialias=False, region=None):
    """Resize uint8 pixels with a library's profile. Return the result, or only its region (top, left, bottom,
    right).
    """
    how = resampling_of(like, filter_name, pixels.shape[:2], size, antialias=antialias, region=region)
    return resize.resize(pixels, how, values=LEVELS if PROFILES[like].takes_real else None)


def resampling_of(like, filter_name, size, resized_size, *, antialias, region=None):
    """Return the ``Resampling`` of a resize in a library's profile."""
    rule = resize_step(like, filter_name, resized_size, antialias=antialias)
    return resampling(rule, placement(size, resized_size, region))


def placement(size, resized_size, region=None):
    """Return the placement of the region after a resize of the whole image."""
    wanted = region or (0, 0, *resized_size)
    return Placement(
        box=(0, 0, *size),
        mirrors=(False, False),
        resized=resized_size,
        ratio=(size[0] / resized_size[0], size[1] / resized_size[1]),
        region=wanted,
        flips=(False, False),
        at=(0, 0),
        canvas=(wanted[2] - wanted[0], wanted[3] - wanted[1]),
    )


def compare(pairs):
    """Compare triples of (name, actual, expected).

    Return the number of values, the number of differing values, the maximum difference, and the name of the case with
    this difference.
    """
    values = differing = largest = 0
    worst = None
    for name, actual, expected in pairs:
        assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}"
        assert actual.dtype == expected.dtype
        difference = np.abs(np.subtract(actual, expected, dtype=np.float64))
        values += difference.size
        differing += np.count_nonzero(difference)
        if difference.any() and difference.max() > largest:
            largest, worst = difference.max(), name
    return values, differing, largest, worst


def assert_equal(pairs):
    """Assert that the arrays of every pair have equal values."""
    values, differing, largest, worst = compare(pairs)
    assert values > 0
    assert differing == 0, f"{differing:,} of {values:,} values differ, by up to {largest}: {worst}"
