"""Compare the arithmetic variants of `"like": "opencv"` with `cv2`, and write the table of docs/importing.md.

`make opencv-versions` runs it. `measure FILE` compares the variants with the installed `cv2`, and writes the counts as
JSON. `write FILE...` writes the table.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

import pixprep as pp
from pixprep.plan import matrices

U8 = npt.NDArray[np.uint8]
Case = tuple[list[Any], U8]
"""Ops, and the expected image as computed by OpenCV."""
PAGE = Path(__file__).parents[1] / "docs" / "importing.md"
BEGIN, END = "<!-- opencv versions -->", "<!-- /opencv versions -->"
WIDTHS = range(1, 65)
VALUES = 1_000_000  # number of values to compare per variant and width
ROWS = 6000  # height of an image
RESIZES = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}
RESIZES |= {"lanczos4": cv2.INTER_LANCZOS4, "bicubic": cv2.INTER_CUBIC}
WARPS = {name: RESIZES[name] for name in ("nearest", "bilinear", "bicubic")}
BLURS = ((3, 1.247), (5, 0.8), (9, 2.076))
SHIFTS = ((20.0, 0.0, 0.0), (-7.0, 30.0, -9.0))


def resizes(name: str, image: U8, random: np.random.Generator) -> Iterator[Case]:
    """Yield one resize of a tall image to a random height and width."""
    size = (max(1, int(len(image) * random.uniform(0.2, 1.6))), int(random.integers(1, 96)))
    op = pp.resize(height=size[0], width=size[1], filter=name, like="opencv")
    yield [op], cv2.resize(image, size[::-1], interpolation=RESIZES[name])


def warps(name: str, image: U8, random: np.random.Generator) -> Iterator[Case]:
    """Yield an affine map, a homography and a quad, all near the identity. The results are as large as the image."""
    size = image.shape[:2]
    affine = np.eye(3) + random.uniform(-0.05, 0.05, (3, 3)) * [[1, 1, 40], [1, 1, 40], [0, 0, 0]]
    homography = affine + random.uniform(-1e-5, 1e-5, (3, 3)) * [[0, 0, 0], [0, 0, 0], [1, 1, 0]]
    for field, matrix, warp in (
        ("matrix", affine[:2], cv2.warpAffine),
        ("homography", homography, cv2.warpPerspective),
    ):
        if matrices.inverse(tuple(matrix.ravel().tolist())) is not None:
            op = pp.warp(height=size[0], width=size[1], filter=name, **{field: matrix.tolist()})
            yield [op], warp(image, matrix, size[::-1], flags=WARPS[name])
    ends = np.array([[0, 0], [size[1], 0], [size[1], size[0]], [0, size[0]]])
    corners = ends + random.uniform(-2, 2, (4, 2)) * (size[1] > 8)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), ends.astype(np.float32))
    op = pp.warp(height=size[0], width=size[1], filter=name, quad=corners.tolist())
    yield [op], cv2.warpPerspective(image, matrix, size[::-1], flags=WARPS[name])


def blurs(_: str, image: U8, __: object) -> Iterator[Case]:
    """Yield blurs with the kernels of Albumentations' `GaussianBlur`."""
    for size, sigma in BLURS:
        places = np.arange(size) - size // 2
        kernel = np.exp(-0.5 * (places / sigma) ** 2)
        kernel /= kernel.sum()
        yield [pp.gaussian_blur(size, sigma, like="opencv")], cv2.sepFilter2D(image, -1, kernel, kernel)


def grays(_: str, image: U8, __: object) -> Iterator[Case]:
    """Yield the conversion to gray by `cvtColor`, with three equal channels."""
    yield [pp.grayscale(like="opencv")], cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def hues(_: str, image: U8, __: object) -> Iterator[Case]:
    """Yield Albumentations' `shift_hsv`: conversion to HSV, lookup tables, and conversion back."""
    for hue, saturation, value in SHIFTS:
        planes = list(cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2HSV)))
        every = np.arange(256, dtype=np.int16)
        tables = [np.mod(every + hue, 180), np.clip(every + saturation, 0, 255), np.clip(every + value, 0, 255)]
        tables[1][0] = 0  # `shift_hsv` does not change gray pixels
        planes = [cv2.LUT(plane, table.astype(np.uint8)) for plane, table in zip(planes, tables, strict=True)]
        theirs = cv2.cvtColor(cv2.merge(planes), cv2.COLOR_HSV2RGB)
        yield [pp.hue_saturation_value(hue=hue, saturation=saturation, value=value)], theirs


def blends(_: str, image: U8, __: object) -> Iterator[Case]:
    """Yield a change of the saturation: `addWeighted` blends the image with its gray version."""
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    yield [pp.saturation(0.6, like="opencv")], cv2.addWeighted(image, 0.6, gray, 1 - 0.6, 0)


ARITHMETICS = {
    **{f"`resize`, {name}": (resizes, name) for name in RESIZES},
    **{f"`warp`, {name}": (warps, name) for name in WARPS},
    "`gaussian_blur`": (blurs, ""),
    "`grayscale`": (grays, ""),
    "`saturation`": (blends, ""),
    "`hue_saturation_value`": (hues, ""),
}


def measure(path: Path) -> None:
    """Count the values that differ over all widths, for each variant."""
    found = {}
    for label, (cases, name) in ARITHMETICS.items():
        random = np.random.default_rng(0)
        count = differing = largest = 0
        for width in WIDTHS:
            for _ in range(-(-VALUES // (3 * width * ROWS))):
                image = random.integers(0, 256, (ROWS, width, 3), np.uint8)
                for ops, theirs in cases(name, image, random):
                    ours = np.asarray(pp.apply(ops, image))
                    difference = np.abs(ours.astype(np.int16) - theirs.reshape(ours.shape))
                    count, differing = count + difference.size, differing + int(np.count_nonzero(difference))
                    largest = max(largest, int(difference.max()))
        found[label] = {"values": count, "differing": differing, "largest": largest}
        sys.stderr.write(f"{cv2.__version__} {label} {found[label]}\n")
    path.write_text(json.dumps({"version": cv2.__version__, "found": found}), encoding="utf-8")


def cell(one: dict[str, Any]) -> str:
    """Return the text of one cell: ``equal``, or the number of values that differ and their maximum difference."""
    if not one["differing"]:
        return "equal"
    levels = "a level" if one["largest"] == 1 else f"up to {one['largest']} levels"
    percent = np.format_float_positional(100 * one["differing"] / one["values"], 2, fractional=False, trim="-")
    return f"{percent} % by {levels}"


def write(paths: Sequence[Path]) -> None:
    """Write the table to docs/importing.md."""
    columns = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    lines = ["| | " + " | ".join(each["version"] for each in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {label} | " + " | ".join(cell(each["found"][label]) for each in columns) + " |" for label in ARITHMETICS
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("measure", "write"))
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    measure(*options.files) if options.action == "measure" else write(options.files)
