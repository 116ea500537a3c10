"""Imports the frame selection of the video processors of transformers.

Each class selects frames by a formula of its own, from the number of frames of the clip and, with ``fps``, from the
frame rate that the container specifies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pixprep.errors import PipelineError
from pixprep.importers.fields import Fields
from pixprep.importers.transformers.classes import VIDEO_DEFAULTS
from pixprep.importers.transformers.patches import VIDEO_PATCHED
from pixprep.importers.transformers.sizes import VIDEO_SIZED
from pixprep.pipeline.ops import DecodeVideo, ImageOp, Op, TileCount, Tiles
from pixprep.pipeline.ops.decode import MAX_FRAMES, MIN_RATE
from pixprep.spec import ImageSpec

VIDEOS = VIDEO_DEFAULTS | {name: row.defaults for rows in (VIDEO_PATCHED, VIDEO_SIZED) for name, row in rows.items()}
"""Supported video processors, with the default values of all fields that a configuration may omit."""
_RULES: dict[str, Literal["rounded", "trimmed"]] = {
    "Qwen3VLVideoProcessor": "rounded",
    "SmolVLMVideoProcessor": "trimmed",
}
"""Frame selection rules, as in the op ``decode_video``, by the name of the class. All other classes use
``segments``."""


def sampling_fields(values: Mapping[str, Any], fps: float | None) -> dict[str, Any]:
    """Return the fields of a video processor, after applying ``fps`` and SmolVLM's nested field ``video_sampling``."""
    found = {key: value for key, value in values.items() if key != "video_sampling"}
    nested = values.get("video_sampling")
    if isinstance(nested, Mapping):
        found = {"size": nested.get("video_size")} | found
        found |= {"num_frames": nested.get("max_frames"), "fps": nested.get("fps")}
    if fps is not None:
        found |= {"do_sample_frames": True, "fps": fps}
        found |= {} if isinstance(nested, Mapping) else {"num_frames": None}
    return found


def clip_of(fields: Fields, processor: str, frames: int | None) -> DecodeVideo:
    """Return the op that decodes the frames which a video processor receives.

    Args:
        fields: Fields of the configuration, with the defaults of the class for omitted fields.
        processor: Name of the class.
        frames: Number of frames. None means the number that the configuration specifies.

    Raises:
        PipelineError: The configuration does not specify the number of frames, or a field is not supported.
    """
    if not fields.flag("do_sample_frames"):
        return DecodeVideo(frames=_required(fields, processor, frames), sample="uniform")
    rule: Any = _RULES.get(processor, "segments")
    start: Literal["first", "middle"] = "middle" if fields.flag("initial_shift") else "first"
    multiple = fields.length("temporal_patch_size", 64) if processor == "Qwen2VLVideoProcessor" else 1
    has_number, has_rate = fields.has("num_frames"), fields.has("fps")
    if rule == "trimmed":
        if not has_rate:
            fields.refuse("fps", "is required for this class: set it, or pass the option fps")
        frames = frames or (fields.length("num_frames", MAX_FRAMES) if has_number else None)
    elif has_number and has_rate:
        fields.refuse("fps", "contradicts num_frames: remove one of the two")
    if has_rate:
        rate = fields.number("fps", positive=True)
        if not MIN_RATE <= rate <= MAX_FRAMES:
            fields.refuse("fps", f"must be from {MIN_RATE} to {MAX_FRAMES}")
        has_limits = processor in VIDEO_PATCHED
        limit = fields.length("max_frames", MAX_FRAMES) if has_limits else None
        if frames is None and limit is None:
            raise PipelineError(
                f"{fields.where}: {processor} does not limit the number of frames that fps selects: set the option "
                "frames to the maximum number, such as frames=64"
            )
        most = frames or limit or 1
        least = fields.length("min_frames", most) if has_limits else 1
        return DecodeVideo(frames=most, sample=rule, start=start, rate=rate, min_frames=least, frames_multiple=multiple)
    if frames is None and has_number:
        frames = round(fields.length("num_frames", MAX_FRAMES) / multiple) * multiple
    frames = _required(fields, processor, frames or None)
    return DecodeVideo(frames=frames, sample=rule, start=start, short="repeat" if rule == "rounded" else "refuse")


def _required(fields: Fields, processor: str, frames: int | None) -> int:
    if frames is None:
        raise PipelineError(
            f"{fields.where}: {processor} does not specify the number of frames: set the option frames, such as "
            "frames=16 (num_frames in the model's config.json), or the option fps"
        )
    return frames


def frames_as_tiles(geometry: Sequence[Op], name: str, where: str) -> list[Op]:
    """Return the outputs for clips with a variable number of frames: the frames as tiles, and the number of frames.

    Args:
        geometry: Ops before the normalization.
        name: Name of the output with the pixel values.
        where: Prefix of error messages.

    Raises:
        PipelineError: The frames are not square.
    """
    frame = ImageSpec()
    for op in geometry:
        assert isinstance(op, ImageOp)
        frame = op.infer(frame)
    if frame.height is None or frame.height != frame.width:
        raise PipelineError(
            f"{where}: fps requires frames of equal height and width, because the number of frames depends on the "
            "clip: set num_frames or the option frames instead"
        )
    return [Tiles(tile_size=frame.height, name=name), TileCount(tile_size=frame.height, name="num_frames")]
