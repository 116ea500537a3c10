"""The command ``pixprep run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pixprep.cli.arguments import Images, Json, PipelineFile
from pixprep.engine.options import EngineOptions, Limits
from pixprep.errors import ImageError, PixprepError
from pixprep.formats import FORMATS, USUAL, Format
from pixprep.names import hint, meant
from pixprep.options import Folder, Rows, Shell

if TYPE_CHECKING:
    from pixprep.engine.batch import Batch
    from pixprep.engine.engine import Engine


EXAMPLE = "run pipeline.json cat.jpg dog.jpg --output tensors"


def run(
    pipeline: PipelineFile,
    files: Images,
    engine: EngineOptions,
    *,
    output: Folder | None = None,
    formats: Annotated[
        Sequence[Format],
        Shell(
            kind="formats",
            metavar="LIST",
            help=f"formats to accept, separated by commas: {', '.join(FORMATS)}; default: all but the last two",
        ),
    ] = USUAL,
    inputs: Rows = None,
    as_json: Json = False,
) -> int:
    """Run a pipeline on files without a server: print a summary of each output, or write one .npy per output.

    Args:
        output: Folder in which to write each tensor as .npy.
        as_json: Print one JSON object per line.
    """
    from pixprep.cli.files import numbers_of, say_skipped, served_side
    from pixprep.cli.output import print_row
    from pixprep.engine.engine import Engine
    from pixprep.files import expand, named, npy_stems

    paths = expand(files)
    say_skipped(files)
    failed = 0
    numbers = numbers_of(inputs)
    served = served_side(pipeline)
    for name in numbers:
        if near := meant(name, served.inputs) if name not in served.inputs else "":
            raise PixprepError(f'{pipeline}: the pipeline has no input "{name}"{hint(near)}')
    for name, spec in served.inputs.items():
        if name not in numbers:
            example = f"--input {name}={json.dumps([spec.example], separators=(',', ':'))}"
            raise PixprepError(
                f'{pipeline}: each image requires the input "{name}" ({spec}): pass it, such as {example}'
            )
    if output and output.exists() and not output.is_dir():
        raise PixprepError(f"{output} is a file: pass a folder to --output")
    limits = Limits(formats=tuple(formats))
    with Engine(served, **vars(replace(engine, limits=limits))) as started:
        if output:
            with named(output, "cannot be written"):
                output.mkdir(parents=True, exist_ok=True)
        for path, stem, results in zip(paths, npy_stems(paths), _results(started, paths, numbers), strict=True):
            for number, result in enumerate(results, 1):
                failed += not isinstance(result, dict)
                box = {"box": number} if started.plan.takes_boxes else {}
                place = output / (f"{stem}.{number}" if box else stem) if output else None
                for row in _rows(result, place):
                    print_row({"file": str(path), **box, **row}, as_json=as_json)
    return 1 if failed else 0


def _results(
    engine: Engine, paths: Sequence[Path], numbers: dict[str, Any]
) -> Iterator[list[dict[str, Any] | str | ImageError]]:
    """Yield a list of results per file: one result, or one per box. A result is a dict of outputs, or an error.

    Several files are processed at once to keep all threads busy.
    """
    from pixprep.files import of_file, read

    several = 2 * engine.lanes
    for start in range(0, len(paths), several):
        some = paths[start : start + several]
        contents = [read(path) for path in some]
        readable = [(path, content) for path, content in zip(some, contents, strict=True) if isinstance(content, bytes)]
        rows = [of_file(numbers, path) for path, _ in readable]
        batch = engine.run_batch(
            [content for _, content in readable],
            inputs={name: [each[name] for each in rows] for name in numbers},
        )
        spans = iter(batch.rows)
        for content in contents:
            yield [content] if isinstance(content, str) else _of_image(batch, next(spans))


def _of_image(batch: Batch, span: slice) -> list[dict[str, Any] | str | ImageError]:
    """Return the results of one image, whose rows in the batch are ``span``. GPU tensors are copied to host memory."""
    return [
        batch.errors[row]
        or {name: array[row].get() if hasattr(array, "get") else array[row] for name, array in batch.outputs.items()}
        for row in range(span.start, span.stop)
    ]


def _rows(result: dict[str, Any] | str | ImageError, stem: Path | None) -> Iterator[dict[str, Any]]:
    """Yield one row for ``print_row`` per output. With ``stem``, also write each output to a file.

    The file is ``STEM.npy``, or ``STEM.NAME.npy`` if there are several outputs.
    """
    import numpy as np

    from pixprep.files import atomic_file, named
    from pixprep.show.summary import summary

    if not isinstance(result, dict):
        yield {"error": str(result)}
        return
    for name, array in result.items():
        row = {"name": name} if len(result) > 1 else {}
        row |= summary(array)
        if stem:
            path = stem.with_name(f"{stem.name}.{name}.npy" if row.get("name") else f"{stem.name}.npy")
            with named(path, "cannot be written"), atomic_file(path) as file:
                np.save(file, array)
            row["output"] = str(path)
        yield row
