"""Tests that the op ``warp`` maps regions of a photo by matrices, corners and points like OpenCV 4, fixed or per
request.
"""

import numpy as np
import pytest

import pixprep as pp
from engine.opencv4 import BORDERS, FLAGS, cv2
from pixprep.boxes import boxes_to_original, points_to_original, points_to_tensor
from support.images import noise, png

PHOTO = noise(120, 160)
QUAD = [[20, 15], [130, 30], [120, 95], [12, 80]]
FACE = [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
SIZE = {"height": 48, "width": 100}


def warped_tensors(op, rows=None, *more, photo=PHOTO, most=64):
    """Return the tensors of one photo for the rows of a request, or the errors. A fixed op has one row."""
    pipeline = pp.Pipeline([pp.decode(), op, *more, pp.tensor(dtype="uint8", layout="hwc")])
    inputs = None if rows is None else {next(iter(pipeline.inputs)): [rows]}
    with pp.Engine(pipeline, limits=pp.Limits(max_boxes=most)) as engine:
        return engine.run([png(photo)], inputs=inputs)


def corners(height, width, inset=0):
    right, bottom = width - inset, height - inset
    return np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], np.float32)


def opencv_warp(matrix, height, width, photo=PHOTO, **options):
    warp = cv2.warpAffine if len(matrix) == 2 else cv2.warpPerspective
    return warp(photo, np.asarray(matrix, np.float64), (width, height), **options)


def test_per_request_values_have_the_same_limits_as_values_in_the_file():
    homography = cv2.getPerspectiveTransform(np.array(QUAD, np.float32), corners(48, 100))
    affine = homography[:2]
    points = (np.array(FACE, np.float32) * 0.8 + (20, 3)).tolist()
    expected = {
        "quad": opencv_warp(homography, 48, 100),
        "homography": opencv_warp(homography, 48, 100),
        "matrix": opencv_warp(affine, 48, 100),
        "points": opencv_warp(np.array([[1.25, 0, -25], [0, 1.25, -3.75]]), 48, 100),
    }
    for field, value in {"quad": QUAD, "homography": homography, "matrix": affine, "points": points}.items():
        value = np.array(value).tolist()  # noqa: PLW2901
        more = {"template": FACE} if field == "points" else {}
        (fixed,) = warped_tensors(pp.warp(**{field: value}, **SIZE, **more))
        first, second = warped_tensors(pp.warp(**{field: "rows"}, **SIZE, **more), [value, value])
        assert np.array_equal(fixed, first)
        assert np.array_equal(first, second)
        apart = np.abs(fixed.astype(int) - expected[field])
        assert (apart == 0).all() if field != "points" else (apart > 0).mean() < 0.01, field


def test_corners_are_rounded_to_float32_as_in_opencv():
    photo = np.random.default_rng(1).integers(0, 256, (1000, 33, 3), np.uint8)
    quad = [(0.3, 1.7), (32.4, 0.4), (33.8, 998.1), (0.9, 999.8)]
    matrix = cv2.getPerspectiveTransform(np.array(quad, np.float32), corners(1000, 33))
    (ours,) = warped_tensors(pp.warp(quad=quad, height=1000, width=33), photo=photo)
    assert np.array_equal(ours, opencv_warp(matrix, 1000, 33, photo))


@pytest.mark.parametrize(
    "fields", [{}, {"filter": "bicubic", "padding_mode": "edge"}, {"filter": "nearest", "fill": 9}]
)
def test_rows_of_a_photo_equal_opencv_and_an_invalid_row_fails_alone(fields):
    rng = np.random.default_rng(len(fields))
    rows = (rng.uniform(-0.2, 1.2, (200, 4, 2)) * (160, 120)).astype(np.float32)
    flags, border = FLAGS[fields.get("filter", "bilinear")], BORDERS[fields.get("padding_mode", "constant")]
    good = 0
    for row, ours in zip(rows, warped_tensors(pp.warp(quad="quads", **SIZE, **fields), rows, most=200), strict=True):
        sides = np.roll(row, -1, 0) - row
        turns = np.cross(np.c_[sides, [0] * 4], np.c_[np.roll(sides, -1, 0), [0] * 4])[:, 2]
        if turns.min() < 0:
            assert isinstance(ours, pp.ImageError)
            assert ("convex" if turns.max() > 0 else "counter-clockwise") in str(ours)
            continue
        if isinstance(ours, pp.ImageError):
            assert "outside" in str(ours)
            assert (row.max(0) < 1).any() or (row.min(0) > (158, 118)).any()
            continue
        good += 1
        matrix = cv2.getPerspectiveTransform(row, corners(48, 100))
        fill = (fields.get("fill", 0),) * 3
        assert np.array_equal(ours, opencv_warp(matrix, 48, 100, flags=flags, borderMode=border, borderValue=fill))
    assert good > 15


INVALID_REGIONS = {
    "on a line": [[0, 0], [10, 10], [20, 20], [0, 20]],
    "one point": [[5, 5]] * 4,
    "crossed": [[0, 0], [10, 10], [10, 0], [0, 10]],
    "inwards": [[0, 0], [50, 0], [10, 10], [0, 50]],
    "outside": [[500, 500], [600, 500], [600, 600], [500, 600]],
    "far": [[0, 0], [2.0**31, 0], [10, 10], [0, 10]],
    "infinite": [[0, 0], [np.inf, 0], [10, 10], [0, 10]],
    "not a number": [[0, 0], [np.nan, 0], [10, 10], [0, 10]],
}


def test_an_invalid_region_is_rejected_by_its_index():
    rows = [QUAD, *INVALID_REGIONS.values(), QUAD]
    first, *bad, last = warped_tensors(pp.warp(quad="quads", **SIZE), rows)
    assert np.array_equal(first, last)
    for place, (name, error) in enumerate(zip(INVALID_REGIONS, bad, strict=True), 2):
        assert isinstance(error, pp.ImageError), name
        assert f'"quads", row {place} of {len(rows)}: ' in str(error), (name, error)
        assert error.reason in ("BAD_INPUT", "DOES_NOT_FIT")
    zero = [
        [[0, 0, 0], [0, 0, 0]],
        [[1, 0, 1e300], [0, 1, 0]],
        [[1e-320, 0, 0], [0, 1, 0]],
        [[np.inf, 0, 0], [0, 1, 0]],
    ]
    assert all(isinstance(each, pp.ImageError) for each in warped_tensors(pp.warp(matrix="m", **SIZE), zero))
    assert all(
        isinstance(each, pp.ImageError) for each in warped_tensors(pp.warp(homography="m", **SIZE), np.zeros((3, 3, 3)))
    )
    same = warped_tensors(pp.warp(points="p", template=FACE, **SIZE), [[[3.0, 4.0]] * 5, FACE])
    assert isinstance(same[0], pp.ImageError)
    assert same[1].shape == (48, 100, 3)


@pytest.mark.parametrize(
    ("filter_", "mode"),
    [("bicubic", "constant"), ("bilinear", "edge"), ("nearest", "symmetric"), ("bilinear", "reflect")],
)
def test_random_numbers_produce_opencvs_tensor_or_an_error(filter_, mode):
    rng = np.random.default_rng(5)
    options = {"flags": FLAGS[filter_], "borderMode": BORDERS[mode]}
    kinds = {"quad": (4, 2), "matrix": (2, 3), "homography": (3, 3), "points": (5, 2)}
    extremes = [0, -0.0, 1, -1, 0.5, 1e-30, -1e-300, 2.0**20, 2.0**31, -(2.0**31), 1e30, 1e308, np.inf, -np.inf, np.nan]
    for kind, shape in kinds.items():
        rows = rng.choice(extremes, (200, *shape))
        rows[100:] = np.where(rng.random((100, *shape)) < 0.2, rows[100:], rng.normal(0, 60, (100, *shape)))
        more = {"template": FACE} if kind == "points" else {}
        results = warped_tensors(
            pp.warp(**{kind: "rows"}, **SIZE, **more, filter=filter_, padding_mode=mode), rows, most=200
        )
        assert {type(each) for each in results} == {np.ndarray, pp.ImageError}
        for row, ours in zip(rows, results, strict=True):
            if isinstance(ours, np.ndarray) and kind != "points":
                quad = kind == "quad" and cv2.getPerspectiveTransform(row.astype(np.float32), corners(48, 100))
                assert np.array_equal(ours, opencv_warp(quad if kind == "quad" else row, 48, 100, **options)), (
                    kind,
                    row,
                )


def test_derived_size_equals_paddleocrs():
    def rotated_crop(points):
        width = int(max(np.linalg.norm(points[0] - points[1]), np.linalg.norm(points[2] - points[3])))
        height = int(max(np.linalg.norm(points[0] - points[3]), np.linalg.norm(points[1] - points[2])))
        matrix = cv2.getPerspectiveTransform(points, corners(height, width))
        warped_tensors = opencv_warp(matrix, height, width, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        return np.rot90(warped_tensors) if height / width >= 1.5 else warped_tensors

    rows = np.array([QUAD, np.roll(QUAD, 1, 0), [[30, 10], [60, 12], [58, 100], [28, 99]]], np.float32)
    op = pp.warp(quad="quads", max_size=200, turn=1.5, filter="bicubic", padding_mode="edge")
    for row, ours in zip(rows, (warped_tensors(op, [row])[0] for row in rows), strict=True):
        assert np.array_equal(ours, rotated_crop(row))
    (refused,) = warped_tensors(pp.warp(quad="quads", max_size=50), [QUAD])
    assert "exceeds the maximum side, 50" in str(refused)


def test_corners_can_map_to_pixel_centres():
    (ours,) = warped_tensors(pp.warp(quad="quads", **SIZE, align_corners=True), [QUAD])
    matrix = cv2.getPerspectiveTransform(np.array(QUAD, np.float32), corners(48, 100, inset=1))
    assert np.array_equal(ours, opencv_warp(matrix, 48, 100))


def test_points_and_boxes_are_mapped_back_by_the_matrix_of_their_row():
    pipeline = pp.Pipeline(
        [pp.decode(), pp.warp(quad="quads", **SIZE), pp.transform(matrix=True), pp.tensor(dtype="uint8", layout="hwc")]
    )
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([png(PHOTO)], inputs={"quads": [[QUAD, np.roll(QUAD, -1, 0)]]})
    matrices = batch["transform"]
    assert matrices.shape == (2, 3, 3)
    ends = np.array([[0.5, 0.5], [100.5, 0.5], [100.5, 48.5], [0.5, 48.5]])
    for matrix, quad in zip(matrices, (QUAD, np.roll(QUAD, -1, 0)), strict=True):
        assert np.allclose(points_to_original(ends, matrix), np.array(quad) + 0.5, atol=1e-3)
        assert np.allclose(points_to_tensor(np.array(quad) + 0.5, matrix), ends, atol=1e-3)
    (around,) = boxes_to_original([[0.5, 0.5, 100.5, 48.5]], matrices[0])
    assert np.allclose(around, (12.5, 15.5, 130.5, 95.5), atol=1e-3)


@pytest.mark.parametrize("sign", [1, -2])
def test_a_box_across_the_horizon_is_kept_for_both_signs_of_its_homography(sign):
    road = sign * np.array([[-22.0, -60, 2050], [0, -140, 3500], [0, -2, 39]]) / 39  # the horizon is at y = 19.5
    warp = pp.warp(homography=road.tolist(), height=60, width=60)
    pipeline = pp.Pipeline([pp.pixels(), warp, pp.boxes(), pp.tensor(dtype="uint8")])
    sample = {"image": np.zeros((60, 80, 3), np.uint8), "boxes": [[30.0, 10, 50, 50]]}
    with pp.Loader([sample], pipeline.for_training(), batch_size=1) as loader:
        (boxes,) = next(iter(loader))["boxes"]
    end = ((-140 * 49.5 + 3500) / (-2 * 49.5 + 39)) + 0.5  # the row of the box's lower edge
    assert boxes == pytest.approx(np.array([[0, 0, 60, end]]), abs=1e-3)


def test_a_photo_is_decoded_once_and_the_number_of_its_regions_is_limited():
    decoded = []
    pipeline = pp.Pipeline([pp.decode(), pp.warp(quad="quads", **SIZE), pp.normalize(), pp.tensor()])
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch(
            [png(PHOTO)], inputs={"quads": [[QUAD] * 9]}, keep=lambda place, _: decoded.append(place)
        )
    assert decoded == [0]
    assert batch["tensor"].shape == (9, 3, 48, 100)
    with pp.Engine(pipeline, limits=pp.Limits(max_box_pixels=3 * 4800)) as engine:
        results = engine.run([png(PHOTO)], inputs={"quads": [[QUAD] * 4]})
    assert [isinstance(each, pp.ImageError) for each in results] == [False, False, False, True]
