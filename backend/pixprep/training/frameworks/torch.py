"""PyTorch: tensors that share the batch's memory, and an IterableDataset for what wants one."""

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
    """Tensors over the same memory, or on another device; see ``Batch.torch``."""
    where = None if device is None else torch.device(device)
    wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(wanted, torch.dtype) and wanted.is_floating_point):
        raise PipelineError(f'dtype is one of PyTorch\'s floats, such as "bfloat16", not {dtype!r}')

    def tensor(array: Any) -> Any:
        found = torch.from_dlpack(array)
        if where is not None:
            is_copied = non_blocking and where.type == "cuda" and found.device.type == "cpu"
            found = _sent(found, where) if is_copied else found.to(where)
        return found if wanted is None or not found.is_floating_point() else found.to(wanted)

    return mapped(value, tensor)


def _sent(tensor: Any, device: Any) -> Any:
    """Return a tensor on a GPU, copied on a separate stream in parallel to the kernels of the stream that reads it."""
    reader, stream = torch.cuda.current_stream(device), _stream(device, torch.cuda.current_device())
    source = tensor if tensor.is_pinned() else tensor.pin_memory()
    COPIES.allocate = _pinned  # not before: where nothing can be pinned, this has raised
    with torch.cuda.stream(stream):
        copy = source.to(device, non_blocking=True)
        event = stream.record_event()
    COPIES.hold(source, event.query)
    reader.wait_event(event)
    copy.record_stream(reader)  # or PyTorch would give its memory to the next copy while it is read
    return copy


@cache
def _stream(device: Any, current: int) -> Any:
    """The stream of copies to a GPU, for ``cuda`` the current one."""
    return torch.cuda.Stream(device if device.index is not None else current)


def _pinned(n_bytes: int) -> Memory:
    memory: Memory = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


class Dataset(IterableDataset):  # type: ignore[misc]
    """The batches of a Loader: one epoch for each ``iter``. See ``Loader.torch``."""

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
        """See ``Loader.set_epoch``: accelerate calls it before each epoch, and Hugging Face's Trainer by it."""
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See ``Loader.state_dict``."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Loader.load_state_dict``."""
        self._loader.load_state_dict(state)

    def _handed_over(self, batch: Any) -> Any:
        return batch.torch(*self._names, **self._options)
