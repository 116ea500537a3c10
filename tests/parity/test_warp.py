"""Tests rotations, affine maps, sharpness, blur and erasing against torchvision v2: the random parameters, and the
pixels and boxes of samples.
"""

import math
from typing import get_args

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.annotations import annotated
from pixprep.engine.kernels.kernel import noise as drawn_noise
from pixprep.engine.kernels.levels import apply_steps
from pixprep.importers.verify.twins import by_torchvision, recoloured
from pixprep.pipeline.ops import changed, op_name
from pixprep.plan.draws import philox
from pixprep.plan.draws.motions import coefficients
from pixprep.plan.profiles import WARPS
from pixprep.spec import PaddingMode
from support.images import png, scene

torch = pytest.importorskip("torch", reason="NO PYTORCH: its warps were not compared")
pytest.importorskip("torchvision", reason="NO TORCHVISION: its warps were not compared")

from torchvision import tv_tensors  # noqa: E402 - needs what conftest.py defines
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

from parity.torchvision_images import as_array, as_theirs, some_boxes  # noqa: E402

DRAWS = 300
SIZES = ((60, 80), (97, 51), (33, 120), (64, 64), (20, 31), (3, 7))
FILL = (123, 117, 104)
LIKES = ["pillow", "torchvision"]
WAYS = [(like, how) for like in LIKES for how in WARPS[like].filters]
MAX_OF_A_BLUR = 30 / 1e6
"""Maximum fraction of the values of a blur that may differ, because PyTorch's convolution adds in a different order."""
torch.set_num_threads(1)
if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    pytest.skip("NO AVX2: PyTorch fuses nothing here", allow_module_level=True)


def noise(height, width):
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)


PHOTOS = [make(*size) for size in SIZES for make in (scene, noise)]


def warped_samples(ops, draws=DRAWS):
    """Yield (photo, random parameters, our pixels) for each sample. Each photo has its own plan."""
    count = -(-draws // len(PHOTOS))
    for place, photo in enumerate(PHOTOS):
        height, width = photo.shape[:2]
        tensor = pp.tensor(dtype="uint8", only="training")
        plan = pp.Pipeline([pp.decode(), pp.crop(0, 0, height, width), *ops, tensor]).for_training().plan
        for numbers in plan.draw(seed=3, epoch=place, indices=range(count)):
            placed = plan.placing(numbers)(height, width)
            yield photo, placed.draws, apply_steps(placed.placements["tensor"].levels, photo)


def with_like(op, like):
    return changed(op, like=like) if getattr(op, "like", "") == "pillow" else op


def twin_of(ops, image, words):
    """Return the image after torchvision's own functions for the ops.

    A random op is replaced by the fixed ops that match its parameters.
    """
    for op in ops:
        for each in op.fixed_ops(words[f"{op_name(op)}#0"]) if op.home else [op]:
            is_cut = isinstance(each, pp.center_crop)
            image = F.center_crop(image, [each.height, each.width]) if is_cut else by_torchvision(each, image)
    return image


def differing(ops, like, expected=None, draws=DRAWS):
    """Return (differing values, maximum difference, number of values).

    ``expected`` replaces torchvision's functions for the ops.
    """
    ops = [with_like(op, like) for op in ops]
    wrong = of = most = 0
    for photo, words, ours in warped_samples(ops, draws):
        image = as_theirs(photo, like)
        result = as_array(expected(image, words) if expected else twin_of(ops, image, words))
        assert result.shape == ours.shape
        difference = np.abs(result.astype(int) - ours)
        wrong, of = wrong + np.count_nonzero(difference), of + ours.size
        most = max(most, int(difference.max()))
    return wrong, most, of


CENTER = (10.5, 7.0)
CASES = {
    "random_rotate": [pp.random_rotate(200, fill=FILL)],
    "random_rotate about a point": [pp.random_rotate((-30, 90), center=CENTER)],
    "random_rotate that expands, and a crop": [pp.random_rotate(180, expand=True, fill=FILL), pp.center_crop(19, 14)],
    "random_affine": [
        pp.random_affine(90, translate=(0.2, 0.3), scale=(0.4, 2.5), shear=(-20, 20, -10, 30), fill=FILL)
    ],
    "random_affine that only moves": [pp.random_affine(0, translate=(0.4, 0.4), fill=FILL)],
    "random_affine that only scales": [pp.random_affine(0, scale=(0.002, 3.0), fill=FILL)],
    "random_perspective, 0.5": [pp.random_perspective(0.5, 0.9, fill=FILL)],
    "random_perspective, 0.8": [pp.random_perspective(0.8, 0.9, fill=FILL)],
    "random_affine about a point": [pp.random_affine(40, shear=15, center=CENTER)],
}


@pytest.mark.parametrize(("like", "how"), WAYS)
@pytest.mark.parametrize("name", CASES)
def test_the_values_of_a_random_warp_equal_torchvision(name, like, how):
    first, *others = CASES[name]
    wrong, most, of = differing([changed(first, filter=how, like=like), *others], like)
    print(f"{name}, like {like}, {how}: {wrong} of {of:,} values differ, by {most} at most")
    assert of > 200_000
    assert wrong == 0


@pytest.mark.parametrize("mode", get_args(PaddingMode))
@pytest.mark.parametrize("how", WARPS["opencv"].filters)
def test_the_values_of_a_random_affine_map_like_opencv_equal_opencv(how, mode):
    """The op also uses torchvision's matrix: with ``nearest`` and constant padding, at least 97 % of the values equal
    those of torchvision on Pillow images. As a negative control, a different padding mode changes most of the images.
    """
    cv2 = pytest.importorskip("cv2", reason="NO OPENCV: its affine maps were not compared")
    if not cv2.__version__.startswith("4."):
        pytest.skip("NO OPENCV 4: the warps of OpenCV 5 have another arithmetic")
    ends = {"filter": how, "like": "opencv", "padding_mode": mode, "fill": FILL if mode == "constant" else 0}
    op = pp.random_affine(90, (0.2, 0.3), (0.4, 2.5), (-20, 20, -10, 30), **ends)
    others = same = of = 0
    for photo, words, ours in warped_samples([op], 60):
        (fixed,) = op.fixed_ops(words["random_affine#0"])
        assert np.array_equal(ours, recoloured(fixed, photo))
        another = changed(fixed, padding_mode="edge" if mode == "reflect" else "reflect", fill=0)
        others += not np.array_equal(ours, recoloured(another, photo))
        if (how, mode) == ("nearest", "constant"):
            pillow = as_array(
                by_torchvision(changed(fixed, like="pillow", padding_mode=None), as_theirs(photo, "pillow"))
            )
            same, of = same + np.count_nonzero(pillow == ours), of + ours.size
    assert others > 30
    assert same >= 0.97 * of


@pytest.mark.parametrize("angle", [0, 90, 180, 270, -90, 450, 45, 89.999, 1e-9])
@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize(("like", "how"), WAYS)
def test_the_values_of_a_rotation_equal_torchvision(like, how, expand, angle):
    op = pp.rotate(angle, filter=how, expand=expand, fill=9, like=like)
    assert differing([op], like, draws=12)[0] == 0


@pytest.mark.parametrize(("like", "how"), WAYS)
@pytest.mark.parametrize(
    "fields",
    [
        {"angle": 30.0},
        {"translate": (3, -2)},
        {"translate": (0.5, 1.25), "scale": 1.5},
        {"scale": 0.001},
        {"shear": 20.0},
        {"angle": -10.0, "shear": (5.0, -7.0), "center": (3.0, 2.0)},
    ],
)
def test_the_values_of_an_affine_map_equal_torchvision(like, how, fields):
    assert differing([pp.affine(filter=how, fill=FILL, like=like, **fields)], like, draws=12)[0] == 0


# ----------------------------------------------------------------------------------------------- sharpness and blur


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("factor", [0, 0.3, 1, 1.7, 2, 9.5])
def test_the_values_of_sharpness_equal_torchvision(like, factor):
    wrong, _, of = differing([pp.sharpness(factor)], like, draws=48)
    assert of > 100_000
    assert wrong == 0
    assert differing([pp.random_sharpness(factor, p=0.5)], like, draws=60)[0] == 0


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (5, 3), (7, 3), (5, 5)])
def test_the_values_of_a_random_blur_equal_torchvision(like, size):
    """torchvision converts a PIL image to a tensor before it blurs, so ``like`` does not affect a blur."""
    wrong, most, of = differing([pp.random_gaussian_blur(size, (0.1, 5.0))], like)
    print(f"{size}: {wrong} of {of:,} values differ, by {most}")
    assert of > 1_000_000
    assert most <= 1
    assert wrong <= of * MAX_OF_A_BLUR


@pytest.mark.parametrize("sigma", [None, 0.7, (0.5, 2.0)])
def test_the_values_of_a_blur_equal_torchvision(sigma):
    wrong, most, of = differing([pp.gaussian_blur((5, 3), sigma)], "pillow", draws=24)
    assert most <= 1
    assert wrong <= max(1, of * MAX_OF_A_BLUR)


def test_a_blur_larger_than_the_image_is_rejected_by_both():
    with pytest.raises(RuntimeError, match="Padding size"):
        F.gaussian_blur(torch.zeros(3, 3, 7, dtype=torch.uint8), [3, 7])
    with pytest.raises(
        pp.PipelineError, match=r"\"kernel_size\" 7 requires a height of at least 4 pixels, but the image has 3"
    ):
        pp.Pipeline([pp.decode(), pp.crop(0, 0, 3, 7), pp.gaussian_blur((3, 7)), pp.tensor()])


# ------------------------------------------------------------------------------------------------------- the rules


def numbers(key, blocks):
    """Return reproducible random numbers in rows of four."""
    return philox.Numbers(0, 0, 0, 0, {key: np.asarray(blocks, np.float64)})


def step_of(op):
    """Return the only random step of an op."""
    pipeline = pp.Pipeline([pp.decode(), pp.crop(0, 0, 8, 8), op, pp.tensor()])
    (step,) = pipeline.for_training().plan.random_steps
    return step


def test_the_numbers_of_a_rotation_equal_torchvision():
    step = step_of(pp.random_rotate((-20, 70)))
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        expected = v2.RandomRotation((-20, 70)).make_params([])["angle"]
        torch.manual_seed(seed)
        words = step.words(8, 8, numbers(step.key, [[torch.rand(1).item(), 0, 0, 0]]))
        assert words == {"angle": pytest.approx(expected, abs=1e-4)}


def test_the_numbers_of_an_affine_map_equal_torchvision():
    options = {"translate": (0.1, 0.3), "scale": (0.5, 2.0), "shear": (-10, 10, 0, 30)}
    step = step_of(pp.random_affine(15, **options))
    for seed in range(DRAWS):
        height, width = 1 + seed * 7 % 301, 1 + seed * 13 % 257
        image = tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8))
        torch.manual_seed(seed)
        expected = v2.RandomAffine(15, **options).make_params([image])
        torch.manual_seed(seed)
        angle, x, y, scale, shear_x, shear_y = (torch.rand(1).item() for _ in range(6))
        words = step.words(height, width, numbers(step.key, [[angle, x, y, scale], [shear_x, shear_y, 0, 0]]))
        assert words["translate"] == list(expected["translate"])
        assert words["angle"] == pytest.approx(expected["angle"], abs=1e-4)
        assert words["scale"] == pytest.approx(expected["scale"], abs=1e-4)
        assert words["shear"] == pytest.approx(expected["shear"], abs=1e-4)


def corner_draws(height, width, scale):
    """Yield (value, minimum, number of possible values) for torch's random numbers, in the order in which
    ``RandomPerspective`` requests x and y.
    """
    bounds = [int(scale * (side // 2)) + 1 for side in (width, height)]
    for is_right, is_lower in ((0, 0), (1, 0), (1, 1), (0, 1)):
        for side, bound, is_last in ((width, bounds[0], is_right), (height, bounds[1], is_lower)):
            least = is_last * (side - bound)
            yield torch.randint(least, least + bound, size=(1,)).item(), least, bound


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0])
def test_the_coefficients_of_a_perspective_equal_torchvision(scale):
    """torchvision's least-squares solution gives the same float32 numbers. Where the exact solution is 0, it differs by
    up to 1e-12.
    """
    step = step_of(pp.random_perspective(scale, 1.0))
    far = of = lines = 0
    for seed in range(DRAWS):
        height, width = 1 + seed * 7 % 301, 1 + seed * 13 % 257
        torch.manual_seed(seed)
        drawn = list(corner_draws(height, width, scale))
        uniforms = np.reshape([(value - least + 0.5) / count for value, least, count in drawn], (2, 4))
        corners = step.words(height, width, numbers(step.key, [*uniforms, [0] * 4]))["corners"]
        assert np.ravel(corners).tolist() == [value for value, _, _ in drawn]
        ours = coefficients(height, width, corners)
        if ours is None:
            lines += 1
            continue
        torch.manual_seed(seed)
        image = tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8))
        expected = v2.RandomPerspective(scale).make_params([image])["coefficients"]
        largest = max(1.0, np.abs(ours).max())  # nearly collinear corners lose digits
        far += np.count_nonzero(~np.isclose(expected, ours, rtol=2e-7, atol=1e-9 * largest))
        of += 8
        assert np.allclose(expected, ours, rtol=1e-3, atol=1e-6 * largest), (seed, corners)
    print(f"distortion {scale}: {far} of {of} coefficients further away than the next float32; {lines} are lines")
    assert lines < DRAWS / 20
    assert far <= of / 200


def erasing_blocks(height, width, scale, ratio):
    """Return torch's random numbers as blocks, in the order in which ``RandomErasing`` requests them."""
    blocks = [[0.0, 0.0, 0.0, 0.0]]
    for _ in range(10):
        u_area, u_ratio = torch.rand(1).item(), torch.rand(1).item()
        area = height * width * (scale[0] + u_area * (scale[1] - scale[0]))
        shape = math.exp(math.log(ratio[0]) + u_ratio * (math.log(ratio[1]) - math.log(ratio[0])))
        rows, columns = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        places = [0.0, 0.0]
        if fits := rows < height and columns < width:
            counts = height - rows + 1, width - columns + 1
            places = [(torch.randint(0, count, size=(1,)).item() + 0.5) / count for count in counts]
        blocks.append([u_area, u_ratio, *places])
        if fits:
            break
    return blocks + [[0.0] * 4] * (11 - len(blocks))


@pytest.mark.parametrize(("scale", "ratio"), [((0.02, 0.33), (0.3, 3.3)), ((0.5, 1.0), (0.2, 0.4)), ((1, 1), (1, 1))])
def test_the_rectangle_of_an_erasing_equals_torchvision(scale, ratio):
    step = step_of(pp.random_erasing(1.0, scale, ratio))
    nothing = 0
    for seed in range(DRAWS):
        height, width = 1 + seed * 7 % 301, 1 + seed * 13 % 257
        image = tv_tensors.Image(torch.zeros(3, height, width, dtype=torch.uint8))
        torch.manual_seed(seed)
        expected = v2.RandomErasing(1.0, scale, ratio).make_params([image])
        torch.manual_seed(seed)
        words = step.words(height, width, numbers(step.key, erasing_blocks(height, width, scale, ratio)))
        those = [[expected[name] for name in "ijhw"]] if expected["v"] is not None else []
        assert words == {"rectangles": those}, seed
        nothing += not those
    print(f"{nothing} of {DRAWS} images have no rectangle")
    assert nothing < DRAWS or scale == (1, 1)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("value", [0.0, (0.5, -1.0, 2.0), "random"])
def test_an_erased_tensor_equals_torchvision(value):
    photo = scene(40, 50)
    pipeline = pp.Pipeline(
        [
            pp.decode(),
            pp.crop(0, 0, 40, 50),
            pp.normalize(mean=MEAN, std=STD),
            pp.random_erasing(0.7, value=value),
            pp.tensor(),
        ]
    ).for_training()
    plan = pipeline.plan
    draws = plan.draw(seed=1, epoch=0, indices=range(60))
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([png(photo)] * 60, places=[plan.placing(each) for each in draws])
    whole = F.normalize(F.to_dtype(as_theirs(photo, "torchvision"), torch.float32, scale=True), MEAN, STD)
    erased = 0
    for row in range(60):
        expected = whole
        words = batch.placed[row].draws["random_erasing#0"]
        for top, left, height, width in words["rectangles"]:
            if value == "random":  # the noise has one value per channel and pixel, as in torchvision
                values = torch.from_numpy(drawn_noise((*words["noise"], 0), (3, height, width)))
            else:
                values = torch.tensor(value if isinstance(value, tuple) else [value])[:, None, None]
            expected = F.erase(expected, top, left, height, width, values)
            erased += 1
        # torchvision normalizes in a different order
        assert np.abs(batch["tensor"][row] - expected.numpy()).max() < 1e-6
    assert 30 < erased < 55


# ----------------------------------------------------------------------------------------------- boxes and points


WARPS = [
    pp.random_rotate(45),
    pp.random_rotate(45, center=CENTER),
    pp.random_affine(20, translate=(0.1, 0.2), scale=(0.5, 1.5), shear=(-10, 10, -10, 10)),
    pp.random_perspective(0.6, 0.9),
]


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("op", WARPS, ids=str)
def test_boxes_and_points_through_a_warp_equal_tv_tensors(op, like):
    op = changed(op, like=like)
    pipeline = pp.Pipeline(
        [
            pp.decode(), pp.resize(64), op, pp.center_crop(56), pp.random_flip(), pp.boxes(),
            pp.points(), pp.tensor(dtype="uint8"),
        ]
    ).for_training()  # fmt: skip
    farthest = dropped = 0
    for index, each in enumerate(pipeline.plan.draw(seed=1, epoch=0, indices=range(DRAWS))):
        height, width = SIZES[index % 5]
        boxes, labels = some_boxes(index, height, width), np.arange(1 + index % 5)
        points = boxes[:, :2].copy()
        sample = {"boxes": boxes, "labels": labels, "points": points}
        placed = pipeline.plan.placing(each, sample)(height, width)
        ours = annotated(pipeline.plan, placed, sample)
        of = {"canvas_size": (height, width)}
        those = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", **of)
        dots = tv_tensors.KeyPoints(torch.from_numpy(points), **of)
        results = []
        for each_ in (those, dots):
            result = F.center_crop(twin_of([op], F.resize(each_, [64]), placed.draws), [56, 56])
            results.append(F.horizontal_flip(result) if placed.draws["random_flip#0"]["flip"] else result)
        those, kept = v2.SanitizeBoundingBoxes()({"boxes": results[0], "labels": torch.from_numpy(labels)}).values()
        assert ours["labels"].tolist() == kept.tolist(), index
        dropped += len(labels) - len(kept)
        if len(kept):
            farthest = max(farthest, np.abs(ours["boxes"] - those.numpy()).max())
            # to flip points, torchvision treats their coordinates as pixel indices
            dots = results[1].numpy()[kept.numpy()] + (placed.draws["random_flip#0"]["flip"], 0)
            farthest = max(farthest, np.abs(ours["points"] - dots).max())
    print(f"{DRAWS} draws: boxes and points within {farthest:.2g} pixels of torchvision's, {dropped} dropped by both")
    assert dropped > 20
    assert farthest < 1e-3


def test_boxes_of_an_expanding_rotation_match_their_pixels():
    """torchvision shifts boxes by the corner of the rotated image, but pixels by the centre of the whole canvas."""
    farthest = 0
    for index in range(DRAWS):
        angle, (height, width) = -170 + index * 1.13, SIZES[index % 5]
        boxes = some_boxes(index, height, width)
        ops = [pp.decode(), pp.crop(0, 0, height, width), pp.rotate(angle, expand=True), pp.boxes(min_size=0)]
        plan = pp.Pipeline([*ops, pp.tensor(dtype="uint8")]).for_training().plan
        ours = annotated(plan, plan.place(height, width), {"boxes": boxes})["boxes"]
        those = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=(height, width))
        farthest = max(farthest, np.abs(ours - F.rotate(those, angle, expand=True).numpy()).max())
    print(f"boxes of expanding rotations: up to {farthest:.2g} pixels from torchvision's")
    assert 0.2 < farthest <= 1.0
