"""Converts the transforms of Albumentations that blur, distort or degrade an image; see ``albumentations_transforms``.

Their fields and their arithmetic are those of Albumentations 2.0.8. A range of one number becomes a constant, so that
such a transform is also supported for serving.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.albumentations_transforms import FILTERS, Reader, Walk, filter_of, padding_fields
from pixprep.importers.fields import Fields, reading
from pixprep.pipeline import ops
from pixprep.spec import Filter

_SINCE = 2, 0, 8
_MAX_EXACT = 11
"""Size of the largest kernel that OpenCV does not apply with a Fourier transform, which rounds differently."""


def _odd(fields: Fields) -> tuple[int, int]:
    """Return the range of ``blur_limit``. As in Albumentations, even sizes are increased by 1, and the minimum is 3."""
    low, high = (max(3, int(size) + (int(size) % 2 == 0)) for size in fields.span("blur_limit"))
    return low, max(low, high)


def _motion_blur(walk: Walk, fields: Fields) -> None:
    size = _odd(fields)
    if size[1] > _MAX_EXACT:
        fields.refuse("blur_limit", f"must be at most {_MAX_EXACT}: OpenCV rounds larger kernels differently")
    shift = (-1.0, 1.0) if fields.flag("allow_shifted", default=True) else (0.0, 0.0)
    walk.add_uint8(ops.MotionBlur(size, fields.span("angle_range"), fields.span("direction_range"), shift, shift))


def _sharpen(walk: Walk, fields: Fields) -> None:
    if fields.text("method", "kernel") != "kernel":
        fields.refuse("method", 'overflows for dark pixels in Albumentations, which is not supported: use "kernel"')
    fields.ignore("kernel_size", "sigma")
    walk.add_uint8(ops.Sharpen(**fields.each(Fields.span, "alpha", "lightness")))


def _gauss_noise(walk: Walk, fields: Fields) -> None:
    fields.expect("noise_scale_factor", 1, why="enlarges smaller noise, which is not supported: use 1")
    per_channel = fields.flag("per_channel", default=True)
    walk.add_uint8(ops.GaussNoise(fields.span("std_range"), fields.span("mean_range"), per_channel))


def _tone_curve(walk: Walk, fields: Fields) -> None:
    if fields.flag("per_channel"):
        fields.refuse("per_channel", "gives each channel a curve of its own, which is not supported: use false")
    walk.add_uint8(ops.ToneCurve(std=fields.number("scale")))


def _downscale(walk: Walk, fields: Fields) -> None:
    with reading(fields.mapping("interpolation_pair"), "interpolation_pair") as pair:
        down, up = (pair.choice(name, FILTERS) for name in ("downscale", "upscale"))
    walk.add_uint8(ops.Downscale(fields.span("scale_range"), down, up))  # type: ignore[arg-type]  # OpenCV's filters


def _grid_dropout(walk: Walk, fields: Fields) -> None:
    if fields.has("fill_mask"):
        fields.refuse("fill_mask", "also fills the holes in masks, which is not supported: use null")
    unit = fields.has("unit_size_range") and fields.pair("unit_size_range")
    cells = fields.has("holes_number_xy") and fields.pair("holes_number_xy")
    shift_x, shift_y = (int(each) for each in fields.span("shift_xy"))
    fill, is_random = fields.colour("fill", merges=True), fields.flag("random_offset", default=True)
    # in Albumentations 2.0, the first number of holes_number_xy is the number of rows
    walk.add_uint8(
        ops.GridDropout(fields.number("ratio"), unit or None, cells or None, is_random, (shift_x, shift_y), fill, 1.0)
    )


def _random_sized_crop(walk: Walk, fields: Fields) -> None:
    low, high = (int(side) for side in fields.span("min_max_height"))
    (height, width), ratio = fields.pair("size"), fields.number("w2h_ratio", 1.0, positive=True)
    walk.add_uint8(ops.RandomSizedCrop(height, (low, high), width, ratio, filter=filter_of(fields), like="opencv"))


def _distortion(walk: Walk, fields: Fields, op: type[Any], **how: Any) -> None:
    """Add an op that samples the image with OpenCV's ``remap``."""
    fields.ignore("keypoint_remapping_method")
    found = filter_of(fields)
    filter_: Filter = "bilinear" if found == "area" else found  # OpenCV replaces area by bilinear
    if filter_ not in ("nearest", "bilinear", "bicubic"):
        fields.refuse("interpolation", "must be 0 (nearest), 1 (bilinear) or 2 (bicubic)")
    level, padding = fields.take("fill"), padding_fields(walk, fields)
    if isinstance(level, int | float) and level and "fill" in padding:
        padding["fill"] = (padding["fill"], 0, 0)  # OpenCV uses a single number for red only
    walk.add_uint8(op(filter=filter_, **padding, **how))


def _grid_distortion(walk: Walk, fields: Fields) -> None:
    how = {"limit": fields.span("distort_limit"), "normalized": fields.flag("normalized", default=True)}
    _distortion(walk, fields, ops.GridDistortion, cells=fields.length("num_steps", 64), **how)


def _optical_distortion(walk: Walk, fields: Fields) -> None:
    model = fields.choice("mode", ("camera", "fisheye"), "camera")
    _distortion(walk, fields, ops.OpticalDistortion, k=fields.span("distort_limit"), model=model)


def _elastic_transform(walk: Walk, fields: Fields) -> None:
    if fields.text("noise_distribution", "gaussian") != "gaussian":
        fields.refuse("noise_distribution", 'is not supported: use "gaussian"')
    size = 17 if fields.flag("approximate") else None
    how = {"kernel_size": size, "same": fields.flag("same_dxdy")} | fields.each(Fields.number, "alpha", "sigma")
    _distortion(walk, fields, ops.ElasticDistortion, **how)


_READERS: dict[str, Reader] = {
    "Blur": lambda walk, fields: walk.add_uint8(ops.BoxBlur(_odd(fields))),
    "MedianBlur": lambda walk, fields: walk.add_uint8(ops.MedianBlur(_odd(fields))),
    "MotionBlur": _motion_blur,
    "Sharpen": _sharpen,
    "CLAHE": lambda walk, fields: walk.add_uint8(ops.Clahe(fields.span("clip_limit"), fields.pair("tile_grid_size"))),
    "RandomGamma": lambda walk, fields: walk.add_uint8(
        ops.Gamma(tuple(limit / 100 for limit in fields.span("gamma_limit")), like="opencv")  # type: ignore[arg-type]
    ),
    "GaussNoise": _gauss_noise,
    "ImageCompression": lambda walk, fields: walk.add_uint8(
        ops.Compression(
            tuple(int(quality) for quality in fields.span("quality_range")),  # type: ignore[arg-type]  # two numbers
            fields.choice("compression_type", ("jpeg", "webp"), "jpeg"),
        )
    ),
    "RandomToneCurve": _tone_curve,
    "ChannelShuffle": lambda walk, _: walk.add_uint8(
        ops.RandomChoice(tuple(ops.PermuteChannels(order) for order in permutations(range(3))))
    ),
    "Downscale": _downscale,
    "GridDropout": _grid_dropout,
    "RandomSizedCrop": _random_sized_crop,
    "GridDistortion": _grid_distortion,
    "OpticalDistortion": _optical_distortion,
    "ElasticTransform": _elastic_transform,
}


def _of_this_version(read: Reader) -> Reader:
    def checked(walk: Walk, fields: Fields) -> None:
        if walk.version < _SINCE:
            raise PipelineError("is supported from Albumentations 2.0.8 on: create and save it again with that version")
        read(walk, fields)

    return checked


EFFECTS: dict[str, Reader] = {name: _of_this_version(read) for name, read in _READERS.items()}
"""Functions by transform."""
