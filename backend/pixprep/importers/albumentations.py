"""Albumentations: a ``Compose`` as ``A.save`` and ``A.to_dict`` write it, read without the library.

The facts are of Albumentations 2.0.8 and 1.4.24; fields that 2.0 renamed are read by both names. Its images are RGB, as
``cv2.imread`` and ``cvtColor`` make them, upright by EXIF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pixprep.errors import PipelineError
from pixprep.importers.albumentations_ops import NO_OP, RENAMED, TRANSFORMS, Walk
from pixprep.importers.albumentations_random import RANDOM
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import Fields, read_json, reading
from pixprep.importers.fields import place as named
from pixprep.pipeline.ops import (
    Boxes,
    Decode,
    Flip,
    Grayscale,
    ImageOp,
    Op,
    Points,
    RandomApply,
    RandomChoice,
    RandomFlip,
    RandomGray,
    Tensor,
    changed,
)
from pixprep.pipeline.pipeline import Pipeline
from pixprep.spec import BoxFormat, Side

NOT_SERVED = "is random, and serving draws nothing: give this file as --training, and what is served as the source"
_LISTS = ("Compose", "Sequential")
_BOXES: dict[str, tuple[BoxFormat, bool]] = {
    "pascal_voc": ("xyxy", False),
    "coco": ("xywh", False),
    "albumentations": ("xyxy", True),
    "yolo": ("cxcywh", True),
}
"""Formats of boxes, and whether they are divided by the image's sides."""


def from_albumentations(
    source: Any = None, *, training: Any = None, name: str | None = None, apply_exif_orientation: bool = True
) -> Pipeline:
    """The pipeline of a ``Compose``, bit for bit.

    Without ``ToTensorV2`` the tensor is (height, width, channels), as the library leaves it.

    Args:
        source: of serving: a file of ``A.save``, or what ``A.to_dict`` gives, or the ``Compose`` itself. None: there is
            no serving side.
        training: the same of training, which may draw; default: no other.
        name: of the pipeline's origin; default: the file's.
        apply_exif_orientation: as ``cv2.imread`` does; ``Image.open`` does not.

    Raises:
        PipelineError: a transform or one of its fields is not understood, or stands where it cannot; serving would
            draw; the sides do not go together.
    """
    served = trained = None
    version = "unknown"
    first = Decode(apply_exif_orientation=apply_exif_orientation)
    if source is not None or training is None:
        values, where = _read(source, "transforms")
        version, served = _ops(values, where, "serving", first)
    if training is not None:
        values, where = _read(training, "training")
        version, trained = _ops(values, where, "training", first)
    definition = training if source is None else source
    name = name or (Path(definition).name if isinstance(definition, str | Path) else "Compose")
    return assembled(
        served,
        training=trained,
        library="albumentations",
        version=version,
        name=name,
        where=where,
        like="opencv",
    )


def _read(source: Any, where: str) -> tuple[Mapping[str, Any], str]:
    """Result of ``A.to_dict``, and the place that errors begin with."""
    if isinstance(source, str | Path):
        return read_json(Path(source)), Path(source).name
    if isinstance(source, Mapping):
        return source, where
    if not (type(source).__module__.startswith("albumentations.") and hasattr(source, "to_dict")):
        kind = type(source)
        raise PipelineError(f"{where} {kind.__name__}: is a class of {kind.__module__}, not of albumentations")
    made: Mapping[str, Any] = source.to_dict()
    return made, where


def _ops(values: Mapping[str, Any], where: str, side: Side, first: Decode) -> tuple[str, list[Op]]:
    with reading(values, where) as fields:
        version, transform = fields.text("__version__", "unknown"), fields.mapping("transform")
    if not transform:
        raise PipelineError(f'{where}: "transform" is missing: it must be what A.save or A.to_dict wrote')
    walk = Walk(side, version)
    _take(walk, transform, where)
    return version, [first, *walk.finished(where), *walk.annotations, Tensor(dtype=walk.dtype, layout=walk.layout)]


def _take(walk: Walk, values: Any, where: str, share: float | None = None) -> None:
    """Take one transform, and those that it is made of.

    Args:
        walk: gets the ops.
        values: of the transform.
        where: its place, for errors.
        share: how often it is done; default: its ``p``.
    """
    if not isinstance(values, Mapping):
        raise PipelineError(f"{where}: must be an object, as A.to_dict writes it")
    full = str(values.get("__class_fullname__", "a transform without a name"))
    name = full.rpartition(".")[2] if full.startswith("albumentations.") else full
    place = f"{where} {name}"
    if "." in name:
        raise PipelineError(f"{place}: is a class of {full.rpartition('.')[0]}, not of albumentations")
    renamed = RENAMED.get(name, {})
    by_new_names = {renamed.get(key, key): value for key, value in values.items()}
    with reading(by_new_names, place) as fields:
        fields.ignore("__class_fullname__", "always_apply", "save_key")
        p = _share(fields, name in _LISTS)
        share = p if share is None else share
        if share == 0 or name == "NoOp":
            fields.ignore(*by_new_names)
            return
        if walk.side == "serving" and (name in RANDOM or name == "OneOf" or share < 1):
            raise PipelineError(NOT_SERVED)
        if name not in TRANSFORMS | RANDOM and name not in (*_LISTS, "OneOf"):
            raise PipelineError(f"is not understood{NO_OP.get(name, NO_OP[''])}")
        own = walk if share == 1 else walk.branch()
        if name in TRANSFORMS | RANDOM:
            (TRANSFORMS | RANDOM)[name](own, fields)
        else:
            parts = fields.take("transforms", ())
            if not isinstance(parts, list | tuple):
                fields.refuse("transforms", "must be a list")
            _annotate(own, fields)
    if name in _LISTS:
        for index, part in enumerate(parts):
            _take(own, part, f"{where}[{index}]")
    elif name == "OneOf":
        _choose(own, parts, where)
    if share < 1:
        with named(place):
            walk.joined(own)
        walk.ops += _at_times(own.ops, share)


def _share(fields: Fields, is_list: bool) -> float:
    """Probability of a transform; ``A.load`` has 0.5 where none is said."""
    share = fields.number("p", 1.0 if is_list else None)
    return share if 0 <= share <= 1 else fields.refuse("p", "must be 0 to 1")


def _choose(walk: Walk, parts: Sequence[Any], where: str) -> None:
    """``OneOf``: each part as often as its ``p`` says, and then in any case."""
    branches, weights = [], []
    for index, part in enumerate(parts):
        place = f"{where}[{index}]"
        with reading(part if isinstance(part, Mapping) else {}, place) as fields:
            weights.append(_share(fields, str(fields.take("__class_fullname__")) in _LISTS))
            fields.ignore(*(part if isinstance(part, Mapping) else ()))
        branches.append(walk.branch())
        _take(branches[-1], part, place, 1.0)
    with named(where):
        walk.joined(*branches)
        lists = tuple(tuple(each.ops) for each in branches)
        walk.ops.append(RandomChoice(lists, tuple(weights) if len({*weights}) > 1 else None))


def _at_times(made: Sequence[ImageOp], share: float) -> list[ImageOp]:
    """Ops that are done to some images: one that may have a ``p`` by that, others as a list."""
    if len(made) != 1:
        return [RandomApply(tuple(made), share)] if made else []
    (op,) = made
    if isinstance(op, Flip):
        return [RandomFlip(op.axis, share)]
    if isinstance(op, Grayscale):
        return [RandomGray(op.like, share)]
    p = getattr(op, "p", None)
    return [RandomApply((op,), share) if p is None else changed(op, p=p * share)]


def _annotate(walk: Walk, fields: Fields) -> None:
    """Read what a ``Compose`` says of boxes and points: outputs of the training side."""
    fields.ignore("is_check_shapes")
    if fields.take("additional_targets"):
        fields.refuse("additional_targets", "names further images or masks, which a pipeline does not have")
    if fields.has("bbox_params"):
        with reading(fields.mapping("bbox_params"), "bbox_params") as boxes:
            form, is_normalized = boxes.choice("format", _BOXES)
            boxes.ignore("label_fields", "check_each_transform", "clip", "filter_invalid_bboxes")
            boxes.expect("min_area", 0, why="is not understood: min_width and min_height are")
            if boxes.has("max_accept_ratio"):
                boxes.refuse("max_accept_ratio")
            least = boxes.number("min_width", 0.0)
            boxes.expect("min_height", least, why="must be min_width: an op has one least side")
            visible = boxes.number("min_visibility", 0.0)
        walk.annotations.append(Boxes(format=form, normalized=is_normalized, min_size=least, min_visible=visible))
    if fields.has("keypoint_params"):
        with reading(fields.mapping("keypoint_params"), "keypoint_params") as points:
            points.choice("format", ("xy",))
            points.ignore("label_fields", "check_each_transform", "angle_in_degrees")
            if points.flag("remove_invisible", default=True):
                points.refuse("remove_invisible", "must be false: points outside stay, as their row of a tensor")
        walk.annotations.append(Points())
