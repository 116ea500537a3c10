"""Sources made of sources: some samples of one, or several, one behind the other. What a Loader asks of any source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pixprep.data.sources import AnySource, Sample, Source, storage
from pixprep.errors import DataError, PipelineError


class Concat(Source):
    """The samples of several sources, one behind the other; see ``Source``. Made by ``concat``.

    Attributes:
        sources: as given.
    """

    def __init__(self, sources: Sequence[AnySource]) -> None:
        self.sources = tuple(sources)
        self.classes = _same([tuple(getattr(each, "classes", ())) for each in sources], "classes")
        self.holds = _same([getattr(each, "holds", "images") for each in sources], "kinds")
        self.notes = tuple(note for each in sources for note in getattr(each, "notes", ()))
        self._ends = list(accumulate(map(len, sources)))

    @property
    def fingerprint(self) -> str:
        """Hash of the sources' fingerprints."""
        return storage.fingerprint("concat", *map(fingerprint, self.sources))

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """Each sample's label, where all sources know theirs."""
        found = [labels for each in self.sources if (labels := labels_of(each)) is not None]
        return np.concatenate(found) if len(found) == len(self.sources) else None

    def __len__(self) -> int:
        return self._ends[-1]

    def _sample(self, index: int) -> Sample:
        number = bisect_right(self._ends, index)
        return self.sources[number][index - (self._ends[number - 1] if number else 0)]  # type: ignore[return-value]


class Subset(Source):
    """Some samples of a source; see ``Source``. Made by ``subset``."""

    def __init__(self, source: AnySource, indices: npt.NDArray[np.int64]) -> None:
        self.classes = getattr(source, "classes", ())
        self.holds = getattr(source, "holds", "images")
        self._source, self._indices = source, indices

    @property
    def fingerprint(self) -> str:
        """Hash of the source's fingerprint and the indices."""
        return storage.fingerprint("subset", fingerprint(self._source), self._indices)

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """Each sample's label, where the source knows it."""
        labels = labels_of(self._source)
        return None if labels is None else labels[self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def _sample(self, index: int) -> Sample:
        return self._source[int(self._indices[index])]  # type: ignore[return-value]


def concat(*sources: AnySource) -> Concat:
    """Put sources one behind the other. ``Loader(concat(a, b), shares=(0.7, 0.3))`` mixes them.

    >>> train = concat(files("photos/"), tar("web-*.tar"))                      # doctest: +SKIP

    Args:
        *sources: of any kind, and lists of dicts.

    Raises:
        DataError: there is none, one is empty, or their labels mean different classes.
    """
    if not sources or not all(map(len, sources)):
        raise DataError("concat needs sources, and each needs a sample")
    return Concat(sources)


def subset(source: AnySource, indices: npt.ArrayLike | slice) -> Subset:
    """Take some samples of a source.

    >>> few = subset(files("train/"), slice(0, 1000))                            # doctest: +SKIP

    Args:
        source: of any kind, or a list of dicts.
        indices: whole numbers, a slice, or a bool for each sample.

    Raises:
        DataError: there are none, or one is none of the source's.
    """
    count = len(source)
    try:
        which = np.arange(count)[indices] if isinstance(indices, slice) else np.asarray(indices)
        chosen = np.arange(count)[which if which.size else slice(0)]
    except IndexError as error:
        raise DataError(f"the subset of {count:,} samples: {error}") from None
    if chosen.ndim != 1 or len(chosen) == 0:
        raise DataError(f"the subset of {count:,} samples is empty, or no row of indices")
    return Subset(source, chosen)


def _same(found: Sequence[Any], what: str) -> Any:
    """Values of the sources that have one."""
    said = list(dict.fromkeys(each for each in found if each))
    if len(said) > 1:
        text = " and ".join(", ".join(each[:3]) if isinstance(each, tuple) else str(each) for each in said[:2])
        raise DataError(f"concat: the sources have different {what}: {text}: give them the same")
    return said[0] if said else ()


def fingerprint(source: AnySource) -> str:
    """Fingerprint of a source: its own, or else the names and sizes of a list, or a count alone."""
    if isinstance(found := getattr(source, "fingerprint", None), str):
        return found
    if not isinstance(source, list | tuple):
        return f"{len(source)} samples"
    digest = sha256()
    for sample in source:
        image = sample["image"]
        digest.update(f"{sample.get('name')} {image if isinstance(image, Path) else _size(image)}\n".encode())
    return digest.hexdigest()[:32]


def _size(image: Any) -> object:
    """Size of encoded bytes, or the shape of an array."""
    return getattr(image, "shape", None) or (len(image) if hasattr(image, "__len__") else image.size)


def labels_of(source: AnySource) -> npt.NDArray[Any] | None:
    """Each sample's label, where that is known before the samples are read."""
    if isinstance(source, list | tuple):
        labels = np.array([sample.get("label") for sample in source])
        return labels if labels.dtype.kind in "iub" else None
    return getattr(source, "labels", None)


def weights_of(source: AnySource, weights: npt.ArrayLike | str | None) -> npt.NDArray[np.float64] | None:
    """The weights of a source's samples: as given, or of equally likely classes.

    Raises:
        DataError: the labels are not known.
        PipelineError: these are no numbers.
    """
    if weights is None:
        return None
    if not isinstance(weights, str):
        try:
            return np.array(weights, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise PipelineError('weights are "balanced", or a number for each sample') from None
    if weights != "balanced":
        raise PipelineError(f'weights are "balanced", or a number for each sample, not {weights!r}')
    labels = labels_of(source)
    if labels is None:
        raise DataError(
            f'weights="balanced" needs every label before a sample is read, which a {type(source).__name__} has not: '
            "give weights, a number for each sample"
        )
    _, kinds, counts = np.unique(labels, return_inverse=True, return_counts=True)
    is_one = (labels >= 0) | (not getattr(source, "classes", ()))  # else its label is none of the classes
    return np.where(is_one, 1 / counts[kinds.reshape(-1)], 0.0)
