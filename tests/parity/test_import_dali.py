"""Tests imported DALI pipelines against DALI, whose CPU operators run the same graph.

All results are equal, except after operators that mix colours and for shears by angles. ``pytest -s`` prints the
differences.
"""

import importlib.util
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.kernels import warp as kernels
from pixprep.importers.dali import from_dali, interface, read_graph
from pixprep.plan.draws.motions import Look, rotated
from pixprep.plan.steps.levels import size_after
from support.compare import EQUAL, Tolerance, assert_close
from support.dali_graphs import DECODE, chain, field
from support.images import checkerboard, jpeg, noise, photo, png, scene, with_exif
from support.refusals import rows
from support.sources import NAMES as SOURCES

pytest.importorskip("nvidia.dali", reason="NO DALI: its pipelines are compared with frozen outputs only")

SCRIPT = Path(__file__).with_name("freeze_dali.py")
FROZEN = Path(__file__).parent / "frozen" / "dali"
MIXED = Tolerance(1, 0.999, "the order of float32 sums of channels: 1 of 90,000 values of the second tensor")
NEARLY_EQUAL = Tolerance(1, 0.995, "the order of float32 sums of channels, or the tangent of an angle")
ALLOWED = {"colours": MIXED}
NAMES = sorted(path.stem for path in FROZEN.glob("*.dali") if path.stem not in ("classic_gpu", "random_mirror"))
LARGE = [(301, 402), (375, 500), (513, 403), (427, 641), (350, 601), (1080, 1620)]
SMALL = [(41, 53), (60, 60), (97, 71), (120, 160), (224, 223)]


@pytest.fixture(scope="module")
def dali():
    """Return the module ``freeze_dali``, which wrote the frozen pipelines."""
    spec = importlib.util.spec_from_file_location("freeze_dali", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def images(name):
    sizes = LARGE if name == "cropped" else LARGE + SMALL
    made = [jpeg(scene(*size), subsampling=index % 3) for index, size in enumerate(sizes)]
    made += [with_exif(orientation, size=(463, 561)) for orientation in (3, 6, 8)]
    return [photo("china"), photo("flower"), *made, jpeg(noise(*sizes[0]), quality=80)]


def both_results(dali, name, encoded, pipeline=None):
    """Return pixprep's and DALI's results for each output and image."""
    pipeline = pipeline or from_dali(FROZEN / f"{name}.dali")
    theirs = dali.run(dali.make(dali.PIPELINES[name], len(encoded)), encoded)
    with pp.Engine(pipeline, threads=1) as engine:
        batch = engine.run_batch(encoded)
    assert batch.errors == [None] * len(encoded)
    ours = list(batch.outputs.values())
    assert len(ours) == len(theirs)
    return [(a, np.stack(b)) for a, b in zip(ours, theirs, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_an_imported_pipeline_equals_dali(dali, name):
    for actual, expected in both_results(dali, name, images(name)):
        assert actual.dtype == expected.dtype
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        print(f"\n{name}: max {difference.max():.4g}, {(difference > 0).mean():.2e} of {difference.size:,} differ")
        assert_close(actual, expected, ALLOWED.get(name, EQUAL))


@pytest.mark.parametrize("name", NAMES)
def test_the_script_writes_the_frozen_pipelines(dali, name):
    ours = dali.without_traces(dali.make(dali.PIPELINES[name]).serialize())
    assert from_dali(ours).ops == from_dali(FROZEN / f"{name}.dali").ops


def test_the_model_in_the_docs_is_the_frozen_one(tmp_path):
    page = (SCRIPT.parents[2] / "docs" / "dali.md").read_text(encoding="utf-8")
    model, request = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "dali.py").write_text(model)
    assert from_dali(tmp_path / "dali.py", run_python=True).ops == from_dali(FROZEN / "classic_gpu.dali").ops
    (tmp_path / "dali.py").write_text(request)
    window = pp.crop("AT[1]", "AT", 224, 224, unit="free", rounding="half_away")
    assert from_dali(tmp_path / "dali.py", run_python=True).ops == (
        pp.decode(),
        window,
        pp.tensor(dtype="uint8", layout="hwc"),
    )


@pytest.mark.parametrize("made", ["Pipeline(8, 2, 0)", "Pipeline(batch_size=8, num_threads=2, device_id=0)"])
def test_a_file_whose_pipeline_names_a_gpu_is_serialized_without_one(tmp_path, made):
    (tmp_path / "dali.py").write_text(
        f"""from nvidia.dali import Pipeline, fn, pipeline_def
with {made} as pipe:
    images = fn.decoders.image(fn.external_source(name="A"), device="mixed")
    pipe.set_outputs(fn.resize(images, resize_x=8, resize_y=8))

@pipeline_def(batch_size=4, num_threads=1, device_id=0)
def another():
    return fn.external_source(name="B")

another().serialize(filename="mine.dali")
"""
    )
    for name, inputs, size in (("pipe", {"A": None}, 8), ("another", {"B": None}, 4)):
        assert interface(read_graph(tmp_path / "dali.py", pipeline=name, run_python=True), "")[::2] == (inputs, size)


@pytest.mark.parametrize("is_antialiased", [True, False])
def test_triangular_equals_linear_with_and_without_antialiasing(dali, is_antialiased):
    def triangular(encoded):
        pixels = dali.fn.decoders.image(encoded)
        how = {"interp_type": dali.types.INTERP_TRIANGULAR, "antialias": is_antialiased}
        return dali.fn.resize(pixels, size=[59, 37], **how)

    encoded = images("classic")
    pipeline = from_dali(dali.make(triangular).serialize())
    theirs = dali.run(dali.make(triangular, len(encoded)), encoded)[0]
    with pp.Engine(pipeline, threads=1) as engine:
        assert_close(engine.run_batch(encoded)["tensor"], np.stack(theirs), EQUAL)


def test_dali_decodes_images_with_exif_orientation_without_the_fast_idct(dali):
    """For this reason, pixprep rejects ``use_fast_idct`` together with ``adjust_orientation``."""

    def decoded(orientation, is_fast):
        encoded = [with_exif(orientation, size=(61, 83))]
        made = dali.make(lambda data: dali.fn.decoders.image(data, use_fast_idct=is_fast), 1)
        return dali.run(made, encoded)[0][0]

    same = [np.array_equal(decoded(turn, is_fast=True), decoded(turn, is_fast=False)) for turn in range(1, 9)]
    assert same == [False] + [True] * 7


SHRUNK = {
    "whose columns are other pixels": ((1140, 514), {"resize_longer": 25}, "NN", False),
    "whose ties are another level": ((513, 403), {"resize_y": 18}, "LINEAR", False),
    "behind a rotation": ((423, 543), {"resize_y": 63}, "NN", True),
}


@pytest.mark.parametrize("name", SHRUNK)
def test_a_region_trimmed_by_a_large_reduction_is_counted_from_its_first_pixel(dali, name):
    sides, size, way, is_turned = SHRUNK[name]

    def build(data):
        pixels = dali.fn.decoders.image(data)
        pixels = dali.fn.rotate(pixels, angle=33.0) if is_turned else pixels
        return dali.fn.resize(pixels, **size, antialias=False, interp_type=getattr(dali.types, f"INTERP_{way}"))

    encoded = [png(noise(*sides)), png(scene(*sides))]
    theirs = np.stack(dali.run(dali.make(build, len(encoded)), encoded)[0])
    with pp.Engine(from_dali(dali.make(build).serialize()), threads=1) as engine:
        assert_close(engine.run(encoded), theirs, EQUAL)


NOISES = [noise(*size) for size in [(1, 1), (1, 40), (33, 1), (40, 701), *LARGE[:2], *SMALL]]
RIGHT = (90.0, -90.0, 450.0, -450.0, 180.00001, 90.00001)


def warped(dali, angle, matrix, index):
    """Return pixprep's pixels and DALI's for a rotation and an affine map of the noise images."""
    way, keeps = ("INTERP_LINEAR", "INTERP_NN")[index % 4 == 3], index % 2 == 0 or index % 12 < 6
    how = {"interp_type": getattr(dali.types, way)} | ({} if index % 3 else {"fill_value": index % 256})
    builds = [
        lambda pixels: dali.fn.rotate(pixels, angle=angle, keep_size=keeps, **how),
        lambda pixels: dali.fn.warp_affine(pixels, matrix=matrix, size=[61, 283], inverse_map=index % 2 == 1, **how),
    ]
    encoded = [png(image) for image in NOISES]
    for build in builds:

        def decoded(data, build=build):
            return build(dali.fn.decoders.image(data))

        pipeline = from_dali(dali.make(decoded).serialize())
        yield pipeline, dali.run(dali.make(decoded, len(encoded)), encoded)[0], way == "INTERP_NN"


def test_rotations_and_affine_maps_equal_dali(dali):
    """The 120 pairs of an angle and a matrix include right angles, for which sampling positions may be halfway between
    two pixels, and matrices that are rounded to 1 to 5 decimals.
    """
    rng = np.random.default_rng(3)
    wrong = 0
    for index in range(120):
        matrix = (np.array([1, 0, 0, 0, 1, 0]) + rng.normal(0, [0.4, 0.4, 20, 0.4, 0.4, 20])).round(1 + index % 5)
        angle = float(rng.uniform(-400, 400)) if index % 5 else RIGHT[index // 5 % len(RIGHT)]
        for pipeline, theirs, is_nearest in warped(dali, angle, matrix.tolist(), index):
            op = pipeline.ops[1]
            other = msgspec.structs.replace(op, filter="bilinear" if is_nearest else "nearest")
            for image, expected in zip(NOISES, theirs, strict=True):
                assert_close(steps_of(op, image), expected, EQUAL)
                if min(image.shape[:2]) > 100:
                    wrong += np.abs(steps_of(other, image).astype(int) - expected).max() > 1
    assert wrong > 200


def steps_of(op, image):
    """Return the pixels after an op that may change the image's size."""
    height, width = image.shape[:2]
    for step in op.steps({}, height, width, "rgb"):
        image = kernels.warped(step, image)
    return image


def test_a_rotation_expands_like_dalis(dali):
    rng = np.random.default_rng(5)
    sizes = [(int(height), int(width)) for height, width in rng.integers(1, 160, (300, 2))]
    angles = [float(np.float32(angle)) for angle in (*rng.uniform(-400, 400, 280), *range(-450, 450, 45))][:300]
    pipe = dali.Pipeline(batch_size=300, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        images = dali.fn.external_source(name="X", layout="HWC")
        pipe.set_outputs(dali.fn.rotate(images, angle=dali.fn.external_source(name="A")))
    pipe.build()
    pipe.feed_input("X", [np.zeros((*size, 1), np.uint8) for size in sizes])
    pipe.feed_input("A", [np.float32(angle) for angle in angles])
    theirs = [np.asarray(each).shape[:2] for each in pipe.run()[0]]
    look = Look(like="dali")
    ours = [
        size_after(rotated(*size, angle, look, expand=True), *size) for size, angle in zip(sizes, angles, strict=True)
    ]
    assert ours == theirs


POLICIES = {
    "crop": lambda fn, encoded: fn.crop(fn.decoders.image(encoded), crop=(40, 33)),
    "corner": lambda fn, encoded: fn.crop(fn.decoders.image(encoded), crop=(40, 33), crop_pos_x=0, crop_pos_y=0),
    "while decoding": lambda fn, encoded: fn.decoders.image_crop(encoded, crop=(40, 33)),
    "resized": lambda fn, encoded: fn.crop(fn.resize(fn.decoders.image(encoded), resize_longer=45), crop=(40, 33)),
    "padded": lambda fn, encoded: fn.crop(
        fn.decoders.image(encoded), crop=(40, 33), out_of_bounds_policy="pad", rounding="truncate"
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_crop_rejects_or_pads_the_same_images_as_dali(dali, policy):
    def build(encoded):
        return POLICIES[policy](dali.fn, encoded)

    pipeline = from_dali(dali.make(build).serialize())
    found = set()
    for size in ((40, 33), (39, 33), (40, 32), (35, 28), (36, 60), (70, 30), (90, 80)):
        encoded = [png(scene(*size))]
        with pp.Engine(pipeline, threads=1) as engine:
            batch = engine.run_batch(encoded)
        try:
            expected = dali.run(dali.make(build, 1), encoded)[0][0]
        except RuntimeError:
            assert batch.errors[0].reason == "DOES_NOT_FIT", size
        else:
            assert batch.errors == [None], size
            assert_close(batch["tensor"][0], expected, EQUAL)
        found.add(batch.errors[0] is None)
    assert found == ({True} if policy == "padded" else {True, False})


TIES = [noise(96, 86), checkerboard(96, 86), checkerboard(96, 86, cell=3), noise(96, 86, seed=1) // 2 * 2]


@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("size", [(48, 43), (48, 172), (192, 43), (192, 172), (48, 86), (96, 43)])
def test_ties_equal_dali_through_crops_and_mirrors(dali, color, size):
    encoded = [jpeg(image, quality=100, subsampling=0) for image in TIES]
    for way in ("LINEAR", "CUBIC", "LANCZOS3"):

        def build(data, way=way):
            pixels = dali.fn.decoders.image(data, output_type=getattr(dali.types, color))
            how = {"interp_type": getattr(dali.types, f"INTERP_{way}"), "antialias": False}
            pixels = dali.fn.resize(dali.fn.flip(pixels, vertical=1), size=size, **how)
            return pixels, dali.fn.flip(dali.fn.crop(pixels, crop=(size[0] - 5, size[1] - 4), crop_pos_x=1.0))

        pipeline = from_dali(dali.make(build).serialize())
        theirs = dali.run(dali.make(build, len(encoded)), encoded)
        with pp.Engine(pipeline, threads=1) as engine:
            ours = engine.run_batch(encoded).outputs.values()
        for actual, expected in zip(ours, theirs, strict=True):
            assert_close(actual, np.stack(expected), EQUAL)


GRAYS = {
    "one channel": lambda dali, pixels, resize: resize(converted(dali, pixels, "RGB", "GRAY")),
    "back to three": lambda dali, pixels, resize: converted(
        dali, GRAYS["one channel"](dali, pixels, resize), "GRAY", "RGB"
    ),
    "three before": lambda dali, pixels, resize: resize(
        converted(dali, converted(dali, pixels, "RGB", "GRAY"), "GRAY", "RGB")
    ),
}


def test_ties_of_gray_equal_dali_with_the_same_number_of_channels(dali):
    """The images have one or three channels before the resize. At the end of each row, ties are rounded away from 0,
    and the number of these values depends on the number of channels.
    """
    # three equal channels have the same values as DALI's gray
    encoded = [png(np.repeat(image[:, :, :1], 3, 2)) for image in TIES]
    seen = []
    for size in ((48, 43), (192, 86), (24, 86), (40, 43)):
        found = {}
        for name, build in GRAYS.items():

            def resized(data, build=build, size=size):
                how = {"size": size, "antialias": False}
                return build(dali, dali.fn.decoders.image(data), lambda pixels: dali.fn.resize(pixels, **how))

            with pp.Engine(from_dali(dali.make(resized).serialize()), threads=1) as engine:
                found[name] = engine.run_batch(encoded)["tensor"]
            assert_close(found[name], np.stack(dali.run(dali.make(resized, len(encoded)), encoded)[0]), EQUAL)
        assert np.array_equal(found["one channel"], found["back to three"][..., :1])
        seen.append(not np.array_equal(found["back to three"], found["three before"]))
    assert any(seen)


@pytest.mark.parametrize("way", ["CUBIC", "LANCZOS3"])
def test_a_resize_after_a_rotation_is_as_close_as_the_rotation(dali, way):
    def build(data):
        pixels = dali.fn.rotate(resized_from_header(dali, data), angle=33.0, fill_value=7)
        return dali.fn.resize(pixels, size=[71, 50], interp_type=getattr(dali.types, f"INTERP_{way}"))

    encoded = images("any")
    theirs = np.stack(dali.run(dali.make(build, len(encoded)), encoded)[0])
    with pp.Engine(from_dali(dali.make(build).serialize()), threads=1) as engine:
        assert_close(engine.run_batch(encoded)["tensor"], theirs, EQUAL)


def resized_from_header(dali, encoded):
    return dali.fn.resize(dali.fn.decoders.image(encoded), size=[61, 83])


def converted(dali, pixels, before, after):
    how = {"image_type": getattr(dali.types, before), "output_type": getattr(dali.types, after)}
    return dali.fn.color_space_conversion(pixels, **how)


def divided(dali, height, width):
    """Return the sizes that PaddleOCR's detector computes."""
    largest, least = dali.dmath.max, dali.dmath.min
    scale = least(960 / largest(height, width), 1.0)
    return tuple(largest(dali.dmath.floor(side * scale / 32 + 0.5) * 32, 32.0) for side in (height, width))


def detected(dali, encoded):
    height, width = divided(dali, *dali.sides(encoded))
    pixels = dali.fn.resize(dali.fn.decoders.image(encoded), resize_y=height, resize_x=width)
    return dali.fn.crop(pixels, crop=(960, 960), out_of_bounds_policy="pad")


def shrunk(dali, encoded):
    height, width = dali.sides(encoded)
    scale = dali.dmath.min(dali.dmath.min(200 / height, 200 / width), 1.0)
    pixels = dali.fn.resize(dali.fn.decoders.image(encoded), resize_y=height * scale, resize_x=width * scale)
    return dali.fn.crop(pixels, crop=(200, 200), out_of_bounds_policy="pad")


def combined(dali, encoded):
    pixels, of = resized_from_header(dali, encoded), dali.fn.transforms
    middle = dali.fn.cast(pixels.shape()[0:2], dtype=dali.types.FLOAT) / 2
    turn = of.rotation(of.scale(scale=[1.2, 0.9], center=[9, 20]), angle=-33.3, center=middle)
    window = of.crop(from_start=[0, 3], from_end=[61, 83], to_start=[2, 0], to_end=[70, 64])
    matrix = of.combine(turn, of.shear(angles=[9, -4], center=middle), window, reverse_order=True)
    matrix = of.translation(of.shear(matrix, shear=[0.1, 0.05]), offset=[3.5, -2.25], reverse_order=True)
    return dali.fn.warp_affine(pixels, matrix, size=[64, 70], fill_value=9)


BUILDS = {
    "sides of PaddleOCR's detector": detected,
    "never enlarged": shrunk,
    "an affine map of transforms": combined,
}


@pytest.mark.parametrize("name", BUILDS)
def test_a_graph_equals_dali(dali, name):
    def build(encoded):
        return BUILDS[name](dali, encoded)

    encoded = images(name)
    theirs = np.stack(dali.run(dali.make(build, len(encoded)), encoded)[0])
    pipeline = from_dali(dali.make(build).serialize())
    with pp.Engine(pipeline, threads=1) as engine:
        tensor = engine.run(encoded)
    assert np.asarray(tensor).dtype == theirs.dtype
    assert_close(np.asarray(tensor), theirs, NEARLY_EQUAL if "transforms" in name else EQUAL)


SCALARS = ("fill_values", "mean", "std")
"""Arguments of ``Crop`` and ``CropMirrorNormalize`` that DALI itself writes as lists. Lines of the table also contain
single numbers.
"""


def with_lists(name, arguments, *_):
    if name.startswith("Crop"):
        arguments = {
            key: [value] if key in SCALARS and isinstance(value, float) else value for key, value in arguments.items()
        }
    return name, arguments


TABLE = [source for source, _ in rows("importers", "imports.txt") if re.match(r"d\(|clip\(\(\"decoders__Image", source)]
LANDSCAPES = [jpeg(scene(*size), subsampling=index % 3) for index, size in enumerate([(301, 402), (90, 120), (71, 97)])]
LANDSCAPES += [photo("china"), jpeg(noise(120, 160), quality=80)]
FILLED = Tolerance(
    3e-8, 0.8, "DALI pads with a value of the graph, and pixprep with the normalized level closest to it"
)


@pytest.mark.parametrize("source", TABLE)
def test_a_graph_of_the_table_equals_dali(dali, source):
    made = {"d": lambda *steps: chain(DECODE, *(with_lists(*step) for step in steps)), "clip": chain}
    graph = eval(re.sub(r"\)\[[-:\d]+\]$", ")", source), SOURCES | made)  # noqa: S307 - lines of our own
    whole = field(1, 1) + field(2, len(LANDSCAPES)) + graph  # numbers of threads and images
    pipe = dali.Pipeline.deserialize(whole, device_id=None, prefetch_queue_depth=1)
    pipe.build()
    pipe.feed_input("t0", [np.frombuffer(image, np.uint8) for image in LANDSCAPES])
    (theirs,) = pipe.run()
    with pp.Engine(from_dali(graph), threads=1, odd_range=True) as engine:
        batch = engine.run_batch(LANDSCAPES)
    assert batch.errors == [None] * len(LANDSCAPES)
    is_mixed = re.search(r"\"output_type\": 2|Blur", source)
    tolerance = NEARLY_EQUAL if is_mixed else FILLED if "0.44705" in source else EQUAL
    for index, tensor in enumerate(batch["tensor"]):
        expected = np.asarray(theirs.at(index))
        assert tensor.dtype == expected.dtype
        assert_close(tensor, expected, tolerance)


@pytest.mark.parametrize("is_share", [False, True])
def test_a_decoder_with_a_per_request_slice_equals_dali(dali, is_share):
    pipe = dali.Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        inputs = [dali.fn.external_source(name=name) for name in "ESL"]
        how = {"normalized_anchor": is_share, "normalized_shape": is_share}
        pipe.set_outputs(dali.fn.resize(dali.fn.decoders.image_slice(*inputs, **how), size=[40, 50]))
    pipeline = from_dali(pipe.serialize())
    numbers = {"S": [0.1, 0.25], "L": [0.5, 0.7]} if is_share else {"S": [3, 8], "L": [30, 25]}
    pipe.build()
    for encoded in images("any")[:6]:
        pipe.feed_input("E", [np.frombuffer(encoded, np.uint8)])
        for name, values in numbers.items():
            pipe.feed_input(name, [np.array(values, np.float32)])
        expected = np.asarray(pipe.run()[0][0])
        with pp.Engine(pipeline, threads=1) as engine:
            rows = {name: np.array([values], np.float32) for name, values in numbers.items()}
            assert_close(engine.run_batch([encoded], inputs=rows)["tensor"][0], expected, EQUAL)


def test_frames_with_swapped_channels_equal_dali(dali):
    pipe = dali.Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        frames = dali.fn.external_source(name="F", layout="HWC")
        pipe.set_outputs(dali.fn.resize(converted(dali, frames, "RGB", "BGR"), size=[20, 30]))
    pipeline = from_dali(pipe.serialize())
    pipe.build()
    pipe.feed_input("F", [NOISES[-1]])
    with pp.Engine(pipeline, threads=1) as engine:
        assert_close(engine.run_batch([NOISES[-1]])["tensor"][0], np.asarray(pipe.run()[0][0]), EQUAL)


SCALES = {
    "longer": lambda _, high, height, width: 200 / high(height, width),
    "inside": lambda low, _, height, width: low(200 / height, 200 / width),
    "shrunk": lambda low, _, height, width: low(low(200 / height, 200 / width), 1.0),
    "shorter": lambda low, _, height, width: 50 / low(height, width),
    "enlarged": lambda low, high, height, width: high(50 / low(height, width), 1.0),
}


@pytest.mark.parametrize("name", SCALES)
def test_fractional_sizes_of_a_computed_scale_equal_dali(dali, name):
    """If a computed size differs from 200 by one bit, the sampling positions move by 0.00001 pixel, which changes some
    values of a noise image.
    """

    def build(data):
        height, width = dali.sides(data)
        scale = SCALES[name](dali.dmath.min, dali.dmath.max, height, width)
        pixels = dali.fn.resize(dali.fn.decoders.image(data), resize_y=height * scale, resize_x=width * scale)
        return dali.fn.crop(pixels, crop=(400, 400), out_of_bounds_policy="pad")

    sides = np.random.default_rng(4).integers(30, 230, (40, 2)).tolist()
    encoded = [png(noise(*size)) for size in sides]
    pipeline = from_dali(dali.make(build).serialize())
    theirs = np.stack(dali.run(dali.make(build, len(encoded)), encoded)[0])
    with pp.Engine(pipeline, threads=1) as engine:
        assert_close(engine.run_batch(encoded)["tensor"], theirs, EQUAL)
    if name in ("longer", "inside"):  # DALI's own rule computes these sizes
        other = [pipeline.ops[0], pp.resize(200, side="longer", like="dali"), *pipeline.ops[2:]]
        with pp.Engine(pp.Pipeline(other), threads=1) as engine:
            assert 0 < (engine.run_batch(encoded)["tensor"] != theirs).mean() < 1e-3


def test_sizes_of_one_scale_halfway_between_two_multiples_equal_dali(dali):
    rng = np.random.default_rng(2)
    parts, each = rng.integers(2, 129, (2, 9000))
    sizes = np.stack([each * rng.integers(1, parts), each * parts], axis=1)
    sizes[::2] = sizes[::2, ::-1]
    pipe = dali.Pipeline(batch_size=len(sizes), num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        pipe.set_outputs(*divided(dali, *(dali.fn.external_source(name=name) for name in "HW")))
    pipe.build()
    for name, lengths in zip("HW", sizes.T, strict=True):
        pipe.feed_input(name, list(lengths.astype(np.float32)))
    theirs = np.stack([output.as_array() for output in pipe.run()], axis=1)
    step = pp.resize(960, "longer", mode="scale", multiple=32, enlarge=False, like="dali")._step
    ours = np.array([step.size(*size) for size in sizes.tolist()])
    assert np.array_equal(ours, theirs)
    exact = np.maximum((sizes * 960 // np.maximum(sizes.max(1, keepdims=True), 960) + 16) // 32 * 32, 32)
    assert not np.array_equal(exact, theirs)


def test_the_cpus_chroma_equals_its_decoder(dali):
    encoded = [jpeg(scene(*size), subsampling=2) for size in LARGE[:4]]
    theirs = dali.run(dali.make(dali.classic, len(encoded)), encoded)[0]
    found = []
    for options in ({}, {"chroma": "fancy"}):
        with pp.Engine(from_dali(FROZEN / "classic_gpu.dali", **options), threads=1) as engine:
            found.append(np.abs(engine.run(encoded) - np.stack(theirs)).max())
    assert found[0] > 10 / 255 / 0.23
    assert found[1] == 0
