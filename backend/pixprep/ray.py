"""Many images on Ray: the same pipeline file on a cluster, or on all cores here. ``pip install pixprep[ray]``.

``preprocess`` is a step of a Ray Data pipeline. ``batch`` turns a list of files into a folder of Parquet files, and
goes on where it was stopped. In both a row that fails says why in its column ``error``, and ends nothing.
"""

from __future__ import annotations

import csv
import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pixprep.data.sources import read_image
from pixprep.decoders import Encoded, Limits
from pixprep.engine import Engine
from pixprep.errors import ImageError, PixprepError, SetupError
from pixprep.pipeline import Pipeline
from pixprep.writing import UNFINISHED, alone, whole, write

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
except ImportError as error:
    raise SetupError(
        f'pixprep.ray needs {error.name}: pip install "pixprep[ray]", in an environment without the embedded server'
    ) from None

if TYPE_CHECKING:
    from ray.data import Dataset

ROWS_PER_FILE = 1000
BATCH = 32
_RETRIES = 5
"""How often a file is begun anew after the process that wrote it died; a photo that ends it every time then ends the
run, with the files' names."""
_CONNECT_S = 10.0
_STATE = "pixprep.json"


class _Rows:
    """An engine, and what becomes of rows: one on each actor.

    Args:
        text: of the pipeline file.
        device, threads: of the engine.
        column: of the images: encoded bytes, or paths.
        outputs: of the pipeline; None: all.
    """

    def __init__(self, text: str, device: str, threads: int | None, column: str, outputs: Sequence[str] | None) -> None:
        self._engine = Engine(Pipeline.from_json(text).for_files(), device=device, threads=threads)
        self._column, self._outputs = column, outputs

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """The rows without their images, with the outputs and ``error``."""
        kept = {name: values for name, values in rows.items() if name != self._column}
        return kept | self.results(list(rows[self._column]))

    def results(self, images: Sequence[Any]) -> dict[str, Any]:
        """For each output an array (rows, ...), zeros where the image failed; ``error``: why, or None."""
        errors: list[str | None] = [None] * len(images)
        encoded: list[Encoded] = []
        for index, image in enumerate(images):
            try:
                encoded.append(_encoded(image))
            except ImageError as error:
                errors[index] = str(error)
                encoded.append(b"")
        batch = self._engine.run_batch(encoded, outputs=self._outputs)
        failed = [
            error or (str(refused) if refused else None) for error, refused in zip(errors, batch.errors, strict=True)
        ]
        tensors = {
            name: array if isinstance(array, np.ndarray) else array.get() for name, array in batch.outputs.items()
        }
        return tensors | {"error": np.array(failed, object)}


def _encoded(image: Any) -> Encoded:
    """The image of a row: its bytes, or those of the file that it names.

    Raises:
        ImageError: the row has neither, or the file cannot be read.
    """
    if isinstance(image, str):
        return read_image({"image": Path(image), "name": image}, Limits())
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    what = "nothing" if image is None else type(image).__name__
    raise ImageError("BAD_RECORD", f"an image is encoded bytes or a path, and here is {what}")


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
) -> Dataset:
    """A Ray Data dataset whose images have become tensors.

    Args:
        dataset: with a column of images, such as ``ray.data.read_binary_files("photos/", include_paths=True)``.
        pipeline: its serving side is run.
        image: the column of encoded bytes, or of paths that every node can read. It does not come back.
        outputs: of the pipeline; default: all.
        device: ``cpu``, or ``gpu``: each worker then has one.
        workers: actors, or the fewest and the most; default: one at first, and up to one for each GPU, or for each core
            but one, which reads files. Where the fewest leave no core free, each asks Ray for a part of one.
        threads: of each actor on the CPU; its cores.
        batch_size: rows that an engine gets at once.

    Returns:
        The other columns, for each output a column of tensors, and ``error``: None, or why the row's tensors are zeros.

    Raises:
        PixprepError: the pipeline takes numbers with each image.
        SetupError: the cluster has fewer cores, or GPUs, than the fewest workers need.
    """
    _check_no_inputs(pipeline)
    places = _places(device, threads)
    low, high = workers if isinstance(workers, tuple) else (workers or 1, workers or max(1, places))
    _check_workers(low, device, threads)
    return dataset.map_batches(
        _Rows,
        fn_constructor_args=(pipeline.to_json(), device, threads, image, outputs),
        batch_size=batch_size,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(min_size=low, max_size=high),
        max_restarts=-1,
        max_task_retries=-1,
        **_resources(device, threads, low, places),
    )


def _cores() -> list[int]:
    """Of each node that has some."""
    found = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return [cores for cores in found if cores] or [0]


def _places(device: str, threads: int) -> int:
    """How many workers a cluster has room for, and for a task that reads beside them; 0: for not even one."""
    if device.startswith("gpu"):
        return int(ray.cluster_resources().get("GPU", 0))
    places = sum(cores // threads for cores in _cores())
    return places if any(cores % threads for cores in _cores()) else places - 1


def _resources(device: str, threads: int, workers: int, places: int) -> dict[str, Any]:
    """What a worker asks Ray for.

    An actor keeps what it has. If the workers had all the cores, no task could ever read a file for them. So together
    they leave one core of the largest node free, wherever Ray puts them.
    """
    if device.startswith("gpu"):
        return {"num_gpus": 1, "num_cpus": 0}
    if workers <= places:
        return {"num_cpus": threads}
    return {"num_cpus": (max(_cores()) - 1) / workers, "scheduling_strategy": "SPREAD"}


def _check_workers(workers: int, device: str, threads: int = 1) -> None:
    """Refuse more workers than there are cores or GPUs for: Ray would wait for the others for ever."""
    has_gpus = device.startswith("gpu")
    found = int(ray.cluster_resources().get("GPU", 0)) if has_gpus else sum(_cores())
    if workers * (1 if has_gpus else threads) > found:
        each = "one of the GPUs" if has_gpus else "one of the cores" if threads == 1 else f"{threads} of the cores"
        raise SetupError(f"{workers} workers, each with {each}: this Ray has {found}")


@dataclass(frozen=True)
class Done:
    """What a run of ``batch`` did.

    Attributes:
        rows, errors: of this run.
        files: written by this run.
        skipped: files that were there.
        seconds: of this run.
    """

    rows: int
    errors: int
    files: int
    skipped: int
    seconds: float


def manifest(path: Path, column: str | None = None) -> Iterator[str | None]:
    """The paths of a manifest: one a line, or a column of a CSV or Parquet file; relative ones lie beside it.

    A row without a path is None. Bytes that are no UTF-8 become escapes, and name no file.

    Raises:
        PixprepError: there is no such file or column, or it is no table.
    """
    _check_manifest(path)
    rows = _READERS.get(path.suffix.lower(), _lines)(path, column)
    return (str(path.parent / row) if row and isinstance(row, str) else None for row in rows)


def _check_no_inputs(pipeline: Pipeline) -> None:
    """Refuse a pipeline that takes numbers with each image: neither a list of images nor a column has them."""
    if pipeline.inputs:
        name, spec = next(iter(pipeline.inputs.items()))
        raise PixprepError(f'the pipeline takes "{name}", {spec}, with each image: run it by pixprep.Engine')


def _check_manifest(path: Path) -> None:
    if not path.is_file():
        raise PixprepError(f"{path}: no such file: a manifest names an image a line, or is a .csv or a .parquet")


def _lines(path: Path, column: str | None) -> Iterator[str]:
    if column is not None:
        raise PixprepError(f"{path}: a column is for a .csv or a .parquet; this one names an image a line")
    with path.open(encoding="utf-8-sig", errors="backslashreplace") as file:
        yield from (line.rstrip("\n") for line in file if line.strip())


def _csv(path: Path, column: str | None) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        rows = csv.DictReader(file)
        try:
            name = _column(path, column, rows.fieldnames or [])
            yield from (row[name] for row in rows)
        except csv.Error as error:
            raise PixprepError(f"{path}: is no CSV: line {rows.line_num}: {error}") from None


def _parquet(path: Path, column: str | None) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path) as file:
            name = _column(path, column, file.schema_arrow.names)
            for batch in file.iter_batches(columns=[name]):
                yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        first = str(error).partition("\n")[0]
        raise PixprepError(f"{path}: is no Parquet file: {first}") from None


_READERS: dict[str, Callable[[Path, str | None], Iterator[Any]]] = {".csv": _csv, ".parquet": _parquet}


def _column(path: Path, column: str | None, names: Sequence[str]) -> str:
    name = column or ("path" if "path" in names else names[0] if len(names) == 1 else "")
    if name not in names:
        raise PixprepError(f"{path}: no column {name or 'path'!r}; name one: {', '.join(names)}")
    return name


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
    progress: Callable[[int, int], None] | None = None,
) -> Done:
    """Write every image of a manifest as a row of ``output/part-00000000.parquet``, ``part-00000001.parquet``, ….

    A file is written under another name first, so a file that is there is whole. Whoever calls again writes the files
    that are missing. A worker that dies is replaced, and its file begun anew. Rows stand in the manifest's order.

    Args:
        paths: the manifest.
        pipeline: its serving side is run.
        output: the folder; of one manifest and one pipeline, and of one run at a time.
        column: of a CSV or Parquet manifest; default: ``path``, or the only one.
        device: ``cpu`` or ``gpu``.
        rows_per_file: the last file may have fewer.
        workers: actors, each with one core or one GPU; default: as many as the cluster has.
        address: of a Ray cluster that sees the same files; default: this machine.
        progress: is told the rows that are done, those of earlier runs among them, and how many failed in this run.

    Raises:
        PixprepError: the folder belongs to another run, or another writes into it now; or a file could not be written
            in several tries; or the pipeline takes numbers with each image.
        SetupError: no cluster answers, or it lacks the GPU or the cores.
    """
    began = time.monotonic()
    _check_manifest(paths)
    _check_no_inputs(pipeline)
    text = pipeline.to_json()
    output.mkdir(parents=True, exist_ok=True)
    with alone(output):
        _check_same_run(output, {"manifest": _digest(paths), "pipeline": hashlib.sha256(text.encode()).hexdigest(),
                                 "column": column, "rows_per_file": rows_per_file})  # fmt: skip
        _sweep(output)
        started_here = not ray.is_initialized()
        if started_here:
            _start(address)
        try:
            rows = errors = files = skipped = there = 0
            actors = _actors(workers, device, (text, device, 1, "path", None))
            pending: dict[Any, Any] = {}
            parts = _parts(manifest(paths, column), rows_per_file)
            free = list(actors)
            while True:
                for index, names in parts:
                    target = output / f"part-{index:08}.parquet"
                    if target.exists():
                        skipped, there = skipped + 1, there + len(names)
                        continue
                    actor = free.pop()
                    pending[actor.write.remote(str(target), names)] = actor
                    if not free:
                        break
                if not pending:
                    _sweep(output)
                    return Done(rows, errors, files, skipped, time.monotonic() - began)
                (ready,), _ = ray.wait(list(pending), num_returns=1)
                free.append(pending.pop(ready))
                count, failed = _result(ready)
                rows, errors, files = rows + count, errors + failed, files + 1
                if progress is not None:
                    progress(there + rows, errors)
        finally:
            if started_here:
                ray.shutdown()


def _start(address: str | None) -> None:
    """Start Ray here, or join a cluster; Ray asks an address of a cluster that is not there for minutes."""
    host, colon, port = (address or "").rpartition(":")
    try:
        if colon and port.isdecimal() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="error")
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise SetupError(f"{address or 'here'}: no Ray cluster: {first}") from None


def _sweep(output: Path) -> None:
    """Remove what writers that died have left."""
    for left in output.glob(UNFINISHED):
        left.unlink(missing_ok=True)


class _Writer:
    """Writes files; see ``batch``."""

    def __init__(self, *arguments: Any) -> None:
        self._rows = _Rows(*arguments)

    def write(self, target: str, names: Sequence[str | None]) -> tuple[int, int]:
        """One file of rows; how many, and how many of them failed."""
        writer, errors = None, 0
        with whole(target) as file:
            try:
                for begin in range(0, len(names), BATCH):
                    part = names[begin : begin + BATCH]
                    results = self._rows.results(part)
                    errors += sum(error is not None for error in results["error"])
                    table = _table({"path": part, **results})
                    writer = writer or pq.ParquetWriter(file, table.schema)
                    writer.write_table(table)
            finally:
                if writer is not None:
                    writer.close()
        return len(names), errors


def _actors(workers: int | None, device: str, arguments: tuple[Any, ...]) -> list[Any]:
    _check_workers(workers or 1, device)
    has_gpus = device.startswith("gpu")
    count = workers or int(ray.cluster_resources()["GPU" if has_gpus else "CPU"])
    options = {"num_gpus": 1, "num_cpus": 0} if has_gpus else {"num_cpus": 1}
    made = ray.remote(_Writer).options(max_restarts=-1, max_task_retries=_RETRIES, **options)
    return [made.remote(*arguments) for _ in range(count)]


def _result(reference: Any) -> tuple[int, int]:
    try:
        found: tuple[int, int] = ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise PixprepError(f"a worker died {_RETRIES + 1} times over one file of rows: {error}") from None
    except ray.exceptions.RayTaskError as error:
        raise PixprepError(f"a worker failed: {error.cause}") from None
    return found


def _table(columns: Mapping[str, Any]) -> Any:
    """An Arrow table: tensors as fixed-shape tensors, everything else as it is."""
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.dtype != object:
            arrays[name] = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))
        else:
            arrays[name] = pa.array(list(values), pa.string())
    return pa.table(arrays)


def _parts(names: Iterator[str | None], size: int) -> Iterator[tuple[int, list[str | None]]]:
    """(index, names) of each file to write."""
    index = 0
    while part := list(islice(names, size)):
        yield index, part
        index += 1


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise PixprepError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def _check_same_run(output: Path, state: Mapping[str, Any]) -> None:
    """Write down what the folder is of, or compare.

    Raises:
        PixprepError: it is of something else.
    """
    path = output / _STATE
    text = json.dumps(state, indent=2) + "\n"
    has_files = any(output.glob("part-*.parquet"))
    if not (path.exists() and has_files):  # a run that has written nothing binds nobody
        if has_files:
            raise PixprepError(f"{output}: has files of another program; choose an empty folder")
        write(path, text)
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise PixprepError(f"{path}: does not say what the files beside it are of: choose another folder, or empty it")
    different = [name for name, value in state.items() if before.get(name) != value]
    if different:
        raise PixprepError(
            f"{output}: was begun with another {' and another '.join(different)}: choose another folder, or empty it"
        )
