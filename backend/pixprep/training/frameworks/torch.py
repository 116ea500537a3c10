"""Converts batches to PyTorch tensors that share their memory, and a Loader to an ``IterableDataset``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils.data import IterableDataset

from pixprep.errors import PipelineError
from pixprep.training.frameworks import Batches, checked_names, mapped
from pixprep.training.recycling import COPIES, Memory


def converted(value: Any, *, device: Any = None, non_blocking: bool = False, dtype: Any = None) -> Any:
    """Return tensors that share the memory of the arrays, or copies on ``device``; see ``Batch.torch``."""
    where = None if device is None else torch.device(device)
    wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(wanted, torch.dtype) and wanted.is_floating_point):
        raise PipelineError(f'dtype must be a floating-point dtype of PyTorch, such as "bfloat16", not {dtype!r}')

    def tensor(array: Any) -> Any:
        found = torch.from_dlpack(array)
        if where is not None:
            is_copied = non_blocking and where.type == "cuda" and found.device.type == "cpu"
            found = _sent(found, where) if is_copied else found.to(where)
        return found if wanted is None or not found.is_floating_point() else found.to(wanted)

    return mapped(value, tensor)


def _sent(tensor: Any, device: Any) -> Any:
    """Copy a tensor to a GPU asynchronously, on a separate stream.

    The copy runs concurrently with the kernels of the current stream, which waits for it before it reads the tensor.
    """
    reader, stream = torch.cuda.current_stream(device), _stream(device, torch.cuda.current_device())
    source = tensor if tensor.is_pinned() else tensor.pin_memory()
    COPIES.allocate = _pinned  # only now, because ``pin_memory`` raises an error if memory cannot be pinned
    with torch.cuda.stream(stream):
        copy = source.to(device, non_blocking=True)
        event = stream.record_event()
    COPIES.hold(source, event.query)
    reader.wait_event(event)
    copy.record_stream(reader)  # otherwise PyTorch could reuse its memory for the next copy while it is being read
    return copy


@cache
def _stream(device: Any, current: int) -> Any:
    """Return the stream for copies to a GPU.

    Args:
        device: PyTorch device. If it has no index, the current GPU is meant.
        current: Index of the current GPU. It is part of the cache key.
    """
    return torch.cuda.Stream(device if device.index is not None else current)


def _pinned(n_bytes: int) -> Memory:
    memory: Memory = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


class Dataset(IterableDataset):  # type: ignore[misc]
    """The batches of a Loader as an ``IterableDataset``; see ``Loader.torch``. Each iteration is one epoch."""

    def __init__(self, loader: Batches, names: Sequence[str], **options: Any) -> None:
        self._loader = loader
        self._names = checked_names(loader, names)
        self._options = options

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        epoch = iter(self._loader)
        return map(self._handed_over, epoch)

    def set_epoch(self, epoch: int) -> None:
        """See ``Loader.set_epoch``. accelerate, and thereby the Trainer of Hugging Face, calls it before each epoch."""
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See ``Loader.state_dict``."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Loader.load_state_dict``."""
        self._loader.load_state_dict(state)

    def _handed_over(self, batch: Any) -> Any:
        return batch.torch(*self._names, **self._options)
