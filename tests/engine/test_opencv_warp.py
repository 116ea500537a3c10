"""Tests that warps with OpenCV's arithmetic and the computation of their matrices match OpenCV 4."""

import numpy as np
import pytest

from engine.opencv4 import BORDERS, FLAGS, cv2
from pixprep.engine.kernels.warp import warped
from pixprep.plan import matrices
from pixprep.plan.steps.warps import Warp

COUNT = 400


def cases():
    """Yield (image, matrix, size, filter, mode, fill). The matrices map the photo to the result, with corners inside
    and outside the image.
    """
    rng = np.random.default_rng(0)
    for index in range(COUNT):
        height, width = (int(side) for side in rng.integers(1, 200 if index % 3 else 20, 2))
        # a side of 700 needs several bands of rows and chunks of columns
        most = 700 if index % 50 == 1 else 150 if index % 4 else 20
        size = rows, columns = tuple(int(side) for side in rng.integers(1, most, 2))
        image = rng.integers(0, 256, (height, width, (1, 3)[index % 2]), dtype=np.uint8)
        source = (rng.uniform(-0.2, 1.2, (4, 2)) * (width, height)).astype(np.float32)
        source = np.round(source) if index % 7 == 0 else source
        target = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]], np.float32)
        found = matrices.perspective(source.tolist(), target.tolist())
        if index % 5 < 2:
            found = tuple(cv2.getAffineTransform(source[:3], target[:3]).ravel().tolist())
        elif found is not None:
            assert np.array_equal(cv2.getPerspectiveTransform(source, target).ravel(), found)
        if found is not None and matrices.inverse(found) is not None:
            way, mode = [*FLAGS][int(rng.integers(3))], [*BORDERS][int(rng.integers(4))]
            yield image, found, size, way, mode, (10, 200, 30)[: image.shape[2]]


def test_random_matrices_and_corners_give_opencvs_pixels():
    count = 0
    for image, matrix, size, way, mode, fill in cases():
        step = Warp(matrices.inverse(matrix), size, 0, 0, *size, fill, way, "opencv", padding_mode=mode)
        warp = cv2.warpAffine if len(matrix) == 6 else cv2.warpPerspective
        how = {"flags": FLAGS[way], "borderMode": BORDERS[mode], "borderValue": fill}
        expected = warp(image, np.reshape(matrix, (-1, 3)), size[::-1], **how).reshape(*size, image.shape[2])
        assert np.array_equal(warped(step, image), expected), (matrix, size, way, mode, fill)
        count += 1
    assert count > 0.95 * COUNT


def test_a_similarity_maps_points_back():
    rng = np.random.default_rng(2)
    for _ in range(100):
        angle, scale, (x, y) = rng.uniform(-3, 3), rng.uniform(0.1, 9), rng.uniform(-99, 99, 2)
        a, b = scale * np.cos(angle), scale * np.sin(angle)
        points = rng.uniform(0, 200, (5, 2))
        moved = points @ np.array([[a, b], [-b, a]]) + (x, y)
        assert np.allclose(matrices.similarity(points, moved), (a, -b, x, b, a, y), atol=1e-9)
    assert matrices.similarity([[3.0, 4.0]] * 5, points) is None
    assert matrices.similarity([[0, 0], [0.5, 0.25]], [[3, 4], [3.5, 4.25]]) == (1, 0, 3, 0, 1, 4)


@pytest.mark.parametrize("rows", [*range(1, 18)])
def test_a_perspective_is_evaluated_per_block_like_opencv(rows):
    """At positions halfway between pixels, the last bits of a sum determine the pixel. They depend on where the block
    starts.
    """
    image = np.random.default_rng(rows).integers(0, 256, (rows, 900, 1), dtype=np.uint8)
    for a in (0.1, 0.3, 0.7):
        matrix, size = (a, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0), (rows, 1200)
        made = warped(Warp(matrix, size, 0, 0, *size, (0,), "nearest", "opencv"), image)
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        assert np.array_equal(
            made[:, :, 0], cv2.warpPerspective(image, np.reshape(matrix, (3, 3)), size[::-1], flags=flags)
        )
