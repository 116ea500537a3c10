"""Tests that imported processors equal the originals bit for bit if they return patches or tiles, or compute the size
with a formula.

Patches, tiles, grids, masks and counts are compared.
"""

import io
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from PIL import Image

from pixprep import Engine, ImageError, PipelineError
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.classes import FIXED, HARMLESS, ONLY_PIL, PAIRS, WITHOUT_PIL, WITHOUT_TORCHVISION
from pixprep.importers.transformers.patches import PATCHED
from pixprep.importers.transformers.sizes import MAX_OPEN_SIDE, SIZED
from pixprep.plan.profiles import PROFILES
from support.compare import assert_close
from support.hub_configs import TILED
from support.images import noise, png, read, scene
from support.importing import photos
from support.processors import COLORS, LEFT_OUT, SMALL, drawn, outputs_of, without_ties

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: its processors of patches were not compared", allow_module_level=True)

import transformers

BACKENDS = ("torchvision", "pil")
ROWS = PATCHED | SIZED
SIZES = ((1, 1), (1, 90), (20, 3000), (28, 28), (33, 57), (480, 640), (641, 480), (1500, 99), (27, 29))


NARROW = ("DonutImageProcessor", "MuseGlimmerImageProcessor", "NougatImageProcessor", "PPFormulaNetImageProcessor")
"""Classes that first resize the shorter side. The longer side of a narrow image then exceeds the limit."""


def processor(name, backend, **fields):
    """Return an object of the class. Skip a class without this backend."""
    cls = getattr(transformers, name + ("Pil" if backend == "pil" else ""), None)
    if cls is None:
        pytest.skip(f"NO {name}Pil: transformers has no such class")
    return cls(**fields)


def is_large(name, expected, size):
    """Return whether a pipeline may reject an image that the processor accepts."""
    sides = np.shape(expected["pixel_values"])[-2:]
    if name in ("RfDetrImageProcessor", "ZoeDepthImageProcessor") and sum(sides) < PROFILES["torch_float"].min_sides:
        return True
    longest = max(sides)
    if name == "ZoeDepthImageProcessor" and min(size) < 5:  # torchvision cannot pad such an image, but NumPy can
        return True
    is_narrow = name in NARROW and max(size) > 8 * min(size)
    return longest > MAX_OPEN_SIDE or is_narrow or (name == "PerceiverImageProcessor" and min(size) == 1)


def compare(name, backend, fields, encoded):
    """Compare all outputs; return the number of images that were compared."""
    if backend == "torchvision" and name in WITHOUT_TORCHVISION:
        with pytest.raises(PipelineError, match="the PIL backend is supported: pass --option backend=pil"):
            from_transformers({"image_processor_type": name, **fields}, backend=backend)
        pytest.skip(f"NO {name} WITH TORCHVISION: {WITHOUT_TORCHVISION[name]}")
    own, compared = processor(name, backend, **fields), 0
    pipeline = from_transformers({"image_processor_type": name, **fields}, backend=backend)
    with Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch(encoded)
    for index, image in enumerate(encoded):
        try:
            photo = read(image).convert("RGB")
            expected = outputs_of(own, [photo, photo] if name in PAIRS else photo)
            expected = {"pixel_values": expected["pixel_values"][:, 0]} if name in PAIRS else expected
        except IndexError:  # torchvision cannot pad an image by more than its size, but NumPy can
            assert name == "Swin2SRImageProcessor"
            continue
        except (ValueError, RuntimeError):  # PyTorch raises a RuntimeError for a size of 0
            assert isinstance(batch.errors[index], ImageError)
            continue
        if batch.errors[index] is not None:  # a result that is larger than the pipeline's limits
            assert batch.errors[index].reason in ("DOES_NOT_FIT", "BAD_DIMENSIONS")
            assert is_large(name, expected, read(image).size)
            continue
        compared += 1
        left_out = set(expected) - set(batch.outputs)
        assert left_out <= LEFT_OUT.get(name, set())
        given = {name: values for name, values in batch.outputs.items() if len(values[index])}  # not 0 tiles
        assert set(given) <= set(expected)
        for output, values in given.items():
            theirs, own_values = np.asarray(expected[output]), np.asarray(values[index])
            while theirs.ndim > own_values.ndim and len(theirs) == 1:
                theirs = theirs[0]
            theirs = without_ties(own, photo, own_values, theirs)
            assert own_values.dtype == theirs.dtype
            assert_close(own_values, theirs.reshape(own_values.shape) if theirs.ndim == 0 else theirs)
    return compared


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name in ROWS if name != "LlavaNextImageProcessor"])
def test_the_defaults_equal_the_class_for_images_of_many_sizes(name, backend):
    # the classes in ONLY_PIL interpret an image with a single row as channels
    sizes = SIZES[2:] if name in ONLY_PIL else SIZES
    encoded = [*photos(), png(scene(301, 259)), *(png(noise(*size)) for size in sizes)]
    fields = {"clusters": COLORS} if name == "ImageGPTImageProcessor" else {}
    assert compare(name, backend, fields, encoded) >= 8


ODD = {
    "BridgeTowerImageProcessor": {"size": {"shortest_edge": 50}, "crop_size": {"shortest_edge": 61}},
    "DeepseekVLHybridImageProcessor": {"high_res_size": {"height": 64, "width": 64}, "high_res_resample": 0},
    "TvpImageProcessor": {
        "size": {"longest_edge": 48},
        "crop_size": {"height": 61, "width": 50},
        "pad_size": {"height": 64, "width": 64},
    },
    "VideoLlavaImageProcessor": {"size": {"shortest_edge": 50}, "crop_size": {"height": 61, "width": 50}},
}
"""Configurations whose crop is larger than the resized image, and one whose first filter is ``nearest``."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("crops", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_an_unusual_configuration_equals_the_class(name, backend, crops):
    fields = SMALL[name] | ODD[name] | ({} if name.startswith("Deepseek") else {"do_center_crop": crops})
    assert compare(name, backend, fields, [png(noise(45, 70)), png(noise(77, 50))]) == 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TILED)
def test_a_checkpoint_equals_its_processor(name, backend):
    fields = {**TILED[name]}
    encoded = [*photos(), png(scene(301, 259)), *(png(noise(*size)) for size in SIZES[3:])]
    assert compare(fields.pop("image_processor_type"), backend, fields, encoded) >= 8


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ROWS)
def test_the_defaults_are_those_of_the_class(name, backend):
    own = processor(name, backend)
    own = {field: getattr(own if name in ONLY_PIL else type(own), field, None) for field in ROWS[name].defaults}
    assert listed(own) == listed(ROWS[name].defaults)


def listed(value):
    """Replace tuples by lists in nested values."""
    if isinstance(value, dict):
        return {key: listed(each) for key, each in value.items()}
    return [*map(listed, value)] if isinstance(value, list | tuple) else value


FORMS = [
    *(33, [33, 47], {"height": 48, "width": 48}, {"height": 48, "width": 64}, {"shortest_edge": 33}),
    *({"longest_edge": 40}, {"shortest_edge": 33, "longest_edge": 60}, {"max_height": 40, "max_width": 47}, None),
]


RESCALED = (
    *("DINOv3ViTImageProcessor", "UVDocImageProcessor", "VivitImageProcessor", "ZoeDepthImageProcessor"),
    "Owlv2ImageProcessor",
    *("Phi4MultimodalImageProcessor", "ImageGPTImageProcessor"),
    *PAIRS,
)
"""Classes that are supported only with ``do_rescale``."""
COPIED = (*("Idefics2ImageProcessor", "Idefics3ImageProcessor", "SmolVLMImageProcessor", "UltraVBertImageProcessor"),)
"""Classes whose torchvision backend copies the images to float32 arrays in order to pad them."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ROWS)
def test_pixel_values_that_are_not_changed_have_the_dtype_of_the_class(name, backend):
    for pads in ({}, {"do_pad": False}) if name in COPIED else ({},):
        fields = SMALL.get(name, {}) | FIXED.get(name, {}) | {"do_rescale": False, "do_normalize": False} | pads
        fields |= {"do_rescale": True} if name in RESCALED else {}  # required
        fields |= {"do_normalize": True} if name == "Kosmos2_5ImageProcessor" else {}
        assert compare(name, backend, fields, [png(scene(301, 259)), png(noise(99, 50))]) == 2


def sweep(name):
    """Yield configurations that differ from the defaults in a flag, a form of a size, the filter or the arithmetic."""
    kinds = type(processor(name, "torchvision")).valid_kwargs.__annotations__
    flags = sorted(field for field, type_ in kinds.items() if "bool" in str(type_))
    for field, value in product(flags, (True, False, None)):
        yield {field: value}
        yield {field: value, "do_center_crop": True, "crop_size": {"height": 30, "width": 36}}
    for field, form in product(("size", "crop_size", "pad_size"), FORMS):
        yield {field: form}
        yield {field: form, "do_center_crop": True, "do_pad": True}
    yield from ({"resample": number} for number in (*range(6), None))
    for field in ("image_mean", "image_std", "rescale_factor"):
        yield from ({field: value} for value in (None, 0.4, [0.1, 0.2, 0.3]))


@pytest.mark.parametrize("name", SIZED)
def test_every_flag_and_size_of_a_class_is_rejected_or_equals_it(name):
    if name in FIXED and any(SIZED[name].defaults[field] != value for field, value in FIXED[name].items()):
        pytest.skip("the default configuration is not supported")
    base = SMALL.get(name, {})
    encoded, equal, wrong, refused = [png(scene(70, 101)), png(noise(52, 37))], 0, [], 0
    backends = BACKENDS[1:] if name in WITHOUT_TORCHVISION else BACKENDS
    for fields, backend in product(sweep(name), backends[: 1 if name in (*ONLY_PIL, *WITHOUT_PIL) else 2]):
        try:
            pipeline = from_transformers({"image_processor_type": name, **base, **fields}, backend=backend)
        except PipelineError as error:
            refused += 1
            wrong += [] if str(error).startswith("image processor: ") and '"' in str(error) else [f"{fields}: {error}"]
            continue
        try:
            equal += compare(name, backend, base | fields, encoded)
        except (AssertionError, TypeError, LookupError, AttributeError) as error:
            wrong.append(f"{backend}, {fields}, {pipeline.ops[1]}: {str(error)[:200]}")
    assert wrong == []
    assert equal > 20


def test_every_field_of_a_class_is_known():
    general = {*transformers.processing_utils.ImagesKwargs.__annotations__, "return_legacy_image_output", "header_text"}
    # Video-LLaVA's and Pix2Struct's classes accept the last two names only as arguments of a call
    for name, row in ROWS.items():
        own = set(type(processor(name, "torchvision")).valid_kwargs.__annotations__)
        assert own <= set(row.defaults) | general | set(HARMLESS), name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PATCHED)
def test_random_configurations_equal_the_class(name, backend):
    numbers, compared = np.random.default_rng(sorted(PATCHED).index(name)), 0
    for _ in range(25):
        encoded = [png(noise(*numbers.integers(1, 400, 2).tolist())) for _ in range(2)]
        compared += compare(name, backend, drawn(name, numbers), encoded)
    assert compared >= 30


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_a_transparent_image_is_composited_on_the_checkerboard_of_inkling_2(mode):
    image = Image.fromarray(np.dstack([scene(97, 133), noise(97, 133)[:, :, :1]]))
    file = io.BytesIO()
    (image.quantize(64) if mode == "P" else image.convert(mode)).save(file, "PNG")
    expected = transformers.Inkling2ImageProcessor()(Image.open(file), return_tensors="np")["pixel_values"]
    with Engine(from_transformers({"image_processor_type": "Inkling2ImageProcessor"}), threads=1) as engine:
        assert np.array_equal(engine.run_batch([file.getvalue()]).outputs["pixel_values"][0], expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_colors_or_another_order_of_the_channels_have_other_ids(backend):
    """These palettes are a negative control for the comparison with ImageGPT."""
    fields = {"size": {"height": 32, "width": 32}}
    own = processor("ImageGPTImageProcessor", backend, clusters=COLORS, **fields)
    expected = own(Image.fromarray(scene(90, 70)), return_tensors="np")["input_ids"][0]
    for colors, share in ((COLORS, 0), (COLORS[::-1], 0.9), ([color[::-1] for color in COLORS], 0.5)):
        config = {"image_processor_type": "ImageGPTImageProcessor", "clusters": colors, **fields}
        with Engine(from_transformers(config, backend=backend), threads=1) as engine:
            (found,) = engine.run([png(scene(90, 70))])
        assert (found != expected).mean() >= share
        settled = without_ties(own, Image.fromarray(scene(90, 70)), found, expected)
        assert np.array_equal(found, settled) == (not share)
