"""Keras, on whatever it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from pixprep.data.frameworks import Batches, chosen
from pixprep.engine import Batch


class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a Loader, in its order, whatever Keras asks for: ``fit`` would shuffle batches again."""

    def __init__(self, loader: Batches, names: Sequence[str]) -> None:
        super().__init__()  # one worker: the Loader has its own threads
        self._loader = loader
        self._names = names
        self._epoch: Iterator[Batch] | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __getitem__(self, index: int) -> Any:
        """The next batch; after the last of an epoch comes the first of the next."""
        del index
        if self._epoch is None:
            self._epoch = iter(self._loader)
        batch = next(self._epoch, None)
        if batch is None:
            self._epoch = iter(self._loader)
            batch = next(self._epoch)
        return chosen(self._names, (*batch.outputs, *batch.fields), lambda name: batch[name])

    def on_epoch_end(self) -> None:
        """Give the memory of an epoch back."""
        self._epoch = None
