"""Importer of Albumentations, which reads a ``Compose`` as ``A.save`` and ``A.to_dict`` write it, without the library.

The behavior is that of Albumentations 2.0.8 and 1.4.24. Fields that 2.0 renamed are read by both names. The images are
RGB, as after ``cv2.imread`` and ``cvtColor``, with the EXIF orientation applied.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pixprep.errors import PipelineError
from pixprep.importers.albumentations_transforms import RANDOM, RENAMED, TRANSFORMS, Walk, version_of
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import Fields, error_prefix, opened, reading
from pixprep.pipeline.ops import (
    Boxes,
    Decode,
    Mask,
    Op,
    Points,
    Tensor,
)
from pixprep.pipeline.pipeline import Pipeline
from pixprep.plan.output_plans import OF_EACH_BOX
from pixprep.spec import BoxFormat, Side

log = logging.getLogger(__name__)

NOT_SERVED = (
    "is random, which is not supported for serving: pass these transforms as --training, and the serving transforms as "
    "the source"
)
_LISTS = {"Compose": 1.0, "ReplayCompose": 1.0, "Sequential": None}
"""Containers of transforms, with their default ``p``. None: the container must specify it."""
_BOXES: dict[str, tuple[BoxFormat, bool]] = {
    "pascal_voc": ("xyxy", False),
    "coco": ("xywh", False),
    "albumentations": ("xyxy", True),
    "yolo": ("cxcywh", True),
}
"""Box formats, and whether the coordinates are normalized by the image's sides."""


def from_albumentations(
    source: Any = None,
    *,
    training: Any = None,
    name: str | None = None,
    apply_exif_orientation: bool = True,
    max_size: int | None = None,
    mask: bool = False,
) -> Pipeline:
    """Create the pipeline of a ``Compose``, equal bit for bit.

    Without ``ToTensorV2``, the tensor has the layout (height, width, channels), as in the library.

    Args:
        source: The serving transforms: a file written by ``A.save``, a result of ``A.to_dict``, or the ``Compose``
            itself. None: build no serving side.
        training: The training transforms, in the same forms; they can be random. Default: the serving transforms.
        name: Name that the pipeline records as its origin. Default: the name of the file.
        apply_exif_orientation: Whether to apply the EXIF orientation, as ``cv2.imread`` does and ``Image.open`` does
            not.
        max_size: Maximum side in pixels, for transforms that keep the size of each image.
        mask: Whether to add the op ``mask`` to the training side, with ``fill_mask`` as its ``ignore``. Default: False,
            and a warning names the label that your own op ``mask`` needs.

    Raises:
        PipelineError: A transform or one of its fields is not supported, or is at an invalid position; the serving side
            is random; or the two sides are not compatible.
    """
    served = trained = None
    version = "unknown"
    first = Decode(apply_exif_orientation=apply_exif_orientation)
    if source is not None or training is None:
        values, where = _read(source, "transforms")
        version, served, places = _ops(values, where, "serving", first, max_size)
    if training is not None:
        values, where = _read(training, "training")
        version, trained, places = _ops(values, where, "training", first, max_size, mask=mask)
    definition = training if source is None else source
    name = name or (Path(definition).name if isinstance(definition, str | Path) else "Compose")
    origin = {"library": "albumentations", "version": version, "name": name, "where": where}
    try:
        return assembled(served, training=trained, like="opencv", **origin)
    except PipelineError as error:
        text = str(error) if served and trained else _named_by(str(error), places)
        has_no_bound = "no upper bound" in text
        remedy = "; in this importer, set the option max_size, such as max_size=4096" if has_no_bound else ""
        raise PipelineError(text + remedy) from None


def _named_by(text: str, places: Sequence[str]) -> str:
    """Replace the op in an error message by the path of the transform that the op came from."""
    found = re.match(r'\w+: ops\[(\d+)\] "\w+": ', text)
    index = int(found[1]) - 1 if found else -1  # counts from the op after decode
    return places[index] + text[found.end() - 2 :] if found and 0 <= index < len(places) else text


def _read(source: Any, where: str) -> tuple[Mapping[str, Any], str]:
    """Return the result of ``A.to_dict``, and the prefix of error messages."""
    if isinstance(source, str | Path) and (path := Path(source)).suffix in (".yaml", ".yml"):
        raise PipelineError(
            f'{path.name}: YAML is not supported: save the transforms with A.save(transform, path, data_format="json")'
        )
    if isinstance(source, Mapping | str | Path):
        return opened(source, where)
    if not (type(source).__module__.startswith("albumentations.") and hasattr(source, "to_dict")):
        kind = type(source)
        raise PipelineError(
            f"{where} {kind.__name__}: this class is defined in {kind.__module__}, not in albumentations"
        )
    try:
        written = json.dumps(source.to_dict(), default=lambda each: getattr(each, "value", None) or each.tolist())
    except (AttributeError, NotImplementedError, ValueError) as error:
        raise PipelineError(f"{where}: {error}") from None
    made = json.loads(written)
    if version_of(made.get("__version__")) < _SAID and not {*_positions(source)} <= {None, "center"}:
        raise PipelineError(
            f'{where} PadIfNeeded: Albumentations 1.4.2 and earlier do not save "position": use Albumentations 2.0'
        )
    return made, where


_LAST = (2, 0, 8)
"""Last version of Albumentations. Higher version numbers belong to AlbumentationsX, whose fields differ."""
_SAID = (1, 4, 3)
"""First version that writes the position of the image in PadIfNeeded. For older files, ``A.load`` centers the image."""


def _positions(transform: Any) -> Iterator[str | None]:
    """Yield the ``position`` of a transform and of all transforms inside it."""
    yield getattr(getattr(transform, "position", None), "value", None)
    for each in getattr(transform, "transforms", ()):
        yield from _positions(each)


def _ops(
    values: Mapping[str, Any], where: str, side: Side, first: Decode, max_size: int | None, *, mask: bool = False
) -> tuple[str, list[Op], list[str]]:
    """Return the library's version, the ops of one side, and the path of the transform that each op came from."""
    with reading(values, where) as fields:
        version, transform = fields.text("__version__", "unknown"), fields.mapping("transform")
    if not transform:
        raise PipelineError(f'{where}: "transform" is missing: pass the result of A.save or A.to_dict')
    if version_of(version) > _LAST:
        raise PipelineError(
            f"{where}: AlbumentationsX {version} is not supported: create the transforms with Albumentations 2.0"
        )
    walk = Walk(side, version)
    _take(walk, transform, where)
    if side == "training":
        _mask(walk, is_wanted=mask)
    ops = [first, *walk.finished(where), *walk.annotations]
    return version, [*ops, Tensor(walk.dtype, walk.layout, max_size, channels=walk.channels)], walk.places


def _mask(walk: Walk, *, is_wanted: bool) -> None:
    """Add the op ``mask``, or log a warning that masks are padded with a different label than in the library.

    Raises:
        PipelineError: The masks are padded with several labels, or with a label that is not an integer from 0 to 255.
    """
    labels = [*walk.mask_fills] or [0]
    odd = [each for each in labels if not (isinstance(each, int | float) and each == int(each) and 0 <= each <= 255)]
    if is_wanted and (odd or len(labels) > 1):
        with error_prefix(walk.mask_fills[(odd or labels[1:])[0]]):
            such = (
                f"pads masks with {odd[0]}"
                if odd
                else f'has "fill_mask" {labels[1]}, but an earlier transform has {labels[0]}'
            )
            raise PipelineError(f"{such}: the op mask pads with a single label, an integer from 0 to 255")
    if is_wanted:
        walk.annotations += (Mask(ignore=int(cast("float", labels[0]))),)
    elif walk.mask_fills:
        such = ", ".join(map(str, labels))
        log.warning(
            'Albumentations pads masks with "fill_mask" %s, but the op mask pads with 255 by default: set the option '
            "mask to add the op with that label",
            such,
        )


def _take(walk: Walk, values: Any, where: str, share: float | None = None) -> None:
    """Add the ops of one transform and of the transforms inside it.

    Args:
        walk: Walk that collects the ops.
        values: Serialized transform.
        where: Path of the transform, for error messages.
        share: Probability that the transform is applied. Default: its own ``p``.
    """
    if not isinstance(values, Mapping):
        raise PipelineError(f"{where}: must be an object, as written by A.to_dict")
    full = str(values.get("__class_fullname__", "a transform without a name"))
    name = full.rpartition(".")[2] if full.startswith("albumentations.") else full
    place = f"{where} {name}"
    if "." in name:
        raise PipelineError(f"{place}: this class is defined in {full.rpartition('.')[0]}, not in albumentations")
    renamed = RENAMED.get(name, {})
    by_new_names = {renamed.get(key, key): value for key, value in values.items()}
    with reading(by_new_names, place) as fields:
        fields.ignore("__class_fullname__", "save_key")
        parts = fields.take("transforms", ())
        is_known = name in TRANSFORMS | RANDOM or name in (*_LISTS, "OneOf", "NoOp")
        p = _share(fields, _LISTS.get(name, None if is_known else 1.0))
        if fields.flag("always_apply"):  # written up to 1.4.9; overrides p
            p = 1.0
        share = p if share is None else share
        is_drawn = name in RANDOM or share < 1 or (name == "OneOf" and len(parts) != 1)
        if share == 0 or name == "NoOp":
            fields.ignore(*by_new_names)
            return
        if walk.side == "serving" and is_drawn:
            raise PipelineError(NOT_SERVED)
        if not is_known:
            raise PipelineError(
                "is not supported: write a custom operator (docs/own-operators.md), or remove the transform"
            )
        own = walk if share == 1 else walk.branch()
        if name in TRANSFORMS | RANDOM:
            (TRANSFORMS | RANDOM)[name](own, fields)
        else:
            if not isinstance(parts, list | tuple):
                fields.refuse("transforms", "must be a list")
            _annotate(own, fields)
    if name in _LISTS:
        for index, part in enumerate(parts):
            _take(own, part, f"{where}[{index}]")
    elif name == "OneOf":
        _choose(own, parts, where)
    if share < 1:
        with error_prefix(place):
            walk.apply_randomly(own, share)
    walk.places += [place] * (len(walk.ops) - len(walk.places))


def _share(fields: Fields, default: float | None) -> float:
    """Return the probability of a transform. Without a ``p``, it is 0.5, as in ``A.load``."""
    share = fields.number("p", default)
    return share if 0 <= share <= 1 else fields.refuse("p", "must be from 0 to 1")


def _choose(walk: Walk, parts: Sequence[Any], where: str) -> None:
    """Add ``OneOf``, which always applies exactly one part, with probabilities proportional to the parts' ``p``."""
    if len(parts) == 1:
        _take(walk, parts[0], f"{where}[0]", 1.0)
        return
    branches, weights = [], []
    for index, part in enumerate(parts):
        place = f"{where}[{index}]"
        with reading(part if isinstance(part, Mapping) else {}, place) as fields:
            weights.append(_share(fields, _LISTS.get(str(fields.take("__class_fullname__")))))
            fields.ignore(*(part if isinstance(part, Mapping) else ()))
        branches.append(walk.branch())
        _take(branches[-1], part, place, 1.0)
    with error_prefix(where):
        walk.choose(branches, weights)


def _annotate(walk: Walk, fields: Fields) -> None:
    """Add the outputs of the training side that a ``Compose`` configures for boxes and points."""
    fields.ignore("is_check_shapes")
    if fields.take("additional_targets") and walk.side == "training":
        fields.refuse(
            "additional_targets", "applies the transforms to further images, which is not supported: remove it"
        )
    if fields.has("bbox_params"):
        with reading(fields.mapping("bbox_params"), "bbox_params") as boxes:
            form, is_normalized = boxes.choice("format", _BOXES)
            boxes.ignore("check_each_transform", "clip", "filter_invalid_bboxes")
            along = boxes.take("label_fields") or ()
            if not (isinstance(along, list | tuple) and all(isinstance(each, str) for each in along)):
                boxes.refuse("label_fields", "must be a list of names")
            if boxes.has("max_accept_ratio"):
                boxes.refuse("max_accept_ratio")
            least = boxes.number("min_width", 0.0)
            boxes.expect(
                "min_height", least, why="must equal min_width, because the op boxes has one minimum for both sides"
            )
            visible, area = boxes.number("min_visibility", 0.0), boxes.number("min_area", 0.0)
        follow = tuple(name for name in along if name not in OF_EACH_BOX and not name.startswith("box_"))
        kept = Boxes(form, is_normalized, min_size=least, min_visible=visible, min_area=area, follow=follow)
        walk.annotations += (kept,)
    if fields.has("keypoint_params"):
        with reading(fields.mapping("keypoint_params"), "keypoint_params") as points:
            points.choice("format", ("xy",))
            points.ignore("label_fields", "check_each_transform", "angle_in_degrees")
            if points.flag("remove_invisible", default=True):
                points.refuse("remove_invisible", "must be false: the op points keeps points outside the image")
        walk.annotations += (Points(),)
        log.warning(
            "the coordinate 0 is the left edge of a pixel, not its center: a horizontal flip maps x to width - x, "
            "but in "
            "Albumentations to width - 1 - x"
        )
