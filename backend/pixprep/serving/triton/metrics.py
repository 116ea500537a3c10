"""Metrics of one model instance for Prometheus, on Triton's own port."""

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
"""Images and batches that are observed in a period, for they are observed one by one; all of them are counted."""
_SHM = "/dev/shm"  # noqa: S108  (where Triton and its models exchange batches; no file of ours)
_T = TypeVar("_T")


class _Record(NamedTuple):
    """Record of a batch: for each image the error, and the seconds to decode and transform it."""

    n_bytes: int
    fallbacks: int
    recovered: int
    images: list[tuple[ImageError | None, float, float]]


class Metrics:
    """Counters and histograms of one model.

    Args:
        pb_utils: Triton's module; a fake in tests.
        model, version: Labels of the metrics.
        frames: Number of frames per clip; 0 if the model accepts images.

    Attributes:
        pause: Lock. While it is held, no metrics are sent to Triton.
    """

    def __init__(self, pb_utils: Any, *, model: str, version: str, frames: int = 0) -> None:
        self._labels = {"model": model, "version": version}
        self._families: list[Any] = []  # Triton deletes a family, and its metrics with it, once nobody holds it
        families = pb_utils.MetricFamily

        def family(name: str, description: str, kind: Any) -> Any:  # Triton's word
            self._families.append(families(name=name, description=description, kind=kind))
            return self._families[-1]

        def counter(name: str, description: str) -> Any:
            return family(name, description, families.COUNTER).Metric(labels=self._labels)

        def histogram(name: str, description: str, buckets: Sequence[float]) -> Any:
            return family(name, description, families.HISTOGRAM).Metric(labels=self._labels, buckets=buckets)

        self._images = family(
            "pixprep_images_total", "Images by result: ok, or the reason why there is no tensor", families.COUNTER
        )
        self._each = frames
        self._frames = counter("pixprep_frames_total", "Frames of clips that became tensors") if frames else None
        self._by_result: dict[str, Any] = {}
        self._bytes = counter("pixprep_encoded_bytes_total", "Bytes of encoded images received")
        self._decode = histogram("pixprep_decode_seconds", "Time to decode one image", SECONDS)
        self._transform = histogram("pixprep_transform_seconds", "Time from pixels to tensor of one image", SECONDS)
        self._fallbacks = counter("pixprep_fallback_cpu_total", "Images that only the CPU could decode")
        self._recovered = counter("pixprep_recovered_total", "Damaged JPEGs decoded all the same, by damage: lenient")
        self._batch = histogram("pixprep_batch_images", "Images that one execution handled", IMAGES)

        self._shm_used, self._shm_size = (
            family(f"pixprep_shared_memory_{what}_bytes", f"Bytes of {_SHM}, {words}", families.GAUGE).Metric(
                labels=self._labels
            )
            for what, words in (("used", "in use by whichever process"), ("size", "all in all"))
        )
        self._measure_shm()

        self._log = pb_utils.Logger
        self._queue: SimpleQueue[_Record | None] = SimpleQueue()
        self._closing = Event()
        self.pause = Lock()
        self._thread = Thread(target=self._work, name="pixprep-metrics", daemon=True)
        self._thread.start()

    def record(self, n_bytes: int, batch: Batch, images: Sequence[int]) -> None:
        """Count one batch within a period.

        Args:
            n_bytes: Number of encoded bytes of these images.
            batch: Results of the batch.
            images: Indices of the images that count.
        """
        # Do not queue the batch itself: its tensors would stay alive until the queue is processed.
        counted = [(batch.errors[index], batch.decode_s[index], batch.transform_s[index]) for index in images]
        self._queue.put(_Record(n_bytes, batch.fallbacks, batch.recovered, counted))

    def close(self) -> None:
        """Count the waiting batches, then end."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Count the images of one period together, between two batches.

        Each number is a message to Triton, and Triton 2.51 aborts when a stub dies in the middle of one. While images
        are decoded, which is when a stub may crash, none is under way.
        """
        records: list[_Record | None] = []
        while None not in records:
            records = [self._queue.get()]
            while not self._queue.empty():
                records.append(self._queue.get())
            try:
                with self.pause:
                    self._count([record for record in records if record])
            except Exception as error:  # noqa: BLE001  (a lost count must not end the counting)
                self._log.log_warn(f"a metric could not be counted: {error}")
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
    """``SAMPLE`` of them or fewer, evenly spread."""
    return items[:: -(-len(items) // SAMPLE) or 1]
