"""A Keras ``PyDataset`` over the batches of a Loader, for all backends of Keras."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from pixprep.engine.batch import Batch
from pixprep.training.frameworks import Batches, checked_names, chosen, value


class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a Loader, in the Loader's order.

    The index that Keras passes is ignored, because ``fit`` would shuffle the batches again. Before training starts,
    Keras requests two batches to inspect them. These are returned again in the epoch.
    """

    def __init__(self, loader: Batches, names: Sequence[str]) -> None:
        super().__init__()  # one worker by default, because the Loader has its own threads
        self._loader = loader
        self._names = checked_names(loader, names)
        self._epoch: Iterator[Batch] | None = None
        self._has_started = False
        self._inspected: list[Batch] = []

    def __len__(self) -> int:
        return len(self._loader)

    def __getitem__(self, index: int) -> Any:
        """Return the next batch. The last batch of an epoch is followed by the first of the next epoch."""
        del index
        batch = self._inspected.pop(0) if self._has_started and self._inspected else self._next()
        if not self._has_started:
            self._inspected.append(batch)
        return chosen(self._names, (*batch.outputs, *batch.fields), lambda name: value(batch, name, is_padded=True))

    def _next(self) -> Batch:
        batch = next(self._epoch, None) if self._epoch is not None else None
        if batch is None:
            self._epoch = iter(self._loader)
            batch = next(self._epoch)
        return batch

    def on_epoch_begin(self) -> None:
        """Start the epoch, which returns the batches that Keras has inspected once more."""
        self._has_started = True

    def on_epoch_end(self) -> None:
        """End the epoch, and free its memory. Keras also calls this before the first epoch."""
        if self._has_started:
            self._epoch = None
        self._has_started = False
