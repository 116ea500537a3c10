"""Implements the commands that run a pipeline on files and data sets: run, batch, preview, data check.

Optional modules are imported inside the functions of the commands, so that ``pixprep run`` works without Triton's
packages.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pixprep.cli.files import check_picture, numbers_of, say_skipped, write_picture
from pixprep.cli.output import print_row, print_text, quiet, say
from pixprep.engine.batch import Batch
from pixprep.engine.decoders import Format, Limits
from pixprep.engine.engine import Engine
from pixprep.errors import ImageError, PixprepError
from pixprep.files import atomic_file, expand, named, npy_stems, of_file, read
from pixprep.pipeline.pipeline import Pipeline
from pixprep.progress import Progress
from pixprep.show.summary import summary

_logger = logging.getLogger(__name__)


def run_files(
    *,
    pipeline: Path,
    files: Sequence[Path],
    output: Path | None,
    formats: Sequence[Format],
    inputs: Sequence[tuple[str, Any]],
    as_json: bool,
    **options: Any,
) -> int:
    """Run ``pixprep run``."""
    paths = expand(files)
    say_skipped(files)
    failed = 0
    limits = Limits(formats=tuple(formats))
    numbers = numbers_of(inputs)
    served = _served_side(pipeline)
    for name, spec in served.inputs.items():
        if name not in numbers:
            example = f"--input {name}={json.dumps([spec.example])}"
            raise PixprepError(
                f'{pipeline}: each image requires the input "{name}" ({spec}): pass it, such as {example}'
            )
    if output and output.exists() and not output.is_dir():
        raise PixprepError(f"{output} is a file: pass a folder to --output")
    with Engine(served, limits=limits, **options) as engine:
        if output:
            with named(output, "cannot be written"):
                output.mkdir(parents=True, exist_ok=True)
        for path, stem, results in zip(paths, npy_stems(paths), _results(engine, paths, numbers), strict=True):
            for number, result in enumerate(results, 1):
                failed += not isinstance(result, dict)
                box = {"box": number} if engine.plan.takes_boxes else {}
                place = output / (f"{stem}.{number}" if box else stem) if output else None
                for row in _rows(result, place):
                    print_row({"file": str(path), **box, **row}, as_json=as_json)
    return 1 if failed else 0


def run_manifest(*, manifest: Path, pipeline: Path, output: Path, **options: Any) -> int:
    """Run ``pixprep batch``."""
    loaded = _served_side(pipeline)
    from pixprep.cluster import ray

    # count the images only if a progress bar is displayed
    total = sum(1 for _ in ray.manifest(manifest, options["column"])) if sys.stderr.isatty() else None
    with Progress("images") as progress:
        done = ray.batch(manifest, loaded, output, progress=lambda rows, _: progress.to(rows, total), **options)
    rate = f" ({done.rows / done.seconds:.1f} images/s)" if done.rows else ""
    files = f"files written {done.files}, already complete {done.skipped}"
    say(f"{output}: images {done.rows}, failed {done.errors}, {files}, {done.seconds:.1f} s{rate}")
    return 1 if done.rows and done.errors == done.rows else 0


def _results(
    engine: Engine, paths: Sequence[Path], numbers: dict[str, Any]
) -> Iterator[list[dict[str, Any] | str | ImageError]]:
    """Yield a list of results per file: one result, or one per box. A result is a dict of outputs, or an error.

    Several files are processed at once to keep all threads busy.
    """
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
    """Return the results of one image, which are the ``span`` of the batch. Copy GPU tensors to host memory."""
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


def preview_training(
    *,
    pipeline: Path,
    source: str,
    option: Sequence[tuple[str, Any]],
    output: Path,
    serving: bool,
    **options: Any,
) -> int:
    """Run ``pixprep preview``."""
    from pixprep.show.contact_sheet import contact_sheet
    from pixprep.training.opening import open_source

    check_picture(output, [])
    if Path(source).is_dir() and output.resolve().is_relative_to(Path(source).resolve()):
        raise PixprepError(
            f"{output} is inside the data set, where it would become a sample: choose a file outside {source}"
        )
    loaded = Pipeline.load(pipeline)
    side = loaded.for_serving() if serving else loaded.for_training()
    with quiet():  # broken samples are marked in the contact sheet
        opened = open_source(source, dict(option))
        sheet = contact_sheet(opened, side, title=f"{pipeline.name}, {source}", **options)
    write_picture(output, sheet)
    say(f"{output}: shows the samples after {'serving' if serving else 'training'} preprocessing", file=sys.stderr)
    return 0


def check_data(
    *, source: str, option: Sequence[tuple[str, Any]], pipeline: Path | None, threads: int | None, as_json: bool
) -> int:
    """Run ``pixprep data check``."""
    from pixprep.training.check import check
    from pixprep.training.opening import open_source

    def say_broken(broken: Any) -> None:
        if not as_json:
            with progress.hidden():
                say(broken.error)

    with quiet():  # the warnings are printed below
        opened = open_source(source, dict(option))
        through = Pipeline.load(pipeline).for_training() if pipeline else None
        with Progress("samples") as progress:
            found = check(opened, pipeline=through, threads=threads, on_broken=say_broken, on_progress=progress.to)
    if as_json:
        rows = [{"index": each.index, "reason": each.error.reason, "detail": each.error.detail} for each in found]
        print_text(json.dumps({"samples": len(opened), "broken": rows, "notes": opened.notes}, indent=2))
        return 1 if found else 0
    for note in opened.notes:
        say(f"note: {note}", file=sys.stderr)
    reasons = Counter(each.error.reason for each in found)
    listed = ", ".join(f"{reason} {number:,}" for reason, number in reasons.most_common())
    say(f"{source}: {len(opened):,} samples, {f'{len(found):,} broken: {listed}' if found else 'none broken'}")
    return 1 if found else 0


def _served_side(path: Path) -> Pipeline:
    """Load the serving side of a pipeline, adapted to input from files, and print to stderr which ops it omits."""
    pipeline = Pipeline.load(path).for_serving().for_files()
    if pipeline.left_out:
        say(f"{path}: {pipeline.left_out}", file=sys.stderr)
    return pipeline
