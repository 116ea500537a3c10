"""Checks the ops of a pipeline that begins with ``{"op": "decode", "alpha": "keep"}``."""

from __future__ import annotations

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.canvas import Flip, Letterbox, Pad
from pixprep.pipeline.ops.crops import CenterCrop, Crop
from pixprep.pipeline.ops.geometry import Resize
from pixprep.pipeline.ops.normalize import Normalize
from pixprep.pipeline.ops.op import Op, op_name
from pixprep.pipeline.ops.outputs import Constant, ImageSize, OriginalSize, PixelMask, ScaleFactor, Tensor, Transform
from pixprep.plan.lowered import Lowered
from pixprep.plan.profiles import PROFILES
from pixprep.spec import as_tuple

_OPS = (
    Resize, Letterbox, CenterCrop, Crop, Pad, Flip, Normalize,
    Tensor, OriginalSize, ImageSize, ScaleFactor, Transform, PixelMask, Constant,
)  # fmt: skip
_DEFAULTS = {"roi": None, "padding_mode": "constant", "value": None, "luma": None, "channels": None, "pad_level": None}
"""Fields that must have their default with alpha. (``value`` of ``constant`` is a different field.)"""
KEEP = '"alpha": "keep" of decode'


def check_alpha(op: Op, before: Lowered, *, is_chosen: bool) -> None:
    """Check that an op supports an image whose fourth channel is alpha.

    Args:
        op: Op that receives the image.
        before: Lowered ops that produce the image.
        is_chosen: Whether the op is in the list of a random choice.

    Raises:
        PipelineError: The op, or one of its fields, is not supported.
    """
    if is_chosen:
        raise PipelineError(f"is in a random choice, which is not supported with {KEEP}: remove the choice")
    if not isinstance(op, _OPS):
        supported = ", ".join(op_name(each) for each in _OPS)
        fix = 'remove the op or "alpha"; in training, target with "kind": "alpha" returns the alpha of a file'
        raise PipelineError(f"is not supported with {KEEP}, which supports {supported}: {fix}")
    for field, default in () if isinstance(op, Constant) else _DEFAULTS.items():
        if getattr(op, field, default) != default:
            raise PipelineError(f'"{field}" is not supported with {KEEP}: remove it')
    if getattr(op, "mode", None) == "crop":
        raise PipelineError(f'"mode": "crop" is not supported with {KEEP}: use "mode": "cover" and center_crop')
    if isinstance(op, Normalize) and isinstance(op.scale, str):
        raise PipelineError(f'"scale": "{op.scale}" is not supported with {KEEP}: use a number')
    fill = getattr(op, "fill", 0)
    if fill != 0 and (isinstance(fill, str) or len(as_tuple(fill)) != 4):
        raise PipelineError(f'"fill" must be 0 or a list of four numbers (red, green, blue, alpha) with {KEEP}')
    if isinstance(op, Resize | Letterbox):
        _check_resize(op, before)


def _check_resize(op: Resize | Letterbox, before: Lowered) -> None:
    treatment = PROFILES[op.like].alpha
    likes = " or ".join(f'"{like}"' for like, profile in PROFILES.items() if profile.alpha is not None)
    if treatment is None:
        raise PipelineError(f'"like": "{op.like}" is not supported with {KEEP}: use {likes}')
    if treatment == "premultiplied" and not op.antialias:
        raise PipelineError(f'"antialias": false is not supported with {KEEP} and "like": "{op.like}"')
    if before.fill is not None:
        raise PipelineError(f"must come before ops that pad the image, with {KEEP}")
