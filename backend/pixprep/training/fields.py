"""The fields of samples besides the image: how they are transformed with the image, and collated into a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.annotations import annotated, check_size, mask_of, of_each_box, read_boxes, read_field
from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Decoded
from pixprep.engine.engine import Engine
from pixprep.errors import DataError, ImageError, printable
from pixprep.plan.output_plans import BoxesPlan, is_of_each_box
from pixprep.plan.plan import Place, Placed, Plan
from pixprep.training.cache import PixelCache
from pixprep.training.reading import Sample

_OPS = {
    "boxes": "boxes",
    "bboxes": "boxes",
    "bbox": "boxes",
    "points": "points",
    "keypoints": "points",
    "mask": "mask",
    "masks": "masks",
    "segmentation": "mask",
}
"""Names of fields that usually contain coordinates, and the op that transforms each."""
_SCALARS = frozenset({bool, int, float, str, bytes})
_MIN_SAMPLES = 8
"""A field that has one value per box in this many samples is assumed to belong to the boxes."""


def collated(fields: Sequence[Mapping[str, Any]], samples: Sequence[str]) -> dict[str, Any]:
    """Collate the fields of samples by name.

    A field that is a number in every sample becomes an array (n,) of int64, float64 or bool, as in NumPy. Arrays of the
    same shape and dtype are stacked into an array (n, *shape), except for boxes and data per box, because the number of
    boxes varies. All other fields become a list, with None for samples that lack the field.

    Args:
        fields: Fields of each sample.
        samples: Names of the samples, for messages.

    Raises:
        DataError: A sample has no "label", but other samples have one.
    """
    names = dict.fromkeys(name for each in fields for name in each)
    if "label" in names:
        for sample, each in zip(samples, fields, strict=True):
            if "label" not in each:
                raise DataError(
                    f'{printable(sample)} has no "label", but other samples have one: set its label, or set it to None'
                )
    return {name: _column(name, [each.get(name) for each in fields]) for name in names}


def untransformed(
    fields: Mapping[str, Any], moved: Container[str], size: tuple[int, int] | None
) -> Iterator[tuple[str, str]]:
    """Yield the fields of a sample that refer to positions in its image but that no op transforms, each with a warning.

    Args:
        fields: Fields of one sample.
        moved: Names of fields that are transformed, or for which a warning was already logged.
        size: (height, width) of the image. A field of this size is assumed to contain one value per pixel.
    """
    for name, value in fields.items():
        if name in moved:
            continue
        if op := _OPS.get(name):
            hint = f"add the op {op}" if name == op else f'rename the field to "{op}", and add the op {op}'
            what = "so its coordinates refer to the original images, not to the tensors"
            yield name, f'no op transforms batch["{name}"], {what}: {hint}'
        elif type(value) not in _SCALARS and _is_of_pixels(value, size):
            what = "so it is not cropped, resized or flipped with its image"
            yield name, f'no op transforms batch["{name}"], {what}: add the op target with "field": "{name}"'


def unfiltered(
    fields: Mapping[str, Any], counts: dict[str, Counter[int]], plan: BoxesPlan, left: int
) -> Iterator[tuple[str, str]]:
    """Yield the fields that seem to have one value per box but are not filtered with the boxes, each with a warning.

    Args:
        fields: Fields of one sample.
        counts: State, by the name of each field: a Counter of the samples in which it had one value per box, by the
            number of boxes. Empty for a field that once had a different number of values.
        plan: Plan of the boxes, which names the fields that are filtered with them.
        left: Number of boxes of the sample that were kept.
    """
    if not hasattr(fields.get("boxes"), "__len__"):
        return
    number = len(fields["boxes"])
    for name, value in fields.items():
        is_known = name in (*_OPS, "size") or plan.takes_along(name) or isinstance(value, str | bytes)
        if is_known or not hasattr(value, "__len__"):
            continue
        found = counts.setdefault(name, Counter({number: 0}))
        if len(value) != number:
            found.clear()
        elif found:
            found[number] += 1
        if len(found.keys() - {0}) > 1 or (left < number and sum(found.values()) >= _MIN_SAMPLES):
            what = "seems to have one value per box, but does not change with the boxes"
            yield name, f'batch["{name}"] {what}: add the field to "follow" of the op boxes'


def _is_of_pixels(value: Any, size: tuple[int, int] | None) -> bool:
    """Return whether a field has one value per pixel.

    This is an array (height, width, ...) or (..., height, width), or a Pillow image of that size.
    """
    shape = getattr(value, "shape", ())
    if size is None:
        return False
    if isinstance(shape, tuple) and len(shape) >= 2:
        return size in (tuple(shape[:2]), tuple(shape[-2:]))
    return hasattr(value, "getpixel") and value.size == size[::-1]


def _column(name: str, values: list[Any]) -> Any:
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values):
        return np.array(values)
    if name in _OPS or is_of_each_box(name):
        return [of_each_box(name, value) if isinstance(value, np.ndarray) else value for value in values]
    kinds = {(value.shape, value.dtype) if isinstance(value, np.ndarray) else None for value in values}
    return values if None in kinds or len(kinds) > 1 else np.stack(values)


def run_annotated(
    engine: Engine,
    samples: Sequence[Sample],
    *,
    seed: int,
    epoch: int,
    attempts: Sequence[int],
    cache: PixelCache | None,
    is_original: bool = True,
    is_optional: bool = False,
    **options: Any,
) -> tuple[Batch, list[Annotated]]:
    """Run an engine on the images of samples, and transform their annotations.

    Args:
        engine: Engine of a pipeline.
        samples: The samples.
        seed: Seed of the Loader.
        epoch: Number of the epoch.
        attempts: Attempt number of each sample.
        cache: Cache that receives the decoded images, if enabled.
        is_original: See ``Annotated``.
        is_optional: Whether samples may lack annotations, as in serving mode.
        options: Further arguments of ``Engine.run_batch``.

    Returns:
        The batch, and the transformed annotations of each sample.
    """
    plan = engine.plan
    if not is_original and any(each.kind == "alpha" for each in plan.targets.values()):
        # the first stage of the chain has already selected the alpha channel
        values = {name: replace(each, kind="values") for name, each in plan.targets.items() if each.kind == "alpha"}
        plan = replace(plan, annotations={**plan.annotations, **values})
    is_late = engine.lanes > 1 and bool(plan.masks or plan.targets)
    drawn = plan.draw(seed=seed, epoch=epoch, indices=[sample.index for sample in samples], attempts=attempts)
    made = []
    for sample, numbers in zip(samples, drawn, strict=True):
        place: Place = _nowhere
        if not isinstance(sample.image, ImageError):
            place = plan.placing(numbers, sample.fields, mask_of(plan, sample.fields))
        of_sample = without_missing(plan, sample.fields) if is_optional else plan
        made.append(Annotated(of_sample, place, sample.fields, is_late=is_late, is_original=is_original))

    def keep(place: int, image: Decoded) -> None:
        made[place].finish()
        if cache is not None:
            cache.keep(samples[place].index, samples[place].identity, image)

    images = [sample.image for sample in samples]
    return engine.run_batch(images, places=made, keep=keep, keep_whole=cache is not None, **options), made


def without_missing(plan: Plan, fields: Container[str]) -> Plan:
    """Return a plan without the annotations whose fields are missing in a sample."""
    found = {name: each for name, each in plan.annotations.items() if each.field in fields}
    return plan if len(found) == len(plan.annotations) else replace(plan, annotations=found)


def _nowhere(height: int, width: int, frames: int = 1) -> Placed:
    del frames
    raise AssertionError(f"an image that could not be read must not have a size: {height} x {width}")


class Annotated:
    """Transforms the annotations of one sample together with its image.

    The object is called with the height and the width of the decoded image, like every ``place`` function of the
    engine. An error in the annotations is therefore reported as an error of that image.

    Args:
        plan: Plan that specifies the geometry of the image and the format of boxes, points and masks.
        place: Function from ``plan.placing``.
        sample: Fields of the sample. The annotations are ``size`` (height, width), ``boxes``, ``points``, ``mask``,
            ``masks`` and data per box, as far as they exist.
        is_late: Whether ``finish`` transforms the annotations, and not the call of the object. The engine calls one
            object at a time. A slow transformation, such as decoding the PNG of a mask in 0.3 ms, would therefore
            delay all other images.
        is_original: Whether the sample comes from the source. Only then, ``size`` and the positions of the boxes are
            checked. A stage of a chain changes the size of the image, and can crop a box to a part of the first pixel,
            which the check would reject as normalized coordinates.

    Attributes:
        fields: Transformed annotations. These are the outputs of the plan and the fields that are filtered with the
            boxes. The dictionary is empty until the annotations are transformed.

    Raises:
        ImageError: BAD_RECORD: The annotated size differs from that of the image, or annotations contradict each other.
            DOES_NOT_FIT: There are more boxes or points than ``pad``, or the image is too small for the pipeline.
        PipelineError: The sample lacks a field that an output of the plan requires.
    """

    def __init__(
        self,
        plan: Plan,
        place: Place,
        sample: Mapping[str, Any],
        *,
        is_late: bool = False,
        is_original: bool = True,
    ) -> None:
        self._plan, self._place, self._sample = plan, place, sample
        self._is_late, self._is_original = is_late, is_original
        self._boxes: npt.NDArray[np.float32] | None = None
        self.fields: dict[str, Any] = {}

    def __call__(self, height: int, width: int, frames: int = 1) -> Placed:
        """Return the geometry of the image or clip, and transform the annotations unless ``is_late`` is set."""
        if self._is_original:
            check_size(self._sample.get("size"), height, width, is_upright=self._plan.apply_exif_orientation)
        if "boxes" in self._sample and "boxes" not in self._plan.inputs:
            if self._plan.boxes:
                # check them before random_iou_crop
                self._boxes = read_boxes(self._sample, height, width, is_original=self._is_original)
            else:
                read_field(self._sample, "boxes", 4)
        self._placed = self._place(height, width, frames)
        if not self._is_late:
            self.fields = annotated(self._plan, self._placed, self._sample, self._boxes)
        return self._placed

    def finish(self) -> None:
        """Transform the annotations if ``is_late`` is set."""
        if self._is_late:
            self.fields = annotated(self._plan, self._placed, self._sample, self._boxes)
