"""Concatenations and subsets of sources, and functions that validate sources and read their labels and sizes."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders.pillow import size_of
from pixprep.errors import DataError, PipelineError
from pixprep.training.sources import AnySource, Sample, Source, storage
from pixprep.training.sources.types import NO_LABEL

log = logging.getLogger(__name__)

_READERS = 32
"""Number of threads that read image headers."""


class Concat(Source):
    """The concatenated samples of several sources; see ``Source``. Returned by ``concat``.

    Attributes:
        sources: The sources, in order.
    """

    def __init__(self, sources: Sequence[AnySource]) -> None:
        self.sources = tuple(sources)
        self.classes = _same([tuple(getattr(each, "classes", ())) for each in sources], "classes")
        self.holds = _same([getattr(each, "holds", "images") for each in sources], "kinds")
        self.is_in_order = any(getattr(each, "is_in_order", False) for each in sources)
        self.notes = tuple(note for each in sources for note in getattr(each, "notes", ()))
        self._ends = list(accumulate(map(len, sources)))

    @property
    def fingerprint(self) -> str:
        """Hash of the fingerprints of the sources."""
        return storage.fingerprint("concat", *map(fingerprint, self.sources))

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """Label of each sample, or None unless the labels of all sources are available without reading the samples."""
        found = [labels for each in self.sources if (labels := labels_of(each)) is not None]
        return np.concatenate(found) if len(found) == len(self.sources) else None

    @property
    def sizes(self) -> npt.NDArray[Any]:
        """(height, width) of each image, int (n, 2). Zeros for images whose size the source does not provide."""
        return np.concatenate([_known_sizes(each) for each in self.sources])

    def __len__(self) -> int:
        return self._ends[-1]

    def _sample(self, index: int) -> Sample:
        number = bisect_right(self._ends, index)
        return self.sources[number][index - (self._ends[number - 1] if number else 0)]  # type: ignore[return-value]


class Subset(Source):
    """Selected samples of a source; see ``Source``. Returned by ``subset``."""

    def __init__(self, source: AnySource, indices: npt.NDArray[np.int64]) -> None:
        self.classes = getattr(source, "classes", ())
        self.holds = getattr(source, "holds", "images")
        self.is_in_order = getattr(source, "is_in_order", False)
        self._source, self._indices = source, indices

    @property
    def fingerprint(self) -> str:
        """Hash of the fingerprint of the source and of the indices."""
        return storage.fingerprint("subset", fingerprint(self._source), self._indices)

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """Label of each sample, or None if the source does not provide labels without reading the samples."""
        labels = labels_of(self._source)
        return None if labels is None else labels[self._indices]

    @property
    def sizes(self) -> npt.NDArray[Any]:
        """(height, width) of each image, int (n, 2). Zeros for images whose size the source does not provide."""
        return _known_sizes(self._source)[self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def _sample(self, index: int) -> Sample:
        return self._source[int(self._indices[index])]  # type: ignore[return-value]


def concat(*sources: AnySource) -> Concat:
    """Concatenate sources. ``Loader(concat(a, b), shares=(0.7, 0.3))`` samples a fixed fraction from each source.

    >>> train = concat(files("photos/"), tar("web-*.tar"))                      # doctest: +SKIP

    Args:
        *sources: One or more sources of any kind, or lists of dicts.

    Raises:
        DataError: There are no sources, a source is empty, or the sources have different classes.
    """
    if not sources or not all(map(len, sources)):
        raise DataError("concat requires at least one source, and no source may be empty")
    return Concat(sources)


def subset(source: AnySource, indices: npt.ArrayLike | slice) -> Subset:
    """Select samples of a source.

    >>> few = subset(files("train/"), slice(0, 1000))                            # doctest: +SKIP

    Args:
        source: A source of any kind, or a list of dicts.
        indices: Indices of the samples, a slice, or a boolean mask with one value per sample.

    Raises:
        DataError: The selection is empty, or an index is out of range.
    """
    count = len(source)
    try:
        which = np.arange(count)[indices] if isinstance(indices, slice) else np.asarray(indices)
        chosen = np.arange(count)[which if which.size else slice(0)]
    except IndexError as error:
        raise DataError(f"subset: the indices do not match the source of {count:,} samples: {error}") from None
    if chosen.ndim != 1 or len(chosen) == 0:
        raise DataError("subset: the indices must be one-dimensional and select at least one sample")
    return Subset(source, chosen)


def _same(found: Sequence[Any], what: str) -> Any:
    """Return the value that all sources have in common. Sources without a value are ignored.

    Raises:
        DataError: The values differ.
    """
    values = list(dict.fromkeys(each for each in found if each))
    if len(values) > 1:
        text = " and ".join(", ".join(each[:3]) if isinstance(each, tuple) else str(each) for each in values[:2])
        raise DataError(f"concat: the sources must have the same {what}, not {text}")
    return values[0] if values else ()


def fingerprint(source: AnySource) -> str:
    """Return the fingerprint of a source.

    For a list, it is a hash of the names and sizes of the images; for other objects without a fingerprint, only the
    number of samples.
    """
    if isinstance(found := getattr(source, "fingerprint", None), str):
        return found
    if not isinstance(source, list | tuple):
        return f"{len(source)} samples"
    digest = sha256()
    for sample in source:
        image = sample.get("image") if isinstance(sample, Mapping) else None
        name = sample.get("name") if isinstance(sample, Mapping) else None
        digest.update(f"{name} {image if isinstance(image, Path) else _size(image)}\n".encode())
    return digest.hexdigest()[:32]


def _size(image: Any) -> object:
    """Return the size of encoded bytes, or the shape of an array. None for other objects, which the Loader rejects."""
    return getattr(image, "shape", None) or (len(image) if hasattr(image, "__len__") else getattr(image, "size", None))


def labels_of(source: AnySource) -> npt.NDArray[Any] | None:
    """Return the integer label of each sample, or None if labels are not available without reading the samples."""
    found = getattr(source, "labels", None)
    if isinstance(source, list | tuple):
        found = [sample.get("label") for sample in source]
    try:
        labels = np.asarray(found)
    except ValueError:  # lists of different lengths
        return None
    return labels if labels.dtype.kind in "iub" and labels.ndim == 1 else None


def weights_of(source: AnySource, weights: npt.ArrayLike | str | None) -> npt.NDArray[np.float64] | None:
    """Return the sampling weights of a source, float64 (n,).

    Args:
        source: Source of the samples.
        weights: Given weights, or ``"balanced"`` for weights that make all classes equally likely. None returns None.

    Raises:
        DataError: The weights are "balanced", but the labels are not available without reading the samples.
        PipelineError: The weights are not numbers.
    """
    if weights is None:
        return None
    if not isinstance(weights, str):
        try:
            return np.array(weights, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise PipelineError('weights must be "balanced" or one number per sample') from None
    if weights != "balanced":
        raise PipelineError(f'weights must be "balanced" or one number per sample, not {weights!r}')
    labels = labels_of(source)
    if labels is None:
        raise DataError(
            f'weights="balanced" requires integer labels that are known before samples are read, which this '
            f"{type(source).__name__} does not provide: pass one number per sample as weights"
        )
    _, kinds, counts = np.unique(labels, return_inverse=True, return_counts=True)
    is_one = labels >= 0 if getattr(source, "classes", ()) else labels != NO_LABEL
    return np.where(is_one, 1 / counts[kinds.reshape(-1)], 0.0)


_ROWS: tuple[tuple[Any, str], ...] = (
    ((str, Path), "pixprep.read.files(paths, labels=labels) reads paths"),
    (bytes, 'use [{"image": each} for each in files]'),
    (tuple, "pixprep.read.rows(rows, image=0, label=1) accepts tuples"),
)
"""Types of list elements that are not samples, and a hint for each."""


def check_source(source: object) -> None:
    """Reject a source that cannot be indexed by sample number.

    Raises:
        DataError: The object is a path or a single image, lacks ``len()`` or indexing, or has no samples.
    """
    if isinstance(source, str | bytes | Path):
        raise DataError(f"source must not be a path or a single image: use pixprep.read.files to read {source!r}")
    kind = type(source).__name__
    if isinstance(source, Mapping):
        raise DataError(
            f'source: a {kind} cannot be indexed by sample number: use pixprep.read.rows(columns, label="label")'
        )
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        hint = "use pixprep.read.iterable to read it in sequence" if hasattr(source, "__iter__") else "see pixprep.read"
        raise DataError(f"source: the type {kind} does not support len() and indexing: {hint}")
    if hasattr(source, "samples") and hasattr(source, "root") and hasattr(source, "loader"):  # as in torchvision
        raise DataError(
            f"source: a {kind} decodes its images itself: use "
            f"pixprep.read.files({str(source.root)!r}), which has the same classes"
        )
    if len(source) == 0:
        raise DataError("the source has no samples")
    if isinstance(source, list | tuple):
        first = next(iter(source))
        for known, hint in _ROWS:
            if isinstance(first, known):
                raise DataError(f'source: samples must be dicts with an "image", not {type(first).__name__}: {hint}')


def groups_of(
    source: AnySource, group_by: npt.ArrayLike | str | None, *, is_upright: bool
) -> npt.NDArray[np.int64] | None:
    """Return the group of each sample, int64 (n,), for the argument ``group_by`` of the Loader.

    With ``"aspect"``, the group is 1 for images that are at least as wide as high, and 0 for all others. Sizes that the
    source does not provide are read from the image headers, in many threads. Images whose header cannot be read belong
    to group 0, and a warning is logged.

    Args:
        source: Source of images.
        group_by: See ``Loader``. None returns None.
        is_upright: Whether the EXIF orientation is applied to sizes that are read from headers.

    Raises:
        PipelineError: ``group_by`` is invalid.
    """
    if group_by is None:
        return None
    if not isinstance(group_by, str):
        groups = np.asarray(group_by)
        if groups.dtype.kind not in "bui" or groups.ndim != 1:
            raise PipelineError('group_by must be "aspect" or one integer per sample')
        return groups.astype(np.int64)
    if group_by != "aspect" or getattr(source, "holds", "images") != "images":
        raise PipelineError(f'group_by must be "aspect" (for images) or one integer per sample, not {group_by!r}')
    sizes = _known_sizes(source).astype(np.int64)
    unknown = np.flatnonzero(~sizes.all(axis=1))
    if len(unknown):
        with ThreadPoolExecutor(_READERS, "pixprep-sizes") as pool:
            read = pool.map(lambda index: _header_size(source, index, is_upright=is_upright), unknown.tolist())
            sizes[unknown] = list(read)
        if count := np.count_nonzero(~sizes.all(axis=1)):
            log.warning(
                "group_by: the sizes of %s images cannot be read: they are put into group 0, with the tall images",
                f"{count:,}",
            )
    return (sizes[:, 1] >= np.maximum(sizes[:, 0], 1)).astype(np.int64)


def _known_sizes(source: AnySource) -> npt.NDArray[Any]:
    """Return the (height, width) of each image, int (n, 2). Zeros for sizes that the source does not provide."""
    found = getattr(source, "sizes", None)
    is_known = isinstance(found, np.ndarray) and found.shape == (len(source), 2)
    return found if is_known else np.zeros((len(source), 2), np.int32)  # type: ignore[return-value]


def _header_size(source: AnySource, index: int, *, is_upright: bool) -> tuple[int, int]:
    """Return the (height, width) of an image. Zeros if it is broken."""
    try:
        sample = source[index]
        image = sample["image"]
        size = np.asarray(sample.get("size", ()))
        shape: tuple[int, ...] = getattr(image, "shape", ())
        if size.shape == (2,) and size.dtype.kind in "iu":
            return int(size[0]), int(size[1])
        if len(shape) > 1:
            return int(shape[0]), int(shape[1])
        return size_of(image, is_upright=is_upright)
    except DataError:
        raise
    except Exception:  # noqa: BLE001  (the epoch will report the error)
        return 0, 0
