"""MixUp and CutMix: combine each image of a batch with another image of the batch, and mix their labels.

The formulas are those of torchvision v2's ``MixUp`` and ``CutMix``. The random parameters are a pure function of the
seed, the epoch and the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.errors import DataError, PipelineError
from pixprep.names import MIX, explained
from pixprep.pipeline.pipeline import Pipeline
from pixprep.training.order import MIXES, Indices, Key, Order, generator, is_integer


def is_within(value: object, low: float, high: float = inf) -> bool:
    """Return whether a value is a finite number in a range, whose ends are included."""
    return isinstance(value, Real) and isfinite(value) and low <= float(value) <= high


@explained(MIX, "pass mixup, cutmix and p by name")
@dataclass(frozen=True)
class Mix:
    """Apply MixUp and CutMix to the batches of a Loader: ``pp.Loader(..., mix=pp.Mix(1000, mixup=0.2, cutmix=1.0))``.

    Labels become class probabilities, float32 (n, classes). If both alphas are set, one of the two augmentations is
    chosen at random for each batch, with equal probability. ``batch["mix"]`` is a list with one dict per image, which
    contains the augmentation and its random parameters, or is empty if the image did not change. The formulas are those
    of torchvision v2's ``MixUp`` and ``CutMix``.

    Each image is mixed with the previous image of the batch. If the batch contains several copies of a sample, each
    copy is mixed with an image of a different sample. If one sample fills more than half of a batch, some of its copies
    do not change.

    Args:
        classes: Number of classes. Labels are integers from 0 to ``classes - 1``.
        mixup: Alpha of MixUp. None disables it.
        cutmix: Alpha of CutMix. None disables it.
        p: Probability that a batch is mixed.
        image: Name of the tensor that is mixed. It must have a floating-point dtype.
        label: Name of the field that contains the labels.

    Raises:
        PipelineError: An argument is invalid.
    """

    classes: int
    mixup: float | None = None
    cutmix: float | None = None
    p: float = 1.0
    image: str = "tensor"
    label: str = "label"

    def __post_init__(self) -> None:
        """Check the arguments."""
        alphas = [alpha for alpha in (self.mixup, self.cutmix) if alpha is not None]
        if not alphas or not all(is_within(alpha, 0) and alpha > 0 for alpha in alphas):
            raise PipelineError("Mix: set mixup, cutmix or both, each to an alpha greater than 0")
        if not is_integer(self.classes, 1) or not is_within(self.p, 0, 1):
            raise PipelineError(
                f"Mix: classes must be an integer of at least 1, and p a number from 0 to 1, not {self.classes!r} and "
                f"{self.p!r}"
            )

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """Check that the images of the pipeline can be mixed, and that the batches are large enough.

        Raises:
            PipelineError: The tensor does not exist or cannot be mixed, the pipeline has outputs for annotations, or
                the batches are too small.
        """
        if self.image not in pipeline.outputs:
            raise PipelineError(
                f'Mix: the pipeline has no output "{self.image}"; its outputs are {", ".join(pipeline.outputs)}'
            )
        spec = pipeline.outputs[self.image].spec
        for name in pipeline.plan.annotations:
            raise PipelineError(
                f'Mix mixes only images and labels, but the pipeline has the annotations "{name}": remove that op'
            )
        if spec.is_open:
            raise PipelineError(f'Mix: all images must have the same size, but "{self.image}" is {spec}')
        if not spec.dtype.startswith("float") or spec.layout is None:
            fix = 'set "dtype": "float32" in tensor' if spec.dtype == "bfloat16" else "add normalize"
            raise PipelineError(f'Mix: "{self.image}" must be a floating-point image, not {spec}: {fix}')
        copies = -(-order.repeats // order.shard[1])
        if order.batch_size < 2 * copies:
            raise PipelineError(
                f"Mix: a batch of {order.batch_size} may contain too few different samples to mix with each other: use "
                f"a batch_size of at least {2 * copies}"
            )

    def draw(self, key: Key, height: int, width: int) -> dict[str, Any]:
        """Sample the random parameters of a batch.

        Args:
            key: See ``Key``.
            height: Height of the images in pixels.
            width: Width of the images in pixels.

        Returns:
            ``{"mixup": lam}``, where ``lam`` is the weight of the image itself; ``{"cutmix": [top, left, bottom,
            right]}``, the region that is replaced; or ``{}`` if the batch is not mixed.
        """
        rng = generator(key, MIXES)
        is_done, is_second = rng.random() < self.p, rng.random() < 0.5
        if not is_done:
            return {}
        if self.mixup is not None and (self.cutmix is None or not is_second):
            return {"mixup": float(rng.beta(self.mixup, self.mixup))}
        assert self.cutmix is not None
        side = 0.5 * sqrt(1.0 - rng.beta(self.cutmix, self.cutmix))
        left, top = int(rng.integers(width)), int(rng.integers(height))
        half_width, half_height = int(side * width), int(side * height)
        box = (top - half_height, left - half_width, top + half_height, left + half_width)
        return {"cutmix": [max(box[0], 0), max(box[1], 0), min(box[2], height), min(box[3], width)]}

    def mixed(self, batch: Batch, key: Key, pipeline: Pipeline) -> Batch:
        """Mix the images of a batch in place, and return it with mixed labels.

        Raises:
            DataError: A label is not an integer, or is outside the range of the classes.
        """
        images = pipeline.outputs[self.image].spec.planes(batch.outputs[self.image])
        height, width = images.shape[-2:]
        params = self.draw(key, height, width)
        labels = np.asarray(batch.fields.get(self.label))
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or not ((labels >= 0) & (labels < self.classes)).all():
            raise DataError(f'Mix: "{self.label}" of each sample must be an integer from 0 to {self.classes - 1}')
        soft = np.zeros((len(labels), self.classes), np.float32)
        soft[np.arange(len(labels)), labels] = 1
        lam = 1.0
        region: tuple[Any, ...] = ()
        if "mixup" in params:
            lam = params["mixup"]
        elif "cutmix" in params:
            top, left, bottom, right = params["cutmix"]
            lam = 1.0 - (bottom - top) * (right - left) / (height * width)
            region = ..., slice(top, bottom), slice(left, right)
        indices = batch.fields["index"]
        others = partners(indices)
        is_mixed = (indices[others] != indices) & bool(params)
        if params:
            _mix(images, others, is_mixed, lam, region)
            soft[is_mixed] = (soft[others] * np.float32(1.0 - lam) + soft * np.float32(lam))[is_mixed]
        fields = {**batch.fields, self.label: soft, "mix": [dict(params) if each else {} for each in is_mixed]}
        batch.fields = MappingProxyType(fields)
        return batch


def partners(indices: Indices) -> Indices:
    """Return, for each row of a batch, the row with which it is mixed, int64 (n,).

    The rows are sorted so that the copies of a sample are adjacent, and then shifted by the number of copies of the
    most frequent sample. No row is therefore mixed with a copy of its own sample, unless that sample has more than half
    of the rows. If all samples differ, each row is mixed with the previous row, as in torchvision.

    Args:
        indices: Sample index of each row, int64 (n,).
    """
    _, first, sample, counts = np.unique(indices, return_index=True, return_inverse=True, return_counts=True)
    rows = np.argsort(first[sample], kind="stable")
    found = np.empty_like(rows)
    found[rows] = np.roll(rows, counts.max())
    return found


def _mix(images: Any, others: Indices, is_mixed: npt.NDArray[np.bool_], lam: float, region: tuple[Any, ...]) -> None:
    """Mix images in place, following the cycles of the permutation ``others``.

    Each image is mixed before its partner changes, so only one image per cycle is copied. The partner is mixed next,
    while it is still in the CPU cache.

    Args:
        images: Images as planes, (n, ..., height, width).
        others: Row with which each row is mixed, from ``partners``.
        is_mixed: Whether each row is mixed.
        lam: Weight of the image itself, for MixUp.
        region: Index of the region that CutMix replaces. Empty for MixUp.
    """
    done: set[int] = set()
    for first in reversed(range(len(images))):
        if first in done:
            continue
        row, kept = first, images[first].copy("K")
        while row not in done:
            done.add(row)
            next_row = int(others[row])
            other = kept if next_row == first else images[next_row]
            if is_mixed[row] and region:
                images[row][region] = other[region]
            elif is_mixed[row]:
                images[row] *= lam
                images[row] += other * images.dtype.type(1.0 - lam)
            row = next_row
