"""Converts batches to TensorFlow tensors that share their memory, and a Loader to a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pixprep.bfloat16 import Exported
from pixprep.engine.batch import Batch
from pixprep.errors import DataError
from pixprep.training.frameworks import Batches, checked_names, chosen, is_array, mapped, value
from pixprep.training.recycling import ALIGNMENT


def converted(value: Any, *, dtype: Any = None) -> Any:
    """Return tensors, which share the memory of the arrays if possible. Lists of str or bytes become string tensors."""
    if isinstance(value, list) and value and all(isinstance(each, str | bytes) for each in value):
        return tf.constant(value)
    return mapped(value, lambda array: _cast(_tensor(array), dtype))


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None or not tensor.dtype.is_floating else tf.cast(tensor, dtype)


def _tensor(array: Any) -> Any:
    """Return a tensor that shares the memory of an array if it is aligned, and a copy otherwise.

    TensorFlow 2.21 aborts the process when it reads shared memory that is not aligned to 64 bytes.
    """
    if isinstance(array, Exported):
        return tf.bitcast(_tensor(array.array), tf.bfloat16)
    if isinstance(array, np.ndarray) and (array.ctypes.data % ALIGNMENT or not array.flags.c_contiguous):
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def dataset(loader: Batches, names: Sequence[str], *, is_counted: bool, is_padded: bool = False) -> Any:
    """Return the batches of a Loader as a dataset; see ``Loader.tf``.

    The batch dimension of the element spec is None, because with a known batch size, Keras adds an extra batch to its
    metrics, with all predictions wrong. The rest of a resumed epoch has unknown cardinality, because TensorFlow raises
    an error if there are fewer batches than asserted.

    Args:
        loader: Loader of the batches.
        names: Names of outputs and fields. Empty: all that can be represented as tensors.
        is_counted: Whether the number of batches per epoch is known in advance.
        is_padded: Whether a list of arrays is padded and stacked into one tensor, instead of a ``tf.RaggedTensor``.

    Raises:
        DataError: A field cannot be represented as a tensor.
    """
    example = loader.example()
    names = checked_names(loader, names)
    wanted = names or [
        name for name in (*example.outputs, *example.fields) if _is_tensor(value(example, name, is_padded=is_padded))
    ]

    is_counted = is_counted and loader.state_dict()["position"] == 0

    def batches() -> Iterator[Any]:
        epoch = iter(loader)
        left = loader.order.batches(loader.state_dict()["position"])
        if is_counted and left != len(loader):
            raise DataError(
                f"this epoch has only {left} of {len(loader)} batches left: call tf() after load_state_dict, not before"
            )
        return map(values, epoch)

    def values(batch: Batch) -> Any:
        return chosen(names, wanted, lambda name: _value(value(batch, name, is_padded=is_padded)))

    made = tf.data.Dataset.from_generator(
        batches, output_signature=chosen(names, wanted, lambda name: _signature(name, example, is_padded=is_padded))
    )
    return made.apply(tf.data.experimental.assert_cardinality(len(loader))) if is_counted else made


def _is_tensor(value: Any) -> bool:
    return is_array(value) or (isinstance(value, list) and (is_array(value[0]) or isinstance(value[0], str | bytes)))


def _signature(name: str, example: Batch, *, is_padded: bool) -> Any:
    """Return the spec of an output or field, inferred from a batch of one sample. The batch dimension is None."""
    one = value(example, name, is_padded=is_padded)
    if is_array(one):
        sides = one.shape[1:]
        if isinstance(example[name], list):
            open_ = (-1,) * len(sides) if example.is_mask(name) else (-1, *sides[1:])
            sides = example.plans[name].spec.shape if name in example.outputs else open_
        return tf.TensorSpec((None, *(None if side == -1 else side for side in sides)), one.dtype)
    (first,) = one
    if is_array(first):
        return tf.RaggedTensorSpec((None, None, *first.shape[1:]), first.dtype, ragged_rank=1)
    if isinstance(first, str | bytes):
        return tf.TensorSpec((None,), tf.string)
    raise DataError(
        f'the field "{name}" cannot be converted to a tensor, because it contains {type(first).__name__}: pass only '
        "the names of the fields that you need"
    )


def _value(value: Any) -> Any:
    """Convert a value for the generator of a dataset: tf.data accepts NumPy arrays and ragged tensors."""
    if isinstance(value, list) and is_array(value[0]):
        return tf.RaggedTensor.from_row_lengths(np.concatenate(value), [len(each) for each in value])
    return value if is_array(value) else np.array(value, object)
