"""Commands with their options and exit codes; the docstrings are the help that users read.

A command imports what it needs when it runs: ``pixprep run`` works where nothing of Triton is installed.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pixprep import presets
from pixprep.cli.output import Progress, called, log_to_stderr, print_answer, print_row, quiet, say, say_text, summary
from pixprep.decoders import Format, Limits
from pixprep.engine import Batch, Engine
from pixprep.errors import ImageError, PixprepError, SetupError
from pixprep.files import expand, named, npy_stems, of_file, read, skipped
from pixprep.pipeline import Pipeline
from pixprep.show.warnings import black_margins
from pixprep.show.words import explain
from pixprep.steps import operators
from pixprep.writing import whole, write

if TYPE_CHECKING:
    from pixprep.serve.request import ModelInput

PRESETS = {name: getattr(presets, name) for name in ("imagenet", "clip", "efficientnet_lite0", "letterbox")}
CONCURRENCY = (1, 4, 16)
PAGE_PORT = 8003
TRACE_RATE = 100
ROWS_PER_FILE = 1000
_logger = logging.getLogger(__name__)
_PACKAGED = Path(__file__).parents[1] / "photos"
PHOTOS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "client_examples" / "images"
"""Two photos: in the wheel, or else in the checkout."""


def write_repository(
    *, output: Path, pipeline: Path | None, preset: str | None, image: Path | None, **options: Any
) -> int:
    """Write a model repository: preprocess, classifier, ensemble. Without arguments, the demo.

    pixprep build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models
    """
    from pixprep.repository import build, try_out

    photo = _photo(image)
    if options["parameters"] is not None:
        options["parameters"] = dict(options["parameters"])
    allowed = (options["parameters"] or {}).get("allow_operators", "").split()
    given = Pipeline.load(pipeline, operators=allowed) if pipeline else None
    built = build(output, pipeline=PRESETS[preset]() if preset else given, **options)
    for path in built.paths:
        say(path)
    for note in built.notes:
        say_text(note, file=sys.stderr)
    _preview(photo, lambda encoded: try_out(output, encoded, name=options["name"]))
    if options["plan"] or options["classifier"] != "tensorrt":  # else the plan is made first, as a note says
        say(f"next  {called()} serve --model-repository {shlex.quote(str(output))}", file=sys.stderr)
    return 0


def check_path(*, path: Path, image: Path | None, odd_range: bool, as_json: bool) -> int:
    """Check a model repository or a pipeline file, without a server.

    pixprep check models
    """
    from pixprep.repository import check, check_pipeline, side_notes, try_out

    photo = _photo(image)
    if not path.exists():
        raise PixprepError(f"{path}: no such file or folder")
    problems = check(path) if path.is_dir() else check_pipeline(path, odd_range=odd_range)
    if as_json:
        say_text(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            say(problem)
        for margin in [] if problems or path.is_dir() else black_margins(Pipeline.load(path)):
            say(f"{path.name}: {margin}", file=sys.stderr)
        if len(problems) != 1:  # one says it all
            say(f"{path}: {f'{len(problems)} problems' if problems else 'no problem found'}")
    for note in side_notes(path):
        say(note, file=sys.stderr if as_json else sys.stdout)
    if image and not problems:
        try:
            lines = try_out(path, photo[1]) if path.is_dir() else _lines(Pipeline.load(path), photo[1])
            for line in lines:
                say(line, file=sys.stderr if as_json else sys.stdout)
        except ImageError as error:
            raise PixprepError(f"{image}: {error}") from None
    return 1 if problems else 0


def import_pipeline(
    *, source: str, file: Path, option: Sequence[tuple[str, Any]], training: str | None, image: Path | None, force: bool
) -> int:
    """Write a model's own preprocessing as a pipeline file: of torchvision, timm, transformers, Keras ...

    pixprep import timm:resnet50.a1_in1k pipeline.json
    """
    from pixprep import importers

    if file.exists() and not force:
        raise PixprepError(f"{file}: exists already; --force writes over it")
    photo = _photo(image)
    options = {**dict(option), **({} if training is None else {"training": training})}
    pipeline = importers.import_pipeline(source, **options)
    with named(file, "cannot be written"):
        pipeline.save(file)
    origin = pipeline.origin
    assert origin
    version = "" if origin.version == "unknown" else f" {origin.version}"
    say(f"{file}: {origin.name} of {origin.library}{version}, pixels as in {origin.profile}")
    if origin.library == "ultralytics":
        from pixprep.importers.ultralytics import own_code

        for line in own_code(Path(source.removeprefix("ultralytics:"))):
            say(f"{origin.name}: this is what Ultralytics does to an image; {line}: docs/detection.md", file=sys.stderr)
    _preview(photo, lambda encoded: _lines(pipeline, encoded))
    say(f"next  {called()} verify {shlex.quote(str(file))}", file=sys.stderr)
    return 0


def _photo(image: Path | None) -> tuple[str, bytes]:
    """Name and bytes of the photo of a preview: the user's, or one that pixprep brings along."""
    path = image or PHOTOS / "china.jpg"
    if path.is_dir():
        raise PixprepError(f"{path}: is a folder: name a photo in it")
    with named(path, "cannot be read"):
        return str(path) if image else f"{path.name}, which pixprep brings along", path.read_bytes()


def _lines(pipeline: Pipeline, encoded: bytes) -> Iterator[str]:
    from pixprep.show.preview import preview

    return preview(pipeline, encoded).lines()


def _preview(photo: tuple[str, bytes], lines: Callable[[bytes], Iterator[str]]) -> None:
    """Say on stderr what one photo becomes. A hint: a photo that cannot be shown fails nothing.

    Raises:
        PipelineError: every photo would fail.
    """
    name, encoded = photo
    say(f"preview of {name}:", file=sys.stderr)
    try:
        for line in lines(encoded):
            say(f"  {line}", file=sys.stderr)
    except (ImageError, SetupError, OSError, MemoryError) as error:
        another = "" if isinstance(error, SetupError) else "; --image takes another"
        say(f"  not shown: {error or 'out of memory'}{another}", file=sys.stderr)


def verify_pipeline(
    *, pipeline: Path, images: Sequence[Path], training: bool, seed: int, output: Path | None, as_json: bool
) -> int:
    """Compare a pipeline with the library whose pixels it claims to give, stage by stage.

    pixprep verify pipeline.json --images photos --output worst.png
    """
    from pixprep.verify import verify, verify_training

    _check_picture(output, images)
    paths = expand(images)
    _say_skipped(images)
    loaded = Pipeline.load(pipeline) if training else _served(pipeline)
    with Progress("images") as progress:
        if training:
            certificate = verify_training(loaded, seed=seed, images=paths, on_progress=progress.to)
        else:
            certificate = verify(loaded, images=paths, on_progress=progress.to)
    say_text(certificate.to_json() if as_json else str(certificate))
    if output:
        from pixprep.show.worst import worst

        picture = worst(certificate)
        if picture:
            _write_picture(output, picture)
        said = "the picture of the worst image" if picture else "not written: nothing differs"
        say(f"{output}: {said}", file=sys.stderr)
    return 0 if certificate.holds else 1


def explain_pipeline(*, pipeline: Path, size: tuple[int, int], image: Path | None, output: Path | None) -> int:
    """Say what a pipeline does: ops, plan, shapes; and show it, as a picture of one photo at every stage.

    pixprep explain pipeline.json --image photo.jpg --output stages.png
    """
    _check_picture(output, [image] if image else [])
    loaded = Pipeline.load(pipeline)
    if not image and not output:
        say_text(explain(loaded, height=size[0], width=size[1]))
        return 0
    from pixprep.show.preview import preview, still

    name, encoded = _photo(image)
    try:
        encoded = bytes(still(loaded, encoded))
        found = preview(loaded, encoded)
        say_text(explain(loaded, height=found.height, width=found.width))
        for line in found.lines():
            say(line)
        if output:
            from pixprep.show.pictures import stages

            _write_picture(output, stages(loaded, encoded, title=pipeline.name, name=Path(name).name))
            say(f"{output}: the picture of its stages", file=sys.stderr)
    except ImageError as error:
        raise PixprepError(f"{name}: {error}") from None
    return 0


def _check_picture(output: Path | None, photos: Sequence[Path]) -> None:
    """Refuse a picture that no viewer would know, or that would take the place of a photo."""
    if output is None:
        return
    if output.suffix.lower() != ".png":
        raise PixprepError(f"{output}: the picture is a PNG file: name it .png")
    if output.exists() and any(photo.exists() and photo.samefile(output) for photo in expand(photos)):
        raise PixprepError(f"{output}: is one of the photos: name another file")


def _write_picture(output: Path, picture: Any) -> None:
    from pixprep.show.drawing import to_png

    with named(output, "cannot be written"):
        write(output, to_png(picture))


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
    """Run a pipeline on files, without a server: a summary of each output, or one .npy an output.

    pixprep run pipeline.json cat.jpg dog.jpg --output tensors
    """
    paths = expand(files)
    _say_skipped(files)
    failed = 0
    limits = Limits(formats=tuple(formats))
    numbers = _numbers(inputs)
    served = _served(pipeline)
    for name, spec in served.inputs.items():
        if name not in numbers:
            such = f"--input {name}={json.dumps([spec.example])}"
            raise PixprepError(f'{pipeline}: takes "{name}", {spec}, with each image: {such}')
    if output and output.exists() and not output.is_dir():
        raise PixprepError(f"{output}: is a file: --output takes a folder")
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


def _served(path: Path) -> Pipeline:
    """The serving side of a pipeline file, which decodes files; what it leaves out is said."""
    pipeline = Pipeline.load(path).for_serving().for_files()
    if pipeline.left_out:
        say(f"{path}: {pipeline.left_out}", file=sys.stderr)
    return pipeline


def run_manifest(*, manifest: Path, pipeline: Path, output: Path, **options: Any) -> int:
    """Run a pipeline on the images of a list with Ray, here or on a cluster: Parquet files, a row an image.

    pixprep batch manifest.txt --pipeline pipeline.json --output tensors
    """
    loaded = _served(pipeline)
    from pixprep import ray

    # counting is for who watches the bar
    total = sum(1 for _ in ray.manifest(manifest, options["column"])) if sys.stderr.isatty() else None
    with Progress("images") as progress:
        done = ray.batch(manifest, loaded, output, progress=lambda rows, _: progress.to(rows, total), **options)
    rate = f" ({done.rows / done.seconds:.1f} a second)" if done.rows else ""
    files = f"files written {done.files}, there before {done.skipped}"
    say(f"{output}: images {done.rows}, failed {done.errors}, {files}, {done.seconds:.1f} s{rate}")
    return 1 if done.rows and done.errors == done.rows else 0


def _say_skipped(paths: Sequence[Path]) -> None:
    for text in skipped(paths):
        say(text, file=sys.stderr)


def _results(
    engine: Engine, paths: Sequence[Path], numbers: dict[str, Any]
) -> Iterator[list[dict[str, Any] | str | ImageError]]:
    """For each file, or each box of it, its outputs, or why there are none; several files, for every thread's sake."""
    several = 2 * engine.lanes
    for start in range(0, len(paths), several):
        some = paths[start : start + several]
        contents = [read(path) for path in some]
        readable = [(path, content) for path, content in zip(some, contents, strict=True) if isinstance(content, bytes)]
        given = [of_file(numbers, path) for path, _ in readable]
        batch = engine.run_batch(
            [content for _, content in readable],
            inputs={name: [each[name] for each in given] for name in numbers},
        )
        spans = iter(batch.rows)
        for content in contents:
            yield [content] if isinstance(content, str) else _of_image(batch, next(spans))


def _of_image(batch: Batch, span: slice) -> list[dict[str, Any] | str | ImageError]:
    """Give the rows of an image; a tensor may lie on a GPU."""
    return [
        batch.errors[row]
        or {name: array[row].get() if hasattr(array, "get") else array[row] for name, array in batch.outputs.items()}
        for row in range(span.start, span.stop)
    ]


def _rows(result: dict[str, Any] | str | ImageError, stem: Path | None) -> Iterator[dict[str, Any]]:
    """Rows to print of a file, one for each output, which is written to ``STEM.npy``, or ``STEM.NAME.npy``."""
    if not isinstance(result, dict):
        yield {"error": str(result)}
        return
    for name, array in result.items():
        row = {"name": name} if len(result) > 1 else {}
        row |= summary(array)
        if stem:
            path = stem.with_name(f"{stem.name}.{name}.npy" if row.get("name") else f"{stem.name}.npy")
            with named(path, "cannot be written"), whole(path) as file:
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
    """Draw a contact sheet: what training sees of a data set, with boxes and what was drawn.

    pixprep preview pipeline.json train --output sheet.png
    """
    from pixprep.data.opening import open_source
    from pixprep.show.contact_sheet import contact_sheet

    _check_picture(output, [])
    if Path(source).is_dir() and output.resolve().is_relative_to(Path(source).resolve()):
        raise PixprepError(f"{output}: would be one of the samples: name a file outside {source}")
    loaded = Pipeline.load(pipeline)
    side = loaded.for_serving() if serving else loaded.for_training()
    with quiet():  # the sheet names what is broken
        opened = open_source(source, dict(option))
        sheet = contact_sheet(opened, side, title=f"{pipeline.name}, {source}", **options)
    _write_picture(output, sheet)
    say(f"{output}: what {'serving' if serving else 'training'} sees", file=sys.stderr)
    return 0


def check_data(
    *, source: str, option: Sequence[tuple[str, Any]], pipeline: Path | None, threads: int | None, as_json: bool
) -> int:
    """Decode every sample of a data set once, and name what is broken.

    pixprep data check coco:instances.json --option images=train2017
    """
    from pixprep.data.check import check
    from pixprep.data.opening import open_source

    def say_broken(broken: Any) -> None:
        if not as_json:
            with progress.hidden():
                say(broken.error)

    with quiet():  # all that is logged is said below
        opened = open_source(source, dict(option))
        through = Pipeline.load(pipeline).for_training() if pipeline else None
        with Progress("samples") as progress:
            found = check(opened, pipeline=through, threads=threads, on_broken=say_broken, on_progress=progress.to)
    if as_json:
        rows = [{"index": each.index, "reason": each.error.reason, "detail": each.error.detail} for each in found]
        say_text(json.dumps({"samples": len(opened), "broken": rows, "notes": opened.notes}, indent=2))
        return 1 if found else 0
    for note in opened.notes:
        say(f"note: {note}", file=sys.stderr)
    reasons = Counter(each.error.reason for each in found)
    listed = ", ".join(f"{reason} {number:,}" for reason, number in reasons.most_common())
    say(f"{source}: {len(opened):,} samples, {f'{len(found):,} broken: {listed}' if found else 'all whole'}")
    return 1 if found else 0


def serve_models(
    *,
    model_repository: Path,
    no_check: bool,
    watch: bool,
    page: bool,
    page_port: int,
    log_format: str,
    allow_operators: Sequence[str],
    **options: Any,
) -> int:
    """Serve a model repository with the embedded Triton, until Ctrl-C.

    pixprep serve --model-repository model_repository --http-port 8000
    """
    from pixprep.repository import check
    from pixprep.serve import supervisor
    from pixprep.serve.page.process import Page
    from pixprep.serve.request import CLIP
    from pixprep.serve.server import Server

    if allow_operators:  # Triton's processes have our environment
        names = [*os.environ.get(operators.VARIABLE, "").split(), *allow_operators]
        os.environ[operators.VARIABLE] = " ".join(dict.fromkeys(names))
    as_json = log_format == "json"
    server = Server(model_repository, **options)
    shown = Page(page_port) if page else None

    def say_ready() -> None:
        urls = {"http": server.http_url, "grpc": server.grpc_url, "metrics": server.metrics_url}
        hashes = server.snapshot.hashes
        if shown:
            shown.start(server)
        if as_json:
            page_url = {"page": shown.url} if shown else {}
            log = {"triton_log": str(server.log_file)}
            _logger.info("ready", extra={**urls, **page_url, **log, "models": hashes})
            return
        models = "  ".join(f"{name} {hash_}" for name, hash_ in hashes.items())
        model = server.models_to_try[0]
        photos = PHOTOS.relative_to(Path.cwd()) if PHOTOS.is_relative_to(Path.cwd()) else PHOTOS
        model_input = server.control.model_input(model)
        file = CLIP if model_input and model_input.frames else photos
        of_model = ["--model", model] if model != "ensemble" else []
        of_model += _example_inputs(model_input)
        send = f"{called()} {shlex.join(['send', str(file), '--url', server.http_url, *of_model])}"
        say(f"ready  {'  '.join(map(' '.join, urls.items()))}", *(f"try    {line}" for line in (send, *server.curls)))
        say(f"files  {models}")
        if shown:
            say(f"page   {shown.url}")

    log_to_stderr(as_json=as_json)
    find_problems: supervisor.Check = (lambda _: ()) if no_check else check
    try:
        _refuse_problems(model_repository, find_problems)
        with shown or nullcontext():
            supervisor.serve(server, on_ready=say_ready, watch=find_problems if watch else None)
    except PixprepError as error:
        if not as_json:
            raise
        for line in error.args:
            _logger.critical("%s", line)
        return 1
    if as_json:
        _logger.info("stopped")
    else:
        say("stopped", file=sys.stderr)
    return 0


def _example_inputs(model_input: ModelInput | None) -> list[str]:
    """The options of ``send`` for a model that takes numbers beside images."""
    given = model_input.example if model_input else {}
    return [word for name, rows in given.items() for word in ("--input", f"{name}={json.dumps(rows)}")]


def _refuse_problems(model_repository: Path, find_problems: Callable[[Path], Sequence[object]]) -> None:
    # what is no folder at all, the server refuses in its own words
    problems = find_problems(model_repository) if model_repository.is_dir() else []
    if problems:
        raise PixprepError(f"{model_repository} would not load; --no-check serves it all the same", *map(str, problems))


def send_images(*, paths: Sequence[Path], as_json: bool, inputs: Sequence[tuple[str, Any]] = (), **options: Any) -> int:
    """Send images to a server: files, or folders of them.

    pixprep send photos --protocol grpc --model ensemble --batch 8
    """
    from pixprep.serve import client

    failed = 0
    options["inputs"] = _numbers(inputs)
    _say_skipped(paths)
    with Progress("images") as progress:
        for answer in client.send(paths, on_progress=progress.to, **options):
            failed += answer.error is not None
            with progress.hidden():
                print_answer(answer, as_json=as_json)
    return 1 if failed else 0


def _numbers(inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Numbers of ``--input``, or of the JSON file that it names."""
    found = {}
    for name, value in inputs:
        found[name] = value
        if isinstance(value, str):
            with named(Path(value), "cannot be read"):
                text = Path(value).read_text(encoding="utf-8")
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise PixprepError(f"{value}: is no JSON: {error}") from None
    return found


def ask_health(*, model: str, **options: Any) -> int:
    """Send one image through a model: exit code 0 if it answers in time. For Kubernetes and load balancers.

    pixprep health --model ensemble --timeout 2
    """
    from pixprep.serve import client

    say(f"ok  {model}  {client.health(model=model, **options):.1f} ms")
    return 0


def measure_server(
    *,
    paths: Sequence[Path],
    concurrency: Sequence[int] | None,
    rate: Sequence[float],
    csv_file: Path | None,
    json_file: Path | None,
    print_command: bool,
    as_json: bool,
    inputs: Sequence[tuple[str, Any]],
    **options: Any,
) -> int:
    """Measure a server with perf_analyzer: throughput and latency.

    pixprep bench photos --protocol grpc --concurrency 1 4 16 --rate 50 --csv-file bench.csv
    """
    from pixprep.serve import perf

    reports = [(path, text) for path, text in ((csv_file, perf.to_csv), (json_file, perf.to_json)) if path]
    for path, _ in reports:  # before minutes of measuring
        if path.is_dir() or not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            raise PixprepError(f"{path}: cannot be written: name a file in a folder that you may write")
    images = []
    _say_skipped(paths)
    for path in expand(paths):
        with named(path, "cannot be read"):
            images.append(path.read_bytes())
    options["inputs"] = _numbers(inputs)
    concurrency = concurrency or (() if rate else CONCURRENCY)
    if print_command:
        folder = Path(tempfile.mkdtemp(prefix="pixprep-bench-"))
        try:
            say(*perf.command_lines(images, folder, concurrency=concurrency, rate=rate, **options))
        except BaseException:
            shutil.rmtree(folder)
            raise
        say(f"{folder}: holds what the command needs; remove it when you are done", file=sys.stderr)
        return 0
    loads = len(concurrency) + len(rate)
    done = count(1)
    with Progress("loads") as progress:
        progress.to(0, loads)
        rows = perf.measure(
            images,
            concurrency=concurrency,
            rate=rate,
            on_progress=lambda _: progress.to(next(done), loads),
            **options,
        )
    say_text(perf.to_json(rows) if as_json else perf.to_table(rows))
    for path, text in reports:
        with named(path, "cannot be written"):
            write(path, text(rows))
    return 0


def show_demo(*, photos: Sequence[Path], model_repository: Path, force: bool, stay: bool) -> int:
    """Build the demo repository, serve it, and classify photos over HTTP and gRPC.

    pixprep demo cat.jpg holiday_photos --stay
    """
    from pixprep.serve.wheel import find_wheel

    find_wheel()  # before anything is written or fetched: there may be no Triton for this Python
    from pixprep.repository import build, lite0
    from pixprep.serve import supervisor
    from pixprep.serve.page.process import Page
    from pixprep.serve.server import Server

    paths = photos or [PHOTOS]
    expand(paths)
    http, grpc, metrics = (8000, 8001, 8002) if stay else (0, 0, 0)
    server = Server(model_repository, http_port=http, grpc_port=grpc, metrics_port=metrics)
    codes = []

    def send() -> None:
        say(f"ready     http {server.http_url}  grpc {server.grpc_url}")
        for protocol, url in (("http", server.http_url), ("grpc", server.grpc_url)):
            words = ["send", *map(str, paths), "--protocol", protocol, "--url", url]
            say("", f"$ {called()} {shlex.join(words)}")
            codes.append(send_images(paths=paths, protocol=protocol, url=url, classes=5, as_json=False))
        if stay:
            page.start(server)
            say("", f"page      {page.url}", "serving until Ctrl-C; try", *(f"$ {line}" for line in server.curls))

    say(f"building  {model_repository}: preprocess, classifier (EfficientNet-lite0), ensemble")
    try:
        lite0.find_checkpoint()
    except SetupError:
        say("fetching  the weights of the classifier (16 MB, once)")
        lite0.fetch_checkpoint()
    try:
        build(model_repository, force=force)
    except SetupError as error:
        raise SetupError(*error.args, "the demo takes another folder by --model-repository") from None
    say("starting  Triton")
    if stay:
        log_to_stderr()
        with Page(PAGE_PORT) as page:
            supervisor.serve(server, on_ready=send)
    else:
        with server:
            send()
    say("", "stopped")
    if not stay:
        say(f"next      {called()} serve --model-repository {shlex.quote(str(model_repository))}")
    return max(codes)


def look_for_traps(*, as_json: bool) -> int:
    """Look for each trap that this machine may have, with the remedy.

    pixprep doctor
    """
    from pixprep.serve import doctor

    checks = doctor.checks()
    if as_json:
        say_text(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        for check in checks:
            say(f"{marks[check.ok]}  {check.name}: {check.found}")
            if not check.ok and check.remedy:
                say(f"      {check.remedy}")
    return 1 if any(check.ok is False for check in checks) else 0


def write_backend(*, directory: Path) -> int:
    """Write the backend, with the package in it, into a Triton's backend directory.

    pixprep install-backend /opt/tritonserver/backends
    """
    from pixprep.repository.backend import install_backend

    say(install_backend(directory))
    return 0
