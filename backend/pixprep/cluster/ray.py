"""Runs a pipeline on many images with Ray, on a cluster or on all cores of this machine. Requires the extra ``ray``.

``preprocess`` adds a preprocessing step to a Ray Data pipeline. ``batch`` converts a list of files to a folder of
Parquet files, and can be resumed after an interruption. With both functions, an image that cannot be processed does not
stop the run; the column ``error`` of its row contains the reason.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pixprep.engine.decoders import Encoded, Limits
from pixprep.engine.engine import Engine
from pixprep.errors import ImageError, PixprepError, SetupError, install, needing
from pixprep.files import UNFINISHED, atomic_file, locked, write
from pixprep.pipeline.pipeline import Pipeline
from pixprep.training.manifest import digest, manifest
from pixprep.training.sources import read_image

with needing(f"pixprep.ray needs {{error.name}}: {install('ray')}, in an environment without the embedded server"):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["ROWS_PER_FILE", "Done", "batch", "manifest", "preprocess"]

ROWS_PER_FILE = 1000
BATCH = 32
_RETRIES = 5  # attempts to write a file again if its actor died; limited, because an image may crash every actor
_CONNECT_S = 10.0
_TYPES = (
    {"tensor(float)": pa.float32(), "tensor(double)": pa.float64()}
    | {f"tensor({name})": getattr(pa, name)() for name in ("int8", "int16", "int32", "int64", "uint8", "float16")}
    | {"tensor(bool)": pa.bool_()}
)
"""Parquet types of the outputs, by ONNX type."""


class _Rows:
    """Ray actor that preprocesses rows with its own engine, and may run a model on the tensors.

    The column named ``column`` contains the images, as encoded bytes or as paths.
    """

    def __init__(  # noqa: PLR0917  (Ray Data passes positional arguments)
        self,
        text: str,
        device: str,
        threads: int | None,
        column: str,
        outputs: Sequence[str] | None,
        onnx: Path | None = None,
    ) -> None:
        self._network: Any = _network(onnx, device, threads) if onnx else None
        self._engine = Engine(Pipeline.from_json(text).for_files(), device=device, threads=threads)
        self._column, self._outputs = column, outputs

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Replace the images of the rows with one array (rows, ...) per output, and add the column ``error``.

        For rows with an error, an array contains zeros, or None if it is an object array.
        """
        images = rows.pop(self._column)
        batch = self._engine.run_batch([_encoded(image) for image in images], outputs=self._outputs)
        tensors = {name: array.get() if hasattr(array, "get") else array for name, array in batch.outputs.items()}
        if self._network is not None:
            tensors = self._network(tensors)
            for row in (row for row, error in enumerate(batch.errors) if error):
                for array in tensors.values():
                    array[row] = None if array.dtype == object else 0
        return rows | tensors | {"error": np.array([error and str(error) for error in batch.errors], object)}

    def write(self, target: str, names: Sequence[str | None]) -> tuple[int, int]:
        """Write a file in small batches of rows. Return the number of rows and the number of failed rows."""
        tables = (self._table(names[at : at + BATCH]) for at in range(0, len(names), BATCH))
        first, errors = next(tables), 0
        with atomic_file(target) as file, pq.ParquetWriter(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                errors += len(table) - table["error"].null_count
        return len(names), errors

    def _table(self, names: Sequence[str | None]) -> Any:
        columns = {"path": pa.array(names, pa.string())}
        for name, values in self({self._column: names}).items():
            if name == "error":
                columns[name] = pa.array(values, pa.string())
            elif values.dtype == object:
                lists = [value if value is None else value.tolist() for value in values]
                columns[name] = pa.array(lists, self._list_type(name))
            elif values.ndim == 1:
                columns[name] = pa.array(values)
            else:
                columns[name] = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))
        return pa.table(columns)

    def _list_type(self, name: str) -> Any:
        """Return the type of a column of lists, such as lists of boxes."""
        item, dims = self._network.lists[name]
        found = _TYPES[item]
        for _ in range(dims):
            found = pa.list_(found)
        return found


def _network(onnx: Path, device: str, threads: int | None) -> Any:
    """Load a model.

    Raises:
        SetupError: onnxruntime is not installed.
        PixprepError: The file cannot be loaded.
    """
    with needing(f"a model needs {{error.name}}: {install('classifier')}"):
        from pixprep.cluster.network import Network  # noqa: PLC0415  (optional)
    return Network(onnx, device, threads)


def _encoded(image: Any) -> Encoded | ImageError:
    """Return the encoded bytes of an image that is given as bytes or as a path, or an error if it cannot be read."""
    if isinstance(image, str):
        try:
            return read_image({"image": Path(image), "name": image}, Limits())
        except ImageError as error:
            return error.as_value()
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    what = "nothing" if image is None else type(image).__name__
    return ImageError("BAD_RECORD", f"an image must be encoded bytes or a path, not {what}")


def preprocess(
    dataset: Dataset,
    pipeline: Pipeline,
    *,
    image: str = "bytes",
    outputs: Sequence[str] | None = None,
    device: str = "cpu",
    workers: int | tuple[int, int] | None = None,
    threads: int = 1,
    batch_size: int = BATCH,
    onnx: Path | None = None,
) -> Dataset:
    """Return a Ray Data dataset in which the images are preprocessed into tensors.

    Args:
        dataset: Dataset with a column of images, such as ``ray.data.read_binary_files("photos/", include_paths=True)``.
        pipeline: Pipeline whose serving side is run.
        image: Name of the column with encoded bytes, or with paths that every node can read. The returned dataset does
            not contain this column.
        outputs: Names of the pipeline's outputs to compute. Default: all outputs.
        device: ``cpu``, or ``gpu`` for one GPU per worker.
        workers: Number of actors, or a pair of their minimum and maximum number. By default, the minimum is 1. The
            default maximum is one actor per GPU; on the CPU, it is one actor per ``threads`` cores, after one core is
            reserved for reading files. If the minimum would use all cores, each actor requests only a fraction of a
            core from Ray.
        threads: Number of threads of each actor on the CPU. An actor reserves one core per thread.
        batch_size: Number of rows that an engine processes at once.
        onnx: Model to run on the tensors, as a path that every node can read. Its outputs replace the tensors that it
            receives.

    Returns:
        Dataset with all other columns of the input, one column of tensors per output, and a column ``error``. An error
        is None, or the reason why the tensors of the row are zeros.

    Raises:
        PixprepError: The pipeline has per-image inputs, such as boxes.
        SetupError: The cluster has fewer cores or GPUs than the minimum number of workers needs.
    """
    low, high = workers if isinstance(workers, tuple) else (workers or 1, workers)
    places, asks = _checked(pipeline, device, threads, low)
    if "num_gpus" not in asks:
        # Actors keep their cores, and Ray's tasks that read files also need a core: leave one core free on some node.
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        fitting = sum(each // threads for each in cores)
        places = fitting if fitting * threads < places else fitting - 1
        if low > places:
            asks = {"num_cpus": (max(cores) - 1) / low, "scheduling_strategy": "SPREAD"}
    return dataset.map_batches(
        _Rows,
        fn_constructor_args=(pipeline.to_json(), device, threads, image, outputs, onnx),
        batch_size=batch_size,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(min_size=low, max_size=high or max(1, places)),
        max_restarts=-1,
        max_task_retries=-1,
        **asks,
    )


def _checked(pipeline: Pipeline, device: str, threads: int, workers: int) -> tuple[int, dict[str, Any]]:
    """Return the number of cores or GPUs in the cluster, and Ray's resource options for each worker.

    Raises:
        PixprepError: The pipeline has per-image inputs, which the rows do not contain, or the shape of an output
            depends on the image.
        SetupError: The cluster does not have the resources for all workers. Without this check, Ray would wait for the
            resources forever.
    """
    for name, spec in pipeline.inputs.items():
        raise PixprepError(
            f'the pipeline has the per-image input "{name}" ({spec}), which is not supported here: use pixprep.Engine'
        )
    for name, output in pipeline.outputs.items():
        if output.spec.is_open:
            raise PixprepError(
                f'the shape of output "{name}" depends on the image, but a column of tensors has one shape: '
                "set a fixed size, for example with min_height and min_width of tensor"
            )
    unit, asks = ("GPU", {"num_gpus": 1, "num_cpus": 0}) if device.startswith("gpu") else ("CPU", {"num_cpus": threads})
    found = int(ray.cluster_resources().get(unit, 0))
    if workers * asks.get("num_gpus", threads) > found:
        each = "one GPU" if unit == "GPU" else "one core" if threads == 1 else f"{threads} cores"
        raise SetupError(f"{workers} workers need {each} each, but this Ray cluster has only {found}")
    return found, asks


class Done(NamedTuple):
    """Statistics of a run of ``batch``.

    Attributes:
        rows: Number of rows written.
        errors: Number of written rows whose image could not be processed.
        files: Number of files written.
        skipped: Number of files that already existed and were not written again.
        seconds: Duration of the run.
    """

    rows: int
    errors: int
    files: int
    skipped: int
    seconds: float


def batch(
    paths: Path,
    pipeline: Pipeline,
    output: Path,
    *,
    column: str | None = None,
    device: str = "cpu",
    rows_per_file: int = ROWS_PER_FILE,
    workers: int | None = None,
    address: str | None = None,
    onnx: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Done:
    """Preprocess every image of a manifest, and write one row per image to Parquet files in the folder ``output``.

    The names of the files are ``part-00000000.parquet``, ``part-00000001.parquet``, …. A file is first written under a
    temporary name, so that every file with its final name is complete. Calling the function again writes the missing
    files. If a worker dies, it is replaced, and its file is written again from the beginning. The rows have the same
    order as the manifest.

    Args:
        paths: Path of the manifest, the list of image files.
        pipeline: Pipeline whose serving side is run.
        output: Output folder. It must not contain files from a different manifest or pipeline, and only one run at a
            time can write to it.
        column: Name of the column with image paths in a CSV or Parquet manifest. Default: ``path``, or the only column.
        device: ``cpu`` or ``gpu``.
        rows_per_file: Number of rows per file. The last file may have fewer.
        workers: Number of actors. Each actor uses one core or one GPU. Default: the number of cores or GPUs in the
            cluster.
        address: Address of a Ray cluster that can access the same files. Default: start Ray on this machine.
        onnx: Model to run on the tensors. Its outputs replace the tensors that it receives.
        progress: Callback that receives the number of completed rows, including those of earlier runs, and the number
            of rows that failed in this run.

    Raises:
        PixprepError: The folder contains files from a different manifest or pipeline; another run is writing to the
            folder; a file could not be written in several attempts; or the pipeline has per-image inputs.
        SetupError: The cluster does not respond, or does not have enough GPUs or cores for the workers.
    """
    began, text, names = time.monotonic(), pipeline.to_json(), manifest(paths, column)
    output.mkdir(parents=True, exist_ok=True)
    with locked(output):
        _claim(output, {"manifest": digest(paths), "pipeline": hashlib.sha256(text.encode()).hexdigest(),
                        "column": column, "rows_per_file": rows_per_file}
               | ({"onnx": digest(onnx)} if onnx else {}))  # fmt: skip
        _sweep(output)
        was_started = ray.is_initialized()
        rows = errors = files = skipped = there = 0
        parts = enumerate(iter(lambda: list(islice(names, rows_per_file)), []))
        targets = ((output / f"part-{index:08}.parquet", part) for index, part in parts)
        try:
            if not was_started:
                _start(address)
            places, asks = _checked(pipeline, device, 1, workers or 1)
            actor = ray.remote(_Rows).options(max_restarts=-1, max_task_retries=_RETRIES, **asks)
            actors = [
                actor.remote(text, device, 1, "path", None, onnx and onnx.resolve()) for _ in range(workers or places)
            ]
            for is_new, found, failed in _written(actors, targets):
                if not is_new:
                    skipped, there = skipped + 1, there + found
                    continue
                rows, errors, files = rows + found, errors + failed, files + 1
                if progress is not None:
                    progress(there + rows, errors)
        finally:
            if not was_started:
                ray.shutdown()
            _sweep(output)
        return Done(rows, errors, files, skipped, time.monotonic() - began)


def _start(address: str | None) -> None:
    """Start Ray on this machine, or connect to a cluster.

    The address is probed first, because Ray retries an unreachable address for minutes.
    """
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdecimal() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="error")
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        where = (
            f"the Ray cluster at {address} cannot be reached" if address else "Ray cannot be started on this machine"
        )
        raise SetupError(f"{where}: {first}") from None


def _sweep(output: Path) -> None:
    """Remove the unfinished files of workers that died."""
    for left in output.glob(UNFINISHED):
        left.unlink(missing_ok=True)


def _written(actors: list[Any], parts: Iterator[tuple[Path, list[str | None]]]) -> Iterator[tuple[bool, int, int]]:
    """Assign files to free actors, and yield a tuple for each file that is completed or already exists.

    The tuple contains whether the file is new, its number of rows, and the number of failed rows.
    """
    busy: dict[Any, tuple[Any, Path]] = {}
    while True:
        for target, names in parts:
            if target.exists():
                yield False, len(names), 0
                continue
            free = actors.pop()
            busy[free.write.remote(str(target), names)] = free, target
            if not actors:
                break
        if not busy:
            return
        (ready,), _ = ray.wait(list(busy), num_returns=1)
        free, target = busy.pop(ready)
        actors.append(free)
        try:
            yield True, *ray.get(ready)
        except ray.exceptions.RayError as error:
            reason = getattr(error, "cause", None) or error
            raise PixprepError(f"{target}: could not be written: {reason}") from None


def _claim(output: Path, state: Mapping[str, Any]) -> None:
    """Record in the output folder from which manifest and pipeline its files are written.

    Raises:
        PixprepError: The folder already contains files from a different manifest or pipeline.
    """
    path, advice = output / "pixprep.json", "use a different folder, or empty it"
    if not any(output.glob("part-*.parquet")):  # overwrite the record of a run without output
        write(path, json.dumps(state, indent=2) + "\n")
        return
    try:
        before = json.loads(path.read_bytes())
        different = [name for name, value in state.items() if before[name] != value]
    except (OSError, ValueError, TypeError, KeyError):
        raise PixprepError(f"{output} contains files, but no valid {path.name} that describes them: {advice}") from None
    if different:
        raise PixprepError(f"{output} was written with a different {' and '.join(different)}: {advice}")
