"""Tests that an imported image processor of transformers equals the original bit for bit, or is rejected by a field's
name.
"""

import io
from functools import cache
from importlib.util import find_spec
from itertools import product

import msgspec
import numpy as np
import pytest
from PIL import Image

from pixprep import Engine, ImageError, Pipeline, PipelineError, resize
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.classes import DEFAULTS, FIXED, HARMLESS, UNUSED, WITHOUT_PIL
from pixprep.importers.verify.originals import size_of
from pixprep.plan.sizes import max_detr_side
from support.compare import assert_close
from support.hub_configs import EXACT, REFUSED, clip, detr, efficientnet, vit
from support.images import noise, others, photo, png, read, scene, with_exif
from support.importing import ours, photos, refusal
from support.processors import boxes_for

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: its importer was not compared", allow_module_level=True)

import transformers
from transformers.image_transforms import get_size_with_aspect_ratio as detr_size
from transformers.image_utils import load_image
from transformers.models.yolos.image_processing_yolos import get_size_with_aspect_ratio_yolos as yolos_size
from transformers.processing_utils import ImagesKwargs

BACKENDS = ("torchvision", "pil")
CONVERTS_NO_IMAGE = (
    *(transformers.SegGptImageProcessor, transformers.SegGptImageProcessorPil),
    *(transformers.PromptDepthAnythingImageProcessor, transformers.PromptDepthAnythingImageProcessorPil),
)
"""Processors with ``do_convert_rgb`` that do not apply it to images."""


def processor_class(config, backend):
    name = config.get("image_processor_type") or config["feature_extractor_type"]
    name = name.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast")
    if backend == "pil" and name in WITHOUT_PIL:
        pytest.skip(f"NO {name}Pil: transformers has no such class")
    return getattr(transformers, name + ("Pil" if backend == "pil" else ""))


def theirs(config, backend, images):
    """Return the tensors of the processor for PIL images.

    If the processor does not convert the images to RGB, ``load_image`` does.
    """
    processor = processor_class(config, backend).from_dict(config)
    converts = processor.do_convert_rgb and not isinstance(processor, CONVERTS_NO_IMAGE)
    loaded = [read(image) if converts else load_image(read(image)) for image in images]
    results = [processor(image, return_tensors="np", **boxes_for(processor)) for image in loaded]
    tensors = [np.asarray(each if isinstance(each, np.ndarray) else each["pixel_values"])[0] for each in results]
    return [tensor[0] if tensor.ndim == 4 and len(tensor) == 1 else tensor for tensor in tensors]  # one frame of a clip


def minimal(name):
    """Return the configuration with only a class, and the fields that the importer requires."""
    defaults = DEFAULTS[name]
    fixed = {field: value for field, value in FIXED.get(name, {}).items() if defaults[field] != value}
    return {"image_processor_type": name} | fixed


def changed(pipeline, op_name, **fields):
    """Return the pipeline with changed field values in every op with this name."""
    ops = [msgspec.structs.replace(op, **fields) if op.__struct_config__.tag == op_name else op for op in pipeline.ops]
    return Pipeline(ops)


@cache
def images():
    """Return the photos, one image with an alpha channel, and one image that is small enough to be enlarged."""
    pixels = np.dstack([scene(301, 259), noise(301, 259, 1)])
    file = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(file, "PNG")
    return [*photos(), file.getvalue(), png(scene(37, 53))]


def assert_equal(config, backend, encoded):
    for actual, expected in zip(
        ours(from_transformers(config, backend=backend), encoded), theirs(config, backend, encoded), strict=True
    ):
        assert actual.dtype == expected.dtype
        assert_close(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXACT)
def test_the_import_equals_the_processor_bit_for_bit(name, backend):
    processor_class(EXACT[name], backend)  # skips a class without this backend
    assert_equal(EXACT[name], backend, images())


def test_the_fractions_of_exact_and_rejected_configurations(capsys):
    exact, refused = len(EXACT), len(REFUSED)
    with capsys.disabled():
        print(
            f"\ntransformers {transformers.__version__}: of {exact + refused} configurations {exact} "
            f"({exact / (exact + refused):.0%}) are imported, {refused} refused"
        )
    assert exact >= 30


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_equal_the_class(name, backend):
    cls = processor_class({"image_processor_type": name}, backend)
    own = {field: getattr(cls, field, None) for field in DEFAULTS[name]}
    own = {field: tuple(value) if isinstance(value, list) else value for field, value in own.items()}
    assert own == DEFAULTS[name]
    # No other parameter of the class may have a default that could change a pixel.
    general = {field for field in ImagesKwargs.__annotations__ if getattr(cls, field, None) is None}
    assert set(cls.valid_kwargs.__annotations__) <= set(DEFAULTS[name]) | general | set(HARMLESS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DEFAULTS)
def test_a_configuration_with_only_a_class_equals_the_class(name, backend):
    config = minimal(name)
    if name in WITHOUT_PIL and backend == "pil":
        assert "does not have a PIL backend in transformers" in refusal(from_transformers, config, backend=backend)
        return
    assert_equal(config, backend, images()[:1])


ODD = {
    "no rescale": {"do_rescale": False},
    "no normalize": {"do_normalize": False},
    "no rescale, no normalize": {"do_rescale": False, "do_normalize": False},
    "levels to -1 and 1": {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 1.0, 1.0], "image_std": 1.0},
    "one mean": {"image_mean": 0.3, "image_std": [0.2, 0.3, 0.4]},
    "no resize": {"do_resize": False, "size": None},
    "a crop that pads, the smaller half above": {"size": {"shortest_edge": 101}},
    "an even margin on both sides": {"size": {"height": 200, "width": 180}},
    "a pad to what is there already": {"do_pad": True},
    "nearest": {"resample": 0},
    "lanczos": {"resample": 1},
    "bilinear": {"resample": 2},
    "a null for what is on by default": {"do_normalize": None, "image_mean": None},
    "nulls for everything else": {"do_pad": None, "pad_size": None, "data_format": None, "size_divisor": None},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", ODD)
def test_an_unusual_configuration_equals_the_processor(case, backend):
    config = clip(224) | ODD[case]
    large = [image for image in images() if min(read(image).size) >= 224]
    assert_equal(config, backend, large)


WIDE = {
    "a crop that pads only the height": clip(50) | {"crop_size": {"height": 61, "width": 40}},
    "no crop": clip(50) | {"do_center_crop": False},
    "no change of the size by DETR": detr("Detr") | {"do_resize": False},
    "no change of the size": vit(50) | {"do_resize": False},
    "DPT with the aspect ratio of the photo": {
        "image_processor_type": "DPTImageProcessor",
        "size": {"height": 46, "width": 46},
        "keep_aspect_ratio": True,
    },
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", WIDE)
def test_a_wide_photo_is_processed_as_in_the_class(case, backend):
    assert_equal(WIDE[case], backend, [png(noise(30, 401)), png(noise(77, 50))])


RAISES = {
    "a crop without its size": {"image_processor_type": "SegformerImageProcessor", "do_center_crop": True},
    "no mean": {"image_processor_type": "MobileViTImageProcessor", "do_normalize": True, "image_mean": None},
    "no std": {"image_processor_type": "MobileViTImageProcessor", "do_normalize": True, "image_std": None},
    "a second division of levels": efficientnet(224, 289) | {"do_rescale": False, "do_normalize": False},
}


@pytest.mark.parametrize("case", RAISES)
def test_a_configuration_for_which_the_processor_raises_is_rejected(case):
    with pytest.raises((ValueError, TypeError), match=r"must|should"):
        theirs(RAISES[case], "torchvision", images()[:1])
    assert "transformers raises" in refusal(from_transformers, RAISES[case])


def test_an_integer_rescale_factor_overflows_in_the_class():
    config = clip(224) | {"rescale_factor": 2, "do_normalize": False}
    (tensor,) = theirs(config, "torchvision", [png(np.full((224, 224, 3), 200, np.uint8))])
    assert (tensor.dtype, tensor.max()) == (np.uint8, 2 * 200 - 256)
    assert "decimal point" in refusal(from_transformers, config)
    assert_equal(config | {"rescale_factor": 2.0}, "torchvision", images()[:1])


@pytest.mark.parametrize("filter_", [4, 5])
def test_box_and_hamming_are_exact_with_pil_and_rejected_with_torchvision(filter_):
    config = clip(224) | {"resample": filter_}
    assert_equal(config, "pil", images())
    assert 'is not supported by "like": "torchvision"' in refusal(from_transformers, config)
    with pytest.raises(Exception, match=r"(?i)interpolation|mode"):
        theirs(config, "torchvision", images()[:1])


@pytest.mark.parametrize("image", ["png alpha", "png gray alpha", "png palette alpha", "webp lossless alpha"])
def test_a_transparent_image_is_blended_with_white_if_the_processor_converts_to_rgb(image):
    assert_equal(clip(16), "torchvision", [others()[image]])
    (dropped,) = ours(changed(from_transformers(clip(16)), "decode", alpha="drop"), [others()[image]])
    (expected,) = theirs(clip(16), "torchvision", [others()[image]])
    assert (dropped != expected).mean() > 0.1


@pytest.mark.parametrize("image", ["png gray", "png 1 bit", "png palette", "gif", "tiff cmyk", "bmp palette"])
def test_an_image_that_is_not_rgb_is_converted(image):
    assert_equal(clip(16), "torchvision", [others()[image]])


def test_images_are_oriented_like_load_image_or_as_stored_on_request():
    encoded = with_exif(6, size=(30, 50))
    config = vit(20)
    assert_equal(config, "torchvision", [encoded])
    (stored,) = ours(from_transformers(config, apply_exif_orientation=False), [encoded])
    processor = processor_class(config, "torchvision").from_dict(config)
    assert_close(stored, processor(read(encoded), return_tensors="np")["pixel_values"][0])


@pytest.mark.parametrize("name", UNUSED)
def test_unused_fields_are_unused(name):
    config = minimal(name) | {"size": {"height": 200, "width": 200}, "do_center_crop": False}
    values = {"do_normalize": True, "image_mean": 0.1, "image_std": 0.7, "do_center_crop": True, "crop_size": 100}
    values |= {"pad_size": {"height": 300, "width": 300}, "do_convert_rgb": False}
    values |= {"do_rescale": True, "rescale_factor": 0.1}
    values |= {"mask_size": {"longest_edge": 100}, "mask_pad_size": {"height": 300, "width": 300}}
    config |= {"size": {"longest_edge": 200}} if name == "SamImageProcessor" else {}
    loud = config | {field: values[field] for field in UNUSED[name]}
    (quiet,), (expected,) = theirs(config, "torchvision", [photo()]), theirs(loud, "torchvision", [photo()])
    assert_close(expected, quiet)
    assert_equal(loud, "torchvision", [photo()])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (40, 2), (223, 225), (224, 224), (448, 447), (257, 991), (640, 480)])
def test_llavas_square_is_padded_before_the_resize(backend, size):
    config = clip(96) | {"image_processor_type": "LlavaImageProcessor", "do_pad": True}
    assert_equal(config, backend, [png(noise(*size))])


DETR_SIZE = {"size": {"shortest_edge": 60, "longest_edge": 101}}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["Detr", "Yolos"])
def test_500_random_sizes_are_resized_like_detr(name, backend):
    """The images have random aspect ratios, and the sizes of some are close to the requested size. The processor pads
    the batch.
    """
    numbers = np.random.default_rng(5)
    config = detr(name, **DETR_SIZE)
    encoded = [png(noise(*sides)) for sides in numbers.integers(50, 260, (400, 2)).tolist()]
    encoded += [png(noise(*sides)) for sides in numbers.integers((40, 90), (64, 110), (50, 2)).tolist()]
    encoded += [png(noise(*sides)) for sides in numbers.integers((90, 40), (110, 64), (50, 2)).tolist()]
    pipeline = from_transformers(config, backend=backend)
    results, expected = ours(pipeline, encoded), theirs(config, backend, encoded)
    assert [each.shape for each in results] == [each.shape for each in expected]
    assert sum(np.count_nonzero(a != b) for a, b in zip(results, expected, strict=True)) == 0
    others = ours(changed(pipeline, "resize", rounding="down"), encoded)
    assert sum(a.shape != b.shape for a, b in zip(others, expected, strict=True)) > (50 if name == "Detr" else 0)
    with Engine(pipeline) as engine:
        padded = engine.run_batch(encoded[:4]).padded("tensor")
    processor = processor_class(config, backend).from_dict(config)
    batch = processor([read(each) for each in encoded[:4]], return_tensors="np")
    assert_close(padded, np.asarray(batch["pixel_values"]))


def test_detrs_size_is_equal_for_any_image():
    numbers, compared = np.random.default_rng(6), 0
    for sizes, multiple, own in (
        ((60, 101), None, detr_size),
        ((800, 1333), None, detr_size),
        ((512, 1333), 16, yolos_size),
    ):
        op = resize(sizes[0], max_size=sizes[1], rounding="detr", multiple=multiple)
        odd = numbers.integers((16, sizes[1] - 2), (700, sizes[1] + 30), (20_000, 2))
        for sides in [*numbers.integers(16, 3000, (20_000, 2)).tolist(), *odd.tolist(), *odd[:, ::-1].tolist()]:
            expected = own(tuple(sides), *sizes)
            if min(expected) >= (multiple or 1):  # the processor raises an error for a smaller size
                compared += 1
                assert op._step.size(*sides) == expected, sides
                assert size_of(op, np.broadcast_to(np.uint8(0), (*sides, 3))) == expected, sides
                assert max(expected) <= max_detr_side(sizes[1])
    assert compared > 150_000
    with pytest.raises(
        ImageError, match="6 x 1450 pixels would be resized to 6 x 1450, but the longer side must not exceed 1333"
    ):
        resize(800, max_size=1333, rounding="detr")._step.size(6, 1450)


def test_a_crop_with_an_odd_margin_equals_the_processor():
    assert_equal(clip(224), "torchvision", [png(scene(224, width)) for width in (225, 227, 229, 231)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_further_images_of_unusual_sizes_are_equal(backend):
    sizes = [(1, 1), (1, 9), (300, 2), (223, 225), (224, 224), (448, 447), (257, 991)]
    assert_equal(vit(224), backend, [png(noise(*size)) for size in sizes])
    assert_equal(clip(64), backend, [png(noise(*size)) for size in sizes if max(size) / min(size) < 4])


# The sweep: every flag and every form of a size for every class.

SWITCHES = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad", "do_convert_rgb")
FORMS = [
    *(33, 33.0, "33", [33], [33, 47], {"height": 33, "width": 47}, {"height": 33}, {"shortest_edge": 33}),
    *({"longest_edge": 40}, {"shortest_edge": 33, "longest_edge": 40}, {"shortest_edge": 33, "longest_edge": None}),
    *({"shortest_edge": 33, "height": None, "width": None}, {"height": 33, "width": 47, "shortest_edge": 33}),
    *({"max_height": 40, "max_width": 47}, {"min_pixels": 100, "max_pixels": 2000}),
    *({"height": 50, "width": 60}, {"height": 45, "width": 53}, {"height": 30, "width": 53}, None),
]


def flags():
    """Return every boolean field of all imported classes, so that each field is also tested on the other classes."""
    kinds = [processor_class({"image_processor_type": name}, "torchvision").valid_kwargs for name in DEFAULTS]
    found = {field for kind in kinds for field, type_ in kind.__annotations__.items() if "bool" in str(type_)}
    return sorted(found | {"pad_and_return_pixel_mask", "use_fast"})


def sweep(name):
    """Yield configurations of a class: its defaults, and variants that differ in a flag, a form of the size, or the
    filter.
    """
    yield minimal(name)
    size = {"shortest_edge": 40} if name == "ConvNextImageProcessor" else {"height": 40, "width": 48}
    base = minimal(name) | {"size": size, "crop_size": {"height": 30, "width": 36}}
    if name == "SamImageProcessor":
        base |= {"size": {"longest_edge": 40}, "pad_size": {"height": 44, "width": 48}}
    cropped = base | {"do_center_crop": True}
    for field, value in product(flags(), (True, False, None)):
        yield from (base | {field: value}, cropped | {field: value})
    for values in product((True, False), repeat=len(SWITCHES)):
        yield base | dict(zip(SWITCHES, values, strict=True))
    for form in FORMS:
        yield from (base | {"size": form}, cropped | {"size": form}, base | {"size": form, "max_size": 45})
        yield from (cropped | {"size": form, "default_to_square": value} for value in (True, False, None))
        yield from (base | {"crop_size": form, "do_center_crop": value} for value in (True, False))
        yield from (base | {"pad_size": form, "do_pad": value} for value in (True, False))
    yield from (base | {"resample": number} for number in (*range(7), None))
    for field in ("image_mean", "image_std", "rescale_factor", "crop_pct"):
        yield from (base | {field: value} for value in (None, 0.4, [0.1, 0.2, 0.3]))


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_flag_and_size_of_a_class_is_rejected_or_equals_it(name):
    pixels = np.dstack([scene(37, 52), noise(37, 52, 1)])
    file = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(file, "PNG")
    encoded, tensors, equal, wrong = [png(scene(70, 101)), file.getvalue()], {}, 0, []
    for config, backend in product(sweep(name), BACKENDS[: 1 if name in WITHOUT_PIL else 2]):
        try:
            pipeline = from_transformers(config, backend=backend)
        except PipelineError as error:
            refused = str(error)
            wrong += [] if refused.startswith("image processor: ") and '"' in refused else [f"{config}: {refused}"]
            continue
        try:
            expected = theirs(config, backend, encoded)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            wrong.append(f"{backend}, {config}: transformers raises {error}")
            continue
        if (text := pipeline.to_json()) not in tensors:  # many configurations give the same pipeline
            tensors[text] = ours(pipeline, encoded)
        pairs = zip(tensors[text], expected, strict=True)
        is_equal = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
        equal += is_equal
        wrong += [] if is_equal else [f"{backend}, {config}"]
    assert wrong == []
    assert equal > 100
