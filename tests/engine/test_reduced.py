"""Tests ``decode(reduced=True)``: JPEGs are decoded at a fraction of their size, while all options and outputs refer to
the full size.
"""

import io

import numpy as np
import pytest
import simplejpeg
from PIL import Image

import pixprep as pp
from pixprep.importers.verify import verify
from pixprep.plan.placement import Reduction
from support import decoding
from support.compare import EQUAL, ONE_LEVEL_MOSTLY_EQUAL, Tolerance, assert_close
from support.images import cmyk, jpeg, photo, png, scene

DOCUMENTED_DIFFERENCE = Tolerance(16, 0, "what the docs of decode say of photos")
STATED_AT_A_CROP = Tolerance(27, 0, "the same, at the edge of a crop before the resize")
STATED_MEAN = 1.0
ALIGNED = Tolerance(1, 0, "a slope is the same at every fraction, but for rounding")
AT_THE_EDGE = 1 / 12
"""Maximum difference of a resized pixel value.

At the edge, a filter is cut off at a different position if the pixels are larger.
"""

SIDES = [1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1023]
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
GEOMETRIES = {
    "shorter side and centre crop": [pp.resize(40), pp.center_crop(35)],
    "stretch": [pp.resize(height=20, width=50)],
    "crop, then resize": [pp.crop(top=33, left=101, height=301, width=357), pp.resize(height=41, width=37)],
    "middle square": [pp.center_crop(fraction=0.875), pp.resize(height=40, width=40)],
    "letterbox": [pp.letterbox(64, 48)],
    "mirrored before": [
        pp.flip(),
        pp.flip(axis="vertical"),
        pp.resize(40),
        pp.crop(top=3, left=5, height=30, width=31),
    ],
    "mirrored after": [pp.resize(40), pp.center_crop(35), pp.flip(axis="vertical"), pp.flip()],
    "padded": [pp.resize(height=30, width=40), pp.pad(64, 64, fill=7)],
    "cover": [pp.resize(height=40, width=45, mode="cover"), pp.center_crop(40, 45)],
}
ENCODINGS = {
    "4:2:0": {},
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "progressive": {"progressive": True},
}


def pipeline(*ops, reduced=True, **decode):
    outputs = [pp.transform(), pp.original_size(), pp.tensor(dtype="uint8", layout="hwc", name="tensor")]
    return pp.Pipeline([pp.decode(reduced=reduced, **decode), *ops, *outputs])


def run(encoded, *ops, **decode):
    """Return the tensor, the transform and the original size."""
    with pp.Engine(pipeline(*ops, **decode), threads=1) as engine:
        batch = engine.run_batch([encoded])
    assert batch.errors == [None]
    return tuple(batch.outputs[name][0] for name in ("tensor", "transform", "original_size"))


def decoded(encoded, *ops, **decode):
    """Return the decoder's result, which is a Decoded or an ImageError."""
    return decoding.decoded(encoded, pipeline(*ops, **decode).plan)


def reduction(image):
    """Return the mapping from the original image to the decoded pixels."""
    return image.placed.placements["tensor"].reduction


def shorter(size):
    return [pp.resize(size), pp.center_crop(1)]


def slope(height, width):
    """Return an image whose values increase as linearly as 8 bits allow, differently in each channel."""
    rows, columns = np.indices((height, width))
    down, right = 30 + rows * (190 / max(height, 40)), 30 + columns * (190 / max(width, 40))
    return np.rint(np.stack([right, down, (right + down) / 2], axis=2)).astype(np.uint8)


def with_orientation(pixels, orientation, **options):
    """Return a JPEG that stores these pixels and an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(pixels, exif=exif, **options)


def draft(encoded, denominator, mode="RGB"):
    """Return Pillow's decode at a fraction of the size, which libjpeg computes."""
    with Image.open(io.BytesIO(encoded)) as image:
        image.draft(mode, (image.width // denominator, image.height // denominator))
        return image.copy()


def assert_aligned(reduced, full):
    """Assert that gradients agree within one pixel value, and at the edge within a twelfth of a pixel."""
    assert_close(reduced[1:-1, 1:-1], full[1:-1, 1:-1], ALIGNED)
    step = max(np.abs(np.diff(full.astype(int), axis=axis)).max(initial=0) for axis in (0, 1))
    assert_close(reduced, full, Tolerance(1 + step * AT_THE_EDGE, 0, "see AT_THE_EDGE"))


# choice of the fraction


@pytest.mark.parametrize(
    ("size", "expected"), [(107, 1), (106, 2), (54, 2), (53, 4), (27, 4), (26, 8), (1, 8), (427, 1), (900, 1)]
)
def test_the_fraction_leaves_two_pixels_per_output_pixel(size, expected):
    """For a fraction of 1/n, the shorter side of 427 must be at least 2 n times the size: 106 * 4, 53 * 8 or 26
    * 16.
    """
    image = decoded(photo(), *shorter(size))
    assert (image.placed.height, image.placed.width) == (427, 640)
    assert reduction(image) == (None if expected == 1 else Reduction(expected, (0.0, 0.0)))
    assert image.pixels.shape == (-(-427 // expected), -(-640 // expected), 4)


@pytest.mark.parametrize("width", SIDES)
def test_no_image_is_decoded_below_twice_the_requested_size(width):
    for height in SIDES:
        encoded = jpeg(slope(height, width))
        for size in ((1, 1), (3, 2), (16, 15), (64, 60)):
            pixels = decoded(encoded, pp.resize(height=size[0], width=size[1])).pixels
            for side, whole, wanted in zip(pixels.shape[:2], (height, width), size, strict=True):
                assert side == whole or side >= 2 * wanted, (height, width, size)


def test_each_image_has_its_own_fraction_which_depends_on_every_tensor():
    small, large = jpeg(scene(60, 80)), jpeg(scene(400, 500))
    images = [decoded(encoded, *shorter(28)) for encoded in (small, large)]
    assert [reduction(image) for image in images] == [None, Reduction(4, (0.0, 0.0))]

    def denominators(other):
        ops = [pp.resize(height=8, width=8), pp.tensor(name="small"), other, pp.tensor(name="other")]
        plan = pp.Pipeline([pp.decode(reduced=True, name="photo"), *ops]).plan
        return [plan.place(*size).denominator for size in ((400, 500), (4000, 5000))]

    assert denominators(pp.flip()) == [8, 8]
    assert denominators(pp.resize(height=90, width=90, from_="photo")) == [2, 8]
    assert denominators(pp.center_crop(8, from_="photo")) == [1, 1]  # the centre crop uses the photo without a resize
    assert reduction(decoded(photo(), pp.resize(height=8, width=8), reduced=False)) is None


# source of the pixels


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("denominator", [2, 4, 8])
def test_pixels_equal_libjpegs_at_that_fraction(encoding, denominator):
    for size in ((64, 80), (37, 53), (129, 95), (4 * denominator, 4 * denominator)):
        encoded = jpeg(scene(*size), **ENCODINGS[encoding])
        wanted = min(size) // (2 * denominator)
        for mode, color in (("RGB", "rgb"), ("L", "gray")):
            image = decoded(encoded, pp.resize(height=wanted, width=wanted), color=color)
            assert reduction(image).denominator == denominator
            expected = np.asarray(draft(encoded, denominator, mode)).reshape(*image.pixels.shape[:2], -1)
            assert_close(image.pixels[:, :, :3], expected, EQUAL)


@pytest.mark.parametrize("filter_name", FILTERS)
def test_the_tensor_equals_pillows_draft_and_box(filter_name):
    for encoded in (photo(), jpeg(scene(431, 637)), jpeg(scene(203, 330), progressive=True)):
        with Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
        resize = pp.resize(height=20, width=25, filter=filter_name)
        denominator = reduction(decoded(encoded, resize)).denominator
        box = (0, 0, width / denominator, height / denominator)
        expected = draft(encoded, denominator).resize((25, 20), FILTERS[filter_name], box=box)
        tensor, _, _ = run(encoded, resize)
        assert_close(tensor, np.asarray(expected), ONE_LEVEL_MOSTLY_EQUAL)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_a_photo_costs_no_more_than_documented(name, geometry):
    for filter_name in FILTERS:
        ops = [
            op.__class__(**{f: getattr(op, f) for f in op.__struct_fields__} | {"filter": filter_name})
            if hasattr(op, "filter")
            else op
            for op in GEOMETRIES[geometry]
        ]
        assert reduction(decoded(photo(name), *ops)) is not None
        full, *where = run(photo(name), *ops, reduced=False)
        reduced, *same = run(photo(name), *ops)
        assert_close(reduced[1:-1, 1:-1], full[1:-1, 1:-1], DOCUMENTED_DIFFERENCE)
        assert_close(
            reduced, full, STATED_AT_A_CROP if isinstance(ops[0], pp.crop | pp.center_crop) else DOCUMENTED_DIFFERENCE
        )
        assert np.abs(reduced.astype(int) - full).mean() < STATED_MEAN
        assert all(map(np.array_equal, where, same))


# geometry


SLOPES = [
    (size, [op])
    for size in [(203, 330), (195, 321), (1023, 257), (161, 163), (65, 1023)]
    for op in (pp.resize(height=4, width=4), pp.resize(height=9, width=7), pp.resize(height=16, width=15))
] + [((461, 499), ops) for ops in GEOMETRIES.values()]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("size", "ops"), SLOPES, ids=map(str, range(len(SLOPES))))
def test_a_slope_keeps_its_position(size, ops, orientation):
    """At a fraction of 1/8, a shift by half a pixel would change the values by 1.9, which ``ALIGNED`` does not
    allow.
    """
    encoded = with_orientation(slope(*size), orientation, quality=98, subsampling=0)
    full, *where = run(encoded, *ops, reduced=False)
    reduced, *same = run(encoded, *ops)
    assert reduction(decoded(encoded, *ops)) is not None
    assert_aligned(reduced, full)
    assert all(map(np.array_equal, where, same))


# rejections, and the layer that rejects


def flipped(encoded, seed):
    """Return a JPEG with three flipped bits in its data."""
    numbers = np.random.default_rng(seed)
    changed = bytearray(encoded)
    for _ in range(3):
        changed[numbers.integers(len(encoded) // 3, len(encoded) - 2)] ^= 1 << int(numbers.integers(8))
    return bytes(changed)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [6, 12, 24])
def test_damage_is_rejected_at_every_fraction_with_the_same_message(encoding, size):
    whole = jpeg(scene(203, 330), **ENCODINGS[encoding])
    half = len(whole) // 2
    cut = [whole[: len(whole) * 2 // 3], whole[:-40], whole[:-2], whole[:half] + whole[half + 99 :]]
    damaged = [*cut, *(flipped(whole, seed) for seed in range(40))]
    resize = pp.resize(height=size, width=size)
    refused = 0
    for encoded in (whole, *damaged):
        full, reduced = (decoded(encoded, resize, reduced=reduced) for reduced in (False, True))
        assert isinstance(reduced, pp.ImageError) == isinstance(full, pp.ImageError)
        if isinstance(reduced, pp.ImageError):
            assert str(reduced) == str(full)
            refused += 1
        else:
            assert reduction(reduced) is not None
    assert refused > 10


def test_a_damaged_image_is_recovered_equally_at_a_fraction():
    """The damage is visible at the same position, and the previous image never shows."""
    resize = pp.resize(height=20, width=20)
    plan = pipeline(resize).plan
    for seed in range(20):
        encoded = flipped(jpeg(scene(203, 330)), seed)
        seen = []
        for level in (0, 255):
            plain = jpeg(np.full((203, 330, 3), level, np.uint8))
            image = decoding.decoded(encoded, plan, damage="lenient", before=[plain])
            assert reduction(image) == Reduction(4, (0.0, 0.0))
            assert image.is_recovered == isinstance(decoded(encoded, resize), pp.ImageError)
            seen.append(image.pixels[:, :, :3])
        assert_close(*seen, EQUAL)
        assert_close(seen[0], simplejpeg.decode_jpeg(encoded, min_height=51, min_width=83, strict=False), EQUAL)


def test_files_that_libjpeg_turbo_cannot_reduce_are_decoded_at_full_size():
    for encoded in (png(scene(203, 330)), cmyk()):
        image = decoded(encoded, pp.resize(height=2, width=2))
        assert reduction(image) is None
        expected, _, _ = run(encoded, pp.resize(height=2, width=2), reduced=False)
        assert_close(run(encoded, pp.resize(height=2, width=2))[0], expected, EQUAL)


def test_a_batch_equals_its_images_one_by_one():
    images = [
        photo(),
        jpeg(scene(60, 80)),
        b"",
        png(scene(203, 330)),
        with_orientation(scene(203, 330), 6),
        photo("flower"),
    ]
    with pp.Engine(pipeline(*shorter(20)), threads=3) as engine:
        batch = engine.run_batch(images)
        for index, encoded in enumerate(images):
            alone = engine.run_batch([encoded])
            for name in batch.outputs:
                assert_close(alone.outputs[name][0], batch.outputs[name][index], EQUAL)


def test_verify_rejects_reduced_decoding():
    ops = [*shorter(20), pp.tensor()]
    with pytest.raises(pp.PipelineError, match='verify the pipeline without "reduced"'):
        verify(pp.Pipeline([pp.decode(reduced=True), *ops]), frozen=True)
