"""tf.data with TensorFlow's fused decode and crop, and an antialiased resize like that of the other contenders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from loaders import AREA, ASPECT, BATCH, MEAN, SIDE, STD

PACKAGES = ("tensorflow-cpu", "tensorflow")
WORKERS = ()


def endless(folder: Path, threads: int, *, antialias: bool) -> Iterator[tuple[Any, Any]]:
    """Yield batches of images and labels."""
    paths = sorted(map(str, (folder / "files").glob("*/*.jpg")))
    classes = sorted({Path(path).parent.name for path in paths})
    labels = [classes.index(Path(path).parent.name) for path in paths]

    def sample(path: Any, label: Any) -> tuple[Any, Any]:
        pixels, _ = cropped(tf.io.read_file(path))
        image = tf.image.random_flip_left_right(tf.image.resize(pixels, (SIDE, SIDE), antialias=antialias))
        return normalized(image), label

    return batches((paths, labels), sample, threads)


def cropped(encoded: Any) -> tuple[Any, tuple[Any, Any, Any, Any]]:
    """Decode a random window of a JPEG. Return its pixels and the window (top, left, height, width)."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(encoded),
        tf.zeros((1, 0, 4)),
        area_range=AREA,
        aspect_ratio_range=ASPECT,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    pixels = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
    return pixels, (window[0], window[1], window[2], window[3])


def normalized(image: Any) -> Any:
    """Normalize pixel values with mean and std."""
    return (image / 255.0 - tf.constant(MEAN)) / tf.constant(STD)


def batches(columns: tuple[list[Any], list[Any]], sample: Callable[[Any, Any], Any], threads: int) -> Iterator[Any]:
    """Return endless batches of a data set that is built as in TensorFlow's performance guide.

    Args:
        columns: Two values per photo, such as its path and its label.
        sample: Function that returns an image and its target.
        threads: Number of threads.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    data = tf.data.Dataset.from_tensor_slices(columns).shuffle(len(columns[0])).repeat()
    data = data.map(sample, num_parallel_calls=threads).batch(BATCH, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return iter(data.with_options(options).as_numpy_iterator())


def prepare(folder: Path, threads: int, workers: int) -> Iterator[tuple[Any, Any]]:
    """See ``loaders``."""
    del workers
    return endless(folder, threads, antialias=True)
