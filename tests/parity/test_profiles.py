"""Tests every profile against its library, with each filter, image, size and scale factor, and with a whole pipeline
that includes flips.

engine/test_kernels.py compares the kernels in C with NumPy. test_dali.py tests DALI's size rules. The results of
TensorFlow and DALI are also frozen.
"""

import pytest

import pixprep as pp
from pixprep.importers.verify import Originals, verify
from pixprep.importers.verify.libraries import find
from pixprep.pipeline import ops
from pixprep.plan.profiles import PROFILES
from support.images import PHOTOS, png, scene
from support.resize_cases import assert_equal, cases, compare, factors, photo_pixels, resized

ORIGINALS = Originals()
METHODS = [
    (like, *method)
    for like, profile in PROFILES.items()
    for method in profile.methods
    # test_opencv.py tests this filter, because the ends of rows are rounded in integers
    if (like, method.filter) != ("opencv", "bicubic")
    and (method.antialias or profile.original.order is None)  # Pillow has no function without antialiasing
]
FACTORS = {"pillow": (1, 2, 3, 7, 64, 224), "torchvision": (2, 3, 7, 64), "opencv": (1, 2, 3, 7), "dali": (2, 3, 64)}
SLOW = pytest.mark.slow(reason="half a second for each further filter, with the same formula")
each_method = pytest.mark.parametrize(("like", "filter_name", "antialias"), METHODS)


def need(like):
    """Skip the test with a message if the library is missing or computes differently on this processor."""
    library = find(PROFILES[like].original.key)
    if not library.version:
        pytest.skip(f"NO {library.title.upper()}: {library.problem}: {library.remedy}")
    if library.title in ("torchvision", "PyTorch"):
        import torch  # noqa: PLC0415 - only if PyTorch is installed

        if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
            pytest.skip("NO AVX2: PyTorch rounds otherwise here")


def _resizable(pixels, size, like):
    """Return the image and a size that the library supports. SLANeXt keeps the aspect ratio."""
    if like != "slanext":
        return pixels, size
    scale = max(size) / max(pixels.shape[:2])
    return pixels, tuple(round(side * scale) for side in pixels.shape[:2])


def pairs(some, like, filter_name, *, antialias):
    """Yield (name, our values, the library's values) for all test images and sizes."""
    for pixels, size in (_resizable(*case, like) for case in some):
        if 0 in size:
            continue
        if filter_name == "bilinear" and not antialias and sum(size) < PROFILES[like].min_sides:
            continue
        op = ops.Resize(height=size[0], width=size[1], like=like, filter=filter_name, antialias=antialias)
        ours = resized(pixels, size, like, filter_name, antialias=antialias)
        yield f"{pixels.shape} to {size}", ours, ORIGINALS.resizer(op).run(pixels)


@each_method
def test_every_value_equals_the_library(like, filter_name, antialias):
    need(like)
    assert_equal(pairs(cases(), like, filter_name, antialias=antialias))


@pytest.mark.parametrize(
    ("like", "filter_name", "antialias"),
    [
        pytest.param(*method, marks=SLOW if method[0] == "pillow" and method[1] != "lanczos" else ())
        for method in METHODS
        if method[0] in FACTORS
    ],
)
def test_every_factor_equals_the_library(like, filter_name, antialias):
    need(like)
    rows = list(factors(FACTORS[like]))
    turned = [(row.swapaxes(0, 1), size[::-1]) for row, size in rows] if like in ("pillow", "dali") else []
    assert_equal(pairs([*rows, *turned], like, filter_name, antialias=antialias))


@pytest.mark.parametrize(
    ("like", "filter_name", "antialias"),
    [method for method in METHODS if not PROFILES[method[0]].takes_real and method[0] != "slanext"],
)
def test_a_whole_pipeline_equals_the_library(like, filter_name, antialias):
    need(like)
    resize = pp.resize(64, like=like, filter=filter_name, antialias=antialias)
    dtype = "float32" if filter_name in PROFILES[like].real else "uint8"
    chain = [pp.decode(), pp.flip(), resize, pp.center_crop(49), pp.flip("vertical"), pp.tensor(dtype=dtype)]
    images = [(str(size), png(scene(*size))) for size in [(427, 640), (90, 61), (40, 250), (33, 47)]]
    certificate = verify(pp.Pipeline(chain), images=[*images, PHOTOS / "flower.jpg"], generate=False, frozen=False)
    assert certificate.is_exact, certificate
    assert certificate.rows[-1].stage == "end to end"
    assert certificate.rows[-1].images == 5


@pytest.mark.parametrize(
    ("other", "like", "filter_name", "least", "most"),
    [
        *(("torchvision", "pillow", name, 0, 0.01) for name in ("bilinear", "bicubic", "lanczos")),
        *((name, "torch", "bilinear", 0.05, 0.25) for name in ("pillow", "torchvision")),
    ],
)
def test_a_similar_profile_is_distinguished_by_single_values(other, like, filter_name, least, most):
    need(like)
    pixels, size = photo_pixels(), (224, 336)
    ((name, _, expected),) = pairs([(pixels, size)], like, filter_name, antialias=True)
    wrong = resized(pixels, size, other, filter_name, antialias=True)
    values, differing, largest, _ = compare([(name, wrong, expected)])
    assert largest == 1
    assert least < differing / values < most
