"""Tests that decoding a region of a JPEG gives the same pixels and errors as a complete decode, and how unexpected
libraries are handled.
"""

import ctypes
import re
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import ImageFile, _imaging

import pixprep as pp
from pixprep.engine.decoders import Limits, images, turbo
from pixprep.engine.decoders.header import is_plain, read_jpeg_header
from pixprep.engine.decoders.images import CpuDecoder
from pixprep.engine.decoders.turbo import Options, decode, decode_part
from pixprep.engine.kernels import resampling
from pixprep.errors import ImageError, SetupError
from pixprep.plan.geometry_steps import Resize
from pixprep.plan.profiles import PROFILES
from support.images import jpeg, photo, scene, with_exif
from support.resize_cases import placement, resampling_of

RGB = Options(is_gray=False)
WAYS = (RGB, RGB, Options(is_gray=True), Options(is_gray=False, is_fast_idct=True))
SAMPLINGS = {"444": 0, "422": 1, "420": 2}
KINDS = (*SAMPLINGS, "440", "411", "gray", "rgb")

RARE = [path.read_bytes() for path in sorted(Path(__file__).with_name("jpegs").iterdir())]
"""JPEGs that no installed encoder writes, all of 37 x 75 pixels. One is progressive with 4:1:1 subsampling. The other
has 4:4:0 subsampling and three scans with restart markers.
"""
RESIZES = [(like, *method) for like in PROFILES for method in PROFILES[like].methods]


def random_jpeg(rng, kind):
    """Return a random JPEG of the given kind."""
    height, width = rng.integers(1, (160, 220))
    pixels = scene(int(height), int(width), int(rng.integers(9)))
    quality, interval = int(rng.integers(20, 100)), int(rng.integers(0, 3) * rng.integers(1, 9))
    if kind in ("440", "411"):
        return bytes(turbo.simplejpeg.encode_jpeg(pixels, quality, colorsubsampling=kind))
    options = {"restart_marker_blocks": interval} if interval else {}
    options |= {"quality": quality, "progressive": rng.random() < 0.4, "optimize": rng.random() < 0.5}
    if kind == "gray":
        pixels = pixels[:, :, 1]
    elif kind == "rgb":
        options |= {"keep_rgb": True}
    else:
        options |= {"subsampling": SAMPLINGS[kind]}
    return jpeg(pixels, **options)


def part_of(rng, height, width):
    """Return a random region of an image of this size."""
    (top, bottom), (left, right) = (sorted(rng.choice(side + 1, 2, replace=False).tolist()) for side in (height, width))
    return top, left, bottom, right


def compare(rng, encoded, way, count):
    """Decode the complete image and random regions of it. Each region must equal the same part of the complete
    image.
    """
    header = read_jpeg_header(encoded)
    assert is_plain(header)
    shape = header.height, header.width, 1 if way.is_gray else 4
    whole = decode(encoded, np.empty(shape, np.uint8), way, is_strict=True)
    for part in ((0, 0, *shape[:2]), *(part_of(rng, *shape[:2]) for _ in range(count))):
        buffer = np.full(shape, 77, np.uint8)
        top, left, bottom, right = part
        assert decode_part(encoded, buffer, part, way), (shape, part)
        assert np.array_equal(buffer[top:bottom, left:right, :3], whole[top:bottom, left:right, :3]), (shape, part)


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_region_equals_that_of_the_complete_image(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for index in range(40):
        compare(rng, random_jpeg(rng, kind), WAYS[index % 4], 12)


@pytest.mark.parametrize("encoded", [*RARE, photo()], ids=["411", "440", "photo"])
def test_regions_of_rarer_kinds_and_of_a_photo_equal_the_complete_image(encoded):
    for way in {*WAYS}:
        compare(np.random.default_rng(0), encoded, way, 40)


def test_the_narrowest_regions_have_interpolated_chroma():
    """libjpeg-turbo skips the interpolation for images with two chroma columns, and for regions of that width."""
    encoded = jpeg(scene(40, 50), subsampling=2)
    whole = decode(encoded, np.empty((40, 50, 4), np.uint8), RGB, is_strict=True)
    for left in range(50):
        for right in range(left + 1, min(left + 6, 51)):
            buffer = np.zeros((40, 50, 4), np.uint8)
            assert decode_part(encoded, buffer, (7, left, 24, right), RGB)
            assert np.array_equal(buffer[7:24, left:right, :3], whole[7:24, left:right, :3]), (left, right)


def test_a_progressive_jpeg_without_its_last_scans_is_decoded_completely():
    """libjpeg-turbo smooths such a JPEG with blocks outside the region, without a warning."""
    encoded = jpeg(scene(60, 80), progressive=True)
    scans = [at for at in range(len(encoded)) if encoded[at : at + 2] == b"\xff\xda"]
    for last in scans[1:]:
        table = encoded.rindex(b"\xff\xc4", 0, last)
        early = encoded[:table] + b"\xff\xd9"
        buffer = np.empty((60, 80, 4), np.uint8)
        decode(early, buffer, RGB, is_strict=True)
        assert not decode_part(early, buffer, (20, 20, 40, 40), RGB)
    assert decode_part(encoded, buffer, (20, 20, 40, 40), RGB)


@pytest.mark.parametrize("kind", KINDS)
def test_fast_chroma_decodes_complete_images_only(kind):
    """Fast chroma upsampling processes rows in pairs, which fails if rows are skipped: libjpeg-turbo may hang."""
    rng, way = np.random.default_rng(KINDS.index(kind)), Options(is_gray=False, is_fast_chroma=True)
    for _ in range(10):
        encoded = random_jpeg(rng, kind)
        height, width = read_jpeg_header(encoded).size(is_upright=False)
        buffer, whole = np.zeros((2, height, width, 4), np.uint8)
        assert not decode_part(encoded, buffer, (0, 0, height, width - 1), way)
        assert decode_part(encoded, buffer, (0, 0, height, width), way)
        assert np.array_equal(buffer[..., :3], decode(encoded, whole, way, is_strict=True)[..., :3])


@pytest.mark.parametrize("progressive", [False, True])
def test_the_longest_codes_and_values_are_decoded(monkeypatch, progressive):
    """Noise at quality 100 has Huffman codes of 16 bits and values of 10 bits."""
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 1 << 20)  # Pillow needs this limit to write such a large file
    for kind, seed in ((each, seed) for each in SAMPLINGS for seed in range(3)):
        pixels = 255 * np.random.default_rng(seed).integers(0, 2, (70, 90, 3), np.uint8)
        encoded = jpeg(pixels, quality=100, subsampling=SAMPLINGS[kind], progressive=progressive)
        compare(np.random.default_rng(seed), encoded, RGB, 4)


@pytest.mark.parametrize("progressive", [False, True])
def test_each_restart_interval_resets_the_decoder(progressive):
    for blocks in range(1, 40):
        encoded = jpeg(scene(50, 90), restart_marker_blocks=blocks, progressive=progressive)
        compare(np.random.default_rng(0), encoded, RGB, 2)


ORDERS = [(0, 4, 1, 2, 3, 5, 6, 7, 8, 9), (0, 6, 4, 1, 5, 9, 3, 2, 8, 7), (0, 3, 2, 7, 8, 4, 1, 5, 6, 9)]


@pytest.mark.parametrize("order", ORDERS)
def test_the_scans_of_a_progressive_jpeg_may_have_any_order(order):
    """Scan 1 contains the coefficients 1 to 5 of the luma, scan 4 contains 6 to 63, and scans 5 and 9 refine them."""
    encoded = jpeg(scene(70, 90, 3), progressive=True)
    first = encoded.index(b"\xff\xc4")
    head, scans, end = encoded[:first], encoded[first:-2], encoded[-2:]
    parts = re.findall(rb"(?:\xff\xc4(?:(?!\xff[\xc4\xda]).)*)*\xff\xda(?:(?!\xff[\xc4\xda]).)*", scans, re.DOTALL)
    assert b"".join(parts) == scans
    assert len(parts) == len(order)
    compare(np.random.default_rng(0), head + b"".join(parts[index] for index in order) + end, RGB, 8)


# damage


def damaged(rng, encoded):
    """Return the same JPEG after truncation, with changed bytes, or with an additional marker."""
    data, begin = bytearray(encoded), read_jpeg_header(encoded).scan
    at = int(rng.integers(begin, len(data)))
    match int(rng.integers(4)):
        case 0:
            del data[at:]
        case 1:
            del data[-int(rng.integers(1, 40)) :]
        case 2:
            data[at:at] = bytes([0xFF, int(rng.integers(0xC0, 256))])
        case _:
            data[at] ^= int(rng.integers(1, 256))
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_wherever_the_region_is(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    warned = odd = 0
    for _ in range(15):
        intact = random_jpeg(rng, kind)
        shape = (*read_jpeg_header(intact).size(is_upright=False), 4)
        for turn in range(8):
            encoded, part = damaged(rng, intact), part_of(rng, *shape[:2]) if turn % 2 else (0, 0, *shape[:2])
            top, left, bottom, right = part
            whole, buffer = np.zeros((2, *shape), np.uint8)
            try:
                decode(encoded, whole, RGB, is_strict=True)
                is_whole = True
            except ValueError:
                is_whole = False
            if decode_part(encoded, buffer, part, RGB):
                assert is_whole
                assert np.array_equal(buffer[top:bottom, left:right, :3], whole[top:bottom, left:right, :3])
            else:
                odd += is_whole
            warned += not is_whole
    assert warned > 60
    assert odd < 15


def test_unused_bytes_are_left_to_the_complete_decode():
    """libjpeg-turbo warns about unused bytes that it has not read ahead, so the complete decode must handle them."""
    encoded, buffer = jpeg(scene(60, 80)), np.zeros((60, 80, 4), np.uint8)
    assert decode_part(encoded, buffer, (0, 0, 60, 80), RGB)
    decode(encoded[:-2] + b"\0" + encoded[-2:], buffer, RGB, is_strict=True)
    for more in (b"\0", b"\0\0", b"\1" * 99):
        assert not decode_part(encoded[:-2] + more + encoded[-2:], buffer, (0, 0, 60, 80), RGB)
    assert decode_part(encoded[:-2] + b"\xff\xff" + encoded[-2:], buffer, (0, 0, 60, 80), RGB)  # fill bytes


def test_a_jpeg_is_only_complete_at_its_end():
    encoded, buffer = jpeg(scene(33, 40), restart_marker_blocks=3), np.zeros((33, 40, 4), np.uint8)
    for end in range(read_jpeg_header(encoded).scan, len(encoded) - 2):
        assert not decode_part(encoded[:end], buffer, (0, 0, 33, 40), RGB)
        assert not decode_part(encoded[:end] + b"\xff\xd9", buffer, (0, 0, 33, 40), RGB)


def resident_kib():
    return int(Path("/proc/self/status").read_text(encoding="ascii").split("VmRSS:")[1].split()[0])


def test_decoding_does_not_leak_memory():
    encoded, buffer = jpeg(scene(400, 400), quality=100), np.zeros((400, 400, 4), np.uint8)
    cut, sizes = encoded[: len(encoded) // 2], []
    for _ in range(3):
        for each in [encoded, cut] * 60:
            assert decode_part(each, buffer, (0, 0, 400, 400), RGB) == (each is encoded)
        sizes.append(resident_kib())
    assert sizes[2] < sizes[0] + 40_000  # in KiB; each of the 240 decodes uses 300 KiB


def without_segments(encoded, marker):
    while (at := encoded.find(bytes((255, marker)))) >= 0:
        encoded = encoded[:at] + encoded[at + 2 + int.from_bytes(encoded[at + 2 : at + 4], "big") :]
    return encoded


def test_the_tables_of_the_previous_jpeg_are_not_used_again():
    """Each thread keeps a decompressor. libjpeg-turbo decodes a JPEG without Huffman tables with default tables."""
    encoded, buffer = jpeg(scene(60, 80)), np.zeros((60, 80, 4), np.uint8)
    without_tables = without_segments(encoded, 0xC4)
    whole = decode(without_tables, np.empty_like(buffer), RGB, is_strict=True)
    for _ in range(3):
        assert decode_part(jpeg(scene(60, 80), optimize=True), buffer, (0, 0, 60, 80), RGB)
        assert decode_part(without_tables, buffer, (0, 0, 60, 80), RGB)
        assert np.array_equal(buffer[..., :3], whole[..., :3])
        assert not decode_part(without_segments(encoded, 0xDB), buffer, (0, 0, 60, 80), RGB)


def test_a_thread_that_ends_frees_its_decompressor():
    encoded, sizes = jpeg(scene(30, 40), quality=100), []

    def run():
        assert decode_part(encoded, np.empty((30, 40, 4), np.uint8), (0, 0, 30, 40), RGB)

    for _ in range(3):
        for _ in range(1000):
            thread = Thread(target=run)
            thread.start()
            thread.join()
        sizes.append(resident_kib())
    assert sizes[2] < sizes[0] + 1_500  # in KiB; the decompressors of 2,000 threads use 5,000 KiB


# the library


def test_a_library_with_a_different_abi_is_rejected():
    functions = turbo.functions_of(_imaging.__file__)
    encoded, buffer = jpeg(scene(30, 40)), np.zeros((30, 40, 4), np.uint8)
    assert turbo.is_decoded(functions, encoded, buffer, (5, 5, 20, 20), RGB)
    buffer[:] = 0
    for abi in (61, 70, 80, 90):
        assert not turbo.is_decoded(functions, encoded, buffer, (5, 5, 20, 20), RGB, abi=abi)
    assert not buffer.any()


def test_a_library_without_the_functions_is_rejected():
    assert turbo.functions_of(turbo.library()._name) is None
    assert turbo.functions_of("no such library") is None


@pytest.fixture
def _huffman_again():
    turbo.has_own_huffman.cache_clear()
    yield
    turbo.has_own_huffman.cache_clear()


def entropy_decoder(monkeypatch, *, version=None, setting=None):
    """Decode a photo. Return whether the pixels are right, and whether the library's own Huffman decoder was used."""
    monkeypatch.setenv("PIXPREP_HUFFMAN", setting or "")
    if version:
        monkeypatch.setattr(
            turbo, "_imaging", SimpleNamespace(libjpeg_turbo_version=version, __file__=_imaging.__file__)
        )
    functions, fields = turbo.functions_of(_imaging.__file__), []
    encoded, buffer = jpeg(scene(60, 80)), np.zeros((60, 80, 4), np.uint8)
    pack = turbo._REGION.pack

    def kept(*values):
        fields[:] = values
        return pack(*values)

    monkeypatch.setattr(turbo, "_REGION", SimpleNamespace(pack=kept))
    assert turbo.is_decoded(functions, encoded, buffer, (0, 0, 60, 80), RGB)
    assert np.array_equal(buffer[..., :3], decode(encoded, np.empty_like(buffer), RGB, is_strict=True)[..., :3])
    return bool(fields[-1])


@pytest.mark.usefixtures("_huffman_again")
@pytest.mark.parametrize("way", [{"setting": "library"}, {"version": "3.2.1"}, {"version": "30.0.0"}])
def test_an_untested_library_or_a_setting_keeps_the_librarys_huffman_decoder(monkeypatch, way):
    assert not entropy_decoder(monkeypatch, **way)


@pytest.mark.usefixtures("_huffman_again")
def test_a_tested_library_uses_pixpreps_huffman_decoder(monkeypatch):
    assert entropy_decoder(monkeypatch, version=max(turbo.TESTED))
    assert turbo.why_not_own().startswith("pixprep was not tested with libjpeg-turbo 3.")


@pytest.mark.usefixtures("_huffman_again")
def test_an_invalid_setting_for_the_huffman_decoder_is_an_engine_error(monkeypatch):
    monkeypatch.setenv("PIXPREP_HUFFMAN", "off")
    with pytest.raises(SetupError) as caught:
        pp.Engine(pp.presets.imagenet())
    assert str(caught.value) == "PIXPREP_HUFFMAN=off is not supported: set it to library, or unset it"


def test_the_pinned_pillow_has_a_tested_library():
    assert _imaging.libjpeg_turbo_version in turbo.TESTED


def test_a_library_that_returns_wrong_pixels_is_rejected():
    functions = turbo.functions_of(_imaging.__file__)
    skip = turbo.FUNCTIONS.index("jpeg_skip_scanlines")
    kind = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
    true_skip = kind(functions[skip])
    more = [-1, 1]  # skip one row less above the region, and one row more below it

    @kind
    def wrong_skip(jpeg, rows):
        more.append(more.pop(0))
        true_skip(jpeg, rows + more[-1])
        return rows

    assert turbo.is_equal(functions, "420")
    functions[skip] = ctypes.cast(wrong_skip, ctypes.c_void_p).value
    assert turbo.is_decoded(functions, jpeg(scene(60, 40)), np.empty((60, 40, 4), np.uint8), (5, 5, 20, 20), RGB)
    assert not turbo.is_equal(functions, "420")


def test_without_such_a_library_jpegs_are_decoded_completely(monkeypatch):
    whole = pixels_or_error(photo(), is_whole=True)
    assert not np.array_equal(pixels_or_error(photo()), whole)
    monkeypatch.setattr(turbo, "_pillow_functions", lambda: None)
    assert np.array_equal(pixels_or_error(photo()), whole)


def test_the_image_size_is_checked_again_by_the_decoder():
    """The buffer is allocated for the size in the header that pixprep has parsed."""
    for height, width in ((30, 41), (31, 40), (29, 40), (30, 39)):
        buffer = np.zeros((height, width, 4), np.uint8)
        assert not decode_part(jpeg(scene(30, 40)), buffer, (5, 5, 20, 20), RGB)


# the decoder


@pytest.fixture(autouse=True)
def _parts_of_small_images(monkeypatch):
    monkeypatch.setattr(images, "MIN_SAVED_PIXELS", 0)


PIPELINE = pp.Pipeline([pp.decode(), pp.crop(10, 20, 30, 40), pp.tensor()])


def pixels_or_error(encoded, pipeline=PIPELINE, *, is_whole=False, damage="strict"):
    """Return the pixels of an image, or its error. Pixels that the decoder does not write have the value 77."""
    decoder = CpuDecoder(pipeline.plan, Limits(), damage=damage)
    decoder._buffers.append(np.full(1 << 21, 77, np.uint8))
    (chunk,) = decoder.chunks([encoded], [pipeline.plan.place], is_whole=is_whole)
    with decoder.decode(chunk) as (image,):
        return image if isinstance(image, ImageError) else image.pixels[:, :, :3].copy()


def test_only_the_region_is_written():
    encoded = jpeg(scene(100, 120), subsampling=0)
    part, whole = pixels_or_error(encoded), pixels_or_error(encoded, is_whole=True)
    assert PIPELINE.plan.part(PIPELINE.plan.place(100, 120)) == (9, 19, 41, 61)
    assert np.array_equal(part[9:41, 19:61], whole[9:41, 19:61])
    assert (part[:9] == 77).all()
    assert (part[41:99] == 77).all()
    assert (part[9:41, 72:] == 77).all()


@pytest.mark.parametrize(("left", "is_part"), [(82, False), (83, True)])
def test_a_region_that_omits_few_pixels_is_not_used(monkeypatch, left, is_part):
    """A region must save at least 16,384 pixels.

    The region begins one column before the crop, so it omits 81 or 82 columns of 200 pixels each.
    """
    monkeypatch.undo()
    cropped = pp.Pipeline([pp.decode(), pp.crop(1, left, 198, 199 - left), pp.tensor()])
    assert (pixels_or_error(jpeg(scene(200, 200), subsampling=0), cropped)[:, :64] == 77).all() == is_part


@pytest.mark.parametrize("damage", ["strict", "lenient", "pillow"])
@pytest.mark.parametrize("is_part", [True, False])
def test_damaged_images_have_the_same_result_as_with_simplejpeg(monkeypatch, damage, is_part):
    def simply(encoded):
        with monkeypatch.context() as patch:
            patch.setattr(images, "MIN_SAVED_PIXELS", 1 << 60)
            return pixels_or_error(encoded, damage=damage)

    rng = np.random.default_rng(3)
    top, left, bottom, right = 10, 20, 40, 60
    errors = 0
    for encoded in [damaged(rng, jpeg(scene(50, 80), progressive=turn % 2)) for turn in range(40)]:
        part, whole = pixels_or_error(encoded, is_whole=not is_part, damage=damage), simply(encoded)
        if isinstance(whole, ImageError):
            assert (part.reason, part.detail) == (whole.reason, whole.detail)
            errors += 1
        else:
            assert np.array_equal(part[top:bottom, left:right], whole[top:bottom, left:right])
    assert (errors > 30) == (damage == "strict")


# the tensors

SHAPES = [(97, 131), (60, 200), (64, 48)]
PHOTOS = [jpeg(scene(*shape, 1), subsampling=turn % 3) for turn, shape in enumerate(SHAPES)]
TURNED = [with_exif(orientation, size=(64, 90)) for orientation in range(1, 9)]


def assert_same(pipeline, photos, **given):
    """Assert that tensors computed from regions equal tensors computed from complete images.

    Before each decode, the buffer contains a different image.
    """
    with pp.Engine(pipeline, threads=1, odd_range=True) as engine:
        whole = engine.run_batch(photos, keep=lambda *_: None, **given)
        for buffer in engine._decoder._buffers:
            buffer[:] = np.random.default_rng(0).integers(0, 256, buffer.shape, np.uint8)
        part = engine.run_batch(photos, **given)
        assert list(map(str, part.errors)) == list(map(str, whole.errors))
        for name in whole.outputs:
            for ours, expected in zip(part[name], whole[name], strict=True):
                assert np.array_equal(ours, expected)
        return whole


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_tensors_of_each_filter_equal_those_of_complete_images(like, filter_name, antialias):
    how = {"like": like, "filter": filter_name, "antialias": antialias}
    margin = [] if PROFILES[like].real else [pp.pad(40, 52)]  # padding is not resampled without rounding
    is_real = filter_name in PROFILES[like].real
    tail = pp.tensor("float32" if is_real else "uint8", "hwc")
    # for smaller results, PyTorch uses other arithmetic, which is not supported
    more = 129 if like.startswith("torch_") and (filter_name, antialias) == ("bilinear", False) else 0
    parts = []
    if like == "dali":
        across, down = ({"roi": roi, **how} for roi in ((40.3, 9.1, 12.8, 41), (20.5, 9.1, 31, 41.2)))
        parts.append([pp.flip(), pp.resize(height=23, width=41, **across), tail])
        parts.append([pp.resize(90, **down), pp.crop(9, 30, 12, 31), tail])
    for ops in (
        *parts,
        [pp.crop(11, 9, 35, 30), pp.resize(height=23 + more, width=41, **how), pp.crop(3, 4, 9, 7), tail],
        [pp.resize(60 + more, **how), pp.flip(), pp.crop(20, 1, 12, 30), tail],
        [pp.flip("vertical"), pp.crop(30, 9, 18, 25), *margin, pp.resize(height=50 + more, width=31, **how), tail],
        [pp.crop(13, 5, 30, 9), pp.resize(height=64 + more, width=1, **how), pp.crop(40, 0, 20, 1), tail],
    ):
        assert_same(pp.Pipeline([pp.decode(), *ops]), [*PHOTOS, *TURNED[::3]])


@pytest.mark.parametrize(("like", "filter_name", "antialias"), RESIZES)
def test_no_filter_tap_is_outside_the_region(like, filter_name, antialias):
    rng = np.random.default_rng(5)
    reach = Resize(rule="both", height=1, width=1, filter=filter_name, antialias=antialias, like=like).reach
    for _ in range(60):
        size, after = (tuple(map(int, rng.integers(1, 200, 2))) for _ in range(2))
        region = part_of(rng, *after)
        how = resampling_of(like, filter_name, size, after, antialias=antialias, region=region)
        rows, columns = resampling.windows(how)
        top, left, bottom, right = placement(size, after, region).part(reach)
        for read, begin, end in (rows.span(size[0]), top, bottom), (columns.span(size[1]), left, right):
            assert 0 <= begin <= read[0] < read[1] <= end, (size, after, region)


U8 = pp.tensor("uint8", "hwc")
SMALL = [pp.resize(20), pp.center_crop(9), U8]
TURN = pp.operator("acme.turned", version=1)(lambda pixels: np.rot90(pixels, 2))
CHAINS = {
    # ops on the whole photo, for which it is decoded completely
    "contrast": [pp.decode(), pp.contrast(1.5), pp.crop(3, 4, 20, 30), *SMALL],
    "autocontrast": [pp.decode(), pp.autocontrast(), pp.crop(3, 4, 20, 30), *SMALL],
    "equalize": [pp.decode(), pp.crop(3, 4, 20, 30), pp.equalize(), *SMALL[1:]],
    "autocontrast after a resize": [pp.decode(), pp.resize(40), pp.autocontrast(), pp.center_crop(20), U8],
    "a blur": [pp.decode(), pp.crop(8, 8, 30, 30), pp.gaussian_blur(5, 1.0), *SMALL[1:]],
    "a rotation": [pp.decode(), pp.crop(8, 8, 30, 30), pp.rotate(30), *SMALL[1:]],
    # custom operators receive the same pixels
    "an operator first": [pp.decode(), TURN(), pp.crop(3, 4, 20, 30), U8],
    "an operator after a crop": [pp.decode(), pp.crop(3, 4, 20, 30), TURN(), *SMALL[1:]],
    "an operator last": [pp.decode(), pp.resize(30), pp.center_crop(20), TURN(), U8],
    # the tensors or boxes of a photo share one decode of their regions
    "two tensors": [
        *(pp.decode(name="decoded"), pp.crop(3, 4, 20, 30), pp.resize(20, name="small"), pp.center_crop(9)),
        *(pp.tensor("uint8", "hwc", name="one"), pp.crop(40, 9, 8, 30, from_="decoded")),
        *(pp.tensor("uint8", "hwc", name="two"), pp.original_size(from_="decoded")),
    ],
    "boxes": [pp.decode(), pp.crop(box="boxes"), pp.resize(height=9, width=7), U8],
    "a reduced decode": [pp.decode(reduced=True), pp.crop(10, 10, 40, 38), pp.resize(height=9, width=9), U8],
    "an open size": [pp.decode(), pp.center_crop(50, 40), pp.resize(30), U8],
}
BOXES = [[(3, 4, 30, 31), (20, 40, 50, 60)], [(1, 1, 20, 20)], [(0, 0, 48, 64), (2, 2, 9, 9)]]


@pytest.mark.parametrize("name", CHAINS)
def test_tensors_equal_those_of_complete_images_whatever_the_pipeline_does(name):
    assert_same(pp.Pipeline(CHAINS[name]), PHOTOS, **{"inputs": {"boxes": BOXES}} if name == "boxes" else {})


def test_two_tensors_share_the_smallest_region_that_contains_theirs():
    plan = pp.Pipeline(CHAINS["two tensors"]).plan
    assert plan.part(plan.place(60, 200)) == (7, 8, 49, 40)


@pytest.mark.parametrize("fields", [{}, {"apply_exif_orientation": False}, {"color": "gray"}], ids=str)
def test_tensors_of_rotated_images_equal_those_of_complete_images(fields):
    crop = [pp.crop(5, 31, 40, 20), pp.resize(17), pp.center_crop(12), U8]
    batch = assert_same(pp.Pipeline([pp.decode(**fields), *crop]), TURNED)
    assert any(error is None for error in batch.errors)


def test_cached_pixels_are_complete():
    kept = {}
    with pp.Engine(PIPELINE, threads=1) as engine:
        engine.run_batch(PHOTOS[:2], keep=lambda place, image: kept.setdefault(place, image.pixels.copy()))
    for place, encoded in enumerate(PHOTOS[:2]):
        assert np.array_equal(kept[place][:, :, :3], pixels_or_error(encoded, is_whole=True))


def test_a_random_crop_equals_that_of_the_complete_image(tmp_path):
    for place, encoded in enumerate([*PHOTOS, *TURNED]):
        (tmp_path / f"{place}.jpg").write_bytes(encoded)
    ops = [pp.random_resized_crop(20), pp.random_flip(), pp.tensor("uint8", "hwc", only="training")]
    pipeline = pp.Pipeline([pp.decode(), *ops])
    with (
        pp.Loader(pp.read.files(tmp_path), pipeline, batch_size=11, odd_range=True) as part,
        pp.Loader(pp.read.files(tmp_path), pipeline, batch_size=11, odd_range=True, cache="pixels") as whole,
    ):
        found = []
        for _ in range(4):
            for ours, expected in zip(part, whole, strict=True):
                assert np.array_equal(ours["tensor"], expected["tensor"])
                found.append(ours["tensor"].copy())
    assert not np.array_equal(found[0], found[1])
