"""The command line: arguments in, words out; everything else happens in the modules it calls.

Exit codes: 0 done, 1 failed, 2 wrong usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from pixprep import __version__, presets
from pixprep.decoders import Limits
from pixprep.engine import Engine
from pixprep.errors import ImageError, PixprepError, printable
from pixprep.explain import explain
from pixprep.pipeline import Pipeline

PRESETS = {name: getattr(presets, name) for name in ("imagenet", "clip", "efficientnet_lite0", "letterbox")}
CONCURRENCY = (1, 4, 16)
# Triton's classification extension: score:class:label, and without the label where the model has no file of them
_CLASS = re.compile(r"(-?\d+\.\d+):(\d+)(?::(.*))?")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code = int(arguments.command(arguments))
        sys.stdout.flush()  # what fails to be written fails here, and not when Python ends
    except PixprepError as error:
        lines = (printable(line) for line in str(error).split("\n"))
        print("pixprep: " + "\n".join(lines), file=sys.stderr)
    except KeyboardInterrupt:
        print("pixprep: interrupted", file=sys.stderr)
    except OSError as error:  # the user's: no permission, a full disk, a folder in place of a file
        if not isinstance(error, BrokenPipeError):  # the reader of our output has gone, as with ``| head``
            where = f"{error.filename}: " if error.filename else ""
            print(f"pixprep: {printable(where)}{error.strerror or error}", file=sys.stderr)
    else:
        return code
    _forget_output()
    return 1


def _forget_output() -> None:
    """What cannot be written now cannot at Python's end either, which would try again, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _build(arguments: argparse.Namespace) -> int:
    repository = import_module("pixprep.triton.repository")
    pipeline = Pipeline.load(arguments.pipeline) if arguments.pipeline else None
    if arguments.preset:
        pipeline = PRESETS[arguments.preset]()
    built = repository.build(
        arguments.output,
        pipeline=pipeline,
        onnx=arguments.onnx,
        plan=arguments.plan,
        classifier=arguments.classifier,
        classifier_io=arguments.classifier_io or None,
        on_error=arguments.on_error,
        max_batch_size=arguments.max_batch_size,
        force=arguments.force,
    )
    for path in built.paths:
        print(path)
    for note in built.notes:
        print(note, file=sys.stderr)
    return 0


def _import(arguments: argparse.Namespace) -> int:
    importers = import_module("pixprep.importers")
    if arguments.file.exists() and not arguments.force:
        raise PixprepError(f"{arguments.file}: exists already; --force writes over it")
    pipeline = importers.import_pipeline(arguments.source, **dict(arguments.option))
    with _naming(arguments.file, "cannot be written"):
        pipeline.save(arguments.file)
    source = pipeline.source
    version = "" if source.version == "unknown" else f" {source.version}"
    print(f"{arguments.file}: {source.name} of {source.library}{version}, pixels as in {source.profile}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    verify = import_module("pixprep.verify")
    paths = import_module("pixprep.triton.client").expand(arguments.images) if arguments.images else []
    pipeline = Pipeline.load(arguments.pipeline)
    with _progress("images") as progress:
        certificate = verify.verify(pipeline, images=paths, on_progress=progress.to)
    print(certificate.to_json() if arguments.json else certificate)
    return 0 if certificate.holds else 1


def _check(arguments: argparse.Namespace) -> int:
    repository = import_module("pixprep.triton.repository")
    if not arguments.path.exists():
        raise PixprepError(f"{arguments.path}: no such file or folder")
    problems = (
        repository.check(arguments.path) if arguments.path.is_dir() else repository.check_pipeline(arguments.path)
    )
    if arguments.json:
        print(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            print(problem)
        if len(problems) != 1:  # one says it all
            print(f"{arguments.path}: {f'{len(problems)} problems' if problems else 'no problem found'}")
    return 1 if problems else 0


def _explain(arguments: argparse.Namespace) -> int:
    height, width = arguments.size
    print(explain(Pipeline.load(arguments.pipeline), height=height, width=width), end="")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    files = import_module("pixprep.triton.client").expand(arguments.files)
    failed = 0
    with Engine(Pipeline.load(arguments.pipeline), device=arguments.device, threads=arguments.threads) as engine:
        if arguments.output:
            with _naming(arguments.output, "cannot be written"):
                arguments.output.mkdir(parents=True, exist_ok=True)
        for file, name, result in zip(files, _npy_names(files), _results(engine, files), strict=True):
            row: dict[str, Any] = {"file": str(file)}
            if isinstance(result, str | ImageError):
                failed += 1
                row["error"] = str(result)
            else:
                row |= _summary(result)
                if arguments.output:
                    row["output"] = str(arguments.output / name)
                    with _naming(arguments.output / name, "cannot be written"):
                        np.save(row["output"], result)
            _print_row(row, as_json=arguments.json)
    return 1 if failed else 0


def _results(engine: Engine, files: Sequence[Path]) -> Iterator[Any]:
    """For each file its tensor, or why there is none; a few at once, so that every thread has work."""
    several = 2 * engine.lanes
    for chunk in (files[start : start + several] for start in range(0, len(files), several)):
        encoded: dict[Path, bytes] = {}
        unreadable: dict[Path, str] = {}
        for file in chunk:
            try:
                encoded[file] = file.read_bytes()
            except OSError as error:
                unreadable[file] = str(error.strerror)
        results = dict(zip(encoded, map(_on_host, engine.run(list(encoded.values()))), strict=True))
        for file in chunk:
            yield unreadable.get(file) or results[file]


def _on_host(result: Any) -> Any:
    """A tensor that the engine left on a GPU comes from there."""
    return result.get() if hasattr(result, "get") else result


def _npy_names(files: Sequence[Path]) -> Iterator[str]:
    """For each file ``cat.npy``; ``cat.jpg.npy`` if there is another cat; ``cat.jpg-2.npy`` if it is a cat.jpg, too."""
    stems = Counter(file.stem for file in files)
    taken: set[str] = set()
    for file in files:
        first = file.stem if stems[file.stem] == 1 else file.name
        name = next(name for name in chain([first], (f"{first}-{n}" for n in count(2))) if name not in taken)
        taken.add(name)
        yield f"{name}.npy"


@contextmanager
def _naming(path: Path, what: str) -> Iterator[None]:
    """Name the file that an OSError inside is about: those of reading and of a full disk do not."""
    try:
        yield
    except OSError as error:
        raise PixprepError(f"{path}: {what}: {error.strerror or error}") from None


def _summary(array: Any) -> dict[str, Any]:
    values = array.astype(np.float64)
    summary = {"shape": list(array.shape), "dtype": str(array.dtype)}
    return summary | {"min": values.min(), "max": values.max(), "mean": values.mean()}


def _summary_text(summary: dict[str, Any]) -> str:
    return "{dtype} {shape}  min {min:.4g}  max {max:.4g}  mean {mean:.4g}".format(**summary)


def _print_row(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row))
    elif "error" in row:
        print(f"{printable(row['file'])}: {row['error']}", file=sys.stderr)
    else:
        where = f"  -> {printable(row['output'])}" if "output" in row else ""
        print(f"{printable(row['file'])}: {_summary_text(row)}{where}")


def _serve(arguments: argparse.Namespace) -> int:
    # what is no folder at all, the server refuses in its own words
    is_to_check = arguments.model_repository.is_dir() and not arguments.no_check
    problems = import_module("pixprep.triton.repository").check(arguments.model_repository) if is_to_check else []
    if problems:
        lines = "\n".join(str(problem) for problem in problems)
        raise PixprepError(f"{arguments.model_repository} would not load; --no-check serves it all the same\n{lines}")
    server_module, pool = import_module("pixprep.triton.server"), import_module("pixprep.triton.pool")
    pool_arguments = pool.server_arguments(arguments.model_repository, images_in_flight=arguments.images_in_flight)
    if pool_arguments:
        os.environ[pool.VARIABLE] = str(pool.pool_in(pool_arguments))
    server = server_module.Server(
        arguments.model_repository,
        host=arguments.host,
        allow_remote=arguments.allow_remote,
        http_port=arguments.http_port,
        grpc_port=arguments.grpc_port,
        metrics_port=arguments.metrics_port,
        log_file=arguments.log_file,
        extra_args=pool_arguments,
    )
    logging.basicConfig(format="pixprep: %(message)s")
    watch = import_module("pixprep.triton.supervisor").watch
    stopping = Event()

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one does not cut short what the first began
            signal.signal(number, signal.SIG_IGN)
        stopping.set()  # Python forgets an exception that happens to be raised inside a finalizer
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, stop)
    code = None
    try:
        with server:
            ready = f"ready  http {server.http_url}  grpc {server.grpc_url}  metrics {server.metrics_url}"
            print(f"{ready}\n{_curl(arguments.model_repository, server.http_url)}", flush=True)
            code = watch(server, _pipeline_models(arguments.model_repository), stopping)
    except KeyboardInterrupt:
        pass
    if code is None:
        print("stopped", file=sys.stderr)
        return 0
    raise PixprepError(f"Triton ended by itself with exit code {code}; its log: {server.log_file}")


def _curl(model_repository: Path, http_url: str) -> str:
    """The line to try: it asks the ensemble, or else the first model that has a pipeline."""
    models = ["ensemble"] * (model_repository / "ensemble").is_dir() + _pipeline_models(model_repository)
    return (
        "try    curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0' "
        f"-H 'Content-Type: application/octet-stream' {http_url}/v2/models/{[*models, 'MODEL'][0]}/infer -o answer.bin"
    )


def _pipeline_models(model_repository: Path) -> list[str]:
    return sorted({path.parents[1].name for path in model_repository.glob("*/*/pipeline.json")})


def _send(arguments: argparse.Namespace) -> int:
    client = import_module("pixprep.triton.client")
    failed = 0
    with _progress("images") as progress:
        for answer in client.send(
            arguments.paths,
            url=arguments.url,
            protocol=arguments.protocol,
            model=arguments.model,
            batch=arguments.batch,
            classes=arguments.top,
            timeout_s=arguments.timeout,
            on_progress=progress.to,
        ):
            failed += answer.error is not None
            with progress.hidden():
                _print_answer(answer, as_json=arguments.json)
    return 1 if failed else 0


def _print_answer(answer: Any, *, as_json: bool) -> None:
    if as_json:
        row = {"file": str(answer.path), "latency_ms": answer.latency_ms}
        outputs = {name: _json_value(array) for name, array in answer.outputs.items()}
        print(json.dumps(row | ({"error": answer.error} if answer.error else {"outputs": outputs})))
    elif answer.error:
        print(f"{printable(answer.path)}: {printable(answer.error)}", file=sys.stderr)
    else:
        print(f"{printable(answer.path)}  {answer.latency_ms:.1f} ms")
        for name, array in answer.outputs.items():
            for line in _lines(array):
                print(f"    {printable(name)}  {printable(line)}")


def _json_value(array: Any) -> Any:
    """An output for programs: classes as objects, a list of numbers in full, an image's tensor as its summary."""
    if array.dtype == object:
        texts = _texts(array)
        found = [_CLASS.fullmatch(text) for text in texts]
        return [
            {"score": float(match[1]), "class": int(match[2]), "label": match[3]} if match else text
            for match, text in zip(found, texts, strict=True)
        ]
    return array.tolist() if array.ndim <= 1 else _summary(array)


def _lines(array: Any) -> Iterator[str]:
    """An output for people: a class a line, a few numbers as they are, more of them as their summary."""
    if array.dtype == object:
        for text in _texts(array):
            match = _CLASS.fullmatch(text)
            yield f"{float(match[1]):9.4f}  class {match[2]:>3}  {match[3] or ''}".rstrip() if match else text
    else:
        yield str(array.tolist()) if array.size <= 16 else _summary_text(_summary(array))


def _texts(array: Any) -> list[str]:
    return [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in array.reshape(-1)]


def _health(arguments: argparse.Namespace) -> int:
    latency_ms = import_module("pixprep.triton.client").health(
        url=arguments.url, protocol=arguments.protocol, model=arguments.model, timeout_s=arguments.timeout
    )
    print(f"ok  {arguments.model}  {latency_ms:.1f} ms")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    client, perf = import_module("pixprep.triton.client"), import_module("pixprep.triton.perf")
    reports = [
        (path, text) for path, text in ((arguments.csv_file, perf.to_csv), (arguments.json_file, perf.to_json)) if path
    ]
    for path, _ in reports:  # before minutes of measuring
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PixprepError(f"{path}: cannot be written: name a file in a folder that you may write")
    images = []
    for path in client.expand(arguments.paths):
        with _naming(path, "cannot be read"):
            images.append(path.read_bytes())
    concurrency = arguments.concurrency or (() if arguments.rate else CONCURRENCY)
    loads = len(concurrency) + len(arguments.rate)
    done = iter(range(1, loads + 1))
    with _progress("loads") as progress:
        progress.to(0, loads)
        rows = perf.measure(
            images,
            url=arguments.url,
            protocol=arguments.protocol,
            model=arguments.model,
            batch=arguments.batch,
            concurrency=concurrency,
            rate=arguments.rate,
            seconds=arguments.seconds,
            on_progress=lambda _: progress.to(next(done), loads),
        )
    print(perf.to_json(rows) if arguments.json else perf.to_table(rows), end="")
    for path, text in reports:
        with _naming(path, "cannot be written"):
            path.write_text(text(rows), encoding="utf-8")
    return 0


class _Progress:
    """A bar on stderr, if that is a terminal."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None

    def to(self, done: int, total: int) -> None:
        """Show how far it is."""
        if self._bar is None:
            if find_spec("tqdm") is None:  # what needs its extra says so
                return
            tqdm = import_module("tqdm")
            self._bar = tqdm.tqdm(total=total, unit=f" {self._unit}", leave=False, disable=None)
        self._bar.update(done - self._bar.n)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Print inside, so that the bar does not stand in the middle of a line."""
        if self._bar is None:
            yield
        else:
            with self._bar.external_write_mode():
                yield

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def _progress(unit: str) -> Iterator[_Progress]:
    progress = _Progress(unit)
    try:
        yield progress
    finally:
        progress.close()


def _doctor(arguments: argparse.Namespace) -> int:
    doctor = import_module("pixprep.triton.doctor")
    checks = doctor.checks()
    if arguments.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        marks = {True: "ok  ", False: "FAIL", None: "note"}
        for check in checks:
            print(f"{marks[check.ok]}  {check.name}: {check.found}")
            if check.ok is False or (check.ok is None and check.remedy):
                print(f"      {check.remedy}")
    return 1 if any(check.ok is False for check in checks) else 0


def _install_backend(arguments: argparse.Namespace) -> int:
    print(import_module("pixprep.triton.wheel").install_backend(arguments.directory))
    return 0


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as input=tensor")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, such as 480x640")
    try:
        Limits().check_size(int(height), int(width))
    except ImageError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return int(height), int(width)


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """What reads a whole number from ``least`` to ``most``."""
    range_ = f"from {least} to {most}" if most else f"of at least {least}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {range_}")
        return number

    return read


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pixprep", description="Image preprocessing for Triton Inference Server.")
    parser.add_argument("--version", action="version", version=f"pixprep {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str, example: str) -> Any:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=command)
        return sub

    sub = add(
        "build",
        _build,
        "Write a model repository: preprocess, classifier, ensemble. Without arguments, the demo.",
        "pixprep build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models",
    )
    text = "the repository; default: %(default)s"
    sub.add_argument("--output", type=Path, default=Path("model_repository"), metavar="DIR", help=text)
    source = sub.add_mutually_exclusive_group()
    source.add_argument("--pipeline", type=Path, metavar="FILE", help="a pipeline file")
    source.add_argument("--preset", choices=PRESETS, help="a pipeline that pixprep brings along")
    sub.add_argument("--onnx", type=Path, metavar="FILE", help="your classifier as ONNX")
    sub.add_argument("--plan", type=Path, metavar="FILE", help="your classifier as a TensorRT plan")
    sub.add_argument(
        "--classifier",
        choices=("onnxruntime", "tensorrt", "torch"),
        default="onnxruntime",
        help="what runs it; default: %(default)s",
    )
    sub.add_argument(
        "--classifier-io",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="what a plan takes and gives, such as input:FP32:3x224x224 logits:FP32:1000",
    )
    sub.add_argument(
        "--on-error",
        choices=("fail", "zero"),
        default="fail",
        help="what a bad image does: fail its request, or become zeros with the reason in `status`; "
        "default: %(default)s",
    )
    sub.add_argument("--max-batch-size", type=_whole(1), default=64, metavar="N", help="default: %(default)s")
    sub.add_argument("--force", action="store_true", help="write over what lies there")

    sub = add("check", _check, "Check a model repository or a pipeline file, without a server.", "pixprep check models")
    sub.add_argument("path", type=Path, metavar="DIR|FILE", help="a model repository, or a pipeline file")
    sub.add_argument("--json", action="store_true", help="print a list of objects: where, what, remedy")

    sub = add(
        "import",
        _import,
        "Write a model's own preprocessing as a pipeline file: of torchvision, timm, transformers, Keras ...",
        "pixprep import timm:resnet50.a1_in1k pipeline.json",
    )
    text = "LIBRARY:NAME, or a file such as preprocessor_config.json, config.json, model.dali, model.onnx"
    sub.add_argument("source", metavar="SOURCE", help=text)
    sub.add_argument("file", type=Path, metavar="FILE", help="the pipeline file to write")
    text = "of the library's importer, such as input=tensor, backend=pil, loader=image_dataset; may be repeated"
    sub.add_argument("--option", type=_option, action="append", default=[], metavar="NAME=VALUE", help=text)
    sub.add_argument("--force", action="store_true", help="write over what lies there")

    sub = add(
        "verify",
        _verify,
        "Compare a pipeline with the library whose pixels it claims to give, stage by stage.",
        "pixprep verify pipeline.json --images photos",
    )
    sub.add_argument("pipeline", type=Path, metavar="PIPELINE", help="a pipeline file")
    text = "compare with these too: images, or folders of them"
    sub.add_argument("--images", type=Path, nargs="+", default=[], metavar="FILE", help=text)
    sub.add_argument("--json", action="store_true", help="print the certificate as JSON")

    sub = add(
        "explain",
        _explain,
        "Say what a pipeline does: ops, plan, shapes.",
        "pixprep explain pipeline.json --size 480x640",
    )
    sub.add_argument("pipeline", type=Path, metavar="PIPELINE", help="a pipeline file")
    text = "height x width of the image in the example; default: 480x640"
    sub.add_argument("--size", type=_size, default=(480, 640), metavar="HxW", help=text)

    sub = add(
        "run",
        _run,
        "Run a pipeline on files, without a server: a summary, or one .npy a file.",
        "pixprep run pipeline.json cat.jpg dog.jpg --output tensors",
    )
    sub.add_argument("pipeline", type=Path, metavar="PIPELINE", help="a pipeline file")
    sub.add_argument("files", type=Path, nargs="+", metavar="FILE", help="an image, or a folder of them")
    sub.add_argument("--output", type=Path, metavar="DIR", help="write each tensor there as .npy")
    sub.add_argument("--device", default="cpu", help="cpu, gpu, gpu:1; default: %(default)s")
    sub.add_argument("--threads", type=_whole(1), metavar="N", help="default: the cores of this process")
    sub.add_argument("--json", action="store_true", help="print an object a line")

    sub = add(
        "serve",
        _serve,
        "Serve a model repository with the embedded Triton, until Ctrl-C.",
        "pixprep serve --model-repository model_repository --http-port 8000",
    )
    text = "default: %(default)s"
    sub.add_argument("--model-repository", type=Path, default=Path("model_repository"), metavar="DIR", help=text)
    sub.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    sub.add_argument("--allow-remote", action="store_true", help="let --host be more than this machine")
    for port, default in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        text = "default: %(default)s; 0: any that is free"
        sub.add_argument(f"--{port}-port", type=_whole(0, 65535), default=default, metavar="N", help=text)
    sub.add_argument("--log-file", type=Path, metavar="FILE", help="Triton's log; default: kept only if Triton fails")
    sub.add_argument("--no-check", action="store_true", help="start whatever `pixprep check` says of the repository")
    text = "on a GPU: images between the ensemble's steps at once, for which memory is set aside; default: %(default)s"
    sub.add_argument("--images-in-flight", type=_whole(1), default=512, metavar="N", help=text)

    sub = add(
        "send",
        _send,
        "Send images to a server: files, or folders of them.",
        "pixprep send photos --protocol grpc --model ensemble --batch 8",
    )
    _add_target(sub)
    text = "of each image, so many of the best classes; 0: the output itself; default: %(default)s"
    sub.add_argument("--top", type=_whole(0), default=5, metavar="N", help=text)
    text = "seconds that a request may take; default: %(default)g"
    sub.add_argument("--timeout", type=_positive, default=30.0, metavar="S", help=text)
    sub.add_argument("--json", action="store_true", help="print an object a line")

    sub = add(
        "health",
        _health,
        "Send one image through a model: exit code 0 if it answers in time. For Kubernetes and load balancers.",
        "pixprep health --model ensemble --timeout 2",
    )
    _add_server(sub)
    text = "seconds that each call may take; default: %(default)g"
    sub.add_argument("--timeout", type=_positive, default=5.0, metavar="S", help=text)

    sub = add(
        "bench",
        _bench,
        "Measure a server with perf_analyzer: throughput and latency.",
        "pixprep bench photos --protocol grpc --concurrency 1 4 16 --rate 50 --csv-file bench.csv",
    )
    _add_target(sub)
    text = "closed loops, each of N requests in flight; default: 1 4 16, or none with --rate"
    sub.add_argument("--concurrency", type=_whole(1), nargs="+", metavar="N", help=text)
    text = "Poisson arrivals, each of R requests a second"
    sub.add_argument("--rate", type=_positive, nargs="+", default=[], metavar="R", help=text)
    text = "that each of them is measured; default: %(default)g"
    sub.add_argument("--seconds", type=_positive, default=5.0, metavar="S", help=text)
    sub.add_argument("--json", action="store_true", help="print the table as JSON")
    sub.add_argument("--csv-file", type=Path, metavar="FILE", help="write the table as CSV too")
    sub.add_argument("--json-file", type=Path, metavar="FILE", help="write the table as JSON too")

    sub = add("doctor", _doctor, "Look for each trap that this machine may have, with the remedy.", "pixprep doctor")
    sub.add_argument("--json", action="store_true", help="print a list of objects: name, ok, found, remedy")

    sub = add(
        "install-backend",
        _install_backend,
        "Write the backend, with the package in it, into a Triton's backend directory.",
        "pixprep install-backend /opt/tritonserver/backends",
    )
    sub.add_argument("directory", type=Path, metavar="DIR", help="gets the folder `pixprep`")
    return parser


def _add_target(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("paths", type=Path, nargs="+", metavar="FILE", help="an image, or a folder of them")
    _add_server(sub)
    sub.add_argument("--batch", type=_whole(1), default=1, metavar="N", help="images a request; default: %(default)s")


def _add_server(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--protocol", choices=("http", "grpc"), default="http", help="default: %(default)s")
    text = "HOST:PORT; default: localhost:8000 for HTTP, localhost:8001 for gRPC"
    sub.add_argument("--url", help=text)
    sub.add_argument("--model", default="ensemble", help="default: %(default)s")
