"""``"scale": "auto"``: JPEGs decoded to a fraction of their size; everything else is that of the whole image."""

import io

import numpy as np
import pytest
import simplejpeg
from PIL import Image

import pixprep as pp
from compare import EQUAL, ONE_LEVEL_MOSTLY_EQUAL, Tolerance, assert_close
from images import cmyk, jpeg, photo, png, scene
from pixprep.compiler import compile_pipeline
from pixprep.decoders.cpu import CpuDecoder
from pixprep.explain import explain
from pixprep.plan import Reduction
from pixprep.verify import verify

STATED = Tolerance(16, 0, "what the docs of decode say of photos")
STATED_AT_A_CROP = Tolerance(27, 0, "the same, at the edge of a crop before the resize")
STATED_MEAN = 1.0
ALIGNED = Tolerance(1, 0, "a slope is the same at every scale, but for rounding")
AT_THE_EDGE = 1 / 12
"""Of a resized pixel: a window that is cut off there ends elsewhere in pixels of another size."""

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
KINDS = {
    "4:2:0": {},
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "progressive": {"progressive": True},
}


def pipeline(*ops, scale="auto", **decode):
    outputs = [pp.transform(), pp.original_size(), pp.tensor(dtype="uint8", layout="hwc", name="tensor")]
    return pp.Pipeline([pp.decode(scale=scale, **decode), *ops, *outputs])


def run(encoded, *ops, **decode):
    """The tensor, the transform and the original size."""
    with pp.Engine(pipeline(*ops, **decode), threads=1) as engine:
        batch = engine.run_batch([encoded])
    assert batch.errors == [None]
    return tuple(batch.outputs[name][0] for name in ("tensor", "transform", "original_size"))


def decoded(encoded, *ops, **decode):
    """What the decoder hands on: (pixels, Decoded) or the ImageError."""
    (image,) = CpuDecoder(compile_pipeline(pipeline(*ops, **decode)), pp.Limits()).decode([encoded])
    return image


def shorter(size):
    return [pp.resize(size), pp.center_crop(1)]


def slope(height, width):
    """As linear as levels can be, another in each channel."""
    rows, columns = np.indices((height, width))
    down, right = 30 + rows * (190 / max(height, 40)), 30 + columns * (190 / max(width, 40))
    return np.rint(np.stack([right, down, (right + down) / 2], axis=2)).astype(np.uint8)


def turned(pixels, orientation, **options):
    """A JPEG that these pixels are stored in, and its EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return jpeg(pixels, exif=exif, **options)


def draft(encoded, denominator, mode="RGB"):
    """Pillow's decode at a fraction of the size: libjpeg's own."""
    with Image.open(io.BytesIO(encoded)) as image:
        image.draft(mode, (image.width // denominator, image.height // denominator))
        return image.copy()


def assert_aligned(auto, full):
    """Slopes agree within a level, and at the edge within a twelfth of a pixel."""
    assert_close(auto[1:-1, 1:-1], full[1:-1, 1:-1], ALIGNED)
    step = max(np.abs(np.diff(full.astype(int), axis=axis)).max(initial=0) for axis in (0, 1))
    assert_close(auto, full, Tolerance(1 + step * AT_THE_EDGE, 0, "see AT_THE_EDGE"))


# Which scale


@pytest.mark.parametrize(
    ("size", "expected"), [(107, 1), (106, 2), (54, 2), (53, 4), (27, 4), (26, 8), (1, 8), (427, 1), (900, 1)]
)
def test_the_scale_leaves_two_pixels_for_each(size, expected):
    """Of 427 x 640: 106 * 4 = 424, and 53 * 8, and 26 * 16 = 416."""
    image = decoded(photo(), *shorter(size))
    assert (image.height, image.width) == (427, 640)
    assert image.reduction == (None if expected == 1 else Reduction(expected, (0.0, 0.0)))
    assert image.pixels.shape == (-(-427 // expected), -(-640 // expected), 4)


@pytest.mark.parametrize("width", SIDES)
def test_no_image_becomes_smaller_than_twice_what_is_wanted(width):
    for height in SIDES:
        encoded = jpeg(slope(height, width))
        for size in ((1, 1), (3, 2), (16, 15), (64, 60)):
            pixels = decoded(encoded, pp.resize(height=size[0], width=size[1])).pixels
            for side, whole, wanted in zip(pixels.shape[:2], (height, width), size, strict=True):
                assert side == whole or side >= 2 * wanted, (height, width, size)


def test_each_image_has_its_own_scale_and_every_tensor_a_say():
    small, large = jpeg(scene(60, 80)), jpeg(scene(400, 500))
    plan = compile_pipeline(pipeline(*shorter(28)))
    images = [CpuDecoder(plan, pp.Limits()).decode([encoded])[0] for encoded in (small, large)]
    assert [image.reduction for image in images] == [None, Reduction(4, (0.0, 0.0))]
    two = pp.Pipeline(
        [
            pp.decode(scale="auto", name="photo"),
            pp.resize(height=8, width=8),
            pp.tensor(name="small"),
            pp.resize(height=90, width=90, from_="photo"),
            pp.tensor(name="large"),
        ]
    )
    assert compile_pipeline(two).denominator(400, 500) == 2
    assert compile_pipeline(two).denominator(4000, 5000) == 8


def test_nothing_is_scaled_where_a_tensor_is_not_resized_nor_by_default():
    assert decoded(photo(), pp.center_crop(8)).reduction is None
    assert decoded(photo(), pp.resize(height=8, width=8), scale="full").reduction is None
    both = pp.Pipeline(
        [
            pp.decode(scale="auto", name="photo"),
            pp.center_crop(8),
            pp.tensor(name="cut"),
            pp.resize(height=8, width=8, from_="photo"),
            pp.tensor(name="small"),
        ]
    )
    assert compile_pipeline(both).denominator(4000, 5000) == 1


def test_an_image_without_a_place_is_refused_as_ever():
    ops = [pp.crop(top=0, left=0, height=500, width=20), pp.resize(height=10, width=10)]
    with pp.Engine(pipeline(*ops), threads=1) as auto, pp.Engine(pipeline(*ops, scale="full"), threads=1) as full:
        assert str(auto.run([photo()])[0]) == str(full.run([photo()])[0])
        assert auto.run([photo()])[0].reason == "DOES_NOT_FIT"


# Whose pixels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("denominator", [2, 4, 8])
def test_the_pixels_are_libjpegs_at_that_scale(kind, denominator):
    for size in ((64, 80), (37, 53), (129, 95), (4 * denominator, 4 * denominator)):
        encoded = jpeg(scene(*size), **KINDS[kind])
        wanted = min(size) // (2 * denominator)
        for mode, color in (("RGB", "rgb"), ("L", "gray")):
            image = decoded(encoded, pp.resize(height=wanted, width=wanted), color=color)
            assert image.reduction.denominator == denominator
            expected = np.asarray(draft(encoded, denominator, mode)).reshape(*image.pixels.shape[:2], -1)
            assert_close(image.pixels[:, :, :3], expected, EQUAL)


@pytest.mark.parametrize("filter_name", FILTERS)
def test_the_tensor_is_that_of_pillows_draft_and_box(filter_name):
    for encoded in (photo(), jpeg(scene(431, 637)), jpeg(scene(203, 330), progressive=True)):
        with Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
        resize = pp.resize(height=20, width=25, filter=filter_name)
        denominator = decoded(encoded, resize).reduction.denominator
        box = (0, 0, width / denominator, height / denominator)
        expected = draft(encoded, denominator).resize((25, 20), FILTERS[filter_name], box=box)
        tensor, _, _ = run(encoded, resize)
        assert_close(tensor, np.asarray(expected), ONE_LEVEL_MOSTLY_EQUAL)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_a_photo_costs_no_more_than_the_docs_say(name, geometry):
    for filter_name in FILTERS:
        ops = [
            op.__class__(**{f: getattr(op, f) for f in op.__struct_fields__} | {"filter": filter_name})
            if hasattr(op, "filter")
            else op
            for op in GEOMETRIES[geometry]
        ]
        assert decoded(photo(name), *ops).reduction is not None
        full, *where = run(photo(name), *ops, scale="full")
        auto, *same = run(photo(name), *ops)
        assert_close(auto[1:-1, 1:-1], full[1:-1, 1:-1], STATED)
        assert_close(auto, full, STATED_AT_A_CROP if isinstance(ops[0], pp.crop | pp.center_crop) else STATED)
        assert np.abs(auto.astype(int) - full).mean() < STATED_MEAN
        assert all(map(np.array_equal, where, same))


def test_what_keeps_fewer_pixels_costs_more_than_that(monkeypatch):
    """The negative control of the rule."""
    ops = [pp.resize(53), pp.center_crop(50)]
    full, _, _ = run(photo(), *ops, scale="full")
    monkeypatch.setattr("pixprep.plan.SPARE", 1)
    auto, _, _ = run(photo(), *ops)
    assert np.abs(auto.astype(int) - full).max() > STATED.largest


# Where it looks


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(203, 330), (195, 321), (1023, 257), (161, 163), (65, 1023)])
def test_a_slope_stays_where_it_is(size, orientation):
    """A shift of half a pixel of an eighth would be 1.9 levels of 16."""
    encoded = turned(slope(*size), orientation, quality=98, subsampling=0)
    for ops in ([pp.resize(height=4, width=4)], [pp.resize(height=9, width=7)], [pp.resize(16), pp.center_crop(15)]):
        full, *where = run(encoded, *ops, scale="full")
        auto, *same = run(encoded, *ops)
        assert decoded(encoded, *ops).reduction is not None
        assert_aligned(auto, full)
        assert all(map(np.array_equal, where, same))


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_a_slope_stays_where_it_is_in_every_geometry(geometry, orientation):
    encoded = turned(slope(461, 499), orientation, quality=98, subsampling=0)
    full, *where = run(encoded, *GEOMETRIES[geometry], scale="full")
    auto, *same = run(encoded, *GEOMETRIES[geometry])
    assert decoded(encoded, *GEOMETRIES[geometry]).reduction is not None
    assert_aligned(auto, full)
    assert all(map(np.array_equal, where, same))


def test_a_turned_image_that_began_at_a_whole_pixel_would_be_seen(monkeypatch):
    """The negative control: of 1023 rows the first pixel of an eighth holds seven."""
    encoded = turned(slope(65, 1023), 3, quality=98, subsampling=0)
    ops = [pp.resize(height=4, width=4)]
    full, _, _ = run(encoded, *ops, scale="full")
    assert_aligned(run(encoded, *ops)[0], full)
    monkeypatch.setattr("pixprep.decoders.cpu._reduction", lambda denominator, *_: Reduction(denominator, (0.0, 0.0)))
    with pytest.raises(AssertionError):
        assert_aligned(run(encoded, *ops)[0], full)


# What is refused, and by whom


BROKEN = {
    "cut": lambda encoded: encoded[: len(encoded) * 2 // 3],
    "cut at the end": lambda encoded: encoded[:-40],
    "no end": lambda encoded: encoded[:-2],
    "a hole": lambda encoded: encoded[: len(encoded) // 2] + encoded[len(encoded) // 2 + 99 :],
}


def flipped(encoded, seed):
    """A JPEG with three bits of its data changed."""
    numbers = np.random.default_rng(seed)
    changed = bytearray(encoded)
    for _ in range(3):
        changed[numbers.integers(len(encoded) // 3, len(encoded) - 2)] ^= 1 << int(numbers.integers(8))
    return bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [6, 12, 24])
def test_damage_is_refused_at_every_scale_in_the_same_words(kind, size):
    whole = jpeg(scene(203, 330), **KINDS[kind])
    damaged = [*(spoil(whole) for spoil in BROKEN.values()), *(flipped(whole, seed) for seed in range(40))]
    resize = pp.resize(height=size, width=size)
    refused = 0
    for encoded in (whole, *damaged):
        full, auto = (decoded(encoded, resize, scale=scale) for scale in ("full", "auto"))
        assert isinstance(auto, pp.ImageError) == isinstance(full, pp.ImageError)
        if isinstance(auto, pp.ImageError):
            assert str(auto) == str(full)
            refused += 1
        else:
            assert auto.reduction is not None
    assert refused > 10


def test_what_is_left_of_a_damaged_image_is_the_same_at_a_fraction():
    """Damage shows at the same place; and the image before never shows through."""
    resize = pp.resize(height=20, width=20)
    plan = compile_pipeline(pipeline(resize, damage="lenient"))
    for seed in range(20):
        encoded = flipped(jpeg(scene(203, 330)), seed)
        seen = []
        for level in (0, 255):
            decoder = CpuDecoder(plan, pp.Limits())
            decoder._local.buffer = np.full(1 << 20, level, np.uint8)
            (image,) = decoder.decode([encoded])
            assert image.reduction == Reduction(4, (0.0, 0.0))
            assert decoder.recovered == isinstance(decoded(encoded, resize), pp.ImageError)
            seen.append(image.pixels[:, :, :3].copy())
        assert_close(*seen, EQUAL)
        assert_close(seen[0], simplejpeg.decode_jpeg(encoded, min_height=51, min_width=83, strict=False), EQUAL)


def test_limits_count_the_pixels_of_the_whole_image():
    encoded = jpeg(scene(203, 330))
    plan = compile_pipeline(pipeline(*shorter(6)))
    (allowed,) = CpuDecoder(plan, pp.Limits(max_pixels=203 * 330)).decode([encoded])
    assert allowed.reduction.denominator == 8
    (refused,) = CpuDecoder(plan, pp.Limits(max_pixels=203 * 330 - 1)).decode([encoded])
    assert refused.reason == "TOO_MANY_PIXELS"


def test_what_libjpeg_turbo_does_not_read_is_decoded_whole():
    for encoded in (png(scene(203, 330)), cmyk()):
        image = decoded(encoded, pp.resize(height=2, width=2))
        assert image.reduction is None
        expected, _, _ = run(encoded, pp.resize(height=2, width=2), scale="full")
        assert_close(run(encoded, pp.resize(height=2, width=2))[0], expected, EQUAL)


def test_a_batch_is_its_images_one_by_one():
    images = [photo(), jpeg(scene(60, 80)), b"", png(scene(203, 330)), turned(scene(203, 330), 6), photo("flower")]
    with pp.Engine(pipeline(*shorter(20)), threads=3) as engine:
        batch = engine.run_batch(images)
        for index, encoded in enumerate(images):
            alone = engine.run_batch([encoded])
            for name in batch.outputs:
                assert_close(alone.outputs[name][0], batch.outputs[name][index], EQUAL)


CONTRADICTIONS = {
    '"like": "torchvision"': ({"like": "torchvision"}, '"like": "pillow"'),
    '"like": "dali"': ({"like": "dali"}, '"like": "pillow"'),
    '"filter": "nearest"': ({"filter": "nearest"}, '"filter": "bilinear"'),
    '"filter": "box"': ({"filter": "box"}, '"filter": "bilinear"'),
    '"antialias": false': ({"antialias": False}, '"antialias": true'),
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
@pytest.mark.parametrize("op", [pp.resize, pp.letterbox])
def test_a_resize_that_promises_other_pixels_is_refused(op, field):
    options, remedy = CONTRADICTIONS[field]
    ops = [op(height=8, width=8, **options), pp.tensor()]
    with pytest.raises(pp.PipelineError) as caught:
        compile_pipeline(pp.Pipeline([pp.decode(scale="auto"), *ops]))
    name = {pp.resize: "resize", pp.letterbox: "letterbox"}[op]
    assert str(caught.value) == (
        f'output "tensor": {name}: {field} contradicts "scale": "auto" of decode, which changes pixels: '
        f'write {remedy}, or "scale": "full"'
    )
    compile_pipeline(pp.Pipeline([pp.decode(), *ops]))


def test_nothing_is_certified():
    ops = [*shorter(20), pp.tensor()]
    with pytest.raises(pp.PipelineError, match='verify the pipeline with "scale": "full"'):
        verify(pp.Pipeline([pp.decode(scale="auto"), *ops]), frozen=True)
    verify(pp.Pipeline([pp.decode(), *ops]), frozen=True)


def test_a_scale_that_does_not_exist_is_refused():
    text = '{"format": "pixprep/1", "ops": [{"op": "decode", "scale": "half"}, {"op": "resize", "size": 8}]}'
    with pytest.raises(pp.PipelineError, match="scale"):
        pp.Pipeline.from_json(text)


def test_explain_says_what_may_happen():
    text = explain(pp.Pipeline([pp.decode(scale="auto"), *shorter(100), pp.tensor()]), height=427, width=640)
    assert "to 1/2, 1/4 or 1/8, where each resized pixel still has two on both axes\n  the values are then near" in text
    assert "e.g. 427 x 640: to 1/2" in text
    assert "1/2" not in explain(pp.Pipeline([pp.decode(), *shorter(100), pp.tensor()]))
