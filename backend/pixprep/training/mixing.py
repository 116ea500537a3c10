"""mixup and cutmix: each image of a batch with another one of it, and its label with that one's.

The formulas are torchvision v2's ``MixUp`` and ``CutMix``; the numbers are a pure function of seed, epoch and batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pixprep.engine.batch import Batch
from pixprep.errors import DataError, PipelineError
from pixprep.names import MIX, explained
from pixprep.pipeline.pipeline import Pipeline
from pixprep.training.order import Indices, Order

Key = tuple[int, int, int, int]
"""Seed, epoch, the position after the batch, and the rank."""
_MIXES = 3
"""Last word of the Philox counter, distinct from those of ``training.order``."""


@runtime_checkable
class Mixing(Protocol):
    """A change of whole batches: ``Mix``, ``Mosaic`` or ``CopyPaste``."""

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """Refuse a pipeline and an order that it does not go with, by a PipelineError."""

    def mixed(self, batch: Batch, key: Key, pipeline: Pipeline) -> Batch:
        """The batch, changed in its place by the numbers of its key."""


@dataclass(frozen=True)
class Mix:
    """mixup and cutmix for the batches of a Loader: ``pp.Loader(..., mix=pp.Mix(1000, mixup=0.2, cutmix=1.0))``.

    Labels become class probabilities, float32 (n, classes). With both alphas, each batch gets one of the two with equal
    probability. ``batch["mix"]`` contains the kind and the random parameters for each image; ``{}`` means that the
    image
    did not change. The formulas are those of torchvision v2's ``MixUp`` and ``CutMix``.

    An image is mixed with the preceding image of the batch. If the batch contains copies of a sample, it is mixed with
    the
    last image of a different sample. If a sample fills more than half of a batch, some of its rows do not change.

    Args:
        classes: Number of classes; labels are integers below it.
        mixup: Alpha of mixup. None: no mixup.
        cutmix: Alpha of cutmix. None: no cutmix.
        p: Probability that a batch is mixed.
        image: Name of the tensor that is mixed; it must be of floats.
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
        """Refuse values that contradict each other."""
        alphas = [alpha for alpha in (self.mixup, self.cutmix) if alpha is not None]
        if not alphas or not all(isfinite(alpha) and alpha > 0 for alpha in alphas):
            raise PipelineError("Mix: set mixup, cutmix or both, each to an alpha greater than 0")
        if not isinstance(self.classes, int) or self.classes < 1 or not 0 <= self.p <= 1:
            raise PipelineError("Mix: classes must be an integer of at least 1, and p from 0 to 1")

    def check(self, pipeline: Pipeline, order: Order) -> None:
        """Refuse a pipeline whose tensor cannot be mixed, and batches that are too small.

        Raises:
            PipelineError: see above.
        """
        if self.image not in pipeline.outputs:
            raise PipelineError(
                f'Mix: the pipeline has no output "{self.image}"; its outputs are {", ".join(pipeline.outputs)}'
            )
        spec = pipeline.outputs[self.image].spec
        for name in pipeline.plan.annotations:
            raise PipelineError(f'Mix mixes only images and labels, but "{name}" would still belong to one image')
        if spec.is_open:
            raise PipelineError(f'Mix: all images must have the same size, but "{self.image}" is {spec}')
        if not spec.dtype.startswith("float") or spec.layout is None:
            raise PipelineError(f'Mix: "{self.image}" must be a floating-point image, not {spec}: add normalize')
        copies = -(-order.repeats // order.shard[1])
        if order.batch_size < 2 * copies:
            raise PipelineError(
                f"Mix: an image is mixed with that of another sample, and a batch of {order.batch_size} may have too "
                f"few others: take a batch_size of {2 * copies} at least"
            )

    def draw(self, key: Key, height: int, width: int) -> dict[str, Any]:
        """The numbers of one batch: ``{}``, ``{"mixup": share}`` or ``{"cutmix": [top, left, bottom, right]}``.

        Args:
            key: see ``Key``.
            height: of the image.
            width: of the image.
        """
        rng = generator(key, _MIXES)
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
        """The batch, its tensor changed in its place by the numbers of ``draw``.

        Raises:
            DataError: A label is outside the range of the classes.
        """
        images = pipeline.outputs[self.image].spec.planes(batch.outputs[self.image])
        height, width = images.shape[-2:]
        words = self.draw(key, height, width)
        labels = np.asarray(batch.fields.get(self.label))
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or not ((labels >= 0) & (labels < self.classes)).all():
            raise DataError(f'Mix: "{self.label}" of each sample must be an integer from 0 to {self.classes - 1}')
        soft = np.zeros((len(labels), self.classes), np.float32)
        soft[np.arange(len(labels)), labels] = 1
        share = 1.0
        window: tuple[Any, ...] = ()
        if "mixup" in words:
            share = words["mixup"]
        elif "cutmix" in words:
            top, left, bottom, right = words["cutmix"]
            share = 1.0 - (bottom - top) * (right - left) / (height * width)
            window = ..., slice(top, bottom), slice(left, right)
        indices = batch.fields["index"]
        others = partners(indices)
        is_mixed = (indices[others] != indices) & bool(words)
        if words:
            _mix(images, others, is_mixed, share, window)
            soft[is_mixed] = (soft[others] * np.float32(1.0 - share) + soft * np.float32(share))[is_mixed]
        fields = {**batch.fields, self.label: soft, "mix": [dict(words) if each else {} for each in is_mixed]}
        batch.fields = MappingProxyType(fields)
        return batch


def generator(key: Key, word: int) -> np.random.Generator:
    """Return random numbers of one batch; ``word`` selects one of its independent streams."""
    seed, epoch, end, rank = key
    counter, pair = np.array([0, rank, end, word], np.uint64), np.array([seed, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=pair))


def partners(indices: Indices) -> Indices:
    """The row that each row of a batch is mixed with: int64 (n,) of the samples' indices.

    The rows of a sample are put beside each other, and each takes the row that is as many before it as the most
    frequent sample has. So none meets its own sample, unless that has more than half of the rows. If all samples
    differ, it is the row before, as in torchvision.
    """
    _, first, sample, counts = np.unique(indices, return_index=True, return_inverse=True, return_counts=True)
    rows = np.argsort(first[sample], kind="stable")
    found = np.empty_like(rows)
    found[rows] = np.roll(rows, counts.max())
    return found


def _mix(images: Any, others: Indices, is_mixed: npt.NDArray[np.bool_], share: float, window: tuple[Any, ...]) -> None:
    """Mix images in their place, each with its other one before that is mixed, and while it is in the cache."""
    done: set[int] = set()
    for first in reversed(range(len(images))):
        if first in done:
            continue
        row, kept = first, images[first].copy("K")
        while row not in done:
            done.add(row)
            next_row = int(others[row])
            other = kept if next_row == first else images[next_row]
            if is_mixed[row] and window:
                images[row][window] = other[window]
            elif is_mixed[row]:
                images[row] *= share
                images[row] += other * images.dtype.type(1.0 - share)
            row = next_row


Mix.__init__ = explained(MIX, "give them by name")(Mix.__init__)  # type: ignore[method-assign]
