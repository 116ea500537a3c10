"""Keras's preprocessing as in ``image_dataset_from_directory``: ``tf.image`` ops, compiled into one function."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from families import Run, alone, of

PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "numpy")


def preprocessed() -> Run:
    """Return ``run`` for ResNet50 with images of 224 x 224."""

    @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
    def one(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.image.resize(tf.io.decode_jpeg(encoded, channels=3), (224, 224))
        return keras.applications.resnet50.preprocess_input(image)

    return alone(lambda encoded: np.asarray(one(encoded)))


def prepare(row: str, threads: int) -> Run:
    """See ``families``."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return of({"keras": preprocessed}, row, threads)
