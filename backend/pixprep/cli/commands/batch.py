"""The command ``pixprep batch``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from pixprep.options import Folder, Name, Shell

EXAMPLE = "batch manifest.txt --pipeline pipeline.json --output tensors"


def run(
    manifest: Annotated[Path, Shell(metavar="MANIFEST")],
    *,
    pipeline: Path,
    output: Folder,
    column: Name | None = None,
    device: Literal["cpu", "gpu"] = "cpu",
    rows_per_file: int = 1000,
    workers: int | None = None,
    address: Annotated[str | None, Shell(metavar="HOST:PORT")] = None,
) -> int:
    """Run a pipeline on a list of images with Ray, locally or on a cluster, and write one row of Parquet per image.

    Args:
        manifest: List of images: a text file with one path per line, or a .csv or .parquet; paths are relative to its
            folder.
        pipeline: A pipeline file.
        output: Folder of the results; to continue a run, pass the same folder.
        column: Column of a .csv or .parquet; default: path, or the only column.
        device: Where the pipeline runs.
        rows_per_file: Rows in each Parquet file.
        workers: Number of processes, each with one core or GPU; default: as many as Ray has.
        address: Address of a Ray cluster; default: start Ray on this machine.
    """
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
            progress=lambda rows, _: progress.to(rows, total),
        )
    rate = f" ({done.rows / done.seconds:.1f} images/s)" if done.rows else ""
    files = f"files written {done.files}, already complete {done.skipped}"
    say(f"{output}: images {done.rows}, failed {done.errors}, {files}, {done.seconds:.1f} s{rate}")
    return 1 if done.rows and done.errors == done.rows else 0
