"""The import of a processor that returns patches equals the processor bit for bit: patches, grids and masks."""

from importlib.util import find_spec

import numpy as np
import pytest

from pixprep import Engine, ImageError
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers_patches import PATCHED
from support.compare import assert_close
from support.images import noise, png, read, scene
from support.importing import photos

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: its processors of patches were not compared", allow_module_level=True)

import transformers

BACKENDS = ("torchvision", "pil")
SIZES = ((1, 1), (1, 90), (20, 3000), (28, 28), (33, 57), (480, 640), (641, 480), (1500, 99), (27, 29))


def processor(name, backend, **fields):
    """Return an object of the class. Skip a class without this backend."""
    cls = getattr(transformers, name + ("Pil" if backend == "pil" else ""), None)
    if cls is None:
        pytest.skip(f"NO {name}Pil: transformers has no such class")
    return cls(**fields)


def compare(name, backend, fields, encoded):
    """Compare all outputs; return the number of images that were compared."""
    own, compared = processor(name, backend, **fields), 0
    pipeline = from_transformers({"image_processor_type": name, **fields}, backend=backend)
    with Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch(encoded)
    for index, image in enumerate(encoded):
        try:
            expected = own(read(image).convert("RGB"), return_tensors="np")
        except ValueError:
            assert isinstance(batch.errors[index], ImageError)
            continue
        assert batch.errors[index] is None
        assert set(batch.outputs) == set(expected)
        compared += 1
        for output, values in batch.outputs.items():
            theirs = np.asarray(expected[output])
            theirs = theirs if theirs.shape == np.shape(values[index]) else theirs[0]
            assert values[index].dtype == theirs.dtype
            assert_close(np.asarray(values[index]), theirs)
    return compared


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PATCHED)
def test_the_defaults_equal_the_class_for_images_of_many_sizes(name, backend):
    encoded = [*photos(), png(scene(301, 259)), *(png(noise(*size)) for size in SIZES)]
    assert compare(name, backend, {}, encoded) >= 10


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PATCHED)
def test_the_defaults_equal_the_class(name, backend):
    cls = type(processor(name, backend))
    own = {field: getattr(cls, field, None) for field in PATCHED[name].defaults}
    own = {field: tuple(value) if isinstance(value, list) else value for field, value in own.items()}
    assert own == PATCHED[name].defaults


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PATCHED)
def test_pixel_values_that_are_not_changed_have_the_dtype_of_the_class(name, backend):
    fields = {"do_rescale": False, "do_normalize": False}
    assert compare(name, backend, fields, [png(scene(301, 259)), png(noise(99, 50))]) == 2


def drawn(name, numbers):
    """Return a random configuration that the class accepts."""
    defaults = PATCHED[name].defaults
    fields = {"patch_size": int(numbers.integers(2, 24)), "resample": int(numbers.integers(1, 4))}
    if "max_num_patches" in defaults:
        fields["max_num_patches"] = int(numbers.integers(4, 300))
    else:
        factor = fields["patch_size"] * 4
        least = int(numbers.integers(1, 40 * factor))
        fields |= {"merge_size": int(numbers.integers(1, 5)), "temporal_patch_size": int(numbers.integers(1, 4))}
        fields["size"] = {"shortest_edge": least, "longest_edge": least + int(numbers.integers(1, 200_000))}
        if name == "Cosmos3EdgeImageProcessor":
            fields["temporal_patch_size"] = 1
        if PATCHED[name].overrides_size and numbers.random() < 0.3:
            fields["max_pixels"] = least + 77_777
    for flag in ("do_rescale", "do_normalize"):
        fields[flag] = bool(numbers.random() < 0.8)
    if numbers.random() < 0.5:
        fields |= {"image_mean": [0.1, 0.5, 0.7], "image_std": [0.3, 0.2, 0.6]}
    return fields


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PATCHED)
def test_random_configurations_equal_the_class(name, backend):
    numbers, compared = np.random.default_rng(sorted(PATCHED).index(name)), 0
    for _ in range(25):
        encoded = [png(noise(*numbers.integers(1, 400, 2).tolist())) for _ in range(2)]
        compared += compare(name, backend, drawn(name, numbers), encoded)
    assert compared >= 30


def test_a_different_order_of_patches_or_channels_differs():
    """These are negative controls: a comparison that cannot fail would prove nothing."""
    image = png(scene(301, 259))
    with Engine(from_transformers({"image_processor_type": "Qwen2VLImageProcessor"}), threads=1) as engine:
        ours = engine.run_batch([image]).outputs["pixel_values"][0]
    for fields in ({"merge_size": 1}, {"resample": 2}, {"image_mean": [0.5, 0.4578275, 0.40821073]}):
        theirs = processor("Qwen2VLImageProcessor", "torchvision", **fields)(read(image), return_tensors="np")
        assert theirs["pixel_values"].shape != ours.shape or not np.array_equal(theirs["pixel_values"], ours)
