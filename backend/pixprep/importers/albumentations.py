"""Imports an Albumentations ``Compose`` that was serialized with ``A.save`` or ``A.to_dict``.

Albumentations need not be installed for the import of a file. The pixels of the pipeline equal those of Albumentations
2.0.8 and 1.4.24. Fields that version 2.0 renamed are accepted under both names. The transforms receive RGB images with
the EXIF orientation applied, such as the images that ``cv2.imread`` followed by ``cvtColor`` returns.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pixprep.errors import PipelineError
from pixprep.importers.albumentations_transforms import EFFECTS, RENAMED, TRANSFORMS, Walk, version_of
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import Fields, error_prefix, opened, reading
from pixprep.pipeline import ops
from pixprep.pipeline.ops import Op
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.output_plans import is_of_each_box
from pixprep.spec import BoxFormat, Side

log = logging.getLogger(__name__)

_NOT_FOR_SERVING = (
    "is random, which is not supported for serving: pass these transforms as --training, and the serving transforms as "
    "the source"
)
_CONTAINERS = {"Compose": 1.0, "ReplayCompose": 1.0, "Sequential": None}
"""Default of the field ``p`` for each container of transforms. None means that ``p`` is required."""
_BOXES: dict[str, tuple[BoxFormat, bool]] = {
    "pascal_voc": ("xyxy", False),
    "coco": ("xywh", False),
    "albumentations": ("xyxy", True),
    "yolo": ("cxcywh", True),
}
"""Box formats of Albumentations. The values are pixprep's format, and whether coordinates are normalized to 0 to 1."""


def from_albumentations(
    source: Any = None,
    *,
    training: Any = None,
    name: str | None = None,
    apply_exif_orientation: bool = True,
    max_size: int | None = None,
    mask: bool = False,
) -> Pipeline:
    """Convert an Albumentations ``Compose`` into a pipeline whose tensors are bit-identical to Albumentations'.

    Args:
        source: Transforms for serving: a file from ``A.save``, a dictionary from ``A.to_dict``, or the ``Compose``
            itself. If ``source`` is None and ``training`` is given, the pipeline is only for training.
        training: Transforms for training, which can be random. They can be given in the same forms as ``source``.
            Default: the transforms for serving.
        name: Name of the model to record in the pipeline. Default: the name of the file, or ``Compose``.
        apply_exif_orientation: Whether to apply the EXIF orientation. ``cv2.imread`` applies it, and
            ``PIL.Image.open`` does not.
        max_size: Maximum height and width of the tensor in pixels. Required if the transforms do not resize or crop
            images to a fixed size.
        mask: Whether to add the op ``mask`` to the training ops. The field ``ignore`` of this op, which is the class
            index in the padding of a mask, is set to the ``fill_mask`` of the transforms. If false, a warning reports
            the ``fill_mask``, in case you add the op yourself.

    Returns:
        The pipeline. Unless ``ToTensorV2`` is among the transforms, the tensor has the layout ``hwc``, as in
        Albumentations.

    Raises:
        PipelineError: A transform or one of its fields is not supported; a transform is at an invalid position; the
            transforms for serving are random; or the transforms for training and for serving cannot be combined in one
            pipeline.
    """
    served = trained = None
    version = "unknown"
    first = ops.Decode(apply_exif_orientation=apply_exif_orientation)
    if source is not None or training is None:
        values, where = _read(source, "transforms")
        version, served, paths = _ops(values, where, "serving", first, max_size)
    if training is not None:
        values, where = _read(training, "training")
        version, trained, paths = _ops(values, where, "training", first, max_size, mask=mask)
    definition = training if source is None else source
    name = name or (Path(definition).name if isinstance(definition, str | Path) else "Compose")
    origin = {"library": "albumentations", "version": version, "name": name, "where": where}
    try:
        return assembled(served, training=trained, like="opencv", **origin)
    except PipelineError as error:
        text = str(error) if served and trained else _with_path(str(error), paths)
        hint = "; in this importer, set the option max_size, such as max_size=4096" * (error.limit == "no bound")
        raise PipelineError(text + hint) from None


def _with_path(text: str, paths: Sequence[str]) -> str:
    """Replace the name of an op in an error message by the path of the transform that was converted to it."""
    found = re.match(r'\w+: ops\[(\d+)\] "\w+": ', text)
    index = int(found[1]) - 1 if found else -1  # paths do not include the op decode
    return paths[index] + text[found.end() - 2 :] if found and 0 <= index < len(paths) else text


def _read(source: Any, where: str) -> tuple[Mapping[str, Any], str]:
    """Return the transforms in the format of ``A.to_dict``, and the prefix of error messages."""
    if isinstance(source, str | Path) and (path := Path(source)).suffix in (".yaml", ".yml"):
        raise PipelineError(
            f'{path.name}: YAML is not supported: save the transforms with A.save(transform, path, data_format="json")'
        )
    if isinstance(source, Mapping | str | Path):
        return opened(source, where)
    if not (type(source).__module__.startswith("albumentations.") and hasattr(source, "to_dict")):
        cls = type(source)
        raise PipelineError(f"{where} {cls.__name__}: this class is defined in {cls.__module__}, not in albumentations")
    try:
        text = json.dumps(source.to_dict(), default=lambda value: getattr(value, "value", None) or value.tolist())
    except (AttributeError, NotImplementedError, ValueError) as error:
        raise PipelineError(f"{where}: {error}") from None
    values = json.loads(text)
    if version_of(values.get("__version__")) < _SAVES_POSITION and not {*_positions(source)} <= {None, "center"}:
        raise PipelineError(
            f'{where} PadIfNeeded: Albumentations 1.4.2 and earlier do not save "position": use Albumentations 2.0'
        )
    return values, where


_LAST_VERSION = (2, 0, 8)
"""Last version of Albumentations. Later versions belong to AlbumentationsX, whose fields differ."""
_SAVES_POSITION = (1, 4, 3)
"""First version that saves the ``position`` of PadIfNeeded. For older files, ``A.load`` assumes ``center``."""


def _positions(transform: Any) -> Iterator[str | None]:
    """Yield the attribute ``position`` of a transform and of all transforms inside it. It is None if it is missing."""
    yield getattr(getattr(transform, "position", None), "value", None)
    for inner in getattr(transform, "transforms", ()):
        yield from _positions(inner)


def _ops(
    values: Mapping[str, Any], where: str, side: Side, first: ops.Decode, max_size: int | None, *, mask: bool = False
) -> tuple[str, list[Op], list[str]]:
    """Convert the transforms for training or for serving.

    Returns:
        The version of Albumentations, the ops, and the path of the transform for each op after ``decode``.
    """
    with reading(values, where) as fields:
        version, transform = fields.text("__version__", "unknown"), fields.mapping("transform")
    if not transform:
        raise PipelineError(f'{where}: "transform" is missing: pass the result of A.save or A.to_dict')
    if version_of(version) > _LAST_VERSION:
        raise PipelineError(
            f"{where}: AlbumentationsX {version} is not supported: create the transforms with Albumentations 2.0"
        )
    walk = Walk(side, version)
    _add_transform(walk, transform, where)
    if side == "training":
        _add_mask(walk, is_requested=mask)
    chain = [first, *walk.finished(where), *walk.annotations]
    return version, [*chain, ops.Tensor(walk.dtype, walk.layout, max_size, channels=walk.channels)], walk.paths


def _add_mask(walk: Walk, *, is_requested: bool) -> None:
    """Add the op ``mask`` if it is requested, or warn if its default for the padding differs from ``fill_mask``.

    Raises:
        PipelineError: The transforms pad masks with different values, or with a value that is not an integer from 0 to
            255.
    """
    fills = [*walk.mask_fills] or [0]
    invalid = [fill for fill in fills if not (isinstance(fill, int | float) and fill == int(fill) and 0 <= fill <= 255)]
    if is_requested and (invalid or len(fills) > 1):
        with error_prefix(walk.mask_fills[(invalid or fills[1:])[0]]):
            problem = (
                f"pads masks with {invalid[0]}"
                if invalid
                else f'has "fill_mask" {fills[1]}, but an earlier transform has {fills[0]}'
            )
            raise PipelineError(f"{problem}: the op mask pads with a single label, an integer from 0 to 255")
    if is_requested:
        walk.annotations += (ops.Mask(ignore=int(cast("float", fills[0]))),)
    elif walk.mask_fills:
        listed = ", ".join(map(str, fills))
        log.warning(
            'Albumentations pads masks with "fill_mask" %s, but the op mask pads with 255 by default: set the option '
            "mask to add the op with this value",
            listed,
        )


def _add_transform(walk: Walk, values: Any, where: str, p: float | None = None) -> None:
    """Convert a transform, including the transforms that it contains, and add its ops to the walk.

    Args:
        walk: Walk that collects the ops.
        values: Transform in the format of ``A.to_dict``.
        where: Path of the transform, for error messages.
        p: Probability of applying the transform. Default: the field ``p`` of the transform.
    """
    if not isinstance(values, Mapping):
        raise PipelineError(f"{where}: must be an object, as written by A.to_dict")
    full = str(values.get("__class_fullname__", "a transform without a name"))
    name = full.rpartition(".")[2] if full.startswith("albumentations.") else full
    path = f"{where} {name}"
    if "." in name:
        raise PipelineError(f"{path}: this class is defined in {full.rpartition('.')[0]}, not in albumentations")
    renamed = RENAMED.get(name, {})
    by_new_names = {renamed.get(key, key): value for key, value in values.items()}
    with reading(by_new_names, path) as fields:
        fields.ignore("__class_fullname__", "save_key")
        parts = fields.take("transforms", ())
        read = (TRANSFORMS | EFFECTS).get(name)
        is_known = read is not None or name in (*_CONTAINERS, "OneOf", "NoOp")
        own_p = _probability(fields, _CONTAINERS.get(name, None if is_known else 1.0))
        if fields.flag("always_apply"):  # saved by versions up to 1.4.9, and takes precedence over p
            own_p = 1.0
        p = own_p if p is None else p
        is_random = p < 1 or (name == "OneOf" and len(parts) != 1)
        if p == 0 or name == "NoOp":
            fields.ignore(*by_new_names)
            return
        if walk.side == "serving" and is_random:
            raise PipelineError(_NOT_FOR_SERVING)
        if not is_known:
            raise PipelineError(
                "is not supported: write a custom operator (docs/own-operators.md), or remove the transform"
            )
        branch = walk if p == 1 else walk.branch()
        if read is not None:
            before = len(branch.ops)
            read(branch, fields)
            if walk.side == "serving" and any(op.home == "training" for op in branch.ops[before:]):
                raise PipelineError(_NOT_FOR_SERVING)
        else:
            if not isinstance(parts, list | tuple):
                fields.refuse("transforms", "must be a list")
            _add_annotations(branch, fields)
    if name in _CONTAINERS:
        for index, part in enumerate(parts):
            _add_transform(branch, part, f"{where}[{index}]")
    elif name == "OneOf":
        _choose(branch, parts, where)
    if p < 1:
        with error_prefix(path):
            walk.apply_randomly(branch, p)
    walk.paths += [path] * (len(walk.ops) - len(walk.paths))


def _probability(fields: Fields, default: float | None) -> float:
    """Return the field ``p``, which is the probability with which a transform is applied."""
    p = fields.number("p", default)
    return p if 0 <= p <= 1 else fields.refuse("p", "must be from 0 to 1")


def _choose(walk: Walk, parts: Sequence[Any], where: str) -> None:
    """Convert ``OneOf``, which applies exactly one of its transforms. The transforms' ``p`` are the weights."""
    if len(parts) == 1:
        _add_transform(walk, parts[0], f"{where}[0]", 1.0)
        return
    branches, weights = [], []
    for index, part in enumerate(parts):
        path = f"{where}[{index}]"
        with reading(part if isinstance(part, Mapping) else {}, path) as fields:
            weights.append(_probability(fields, _CONTAINERS.get(str(fields.take("__class_fullname__")))))
            fields.ignore(*(part if isinstance(part, Mapping) else ()))
        branches.append(walk.branch())
        _add_transform(branches[-1], part, path, 1.0)
    with error_prefix(where):
        walk.choose(branches, weights)


def _add_annotations(walk: Walk, fields: Fields) -> None:
    """Convert ``bbox_params`` and ``keypoint_params`` of a ``Compose`` to the ops ``boxes`` and ``points``."""
    fields.ignore("is_check_shapes")
    if fields.take("additional_targets") and walk.side == "training":
        fields.refuse(
            "additional_targets", "applies the transforms to further images, which is not supported: remove it"
        )
    if fields.has("bbox_params"):
        with reading(fields.mapping("bbox_params"), "bbox_params") as boxes:
            form, is_normalized = boxes.choice("format", _BOXES)
            boxes.ignore("check_each_transform", "clip", "filter_invalid_bboxes")
            labels = boxes.take("label_fields") or ()
            if not (isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels)):
                boxes.refuse("label_fields", "must be a list of names")
            if boxes.has("max_accept_ratio"):
                boxes.refuse("max_accept_ratio")
            min_size = boxes.number("min_width", 0.0)
            boxes.expect(
                "min_height",
                min_size,
                why="must equal min_width, because the op boxes has the same minimum for width and height",
            )
            visible, area = boxes.number("min_visibility", 0.0), boxes.number("min_area", 0.0)
        follow = tuple(name for name in labels if not is_of_each_box(name))
        op = ops.Boxes(form, is_normalized, min_size=min_size, min_visible=visible, min_area=area, follow=follow)
        walk.annotations += (op,)
    if fields.has("keypoint_params"):
        with reading(fields.mapping("keypoint_params"), "keypoint_params") as points:
            points.choice("format", ("xy",))
            points.ignore("label_fields", "check_each_transform", "angle_in_degrees")
            if points.flag("remove_invisible", default=True):
                points.refuse(
                    "remove_invisible", 'must be false: the op "points" keeps points that are outside the image'
                )
        walk.annotations += (ops.Points(),)
        log.warning(
            "in pixprep, the coordinate 0 of a point is the left edge of the image, not the centre of the first pixel: "
            "a horizontal flip maps x to width - x, but in Albumentations to width - 1 - x"
        )
