"""What one model instance tells Prometheus, on Triton's own metrics port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

from pixprep.engine import Batch
from pixprep.errors import ImageError

SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
_Record = list[tuple[ImageError | None, float, float]]
IMAGES = [1, 2, 4, 8, 16, 32, 64, 128]


class Metrics:
    """Counters and histograms of one model.

    Args:
        pb_utils: Triton's module; a fake in tests.
        model, version: the labels.
    """

    def __init__(self, pb_utils: Any, *, model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        self._families: list[Any] = []  # Triton deletes a family, and its metrics with it, once nobody holds it
        kinds = pb_utils.MetricFamily

        def family(name: str, description: str, kind: Any) -> Any:
            self._families.append(kinds(name=name, description=description, kind=kind))
            return self._families[-1]

        def histogram(name: str, description: str, buckets: Sequence[float]) -> Any:
            return family(name, description, kinds.HISTOGRAM).Metric(labels=self._labels, buckets=buckets)

        self._images = family(
            "pixprep_images_total", "Images by result: ok, or the reason why there is no tensor", kinds.COUNTER
        )
        self._by_result: dict[str, Any] = {}
        encoded_bytes = family("pixprep_encoded_bytes_total", "Bytes of encoded images received", kinds.COUNTER)
        self._bytes = encoded_bytes.Metric(labels=self._labels)
        self._decode = histogram("pixprep_decode_seconds", "Time to decode one image", SECONDS)
        self._transform = histogram("pixprep_transform_seconds", "Time from pixels to tensor of one image", SECONDS)
        fallbacks = family("pixprep_fallback_cpu_total", "Images that only the CPU could decode", kinds.COUNTER)
        self._fallbacks = fallbacks.Metric(labels=self._labels)
        self._fallbacks_counted = 0
        recovered = family(
            "pixprep_recovered_total", "Damaged JPEGs decoded all the same, by damage: lenient", kinds.COUNTER
        )
        self._recovered = recovered.Metric(labels=self._labels)
        self._batch = histogram("pixprep_batch_images", "Images that one execution handled", IMAGES)

        self._log = pb_utils.Logger
        self._queue: SimpleQueue[tuple[int, int, int, _Record] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="pixprep-metrics", daemon=True)
        self._thread.start()

    def record(self, n_bytes: int, fallbacks: int, batch: Batch) -> None:
        """Count one batch, soon: each number is a message to Triton and costs 45 us.

        Args:
            n_bytes: encoded bytes in the batch.
            fallbacks: the engine's number so far.
            batch: the results.
        """
        # not the batch itself: its tensors would live as long as the queue is behind
        images = list(zip(batch.errors, batch.decode_s, batch.transform_s, strict=True))
        self._queue.put((n_bytes, fallbacks, batch.recovered, images))

    def close(self) -> None:
        """Count what is waiting, then end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._count(*item)
            except Exception as error:  # noqa: BLE001  (a lost count must not end the counting)
                self._log.log_warn(f"a metric could not be counted: {error}")

    def _count(self, n_bytes: int, fallbacks: int, recovered: int, images: _Record) -> None:
        if fallbacks > self._fallbacks_counted:
            self._fallbacks.increment(fallbacks - self._fallbacks_counted)
            self._fallbacks_counted = fallbacks
        if recovered:
            self._recovered.increment(recovered)
        for result, count in Counter(error.reason if error else "ok" for error, _, _ in images).items():
            if result not in self._by_result:
                self._by_result[result] = self._images.Metric(labels={**self._labels, "result": result})
            self._by_result[result].increment(count)
        self._bytes.increment(n_bytes)
        self._batch.observe(len(images))
        for error, decode_s, transform_s in images:
            if error is None:
                self._decode.observe(decode_s)
                self._transform.observe(transform_s)
