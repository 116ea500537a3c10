"""Prometheus metrics of one model instance, which Triton exports on its metrics port."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, TypeVar

from pixprep.engine.batch import Batch
from pixprep.errors import ImageError

SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
IMAGES = [1, 2, 4, 8, 16, 32, 64, 128]
PERIOD_S = 2.0
SAMPLE = 10
"""Maximum number of images that are added to the histograms per period, and also the maximum number of batches. The
numbers are limited because each observation is a separate message to Triton. The counters include all images."""
_SHM = "/dev/shm"  # noqa: S108  (location of Triton's shared memory, not a temporary file)
_T = TypeVar("_T")


class _Record(NamedTuple):
    """Results of one batch that the metrics count.

    Attributes:
        n_bytes: Number of encoded bytes.
        fallbacks: Number of images that were decoded on the CPU although the engine runs on a GPU.
        recovered: Number of damaged JPEGs that were decoded.
        images: For each image, its error or None, its decoding time and its transform time in seconds.
    """

    n_bytes: int
    fallbacks: int
    recovered: int
    images: list[tuple[ImageError | None, float, float]]


class Metrics:
    """Counters, histograms and gauges of one model instance, updated in a background thread.

    Args:
        pb_utils: Triton's module ``triton_python_backend_utils``, or a fake in tests.
        model, version: Name and version of the model, which become labels of the metrics.
        frames: Number of frames per clip. 0: the model accepts images.

    Attributes:
        pause: Lock that prevents messages to Triton: while it is held, no metrics are sent.
    """

    def __init__(self, pb_utils: Any, *, model: str, version: str, frames: int = 0) -> None:
        self._labels = {"model": model, "version": version}
        self._families: list[Any] = []  # keeps them alive, because Triton deletes a garbage-collected family
        families = pb_utils.MetricFamily

        def family(name: str, description: str, kind: Any) -> Any:  # Triton's term for metrics with the same name
            self._families.append(families(name=name, description=description, kind=kind))
            return self._families[-1]

        def counter(name: str, description: str) -> Any:
            return family(name, description, families.COUNTER).Metric(labels=self._labels)

        def histogram(name: str, description: str, buckets: Sequence[float]) -> Any:
            return family(name, description, families.HISTOGRAM).Metric(labels=self._labels, buckets=buckets)

        self._images = family(
            "pixprep_images_total", "Number of images by result: ok, or the reason of the error", families.COUNTER
        )
        self._each = frames
        self._frames = (
            counter("pixprep_frames_total", "Number of video frames that were converted to tensors") if frames else None
        )
        self._by_result: dict[str, Any] = {}
        self._bytes = counter("pixprep_encoded_bytes_total", "Number of bytes of received encoded images")
        self._decode = histogram("pixprep_decode_seconds", "Time to decode one image", SECONDS)
        self._transform = histogram(
            "pixprep_transform_seconds", "Time to convert the pixels of one image to tensors", SECONDS
        )
        self._fallbacks = counter(
            "pixprep_fallback_cpu_total", "Number of images that the CPU decoded instead of the GPU"
        )
        self._recovered = counter(
            "pixprep_recovered_total", "Number of damaged JPEGs that were decoded, see the parameter damage"
        )
        self._batch = histogram("pixprep_batch_images", "Number of images per execution", IMAGES)

        self._shm_used, self._shm_size = (
            family(f"pixprep_shared_memory_{what}_bytes", f"Bytes of {_SHM}, {words}", families.GAUGE).Metric(
                labels=self._labels
            )
            for what, words in (("used", "used by any process"), ("size", "in total"))
        )
        self._measure_shm()

        self._log = pb_utils.Logger
        self._queue: SimpleQueue[_Record | None] = SimpleQueue()
        self._closing = Event()
        self.pause = Lock()
        self._thread = Thread(target=self._work, name="pixprep-metrics", daemon=True)
        self._thread.start()

    def record(self, n_bytes: int, batch: Batch, images: Sequence[int]) -> None:
        """Queue the results of a batch, which a background thread counts within ``PERIOD_S`` seconds.

        Args:
            n_bytes: Total size of the encoded images in bytes.
            batch: Results of the batch.
            images: Indices of the images to count.
        """
        # The batch itself is not queued, because its tensors would then stay in memory until they are counted.
        counted = [(batch.errors[index], batch.decode_s[index], batch.transform_s[index]) for index in images]
        self._queue.put(_Record(n_bytes, batch.fallbacks, batch.recovered, counted))

    def close(self) -> None:
        """Count the queued batches, and end the thread."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Count the queued batches once per period, while no batch is running.

        Each update is a message to Triton, and Triton 2.51 may abort if a stub dies during a message. A stub is most
        likely to crash while it decodes images, so nothing is sent during that time.
        """
        records: list[_Record | None] = []
        while None not in records:
            records = [self._queue.get()]
            while not self._queue.empty():
                records.append(self._queue.get())
            try:
                with self.pause:
                    self._count([record for record in records if record])
            except Exception as error:  # noqa: BLE001  (a failed update must not end the thread)
                self._log.log_warn(f"the metrics could not be updated: {error}")
            self._closing.wait(PERIOD_S)

    def _count(self, records: Sequence[_Record]) -> None:
        if not records:
            return
        self._measure_shm()
        images = [image for record in records for image in record.images]
        if fallbacks := sum(record.fallbacks for record in records):
            self._fallbacks.increment(fallbacks)
        if recovered := sum(record.recovered for record in records):
            self._recovered.increment(recovered)
        for result, count in Counter(error.reason if error else "ok" for error, _, _ in images).items():
            if result not in self._by_result:
                self._by_result[result] = self._images.Metric(labels={**self._labels, "result": result})
            self._by_result[result].increment(count)
        if self._frames is not None and (whole := sum(error is None for error, _, _ in images)):
            self._frames.increment(self._each * whole)
        self._bytes.increment(sum(record.n_bytes for record in records))
        for record in _sample(records):
            self._batch.observe(len(record.images))
        for _, decode_s, transform_s in _sample([image for image in images if image[0] is None]):
            self._decode.observe(decode_s)
            self._transform.observe(transform_s)

    def _measure_shm(self) -> None:
        usage = shutil.disk_usage(_SHM)
        self._shm_used.set(usage.used)
        self._shm_size.set(usage.total)


def _sample(items: Sequence[_T]) -> Sequence[_T]:
    """Return at most ``SAMPLE`` evenly spaced items."""
    return items[:: -(-len(items) // SAMPLE) or 1]
