"""Tests the Loader with JAX."""

import gc

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="NO JAX: make training")
import jax.numpy as jnp  # noqa: E402


def test_arrays_share_the_memory_of_the_batch(loader):
    for batch in loader:
        images, labels, padding = batch.jax("tensor", "label", "is_padding")
        assert (images.dtype, images.shape, labels.dtype, padding.dtype) == (
            jnp.float32,
            (8, 3, 24, 24),
            jnp.int32,
            bool,
        )
        assert images.unsafe_buffer_pointer() == batch["tensor"].ctypes.data
        assert np.array_equal(labels, batch["label"])
        (device,) = batch.jax("tensor", device=jax.devices()[0]).devices()
        assert device == jax.devices()[0]
        images, labels = batch.jax("tensor", "label", dtype="bfloat16")
        assert (images.dtype, labels.dtype) == (jnp.bfloat16, jnp.int32)
        assert np.array_equal(images, jnp.asarray(batch["tensor"]).astype(jnp.bfloat16))


def test_a_kept_array_is_not_overwritten(loader, again):
    kept = [batch.jax("tensor") for batch in loader]
    gc.collect()
    for images, batch in zip(kept, again, strict=True):
        assert np.array_equal(images, batch["tensor"])


def test_a_classifier_learns_from_the_batches(learnable):
    weights = jnp.zeros((3 * 24 * 24, 3))

    @jax.jit
    def loss(weights, images, labels):
        logits = images.reshape(len(images), -1) @ weights
        return -jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels].mean()

    losses = []
    for _ in range(6):
        for batch in learnable:
            value, gradient = jax.value_and_grad(loss)(weights, *batch.jax("tensor", "label"))
            weights -= 1e-3 * gradient
            losses.append(float(value))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2


def test_boxes_are_one_array_per_image(detection):
    for batch in detection:
        boxes = batch.jax("boxes")
        assert [each.shape for each in boxes] == [(0, 4), (1, 4), (2, 4), (3, 4)]
