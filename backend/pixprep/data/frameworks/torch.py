"""PyTorch: tensors that share the batch's memory, and an IterableDataset for what wants one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset

from pixprep.data.frameworks import Batches, mapped


def converted(value: Any, device: Any = None) -> Any:
    """Tensors over the same memory, or on another device."""
    return mapped(value, lambda array: _tensor(array, device))


def _tensor(array: Any, device: Any) -> Any:
    tensor = torch.from_dlpack(array)
    return tensor if device is None else tensor.to(device)


class Dataset(IterableDataset):  # type: ignore[misc]
    """The batches of a Loader: one epoch for each ``iter``. See ``Loader.torch``."""

    def __init__(self, loader: Batches, names: Sequence[str], device: Any) -> None:
        self._loader = loader
        self._names = names
        self._device = device

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        epoch = iter(self._loader)
        return map(self._handed_over, epoch)

    def state_dict(self) -> dict[str, Any]:
        """See ``Loader.state_dict``."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Loader.load_state_dict``."""
        self._loader.load_state_dict(state)

    def _handed_over(self, batch: Any) -> Any:
        return batch.torch(*self._names, device=self._device)
