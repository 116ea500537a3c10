"""Tests of rotations, affine maps, filters and erasing: exact rotations, crops, the C kernels, and boxes."""

import json
from dataclasses import replace
from statistics import NormalDist
from typing import get_args

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from engine.guarded import guarded
from pixprep.engine.annotations import annotated
from pixprep.engine.kernels import elastic, warp
from pixprep.engine.kernels.colours import filtered
from pixprep.engine.kernels.kernel import noise as drawn_noise
from pixprep.engine.kernels.levels import apply_steps
from pixprep.importers.verify import frozen
from pixprep.pipeline.ops.filters import weights
from pixprep.plan.draws.motions import Look, Motion, coefficients, mapped, projected, rotated
from pixprep.plan.draws.philox import EXAMPLE, philox
from pixprep.plan.profiles import WARPS
from pixprep.plan.steps import levels
from pixprep.plan.steps.levels import Erase, Filter, Take, folded
from pixprep.plan.steps.warps import Elastic, Warp
from pixprep.show.words import explain
from pixprep.spec import PaddingMode
from support.images import noise, png, scene

LIKES, FILTERS = ["pillow", "torchvision"], ["nearest", "bilinear"]
MODES = get_args(PaddingMode)
FILL = (123, 117, 104)
PHOTO = scene(40, 50)


def pixels(*ops, photo=PHOTO):
    """Return the pixels, uint8 (height, width, 3), that an engine computes."""
    height, width = photo.shape[:2]
    tensor = pp.tensor(dtype="uint8", layout="hwc")
    with pp.Engine(pp.Pipeline([pp.decode(), pp.crop(0, 0, height, width), *ops, tensor])) as engine:
        (result,) = engine.run([png(photo)])
    return result


def plan_of(*ops):
    return pp.Pipeline([pp.decode(), *ops, pp.tensor(only="training")]).for_training().plan


# ---------------------------------------------------------------------------------------------------- exact pixels


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("size", [(40, 50), (1, 7), (9, 1)])
def test_a_warp_like_scipy_equals_its_formula(size, how):
    """A negative control interpolates beyond the border, where SciPy returns the fill color, and must differ."""
    (height, width), (rows, columns) = size, (24, 37)
    photo, matrix = noise(*size), ((0.75, -0.5, 1.5), (0.25, 0.5, -2.0))
    (a, b, c), (d, e, f) = matrix
    across, down = np.meshgrid(np.arange(columns, dtype=float), np.arange(rows, dtype=float))
    x, y = (b * down + c) + a * across, (e * down + f) + d * across
    is_inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    x, y = x.clip(0, width - 1), y.clip(0, height - 1)
    if how == "nearest":
        expected = photo[np.floor(y + 0.5).astype(int), np.floor(x + 0.5).astype(int)]
    else:
        i, j = np.floor(x).astype(int), np.floor(y).astype(int)
        left, upper = 1 - (x - i), 1 - (y - j)
        expected = np.zeros((rows, columns, 3))
        for row, weight in ((j, upper), (np.minimum(j + 1, height - 1), 1 - upper)):
            for column, other in ((i, left), (np.minimum(i + 1, width - 1), 1 - left)):
                expected += photo[row, column] * weight[:, :, None] * other[:, :, None]
        expected = np.floor(expected + 0.5)
    op = pp.warp(matrix=matrix, inverse_map=True, height=rows, width=columns, filter=how, fill=FILL, like="scipy")
    result = pixels(op, photo=photo)
    assert np.array_equal(result, np.where(is_inside[:, :, None], expected, FILL))
    assert not np.array_equal(result, expected)
    assert is_inside.any()


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("turns", [-1, 0, 1, 2, 3, 5])
def test_quarter_turns_move_pixels_without_changing_them(turns, how, like):
    result = pixels(pp.rotate(90 * turns, filter=how, expand=True, like=like))
    assert np.array_equal(result, np.rot90(PHOTO, turns))
    square = PHOTO[:, :40]
    result = pixels(pp.rotate(90 * turns, filter=how, like=like), photo=square)
    assert np.array_equal(result, np.rot90(square, turns))


def test_a_pipeline_with_a_rotation_is_served():
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=20, width=30), pp.rotate(90, expand=True), pp.tensor()])
    assert pipeline.outputs["tensor"].spec.shape == (3, 30, 20)
    assert "rotate by 90 degrees, expanding (nearest, pillow's rounding)" in explain(pipeline)
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline


@pytest.mark.parametrize("like", LIKES)
def test_the_size_of_an_expanded_rotation_is_known_for_a_fixed_image_size(like):
    for angle in range(0, 360, 7):
        steps = rotated(20, 30, angle, Look(like=like), expand=True)
        height, width = levels.size_after(steps, 20, 30)
        ops = [pp.decode(), pp.resize(height=20, width=30), pp.rotate(angle, expand=True, like=like), pp.tensor()]
        assert pp.Pipeline(ops).outputs["tensor"].spec.shape == (3, height, width)
        assert abs(height - (20 * abs(np.cos(np.deg2rad(angle))) + 30 * abs(np.sin(np.deg2rad(angle))))) < 2


@pytest.mark.parametrize("op", [op for op in frozen.COLOURS if isinstance(op, pp.rotate | pp.affine | pp.sharpness)])
def test_results_equal_the_frozen_results_of_the_libraries(op):
    _, expected = frozen.outputs(op)
    for case, result in zip(frozen.cases(op), expected, strict=True):
        with pp.Engine(pp.Pipeline([*case.chain, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
            assert np.array_equal(engine.run([case.encoded])[0], result)


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("how", FILTERS)
def test_a_warp_without_motion_does_not_change_pixels(how, like):
    assert np.array_equal(pixels(pp.affine(filter=how, like=like)), PHOTO)


# ------------------------------------------------------------------------------------------------------ the kernels


def some_warps(count, seed=0):
    """Yield (step, image) for every kind of warp, with various sizes, strides, fills, crops, and near and distant
    positions.
    """
    rng = np.random.default_rng(seed)
    for index in range(count):
        height, width = (int(side) for side in rng.integers(1, 5 if index % 3 else 40, 2))
        channels = 1 if index % 4 == 0 else 3
        image = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
        if index % 7 == 0:
            image = image[::-1, ::-1]
        elif index % 5 == 0:
            image = np.concatenate([image, image, image, image], axis=1)[:, 1 : 1 + width]
        elif index % 5 == 1 and channels == 3:
            image = np.concatenate([image, image], axis=2)[:, :, :4].copy()[:, :, :3]
        elif index % 5 == 2:
            image = image[:, :, ::-1]
        fill = None if index % 6 == 0 else tuple(int(level) for level in rng.integers(0, 256, channels))
        center = None if index % 3 else (float(rng.uniform(-9, 50)), float(rng.uniform(-9, 50)))
        like = (*LIKES, "opencv")[index // 2 % 3]
        ways = WARPS[like].filters
        look = Look(filter=ways[index // 6 % len(ways)], center=center, fill=fill, like=like)
        if index % 5 < 3:
            angle = float(rng.uniform(-400, 400)) if index % 11 else 90.0
            turn = replace(look, like="torchvision") if like == "opencv" else look
            (step,) = rotated(height, width, angle, turn, expand=index % 8 == 0) or [None]
        else:
            scale = float(np.exp(rng.uniform(-4, 2)))
            step = mapped(height, width, Motion(float(rng.uniform(-180, 180)), (3.0, -1.5), scale, (9.0, -3.0)), look)
        if index % 4 == 3 and isinstance(step, Warp):
            tilted = (*step.matrix, *(rng.normal(0, 0.7, 2) / (width, height)).tolist())
            step = step.changed(matrix=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -2.0, 0.0) if index % 13 == 0 else tilted)
        if isinstance(step, Warp) and like == "opencv":
            last = () if len(step.matrix) == 6 else (float(rng.uniform(0.5, 2)),)
            step = step.changed(matrix=step.matrix + last, padding_mode=MODES[index // 18 % 4], like=like)
        if isinstance(step, Warp) and step.height * step.width < 40_000:
            if index % 9 == 0:
                top, left = step.height // 3, step.width // 3
                step = step.changed(top=top, left=left, height=min(2, step.height - top), width=step.width - left)
            yield step, image


def by_library(step, image):
    """Return the region of a ``Warp``, computed by Pillow or OpenCV."""
    rows, columns = slice(step.top, step.top + step.height), slice(step.left, step.left + step.width)
    if step.like == "opencv":
        from engine.opencv4 import BORDERS, FLAGS, cv2  # noqa: PLC0415 - this import skips the test without OpenCV 4

        function = cv2.warpPerspective if step.is_perspective else cv2.warpAffine
        border = {"borderMode": BORDERS[step.padding_mode], "borderValue": step.fill or (0,)}
        how = {"flags": FLAGS[step.filter] | cv2.WARP_INVERSE_MAP} | border
        made = function(np.ascontiguousarray(image), np.reshape(step.matrix, (-1, 3)), step.whole[::-1], **how)
    else:
        pil = Image.fromarray(np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image))
        way = Image.Transform.PERSPECTIVE if step.is_perspective else Image.Transform.AFFINE
        fill = step.fill if step.fill is None or len(step.fill) > 1 else step.fill[0]
        how = Image.Resampling[step.filter.upper()]
        made = np.asarray(pil.transform(step.whole[::-1], way, step.matrix, how, fillcolor=fill))
    return made.reshape(*step.whole, -1)[rows, columns]


@pytest.mark.parametrize(
    ("degrees", "sine", "cosine"),
    [(-224.67019042361, 0.7030248, -0.7111653), (-373.13153975562, -0.22718744, 0.973851), (90.0, 1, -4.3711388e-8)],
)
def test_dalis_rotation_uses_glibcs_sine_and_cosine(degrees, sine, cosine):
    """For the first two angles, glibc's sine or cosine is not the nearest float32."""
    (step,) = rotated(8, 5, degrees, Look(like="dali"))
    a, b, _, d, e, _ = np.array(step.matrix, np.float32)
    assert (a, b, d, e) == (*np.array([cosine, -sine, sine, cosine], np.float32),)
    radians = float(np.float32(degrees) * np.float32(np.pi / 180))
    nearest = np.array([np.sin(radians), np.cos(radians)]).astype(np.float32)
    assert (degrees == 90) == np.array_equal(nearest, [d, a])


def test_warps_equal_pillow_and_opencv():
    count = 0
    for step, image in some_warps(1500):
        if step.like != "torchvision":
            assert np.array_equal(warp.warped(step, image), by_library(step, image)), (step, image.shape)
            count += 1
    assert count > 700


def test_nearest_positions_of_floats_and_of_pixel_values_are_equal():
    count = 0
    for step, image in some_warps(300, seed=4):
        if step.filter == "nearest":
            step = step.changed(fill=step.fill and step.fill[:1])  # noqa: PLW2901
            times = 1 + count % 2  # the image's channels, once or twice
            found = warp.warped(step, np.concatenate([image] * times, axis=2) * np.int32(1000))
            expected = warp.warped(step.changed(fill=step.fill and step.fill * image.shape[2]), image)
            seen = warp.warped(step.changed(fill=(0,) * image.shape[2]), np.full_like(image, 1)) > 0
            expected = np.where(seen, expected * np.int32(1000), expected)
            assert np.array_equal(found, np.concatenate([expected] * times, axis=2))
            count += 1
    assert count > 80


GUARDED = """
from pixprep.engine.kernels import elastic, warp
from test_warp import some_warps

for step, image in some_warps(600, seed=2):
    expected = warp.warped(step, image)
    for levels in (inside[: image.size], inside[-image.size :]):
        levels[:] = image.ravel()
        assert np.array_equal(warp.warped(step, levels.reshape(image.shape)), expected)
"""


def test_no_warp_reads_outside_the_pixels():
    """The memory pages before and after the pixels are unreadable. The result must not depend on the image's address or
    strides.
    """
    done = guarded(GUARDED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("like", [*LIKES, "dali"])
@pytest.mark.parametrize("how", FILTERS)
def test_a_crop_of_a_warp_equals_that_of_the_whole(how, like):
    image = noise(37, 41)
    window = Take(5, 9, 20, 13, (False, False), ())
    for index in range(40):
        angle, scale = -170.0 + 9 * index, 0.3 + index / 20
        steps = (mapped(37, 41, Motion(angle, (3.0, 1.0), scale), Look(filter=how, fill=FILL, like=like)),)
        if index % 4 == 0:  # without a rotation, Pillow accumulates positions
            steps = (mapped(37, 41, Motion(0.0, (2.3, -1.7), scale), Look(filter=how, fill=FILL, like=like)),)
        if index % 4 == 1:
            corners = [[index // 3, 2], [40, index // 4], [30, 36 - index // 5], [3, 30]]
            steps = projected(37, 41, corners, Look(filter=how, fill=FILL, like=like))
        whole = apply_steps(steps, image)
        (step,) = folded((*steps, window))
        assert (step.height, step.width) == (20, 13)
        assert np.array_equal(apply_steps((step,), image), whole[5:25, 9:22])
        mirrored = folded((*steps, window.changed(flips=(False, True))))
        assert np.array_equal(apply_steps(mirrored, image), whole[5:25, 9:22][:, ::-1])


def test_nested_crops_of_a_warp_are_added():
    (step,) = rotated(37, 41, 30, Look(fill=FILL))
    one, other = Take(5, 9, 20, 13, (False, False), ()), Take(2, 3, 8, 9, (False, False), ())
    image = noise(37, 41)
    assert np.array_equal(apply_steps(folded((step, one, other)), image), apply_steps((step,), image)[7:15, 12:21])


def test_a_crop_that_extends_outside_remains_a_separate_step():
    (step,) = rotated(20, 20, 30, Look())
    beyond = Take(-3, 0, 30, 20, (False, False), (9,))
    assert folded((step, beyond)) == (step, beyond)


class Turned(Image.Image):
    """Image whose ``transform``, which ``rotate`` calls, returns its arguments."""

    def transform(self, size, method, data, *_, **__):  # noqa: ARG002
        return size, tuple(data)


def test_a_rotation_has_pillows_size_and_matrix():
    rng = np.random.default_rng(6)
    for index in range(200):
        height, width = (int(side) for side in rng.integers(1, 500, 2))
        angle, is_expanding = float(rng.uniform(-400, 400)), index % 2 == 0
        center = None if index % 3 else (float(rng.uniform(-9, 500)), float(rng.uniform(-9, 500)))
        (step,) = rotated(height, width, angle, Look(center=center), expand=is_expanding)
        image = Image.new("L", (width, height))
        image.__class__ = Turned
        assert ((step.width, step.height), step.matrix) == image.rotate(angle, expand=is_expanding, center=center)


def test_a_perspective_maps_each_corner_to_its_target():
    """Each corner must map to the target corner with the same index, except for float32 rounding.

    The pixels between the corners follow a projective map.
    """
    rng = np.random.default_rng(5)
    for _ in range(200):
        height, width = (int(side) for side in rng.integers(2, 900, 2))
        corners = [[int(rng.integers(width)), int(rng.integers(height))] for _ in range(4)]
        numbers = coefficients(height, width, corners)
        if numbers is None:
            continue
        a, b, c, d, e, f, g, h = numbers
        for (x, y), to in zip(corners, [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)], strict=True):
            depth = g * x + h * y + 1
            lost = 1e-6 * (width + height) * (1 + sum(map(abs, numbers)) * (width + height)) / abs(depth)
            assert np.allclose(((a * x + b * y + c) / depth, (d * x + e * y + f) / depth), to, atol=lost)
    assert coefficients(20, 30, [[0, 0], [29, 0], [29, 19], [0, 19]]) == (1, 0, 0, 0, 1, 0, 0, 0)


def test_an_image_that_a_perspective_would_collapse_to_a_line_is_unchanged():
    on_a_line = [  # three of the corners
        [[0, 0], [5, 5], [9, 9], [0, 9]],
        [[2, 1], [9, 0], [8, 7], [5, 4]],
        [[0, 0], [9, 0], [5, 4], [0, 9]],
        [[0, 0], [0, 5], [9, 9], [0, 9]],
    ]
    for corners in (*on_a_line, [[3, 3]] * 4, [[0, 0], [9, 0], [4, 0], [0, 9]]):
        assert coefficients(10, 10, corners) is None
        assert np.array_equal(
            pixels(pp.perspective(tuple(map(tuple, corners))), photo=PHOTO[:10, :10]), PHOTO[:10, :10]
        )
    for photo in (PHOTO[:1], PHOTO[:, :1]):
        assert np.array_equal(pp.apply(pp.random_perspective(1.0, 1.0), photo, index=3), photo)


# ------------------------------------------------------------------------------------------------ padding, channels


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
def test_padding_by_reflection_equals_numpy_as_far_as_the_image_reaches(mode):
    for height, width in ((1, 1), (1, 5), (2, 3), (7, 4)):
        image = noise(height, width)
        for top, left in ((0, 0), (1, 2), (9, 25)):
            step = Take(-top, -left, top + height + left, left + width + top, (False, False), (9, 9, 9), mode)
            expected = np.pad(image, [(top, left), (left, top), (0, 0)], mode)
            assert np.array_equal(apply_steps((step,), image), expected)
            assert np.array_equal(apply_steps((step.changed(flips=(True, True)),), image), expected[::-1, ::-1])


def test_padding_by_reflection_requires_pixel_values():
    pad = pp.pad(40, 44, padding_mode="reflect")
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=20, width=30), pad, pp.center_crop(38), pp.tensor()])
    assert "pad to 40 x 44, with the image in the center, padding mode reflect" in explain(pipeline)
    padded = pixels(pad, photo=PHOTO[:20, :30])
    assert np.array_equal(padded, np.pad(PHOTO[:20, :30], [(10, 10), (7, 7), (0, 0)], "reflect"))


def test_channels_are_permuted_by_colour_in_any_channel_order():
    for color, order in (("rgb", slice(None)), ("bgr", slice(None, None, -1))):
        ops = [pp.decode(color=color), pp.crop(0, 0, 40, 50), pp.permute_channels((1, 2, 0))]
        with pp.Engine(pp.Pipeline([*ops, pp.tensor(dtype="uint8", layout="hwc")])) as engine:
            assert np.array_equal(engine.run([png(PHOTO)])[0], PHOTO[:, :, [1, 2, 0]][:, :, order])


# ----------------------------------------------------------------------------------------------- filters and erasing


@pytest.mark.parametrize(("taps", "fits", "fails"), [((5, 3), (3, 2), (2, 9)), ((3, 5), (2, 3), (9, 2))])
def test_a_blur_uses_at_most_the_reflected_image(taps, fits, fails):
    """The reflected part has one pixel less than the image, because the edge pixel occurs only once."""
    blur = pp.gaussian_blur(taps[::-1], sigma=1.0)
    assert len(blur.steps({}, *fits, "rgb")) == 1
    with pytest.raises(pp.ImageError, match=rf"{fails[0]} x {fails[1]} pixels is too small for a blur kernel"):
        blur.steps({}, *fails, "rgb")


def test_a_blur_keeps_uniform_images_and_reflects_the_edge():
    flat = np.full((9, 8, 3), FILL, np.uint8)
    step = Filter("blur", "torchvision", rows=weights(7, 2.0), columns=weights(5, 1.0))
    assert np.array_equal(filtered(step, flat), flat)
    assert sum(weights(23, 3.3)) == pytest.approx(1, abs=1e-6)
    edge = np.zeros((1, 9, 1), np.uint8)
    edge[0, 1] = 200  # reflection maps both -1 and 1 to this pixel
    row = filtered(Filter("blur", "torchvision", rows=(1.0,), columns=(0.25, 0.5, 0.25)), edge)[0, :, 0]
    assert row[:3].tolist() == [100, 100, 50]


def test_sharpness_does_not_change_the_edge_and_small_images():
    step = Filter("sharpness", "pillow", 2.0)
    image = noise(9, 8)
    result = filtered(step, image)
    assert np.array_equal(result[[0, -1]], image[[0, -1]])
    assert np.array_equal(result[:, [0, -1]], image[:, [0, -1]])
    assert not np.array_equal(result[1:-1, 1:-1], image[1:-1, 1:-1])
    assert np.array_equal(filtered(step, image[:2]), image[:2])
    assert folded([Filter("sharpness", "pillow", 1.0)]) == ()


def test_erasing_before_normalize_fills_pixel_values():
    op = pp.random_erasing(1.0, value=FILL)
    plan = plan_of(pp.crop(0, 0, 40, 50), op, pp.normalize(mean=0.5, std=0.5))
    (numbers,) = plan.draw(seed=0, epoch=0, indices=[3])
    placed = plan.placing(numbers)(40, 50)
    (step,) = placed.placements["tensor"].levels
    assert isinstance(step, Erase)
    assert placed.placements["tensor"].erasures == ()
    assert step.values == FILL
    result = apply_steps((step,), PHOTO)
    seen = result[step.top : step.top + step.height, step.left : step.left + step.width]
    assert (seen == FILL).all()
    assert (result != PHOTO).any(axis=2).sum() <= step.height * step.width


@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_erasing_after_normalize_fills_tensor_values(layout):
    ops = [
        pp.decode(color="bgr"),
        pp.resize(height=24, width=20),
        pp.normalize(mean=0.5, std=0.5),
        pp.random_erasing(1.0, value=(0.25, 0.5, 0.75)),
        pp.tensor(layout=layout),
    ]
    pipeline = pp.Pipeline(ops).for_training()
    draws = pipeline.plan.draw(seed=0, epoch=0, indices=range(8))
    plain = pp.Pipeline([op for op in ops if not isinstance(op, pp.random_erasing)])
    with pp.Engine(pipeline) as engine, pp.Engine(plain) as other:
        batch = engine.run_batch([png(PHOTO)] * 8, places=[pipeline.plan.placing(each) for each in draws])
        (expected,) = other.run([png(PHOTO)])
    for row in range(8):
        ((top, left, height, width),) = batch.placed[row].draws["random_erasing#0"]["rectangles"]
        result, wanted = (
            x if layout == "hwc" else x.transpose(1, 2, 0) for x in (batch["tensor"][row], expected.copy())
        )
        wanted[top : top + height, left : left + width] = 0.25, 0.5, 0.75
        assert np.array_equal(result, wanted)


def test_noise_matches_its_docstring():
    table = [NormalDist().inv_cdf((place + 0.5) / 65536) for place in range(65536)]
    values = drawn_noise((0xDEADBEEF, 7, 3), (3, 5, 7))
    words = philox(np.array([[block, 3, 0, 0] for block in range(14)], np.uint32), (0xDEADBEEF, 7)).ravel().tolist()
    expected = [table[half] for word in words for half in (word & 0xFFFF, word >> 16)]
    assert values.shape == (3, 5, 7)
    assert np.array_equal(values.reshape(-1), np.array(expected[:105], np.float32))


@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_erasing_with_noise_is_random_per_sample_and_replayed(layout):
    ops = [
        pp.decode(),
        pp.resize(height=40, width=36),
        pp.normalize(mean=0.5, std=0.5),
        pp.random_erasing(1.0, scale=(0.2, 0.3), value="random", count=2),
        pp.tensor(layout=layout, dtype="float16"),
    ]
    pipeline = pp.Pipeline(ops).for_training()
    plan = pipeline.plan
    draws = plan.draw(seed=0, epoch=0, indices=[5, 5, 6])
    plain = pp.Pipeline([op for op in ops if not isinstance(op, pp.random_erasing)])
    with pp.Engine(pipeline) as engine, pp.Engine(plain) as other:
        batch = engine.run_batch([png(PHOTO)] * 3, places=[plan.placing(each) for each in draws])
        again = engine.run_batch(
            [png(PHOTO)] * 3, places=[plan.replaying(json.loads(json.dumps(placed.draws))) for placed in batch.placed]
        )
        (expected,) = other.run([png(PHOTO)])
    assert np.array_equal(batch["tensor"], again["tensor"])
    assert np.array_equal(batch["tensor"][0], batch["tensor"][1])
    assert batch.placed[0].draws["random_erasing#0"]["noise"] != batch.placed[2].draws["random_erasing#0"]["noise"]
    seen = []
    for row in (0, 2):
        words = batch.placed[row].draws["random_erasing#0"]
        wanted = (expected if layout == "chw" else expected.transpose(2, 0, 1)).copy()
        result = batch["tensor"][row] if layout == "chw" else batch["tensor"][row].transpose(2, 0, 1)
        for which, (top, left, height, width) in enumerate(words["rectangles"]):
            values = drawn_noise((*words["noise"], which), (3, height, width))
            wanted[:, top : top + height, left : left + width] = values
            seen.append(tuple(values[:, 0, 0]))
        assert len(words["rectangles"]) == 2
        assert np.array_equal(result, wanted)
        assert len(np.unique(result)) > 500
    assert len(set(seen)) == 4


@pytest.mark.parametrize("is_tensor", [False, True])
def test_a_rectangle_is_placed_in_the_image_at_its_position_in_the_chain(is_tensor):
    """A rotation before the rectangle swaps height and width. A rotation after the rectangle also rotates it."""
    erasing, turn, tall, wide = (
        pp.random_erasing(1.0),
        pp.rotate(90, expand=True),
        pp.crop(0, 0, 70, 20),
        pp.crop(0, 0, 20, 70),
    )
    normalize = [pp.normalize()] if is_tensor else []

    def drawn(*ops):
        plan = plan_of(*ops)
        places = [plan.placing(numbers) for numbers in plan.draw(seed=3, epoch=0, indices=range(50))]
        return [place(90, 90).draws["random_erasing#0"]["rectangles"] for place in places]

    assert drawn(tall, turn, *normalize, erasing) == drawn(wide, *normalize, erasing)
    assert (
        drawn(wide, turn, *normalize, erasing) == drawn(tall, *normalize, erasing) != drawn(wide, *normalize, erasing)
    )
    if not is_tensor:
        assert drawn(tall, erasing, turn) == drawn(tall, erasing)


# ------------------------------------------------------------------------------------------------- boxes and points

BOXES = np.array([[10, 20, 30, 40], [0, 0, 80, 60], [70, 50, 79, 59]], np.float32)


def moved_annotations(*ops, boxes=BOXES, size=(60, 80), points=None):
    plan = plan_of(*ops)
    sample = {"boxes": boxes, "labels": np.arange(len(boxes))} | ({} if points is None else {"points": points})
    return annotated(plan, plan.placing(EXAMPLE)(*size), sample)


def test_boxes_rotate_with_the_image():
    result = moved_annotations(pp.crop(0, 0, 60, 80), pp.rotate(90, expand=True), pp.boxes())
    assert result["boxes"].tolist() == [[20, 50, 40, 70], [0, 0, 60, 80], [50, 1, 59, 10]]
    result = moved_annotations(pp.crop(0, 0, 60, 80), pp.rotate(180), pp.boxes(normalized=True))
    assert result["boxes"] == pytest.approx(
        np.array([[50, 20, 70, 40], [0, 0, 80, 60], [1, 1, 10, 10]]) / (80, 60, 80, 60)
    )
    expanded = moved_annotations(pp.crop(0, 0, 60, 80), pp.rotate(90, expand=True), pp.boxes(normalized=True))
    assert expanded["boxes"][1].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("like", LIKES)
def test_points_follow_their_pixels(like):
    """The centre of a bright pixel must be found at the expected position after any rotation, shift, crop or mirror."""
    ops = [
        pp.crop(0, 0, 60, 80),
        pp.rotate(33, expand=True, like=like),
        pp.center_crop(height=66, width=60),
        pp.affine(translate=(4, -3), scale=1.3, shear=10, like=like),
        pp.flip(),
        pp.pad(height=70, width=70),
    ]
    plan = plan_of(*ops, pp.boxes(min_size=0), pp.points())
    placement = plan.place(60, 80).placements["tensor"]
    for row, column in ((30, 40), (25, 33), (40, 50)):
        image = np.zeros((60, 80, 3), np.uint8)
        image[row - 1 : row + 2, column - 1 : column + 2] = 255
        sample = {"boxes": [[column, row, column + 1, row + 1]], "points": [[column + 0.5, row + 0.5]]}
        fields = annotated(plan, plan.place(60, 80), sample)
        found = np.argwhere(apply_steps(placement.levels, image)[:, :, 0] == 255) + 0.5
        assert np.abs(fields["points"][0] - found.mean(axis=0)[::-1]).max() < 0.75
        left, top, right, bottom = fields["boxes"][0]
        assert left < fields["points"][0][0] < right
        assert top < fields["points"][0][1] < bottom


def test_a_box_removed_before_a_rotation_stays_removed():
    boxes = np.array([[60, 10, 75, 30], [5, 5, 20, 20]], np.float32)
    result = moved_annotations(pp.crop(0, 0, 60, 40), pp.rotate(30), pp.boxes(min_size=0), boxes=boxes)
    assert result["labels"].tolist() == [1]
    kept = moved_annotations(
        pp.crop(0, 0, 60, 40), pp.rotate(30), pp.boxes(min_visible=0.9), boxes=np.array([[0, 0, 4, 4]], np.float32)
    )
    assert len(kept["boxes"]) == 0  # most of the box in the corner leaves the image


def test_colour_ops_do_not_move_boxes():
    plain = moved_annotations(pp.resize(height=30, width=40), pp.flip(), pp.crop(2, 3, 20, 30), pp.boxes())
    after = moved_annotations(
        pp.resize(height=30, width=40), pp.contrast(1.5), pp.flip(), pp.crop(2, 3, 20, 30), pp.boxes()
    )
    assert np.array_equal(plain["boxes"], after["boxes"])


def test_transform_is_correct_after_a_crop_that_follows_colour_ops():
    """The crop cannot be moved before the contrast, which uses the mean of the whole image.

    Flips and padding are also tested.
    """
    tail = [pp.crop(5, 7, 20, 30), pp.flip(), pp.pad(height=40, width=36), pp.transform(), pp.tensor(dtype="uint8")]
    numbers = []
    for ops in ([pp.contrast(1.5)], []):
        with pp.Engine(pp.Pipeline([pp.decode(), pp.resize(height=30, width=40), *ops, *tail])) as engine:
            numbers.append(engine.run_batch([png(PHOTO)])["transform"][0])
    assert np.array_equal(*numbers)


# ----------------------------------------------------------------------------------------------------- in training


def test_an_elastic_image_and_its_mask_move_together_reproducibly():
    """The mask equals the image, so with nearest sampling both results are equal.

    Threads and a replay do not change them.
    """
    photos = [scene(44 + index, 61) for index in range(9)]
    source = [{"image": photo, "mask": photo[:, :, 0]} for photo in photos]
    ops = [pp.pixels(), pp.elastic(80, 3, filter="nearest", fill=250, p=0.5), pp.random_crop(36), pp.mask(ignore=250)]
    ops.append(pp.tensor(dtype="uint8", layout="hwc", only="training"))
    pipeline = pp.Pipeline(ops).for_training()
    batches = []
    for threads in (1, 3):
        with pp.Loader(source, pipeline, batch_size=3, seed=2, threads=threads) as loader:
            batches.append([(b["tensor"].copy(), b["mask"].copy(), b.draws) for b in loader])
    moved_annotations = 0
    with pp.Engine(pipeline) as engine:
        for index, (one, other) in enumerate(zip(*batches, strict=True)):
            assert np.array_equal(one[0], other[0])
            assert np.array_equal(one[1], one[0][..., 0])
            draws = json.loads(json.dumps(one[2]))
            again = engine.run_batch(photos[3 * index :][:3], places=[pipeline.plan.replaying(each) for each in draws])
            assert np.array_equal(again["tensor"], one[0])
            for each, tensor, photo in zip(draws, one[0], photos[3 * index :], strict=False):
                top, left = (each["random_crop#0"][name] for name in ("top", "left"))
                is_same = np.array_equal(tensor, photo[top : top + 36, left : left + 36])
                assert is_same == (each["elastic#0"]["seed"] is None)
                moved_annotations += not is_same
    assert 2 < moved_annotations < 8


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("shape", [(36, 41, 3), (33, 60, 1)])
def test_a_crop_of_an_elastic_image_equals_that_of_the_whole(shape, how):
    image, size = noise(shape[0], shape[1])[:, :, : shape[2]], shape[:2]
    op, color = (
        pp.elastic(alpha=(90, 40), sigma=(2, 3), fill=FILL[: shape[2]], filter=how),
        "rgb" if shape[2] == 3 else "gray",
    )
    (whole,) = op.steps({"seed": 2**64 - 3}, *size, color)
    part = whole.changed(top=5, left=7, height=20, width=11)
    assert np.array_equal(warp.warped(part, image), warp.warped(whole, image)[5:25, 7:18])


def test_an_elastic_field_without_blur_is_noise_of_24_bits():
    counters = np.zeros((2, 150, 4), np.uint32)
    counters[:, :, 0], counters[1, :, 1] = np.arange(150), 1
    noise_ = ((philox(counters, (0, 5)) >> np.uint32(8)).reshape(2, 20, 30) / 2**23 - 1).astype(np.float32)
    across, down = elastic.displacement(Elastic(alpha=(61.3, 10.7), sigma=(0.0, 0.0), seed=5), 20, 30)
    assert np.array_equal(across, noise_[0] * np.float32(61.3) / np.float32(30))
    assert np.array_equal(down, noise_[1] * np.float32(10.7) / np.float32(20))
    assert 2 < abs(across).max() <= 61.3 / 30


def test_an_image_smaller_than_the_blur_of_its_noise_fails_alone():
    pipeline = pp.Pipeline([pp.pixels(), pp.elastic(), pp.center_crop(8), pp.tensor()]).for_training()
    places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=0, epoch=0, indices=range(2))]
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([scene(20, 90), scene(21, 21)], places=places)
    why = "20 x 90 pixels are too small for elastic, whose sigma requires sides of at least 21 pixels"
    assert [str(error) for error in batch.errors] == [f"[DOES_NOT_FIT] {why}", "None"]


def test_an_elastic_image_has_no_fixed_op():
    assert pp.elastic().fixed_ops({"seed": None}) == []
