"""Keras, on whatever it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from pixprep.engine.batch import Batch
from pixprep.training.frameworks import Batches, checked_names, chosen, value


class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a Loader in its own order, whichever Keras asks for: ``fit`` would shuffle them again.

    Before an epoch Keras looks at two batches; they come again in the epoch.
    """

    def __init__(self, loader: Batches, names: Sequence[str]) -> None:
        super().__init__()  # one worker: the Loader has its own threads
        self._loader = loader
        self._names = checked_names(loader, names)
        self._epoch: Iterator[Batch] | None = None
        self._is_begun = False
        self._looked_at: list[Batch] = []

    def __len__(self) -> int:
        return len(self._loader)

    def __getitem__(self, index: int) -> Any:
        """The next batch; after the last of an epoch comes the first of the next."""
        del index
        batch = self._looked_at.pop(0) if self._is_begun and self._looked_at else self._next()
        if not self._is_begun:
            self._looked_at.append(batch)
        return chosen(self._names, (*batch.outputs, *batch.fields), lambda name: value(batch, name, is_padded=True))

    def _next(self) -> Batch:
        batch = next(self._epoch, None) if self._epoch is not None else None
        if batch is None:
            self._epoch = iter(self._loader)
            batch = next(self._epoch)
        return batch

    def on_epoch_begin(self) -> None:
        """See Keras."""
        self._is_begun = True

    def on_epoch_end(self) -> None:
        """End an epoch: free its memory. Keras also calls this before the first epoch."""
        if self._is_begun:
            self._epoch = None
        self._is_begun = False
