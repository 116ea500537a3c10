"""Ops of Albumentations that simulate the degradations of a camera or of a lossy format, and random tone curves."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from pixprep.errors import ImageError
from pixprep.pipeline.ops.limits import Fraction, Within
from pixprep.pipeline.ops.neighborhoods import Share, Signed
from pixprep.pipeline.ops.ranged import Ranged, whole
from pixprep.plan.draws.augments import Uniforms
from pixprep.plan.draws.philox import Words, between, quantiles
from pixprep.plan.profiles.profile import Method
from pixprep.plan.steps.curves import Curve
from pixprep.plan.steps.levels import LevelStep, Mix, Resample
from pixprep.plan.steps.neighborhoods import Compress, Noise
from pixprep.spec import Color, Filter

OpencvFilter = Literal["nearest", "bilinear", "bicubic", "lanczos4", "area"]


class GaussNoise(Ranged, frozen=True, tag="gauss_noise"):
    """Adds normally distributed noise to each pixel value.

    The op reproduces Albumentations' ``GaussNoise`` with a ``noise_scale_factor`` of 1. The noise itself differs from
    Albumentations' noise; for the same noise, the pixels are equal.

    Args:
        std: Standard deviation as a fraction of 255: one number, or the minimum and maximum of a random standard
            deviation.
        mean: Mean of the noise as a fraction of 255: one number, or the minimum and maximum of a random mean.
        per_channel: Whether each channel of a pixel has its own noise.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "gauss_noise", "std": [0.02, 0.1]}
    """

    needs_seed: ClassVar[bool] = True
    may_add_color: ClassVar[bool] = True
    ranges: ClassVar[Any] = {"std": between, "mean": between}
    phrase: ClassVar[str] = "add noise with the mean {mean} and the standard deviation {std}, times 255"
    std: Share = (0.2, 0.44)
    mean: Signed = 0.0
    per_channel: bool = True

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        seed = tuple(words["seed"])
        return (Noise(float(self.mean), float(self.std), seed, not self.per_channel),)  # type: ignore[arg-type]


class Compression(Ranged, frozen=True, tag="compression"):
    """Compresses the image with a lossy format and decodes it again, which adds the artifacts of the format.

    The op reproduces Albumentations' ``ImageCompression``. As in Albumentations, red and blue are swapped during the
    compression. The encoders are those of Pillow; their results equal those of OpenCV.

    Args:
        quality: Quality of the encoder, 1 to 100: one number, or the minimum and maximum of a random quality.
        format: Format of the compressed image.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "compression", "quality": [50, 90]}
    """

    ranges: ClassVar[Any] = {"quality": whole}
    may_add_color: ClassVar[bool] = True
    phrase: ClassVar[str] = "compress as {0.format} with the quality {quality}"
    quality: Annotated[int | tuple[int, int], Within(1, 100, lengths=(1, 2))] = (99, 100)
    format: Literal["jpeg", "webp"] = "jpeg"

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        return (Compress(int(self.quality), self.format),)  # type: ignore[arg-type]  # one number


class Downscale(Ranged, frozen=True, tag="downscale"):
    """Shrinks the image and enlarges it to its original size, which removes details.

    The op reproduces Albumentations' ``Downscale``, which calls OpenCV's ``resize`` twice.

    Args:
        scale: Scale of the smaller image, 0 to 1: one number, or the minimum and maximum of a random scale.
        down, up: Filters with which the image is shrunk and enlarged.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "downscale", "scale": [0.25, 0.75], "down": "area"}
    """

    ranges: ClassVar[Any] = {"scale": between}
    phrase: ClassVar[str] = "shrink by {scale} ({0.down}), and enlarge again ({0.up})"
    scale: Annotated[float | tuple[float, float], Within(0.001, 1, lengths=(1, 2))] = 0.25
    down: OpencvFilter = "nearest"
    up: OpencvFilter = "nearest"

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        scale = float(self.scale)  # type: ignore[arg-type]  # one number
        rows, columns = round(height * scale), round(width * scale)
        if not (rows and columns):
            raise ImageError("DOES_NOT_FIT", f"{height} x {width} pixels, scaled by {scale:g}, are less than a pixel")
        return (
            Mix(
                (0.0, 1.0),
                (
                    (
                        _resample(rows, columns, (1 / scale, 1 / scale), self.down),
                        _resample(height, width, (rows / height, columns / width), self.up),
                    ),
                ),
            ),
        )


def _resample(height: int, width: int, ratio: tuple[float, float], filter_: Filter) -> Resample:
    return Resample(height, width, ratio, (0.0, 0.0), Method(filter_, antialias=False), "opencv")


class ToneCurve(Ranged, frozen=True, tag="tone_curve"):
    """Changes the relation between dark and bright areas with a random Bezier curve.

    The op reproduces Albumentations' ``RandomToneCurve`` with ``per_channel`` false. A value x from 0 to 1 becomes ``3
    (1 - x)^2 x * low + 3 (1 - x) x^2 * high + x^3``, rounded half to even.

    Args:
        low, high: Control points of the curve; 1/3 and 2/3 do not change the image. Each field is the mean of a normal
            distribution. The sampled number is clipped to the range 0 to 1.
        std: Standard deviation of both control points. With 0, the op is not random.
        p: Probability that the op is applied, 0 to 1.

    Example:
        {"op": "tone_curve", "std": 0.1}
    """

    is_pointwise: ClassVar[bool] = True
    keeps_places: ClassVar[bool] = True
    is_hosts: ClassVar[bool] = False
    low: Fraction = 0.25
    high: Fraction = 0.75
    std: Fraction = 0.1

    @property
    def is_random(self) -> bool:
        return self.std > 0 or self.p < 1

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Sample the control points: ``{"low": 0.2, "high": 0.8}``. The result is empty if the op is not applied."""
        u_apply, *u_points, _ = uniforms(0, 1)[0].tolist()
        if u_apply >= self.p:
            return {}
        points = (
            min(max(mean + self.std * float(quantiles()[int(u * 65536)]), 0.0), 1.0)
            for mean, u in zip((self.low, self.high), u_points, strict=True)
        )
        return dict(zip(("low", "high"), points, strict=True)) | {"std": 0.0}

    def in_words(self) -> str:
        some = "" if self.p == 1 else f", in {self.p:g} of the images"
        return f"tone curve with the control points {self.low:.4g} and {self.high:.4g}, deviation {self.std:.4g}{some}"

    def fixed_steps(self, words: Words, height: int, width: int, color: Color) -> tuple[LevelStep, ...]:
        t = np.linspace(0.0, 1.0, 256)
        rest = 1 - t
        values = (3 * rest**2 * t * self.low + 3 * rest * t**2 * self.high + t**3) * 255
        return (Curve(np.rint(values).clip(0, 255).astype(np.uint8).tobytes()),)
