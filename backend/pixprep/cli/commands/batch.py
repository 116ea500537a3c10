"""The command ``pixprep batch``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pixprep.errors import PixprepError
from pixprep.options import Folder, Name, Shell
from pixprep.serving.options import SendOptions

EXAMPLE = "batch photos --model-repository model_repository --output answers.csv"
GROUPS = {
    "answers of a model": ("model", "classes"),
    "tensors of a pipeline, with Ray": ("onnx", "device", "rows_per_file", "workers", "address"),
}
EITHER = ("pipeline", "model_repository")
_CONCURRENCY = 8


def run(
    manifest: Annotated[Path, Shell(metavar="MANIFEST")],
    *,
    output: Path,
    column: Name | None = None,
    model_repository: Folder | None = None,
    model: Name = "ensemble",
    classes: Annotated[int, Shell(name="--top", least=0)] = 5,
    pipeline: Path | None = None,
    onnx: Path | None = None,
    device: Literal["cpu", "gpu"] = "cpu",
    rows_per_file: int = 1000,
    workers: int | None = None,
    address: Annotated[str | None, Shell(metavar="HOST:PORT")] = None,
) -> int:
    """Run a model, or only a pipeline, on a list of images, and continue an interrupted run.

    With --model-repository, the embedded Triton runs the model on this machine, and the output is a table with one row
    per image. With --pipeline, Ray runs the pipeline on this machine or on a cluster, and the output is a folder of
    Parquet files with the tensors, or with the outputs of an --onnx file.

    Args:
        manifest: Folder of images, or list of images: a text file with one path per line, or a .csv or .parquet; paths
            are relative to its folder.
        output: Table (.csv, .jsonl, .parquet) or folder of the results; to continue a run, pass the same path.
        column: Column of a .csv or .parquet; default: path, or the only column.
        model_repository: Run a model of this repository, and write a table.
        model: Model to run.
        classes: Number of best classes of each image; 0: the output itself.
        pipeline: Run this pipeline file, and write a folder of tensors.
        onnx: With --pipeline: run this ONNX file on the tensors, and write its outputs in place of the tensors.
        device: Where the pipeline runs.
        rows_per_file: Rows in each Parquet file.
        workers: Number of processes, each with one core or GPU; default: as many as Ray has.
        address: Address of a Ray cluster; default: start Ray on this machine.
    """
    if model_repository:
        request = SendOptions(protocol="grpc", model=model, classes=classes, concurrency=_CONCURRENCY)
        return _answers(manifest, column, model_repository, request, output)
    if not pipeline:
        raise PixprepError("pass --model-repository to run a model, or --pipeline to run only a pipeline")
    from pixprep.cli.files import served_side
    from pixprep.cli.output import say
    from pixprep.progress import Progress

    served = served_side(pipeline)
    from pixprep.cluster import ray

    # count the images only if a progress bar is displayed
    total = sum(1 for _ in ray.manifest(manifest, column)) if sys.stderr.isatty() else None
    with Progress("images") as progress:
        done = ray.batch(
            manifest,
            served,
            output,
            column=column,
            device=device,
            rows_per_file=rows_per_file,
            workers=workers,
            address=address,
            onnx=onnx,
            progress=lambda rows, _: progress.to(rows, total),
        )
    rate = f" ({done.rows / done.seconds:.1f} images/s)" if done.rows else ""
    files = f"files written {done.files}, already complete {done.skipped}"
    say(f"{output}: images {done.rows}, failed {done.errors}, {files}, {done.seconds:.1f} s{rate}")
    return 1 if done.rows and done.errors == done.rows else 0


def _answers(manifest: Path, column: str | None, repository: Path, request: SendOptions, output: Path) -> int:
    """Start Triton on free ports, send the images of a folder or a manifest to a model, and write the table."""
    from pixprep.cli.commands import send
    from pixprep.serving.embedded.server import Server
    from pixprep.training.manifest import manifest as read_manifest

    images, is_listed = [manifest], not manifest.is_dir()
    if is_listed:
        rows = enumerate(read_manifest(manifest, column), 1)
        images = [Path(path or f"row {number} without a path") for number, path in rows]
    with Server(repository, http_port=0, grpc_port=0, metrics_port=0) as server:
        return send.run(images, replace(request, url=server.grpc_url), table=output, is_listed=is_listed)
