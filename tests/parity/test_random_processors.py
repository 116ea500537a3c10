"""Tests random configurations of every supported image processor of transformers: the outputs equal those of the class
bit for bit, or the error names the field that is not supported.

``make parity-processors CONFIGURATIONS=200`` compares more configurations than ``make parity``. A configuration that
the class itself rejects is not counted. The photos have 30 sizes, from 1 x 1 to 8000 x 500 pixels. The first
configuration of each class is compared with all photos. Each further configuration is compared with four of the 28
smaller photos, and every tenth configuration also with one of the two largest. Seven consecutive configurations cover
all smaller photos, and twenty cover all photos.
"""

import io
import os
from collections import Counter
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from zlib import crc32

import numpy as np
import pytest
from PIL import Image

from pixprep import Engine, ImageError, Pipeline, PipelineError
from pixprep.importers.transformers import CLASSES, from_transformers
from pixprep.importers.transformers.classes import FIXED, ONLY_PIL, WITHOUT_PIL, WITHOUT_TORCHVISION
from pixprep.importers.transformers.classes import PAIRS as OF_PAIRS
from pixprep.importers.transformers.patches import PATCHED
from pixprep.pipeline.ops import Decode, Patches, Tiles, changed
from support.compare import assert_close
from support.images import noise, read, scene
from support.processors import LEFT_OUT, SMALL, drawn, inputs_for, outputs_of, without_ties

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: random configurations of its processors were not compared", allow_module_level=True)

import transformers

CONFIGURATIONS = int(os.environ.get("PIXPREP_CONFIGURATIONS", "1"))
"""Number of configurations of each class with each backend."""
SEED = int(os.environ.get("PIXPREP_SEED", "0"))
SIZES = (
    *((1, 1), (1, 7), (7, 1), (2, 3), (5, 5), (1, 300), (300, 1), (16, 16), (17, 31), (31, 17), (28, 28), (33, 47)),
    *((64, 64), (48, 96), (96, 48), (100, 100), (127, 63), (63, 129), (224, 224), (255, 257), (301, 259), (480, 640)),
    *((641, 479), (400, 30), (30, 400), (20, 1000), (1000, 21), (600, 800), (500, 8000), (8000, 500)),
)
PAIRS = [
    (name, backend)
    for name in CLASSES
    for backend in ("torchvision", "pil")
    if name not in (WITHOUT_TORCHVISION if backend == "torchvision" else (*ONLY_PIL, *WITHOUT_PIL))
]
FACTORS = (1 / 255, 1 / 127.5, 0.0078, 0.5, 1.0)
TOTAL = Counter()
COMPARED = Counter(dict.fromkeys(PAIRS, 0))
"""Number of compared configurations of each class and backend."""
UNSUPPORTED = Counter()
"""Number of rejected configurations for each field that the error names."""


@cache
def photo(size):
    """Return a photo of the size (height, width) as a BMP, which is fast to decode."""
    file = io.BytesIO()
    pixels = scene(*size) if size[0] % 2 and min(size) > 8 else noise(*size)
    Image.fromarray(pixels).save(file, "BMP")
    return file.getvalue()


def number(numbers, value):
    """Return a random integer that is small enough for a quick comparison."""
    return int(numbers.integers(16, 129)) if value > 64 else int(numbers.integers(1, 2 * value + 2))


def sides(numbers, value):
    """Return a size with the keys of ``value``. Its values are random lengths or numbers of pixels."""
    if max(each for each in value.values() if each is not None) > 20_000:
        least = int(numbers.integers(1, 10_000))
        return dict(zip(value, (least, least + int(numbers.integers(1, 100_000))), strict=False))
    lengths = sorted(int(each) for each in numbers.integers(16, 129, len(value)))
    if len(value) == 2 and "shortest_edge" not in value and numbers.random() < 0.8:
        lengths = lengths[:1] * 2
    return dict(zip(value, lengths, strict=True))


def changed_field(numbers, field, value):
    """Return a random value of a field."""
    if isinstance(value, bool) or (value is None and field.startswith("do_")):
        return bool(numbers.random() < 0.5)
    if field.endswith("resample"):
        return int(numbers.integers(0, 6))
    if field.endswith(("image_mean", "image_std")):
        return [round(float(each), 3) for each in numbers.uniform(0.1, 0.9, 3)]
    if field.endswith("rescale_factor"):
        return float(numbers.choice(FACTORS))
    if isinstance(value, dict) and value:
        return sides(numbers, value)
    return number(numbers, value) if type(value) is int and value > 0 else value


def configuration(name, numbers):
    """Return a random configuration of a class."""
    if name in PATCHED:
        return drawn(name, numbers)
    fields = {**FIXED.get(name, {}), **SMALL.get(name, {})}
    if "image_grid_pinpoints" in CLASSES[name]:
        tile = int(numbers.integers(8, 60))
        grids = numbers.integers(1, 5, (int(numbers.integers(1, 9)), 2))
        square = {"height": tile, "width": tile}
        fields["size"] = {"shortest_edge": tile} if name == "LlavaNextImageProcessor" else square
        return {
            **fields,
            **({"crop_size": square} if name == "LlavaNextImageProcessor" else {}),
            "image_grid_pinpoints": (grids * tile).tolist(),
            "resample": int(numbers.integers(0, 4)),
            "do_normalize": bool(numbers.random() < 0.8),
        }
    values = CLASSES[name] | fields
    common = sides(numbers, {"height": 1, "width": 1})
    for field, value in values.items():
        is_size = isinstance(value, dict) and value and max(filter(None, value.values())) > 64
        chance = 0.9 if is_size else 0.1 if value is None or isinstance(value, bool) else 0.4
        if numbers.random() < chance and field not in FIXED.get(name, {}):
            is_common = isinstance(value, dict) and {*value} == {"height", "width"} and numbers.random() < 0.6
            fields[field] = common if is_common else changed_field(numbers, field, value)
    return fields


def result(own, encoded):
    """Return the outputs of the class for a photo, or the exception that it raises."""
    try:
        image = read(encoded).convert("RGB")
        is_pair = type(own).__name__.removesuffix("Pil") in OF_PAIRS
        found = outputs_of(own, [image, image] if is_pair else image)
        found = found["pixel_values"][:, 0] if is_pair else found
        return {"pixel_values": found} if isinstance(found, np.ndarray) else found
    except Exception as error:  # noqa: BLE001  (any exception means that the class does not accept the photo)
        return error


def accepted(name, backend, numbers):
    """Return a random configuration that the class accepts, and its processor."""
    cls = getattr(transformers, name + ("Pil" if backend == "pil" else ""))
    for _ in range(50):
        fields = configuration(name, numbers)
        with suppress(Exception):  # any exception means that the class does not accept the configuration
            own = cls(**fields)
            if not isinstance(result(own, photo((63, 129))), Exception):
                return fields, own
    return None


def compare(name, own, pipeline, sizes=SIZES):
    """Compare all outputs of a configuration; return the numbers of equal and rejected photos."""
    counts = Counter()
    if name in ONLY_PIL:  # these classes interpret a single row of pixels as channels
        sizes = [size for size in sizes if size[0] > 1]
    with Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch([photo(size) for size in sizes], inputs=inputs_for(pipeline, len(sizes)))
    for index, size in enumerate(sizes):
        if type(own).__name__ == "VitPoseImageProcessorPil" and size[0] <= 3:
            continue  # the class mistakes the rows for channels
        expected = result(own, photo(size))
        if isinstance(expected, Exception):
            counts["rejected by the class"] += 1
            continue
        error = batch.errors[index]
        if error is not None:
            assert isinstance(error, ImageError), size
            assert error.reason in ("DOES_NOT_FIT", "BAD_DIMENSIONS"), (size, error)
            counts["photos rejected"] += 1
            continue
        given = {key: values[index] for key, values in batch.outputs.items() if len(values[index])}
        given = {"pixel_values" if key == "tensor" else key: values for key, values in given.items()}
        assert set(given) <= set(expected), size
        if name not in FIXED and name in LEFT_OUT:
            assert set(expected) - set(given) <= LEFT_OUT[name], size
        for key, actual in given.items():
            theirs = np.asarray(expected[key])
            while theirs.ndim > actual.ndim and len(theirs) == 1:
                theirs = theirs[0]
            theirs = without_ties(own, read(photo(size)).convert("RGB"), actual, theirs)
            assert actual.dtype == theirs.dtype, (size, key)
            try:
                assert_close(actual, theirs.reshape(actual.shape) if theirs.ndim == 0 else theirs)
            except AssertionError as error:
                raise AssertionError(f"{size}, {key}: {error}") from None
        counts["equal"] += 1
    return counts


def sizes_of(index):
    """Return the sizes of the photos with which the configuration of this index is compared."""
    if index == 0:
        return SIZES
    return (*SIZES[index % 7 : 28 : 7], *(SIZES[28 + index // 10 % 2 :][:1] if index % 10 == 9 else ()))


def fault_of(name, backend, fields, own, sizes):
    """Compare a configuration and count the result. Return a description of the fault, or None if all is correct."""
    try:
        pipeline = from_transformers({"image_processor_type": name, **fields}, backend=backend)
    except PipelineError as error:
        named = [field for field in CLASSES[name] | fields if f'"{field}"' in str(error)]
        UNSUPPORTED.update(named)
        TOTAL["configurations rejected"] += 1
        return None if named else f"the error names no field: {error}"
    counts = compare(name, own, pipeline, sizes)
    TOTAL.update(counts)
    COMPARED[name, backend] += counts["equal"] > 0
    return None


@pytest.mark.parametrize(("name", "backend"), PAIRS)
def test_random_configurations_are_equal_or_rejected_by_name(name, backend):
    numbers, wrong = np.random.default_rng([SEED, crc32(f"{name} {backend}".encode())]), []
    for index in range(CONFIGURATIONS):
        found = accepted(name, backend, numbers)
        if found is None:
            TOTAL["not drawn"] += 1
            continue
        try:
            fault = fault_of(name, backend, *found, sizes_of(index))
        except Exception as error:  # noqa: BLE001  (the further configurations are compared in any case)
            fault = f"{type(error).__name__}: {str(error)[:300]}"
        wrong += [f"{found[0]}: {fault}"] if fault else []
    assert not wrong, "\n".join(wrong)
    assert COMPARED[name, backend] or CONFIGURATIONS < 5, "no configuration was compared"


def test_the_numbers_of_compared_photos(capsys):
    counts = sorted(COMPARED.values())
    with capsys.disabled():
        print(f"\ntransformers {transformers.__version__}, seed {SEED}: {dict(TOTAL)}")
        print(f"compared configurations per class: {counts[0]} to {counts[-1]}, median {counts[len(counts) // 2]}")
        print(f"fields of rejected configurations: {dict(UNSUPPORTED.most_common())}")


def without_thumbnail(op):
    return changed(op, thumbnail=None, thumbnail_of_one=False) if isinstance(op, Tiles) else op


def without_merging(op):
    return changed(op, merge_size=1) if isinstance(op, Patches) else op


def in_bgr(op):
    return changed(op, color="bgr") if isinstance(op, Decode) else op


CONTROLS = {
    "merge order": ("Qwen2VLImageProcessor", without_merging),
    "channel order of patches": ("Qwen2VLImageProcessor", in_bgr),
    "channel order": ("ViTImageProcessor", in_bgr),
    "missing thumbnail": ("LlavaNextImageProcessor", without_thumbnail),
    "order of the thumbnail": (
        "LlavaNextImageProcessor",
        lambda op: changed(op, thumbnail="last") if isinstance(op, Tiles) else op,
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_wrong_pipeline_is_detected(control):
    name, change = CONTROLS[control]
    own = getattr(transformers, name)(**SMALL.get(name, {}))
    right = from_transformers({"image_processor_type": name, **SMALL.get(name, {})})
    assert compare(name, own, right, [(63, 129)])["equal"] == 1
    with pytest.raises(AssertionError):
        compare(name, own, Pipeline([change(op) for op in right.ops]), [(63, 129)])


def test_a_shift_by_half_a_pixel_is_detected():
    """The photo is shifted by one pixel, and then resized to half its size."""
    own = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    pipeline = from_transformers({"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}})
    file = io.BytesIO()
    Image.fromarray(np.roll(np.asarray(read(photo((64, 64)))), 1, axis=1)).save(file, "BMP")
    expected = own(read(photo((64, 64))), return_tensors="np")["pixel_values"]
    with Engine(pipeline, threads=1) as engine:
        right, shifted = engine.run_batch([photo((64, 64)), file.getvalue()]).outputs["tensor"]
    assert np.array_equal(right, expected[0])
    assert not np.array_equal(shifted, expected[0])
