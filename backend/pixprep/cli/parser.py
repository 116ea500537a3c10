"""The command line: what each command may be told, and how it ends.

Exit codes: 0 done, 1 failed, 2 wrong usage. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from pixprep import __version__
from pixprep.cli import pipelines, runs, servers
from pixprep.cli.output import LOG_FORMATS, say
from pixprep.decoders import CODECS, DAMAGES, FORMATS, USUAL, Limits
from pixprep.errors import ImageError, PixprepError, printable


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parsed, unknown = _parser().parse_known_args(argv)
    options = vars(parsed)
    command, run = options.pop("command"), options.pop("run")
    if unknown:  # the command knows its own usage; the parser of all commands would show none of it
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = run(**options)
        sys.stdout.flush()  # what fails to be written fails here, and not when Python ends
    except PixprepError as error:
        first, *more = error.args
        say(f"pixprep: {first}", *more, file=sys.stderr)
    except KeyboardInterrupt:
        say("pixprep: interrupted", file=sys.stderr)
    except OSError as error:  # the user's: no permission, a full disk, a folder in place of a file
        if not isinstance(error, BrokenPipeError):  # the reader of our output has gone, as with ``| head``
            where = f"{error.filename}: " if error.filename else ""
            say(f"pixprep: {where}{error.strerror or error}", file=sys.stderr)
    except MemoryError as error:
        why = f": {error}" if str(error) else ""
        say(f"pixprep: out of memory{why}: give it more (ulimit -v, or the container's limit)", file=sys.stderr)
    else:
        return code
    _forget_output()
    return 1


def _forget_output() -> None:
    """Drop output that cannot be written, so that Python does not try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# What arguments may say


def _parameter(text: str, such: str = "threads=2") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as {such}")
    return name, value


def _option(text: str) -> tuple[str, Any]:
    name, value = _parameter(text, "input=tensor")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FORMATS)}")
    return names


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, such as 480x640")
    try:
        Limits().check_size(int(height), int(width))
    except ImageError as error:
        raise argparse.ArgumentTypeError(error.detail) from None
    return int(height), int(width)


def _whole(least: int) -> Callable[[str], int]:
    """Make a reader of whole numbers of at least ``least``."""

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return read


def _collector(text: str) -> str:
    try:
        url = urlsplit(text)
        is_whole = url.scheme in ("http", "https") and url.hostname and url.path.strip("/") and url.port != 0
    except ValueError:  # of a port
        is_whole = False
    if not is_whole:
        raise argparse.ArgumentTypeError(f"{text!r} is no collector's URL, such as http://localhost:4318/v1/traces")
    return text


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


_DIRECTORY: dict[str, Any] = {"type": Path, "metavar": "DIR"}
_FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
_PIPELINE: dict[str, Any] = {"type": Path, "metavar": "PIPELINE", "help": "a pipeline file"}
_IMAGES: dict[str, Any] = {**_FILE, "nargs": "+", "help": "an image, or a folder of them"}
_SOURCE: dict[str, Any] = {
    "metavar": "SOURCE",
    "help": "KIND:PATH, or a folder, a pattern such as train-*.tar, a .csv, .json (COCO), .tfrecord; "
    "kinds: files, table, tfrecord, coco, voc, tar, videos",
}
_SOURCE_OPTION: dict[str, Any] = {
    "type": _option,
    "action": "append",
    "default": [],
    "metavar": "NAME=VALUE",
    "help": "of the kind's function in pixprep.read, such as images=train2017, label=null, image=jpg; may be repeated",
}
_NUMBERS: dict[str, Any] = {
    "type": _option,
    "action": "append",
    "dest": "inputs",
    "metavar": "NAME=ROWS",
    "help": "numbers that go with each image, such as boxes=[[0,0,99,99]], or a JSON file of them, which may have the "
    "rows of each file by its name; may be repeated",
}
_PHOTO: dict[str, Any] = {
    **_FILE,
    "help": "the photo, or clip, of the preview; default: a small photo that pixprep brings along",
}
_COUNT: dict[str, Any] = {"type": _whole(1), "metavar": "N"}
_SECONDS: dict[str, Any] = {"type": _positive, "metavar": "S"}
_FORCE: dict[str, Any] = {"action": "store_true", "help": "write over what lies there"}
_ODD_RANGE: dict[str, Any] = {"action": "store_true", "help": "values are meant that no usual classifier takes"}
_DEFAULT = "default: %(default)s"


def _one_of(choices: tuple[str, ...]) -> dict[str, Any]:
    """An option that is one of a few words, by default the first."""
    return {"choices": choices, "default": choices[0]}


def _json(text: str) -> dict[str, Any]:
    return {"action": "store_true", "dest": "as_json", "help": f"print {text}"}


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints repeat arguments without their controls."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pixprep", description="Image preprocessing for Triton Inference Server.")
    parser.add_argument("--version", action="version", version=f"pixprep {__version__}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], among: Any = parsers) -> argparse.ArgumentParser:
        """A command whose docstring is its help: what it does, and an example."""
        text, _, example = (run.__doc__ or "").partition("\n\n")
        sub: argparse.ArgumentParser = among.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  {example.strip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run, command=sub)
        return sub

    demo = command("demo", servers.show_demo)
    photos = "files or folders; default: two that pixprep brings along"
    demo.add_argument("photos", type=Path, nargs="*", metavar="FILE", help=photos)
    demo.add_argument("--model-repository", **_DIRECTORY, default=Path("model_repository"), help=_DEFAULT)
    demo.add_argument("--force", **_FORCE)
    demo.add_argument(
        "--stay", action="store_true", help="keep serving until Ctrl-C, on ports 8000 to 8002, and a page on 8003"
    )

    build = command("build", pipelines.write_repository)
    build.add_argument("--output", **_DIRECTORY, default=Path("model_repository"), help=f"the repository; {_DEFAULT}")
    either = build.add_mutually_exclusive_group()
    either.add_argument("--pipeline", **_FILE, help="a pipeline file")
    either.add_argument("--preset", choices=pipelines.PRESETS, help="a pipeline that pixprep brings along")
    shared = "a model of DIR that another build wrote: its pipeline and options, for both ensembles"
    either.add_argument("--preprocess", metavar="MODEL", default="", help=shared)
    build.add_argument("--onnx", **_FILE, help="your classifier as ONNX")
    build.add_argument("--plan", **_FILE, help="your classifier as a TensorRT plan")
    runtimes = ("onnxruntime", "onnxruntime-gpu", "tensorrt")
    build.add_argument("--classifier", **_one_of(runtimes), help=f"what runs it; {_DEFAULT}")
    build.add_argument(
        "--classifier-io",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="what a plan takes and gives, such as input:FP32:3x224x224 logits:FP32:1000",
    )
    labels = "names of the classes: one a line, or JSON such as a config.json with id2label"
    build.add_argument(
        "--labels", **_FILE, help=f"{labels}; default: what the ONNX file holds, or the last build's of the same file"
    )
    build.add_argument("--name", default="", help="of the ensemble, where a repository has several; default: ensemble")
    how = "how images come: a BYTES tensor `image`, or as clients of dali_backend send them"
    build.add_argument("--input", choices=("bytes", "dali"), dest="input_", help=f"{how}; default: bytes")
    on_error = "what a bad image does: fail its request, or become zeros with the reason in `status`"
    build.add_argument("--on-error", choices=("fail", "zero"), help=f"{on_error}; default: fail")
    build.add_argument("--max-batch-size", **_COUNT, help="default: 64, or as many clips as have 64 frames")
    parameter = "of the preprocess model, such as threads=2; may be repeated"
    build.add_argument(
        "--parameter", type=_parameter, action="append", dest="parameters", metavar="NAME=VALUE", help=parameter
    )
    build.add_argument("--image", **_PHOTO)
    build.add_argument("--odd-range", **_ODD_RANGE)
    build.add_argument("--force", **_FORCE)

    check = command("check", pipelines.check_path)
    check.add_argument("path", type=Path, metavar="DIR|FILE", help="a model repository, or a pipeline file")
    check.add_argument("--image", **{**_PHOTO, "help": "preview what becomes of this photo, too"})
    check.add_argument("--odd-range", **_ODD_RANGE)
    check.add_argument("--json", **_json("a list of objects: where, what, remedy"))

    import_ = command("import", pipelines.import_pipeline)
    sources = "a file such as preprocessor_config.json, config.json, model.dali, model.onnx"
    import_.add_argument("source", metavar="SOURCE", help=f"LIBRARY:NAME, or {sources}")
    import_.add_argument("file", **_FILE, help="the pipeline file to write")
    import_.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the library's importer, such as input=tensor, backend=pil, loader=image_dataset; may be repeated",
    )
    import_.add_argument(
        "--training",
        metavar="SOURCE",
        help="where the library's importer finds the training side: train.py:NAME of torchvision, arguments.json of "
        "timm's create_transform, model.keras",
    )
    import_.add_argument("--image", **_PHOTO)
    import_.add_argument("--force", **_FORCE)

    verify = command("verify", pipelines.verify_pipeline)
    verify.add_argument("pipeline", **_PIPELINE)
    verify.add_argument(
        "--images", **_FILE, nargs="+", default=[], help="compare with these too: images, or folders of them"
    )
    draw = "compare the training side, of each image one draw; the libraries must be installed"
    verify.add_argument("--training", action="store_true", help=draw)
    verify.add_argument("--seed", type=_whole(0), default=0, metavar="N", help=f"of the draws; {_DEFAULT}")
    verify.add_argument("--output", **_FILE, help="write a PNG: the worst image, both results and their difference")
    verify.add_argument("--json", **_json("the certificate as JSON"))

    explain = command("explain", pipelines.explain_pipeline)
    explain.add_argument("pipeline", **_PIPELINE)
    size = "height x width of the image in the example; default: 480x640"
    example = explain.add_mutually_exclusive_group()
    example.add_argument("--size", type=_size, default=(480, 640), metavar="HxW", help=size)
    example.add_argument("--image", **_FILE, help="a photo, for whose size and pixels it is explained")
    picture = "write a PNG: the photo at every stage, with the crop, the tensor and its values"
    explain.add_argument("--output", **_FILE, help=picture)

    run = command("run", runs.run_files)
    run.add_argument("pipeline", **_PIPELINE)
    run.add_argument("files", **_IMAGES)
    run.add_argument("--output", **_DIRECTORY, help="write each tensor there as .npy")
    run.add_argument("--device", default="cpu", help=f"cpu, gpu, gpu:1; {_DEFAULT}")
    run.add_argument("--threads", **_COUNT, help="default: the cores of this process")
    damage = "what is done about damaged JPEGs; default: strict on the CPU, structural on a GPU"
    run.add_argument("--damage", choices=DAMAGES, help=damage)
    formats = f"which may come, by commas, of {', '.join(FORMATS)}; default: all but the last two"
    run.add_argument("--formats", type=_formats, default=USUAL, metavar="LIST", help=formats)
    run.add_argument("--input", **_NUMBERS, default=[])
    run.add_argument("--decoder", **_one_of(CODECS), help=f"of JPEGs on a GPU; {_DEFAULT}")
    run.add_argument("--json", **_json("an object a line"))

    text = "Look at what training reads."
    about_data = parsers.add_parser("data", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
    data_check = command("check", runs.check_data, about_data)
    data_check.add_argument("source", **_SOURCE)
    data_check.add_argument("--option", **_SOURCE_OPTION)
    through = "a pipeline file, through whose training side they go; default: an upright decode"
    data_check.add_argument("--pipeline", **_FILE, help=through)
    data_check.add_argument("--threads", **_COUNT, help="default: the cores of this process")
    data_check.add_argument("--json", **_json("an object: samples, broken, notes"))

    preview = command("preview", runs.preview_training)
    preview.add_argument("pipeline", **_PIPELINE)
    preview.add_argument("source", **_SOURCE)
    preview.add_argument("--option", **_SOURCE_OPTION)
    preview.add_argument("--output", **_FILE, required=True, help="the PNG to write: the samples and what was drawn")
    preview.add_argument("--count", **_COUNT, default=12, help=f"of samples; {_DEFAULT}")
    preview.add_argument("--seed", type=_whole(0), default=0, metavar="N", help=f"of order and draws; {_DEFAULT}")
    preview.add_argument("--epoch", type=_whole(0), default=0, metavar="N", help=_DEFAULT)
    preview.add_argument("--serving", action="store_true", help="show the serving side, on the same samples")

    batch = command("batch", runs.run_manifest)
    lists = "a list of images: a path a line, or a column of a .csv or .parquet; relative paths lie beside it"
    batch.add_argument("manifest", type=Path, metavar="MANIFEST", help=lists)
    batch.add_argument("--pipeline", **_FILE, required=True, help="a pipeline file")
    batch.add_argument("--output", **_DIRECTORY, required=True, help="of one run; who runs it again goes on")
    batch.add_argument("--column", metavar="NAME", help="of a .csv or .parquet; default: path, or the only one")
    batch.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help=_DEFAULT)
    batch.add_argument("--rows-per-file", **_COUNT, default=runs.ROWS_PER_FILE, help=_DEFAULT)
    batch.add_argument("--workers", **_COUNT, help="processes, each with a core or a GPU; default: all that Ray has")
    batch.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster; default: Ray on this machine")

    serve = command("serve", servers.serve_models)
    serve.add_argument("--model-repository", **_DIRECTORY, default=Path("model_repository"), help=_DEFAULT)
    serve.add_argument("--host", default="127.0.0.1", help=_DEFAULT)
    serve.add_argument("--allow-remote", action="store_true", help="let --host be more than this machine")
    named = "installed operators, by their names, that pipelines may call; see docs/own-operators.md"
    serve.add_argument("--allow-operators", nargs="+", default=(), metavar="NAME", help=named)
    shared = "let clients on this machine register shared memory, with which they can end Triton"
    serve.add_argument("--allow-shared-memory", action="store_true", help=shared)
    for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        serve.add_argument(
            f"--{name}-port", type=_whole(0), default=port, metavar="N", help=f"{_DEFAULT}; 0: any that is free"
        )
    page = "a page for this machine's browser: drop a photo, see its stages, classes and times"
    serve.add_argument("--page", action="store_true", help=page)
    page_port = f"default: {servers.PAGE_PORT}; 0: any that is free"
    serve.add_argument("--page-port", type=_whole(0), default=servers.PAGE_PORT, metavar="N", help=page_port)
    serve.add_argument("--log-file", **_FILE, help="Triton's log; default: kept only if Triton fails")
    lines = "of what pixprep logs; json: an object a line, Triton's own lines among them"
    serve.add_argument("--log-format", **_one_of(LOG_FORMATS), help=f"{lines}; {_DEFAULT}")
    trace = "send OpenTelemetry spans of requests there, by OTLP over HTTP, such as http://localhost:4318/v1/traces"
    serve.add_argument("--trace", type=_collector, dest="trace_url", metavar="URL", help=trace)
    of_these = "of N requests one is traced, and each that has a traceparent"
    serve.add_argument("--trace-rate", **_COUNT, default=servers.TRACE_RATE, help=f"{of_these}; {_DEFAULT}")
    serve.add_argument("--watch", action="store_true", help="deploy a model whose files change, if it passes and loads")
    serve.add_argument("--no-check", action="store_true", help="start whatever `pixprep check` says of the repository")
    in_flight = "on a GPU: images between the ensemble's steps at once, for which memory is set aside"
    grace = "seconds from Ctrl-C or SIGTERM to the end; all but the last 3 for what is in flight; default: %(default)g"
    serve.add_argument("--grace", **_SECONDS, dest="grace_s", default=10.0, help=grace)
    serve.add_argument("--images-in-flight", **_COUNT, default=512, help=f"{in_flight}; {_DEFAULT}")

    send, health = command("send", servers.send_images), command("health", servers.ask_health)
    bench = command("bench", servers.measure_server)
    for sub in (send, health, bench):
        if sub is not health:
            sub.add_argument("paths", **_IMAGES)
        sub.add_argument("--protocol", **_one_of(("http", "grpc")), help=_DEFAULT)
        sub.add_argument("--url", help="HOST:PORT; default: localhost:8000 for HTTP, localhost:8001 for gRPC")
        sub.add_argument("--model", default="ensemble", help=_DEFAULT)
        if sub is not health:
            sub.add_argument("--batch", **_COUNT, default=1, help=f"images a request; {_DEFAULT}")
            sub.add_argument("--input", **_NUMBERS, default=[])
    top = f"of each image, the N best classes; 0: the output itself; {_DEFAULT}"
    send.add_argument("--top", type=_whole(0), default=5, metavar="N", dest="classes", help=top)
    for sub, limit_s, what in ((send, 30.0, "a request"), (health, 5.0, "each call")):
        text = f"seconds that {what} may take; default: %(default)g"
        sub.add_argument("--timeout", **_SECONDS, dest="timeout_s", default=limit_s, help=text)
    send.add_argument("--json", **_json("an object a line"))
    closed = "closed loops, each of N requests in flight; default: 1 4 16, or none with --rate"
    bench.add_argument("--concurrency", **_COUNT, nargs="+", help=closed)
    poisson = "Poisson arrivals, each of R requests a second"
    bench.add_argument("--rate", type=_positive, nargs="+", default=[], metavar="R", help=poisson)
    bench.add_argument("--seconds", **_SECONDS, default=5.0, help="that each of them is measured; default: %(default)g")
    printed = bench.add_mutually_exclusive_group()
    pasted = "measure nothing: print perf_analyzer's command line, to be pasted into a shell"
    printed.add_argument("--print-command", action="store_true", help=pasted)
    printed.add_argument("--json", **_json("the table as JSON"))
    bench.add_argument("--csv-file", **_FILE, help="write the table as CSV too")
    bench.add_argument("--json-file", **_FILE, help="write the table as JSON too")

    command("doctor", servers.look_for_traps).add_argument(
        "--json", **_json("a list of objects: name, ok, found, remedy")
    )
    command("install-backend", servers.write_backend).add_argument(
        "directory", **_DIRECTORY, help="gets the folder `pixprep`"
    )
    return parser
