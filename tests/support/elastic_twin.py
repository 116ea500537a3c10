"""Reference implementation of engine/kernels/elastic.c in NumPy, which computes the elastic fields of
``plan.steps.warps.Elastic``.
"""

import numpy as np

from pixprep.plan.draws.philox import philox
from pixprep.plan.steps.warps import taps

BLOCK = 32
"""Number of positions that one matrix product blurs."""


def looked_at(elastic, height, width):
    """Return float32 (2, height, width): the x and y coordinates at which each pixel samples the image, from -1 to 1
    inside the image; see ``Elastic``.
    """
    across, down = identity(width), identity(height)[:, None]
    x, y = displacement(elastic, height, width)
    return np.stack([across + x, down + y])


def displacement(elastic, height, width):
    """Return float32 (2, height, width): the displacement of each pixel along x and y; see ``Elastic``."""
    made = []
    fields = noise(elastic.seed, height, width)
    for field, sigma, alpha, side in zip(fields, elastic.sigma, elastic.alpha, (width, height), strict=True):
        smooth = blurred(field, taps(sigma), elastic.sigma) if sigma else field * 2.0**-23
        made.append(smooth.astype(np.float32) * np.float32(alpha) / np.float32(side))
    return np.stack(made)


def identity(side):
    """Return float32 (side,): the coordinates of the pixel centres like PyTorch's ``linspace``. Each is computed from
    the nearer end and rounded once.
    """
    last = np.float32((side - 1) / side)
    step = float((last + last) / np.float32(max(side - 1, 1)))
    first, second = np.arange(side // 2), np.arange(side - side // 2)[::-1]
    return np.concatenate([step * first - float(last), float(last) - step * second]).astype(np.float32)


def noise(seed, height, width):
    """Return float64 (2, height, width): uniformly distributed integers from -2^23 to 2^23 - 1 for x and for y."""
    count = height * width
    counters = np.zeros((2, -(-count // 4), 4), np.uint32)
    counters[:, :, 0], counters[1, :, 1] = np.arange(counters.shape[1]), 1
    words = philox(counters, (seed >> 32, seed & 0xFFFFFFFF)) >> np.uint32(8)
    return words.reshape(2, -1)[:, :count].reshape(2, height, width) - 2.0**23


def blurred(field, count, sigma):
    """Return the field after both blurs, normalized by the maximum noise."""
    padded = np.pad(field, count // 2, mode="reflect")
    across = np.rint(convolved(padded, weights(count, sigma[0])) * 2.0**-27)
    return convolved(across.T, weights(count, sigma[1])).T * 2.0**-52


def weights(count, sigma):
    """Return a Gaussian kernel of integers, in which 2^28 represents 1."""
    curve = np.exp(-((np.arange(count) - count // 2) ** 2) / (2.0 * sigma**2))
    return np.rint(curve / curve.sum() * 2.0**28)


def convolved(rows, weights):
    """Convolve each row, and return float64 (rows, columns - weights + 1).

    The sums are exact in any order, so BLAS can compute them.
    """
    more = len(weights) - 1
    band = np.zeros((BLOCK + more, BLOCK))
    for column in range(BLOCK):
        band[column : column + more + 1, column] = weights
    parts = (rows[:, begin : begin + len(band)] for begin in range(0, rows.shape[1] - more, BLOCK))
    return np.concatenate([part @ band[: part.shape[1], : part.shape[1] - more] for part in parts], axis=1)
