"""Defines the argument parsers and the entry point of the ``pixprep`` command.

The exit code is 0 for success, 1 for failure, and 2 for wrong usage. Results are printed to stdout, and all other
output is printed to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pixprep import __version__
from pixprep.cli.arguments import (
    COUNT,
    DEFAULT,
    DIRECTORY,
    FILE,
    FORCE,
    IMAGES,
    IMPORT_OPTION,
    NUMBERS,
    ODD_RANGE,
    PHOTO,
    PIPELINE,
    SECONDS,
    SOURCE,
    SOURCE_OPTION,
    add_request,
    as_json,
    one_of,
    read_collector,
    read_formats,
    read_named_file,
    read_parameter,
    read_positive,
    read_size,
    whole,
)
from pixprep.errors import PixprepError, printable
from pixprep.formats import CODECS, DAMAGES, FORMATS, USUAL


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed, unknown = command_line().parse_known_args(argv)
    options = vars(parsed)
    command, (module, _, name) = options.pop("command"), options.pop("run").partition(".")
    if unknown:  # report unknown arguments with the usage of this command, not with the usage of ``pixprep``
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    from pixprep.cli.output import forget_output, say

    try:
        code: int = getattr(import_module(f"pixprep.cli.{module}"), name)(**options)
        sys.stdout.flush()  # a failed write raises here, not when Python exits
    except PixprepError as error:
        first, *more = error.args
        say(f"pixprep: {first}", *more, file=sys.stderr)
    except KeyboardInterrupt:
        say("pixprep: interrupted", file=sys.stderr)
    except OSError as error:  # usually something the user can fix: missing permission, full disk, folder for a file
        if not isinstance(error, BrokenPipeError):  # the process that reads the output has exited, as with ``| head``
            where = f"{error.filename}: " if error.filename else ""
            say(f"pixprep: {where}{error.strerror or error}", file=sys.stderr)
    except MemoryError as error:
        why = f": {error}" if str(error) else ""
        say(
            f"pixprep: out of memory{why}: raise the memory limit (ulimit -v, or that of the container)",
            file=sys.stderr,
        )
    else:
        return code
    forget_output()
    return 1


class _Parser(argparse.ArgumentParser):
    """Argument parser that escapes control characters in error messages, because the messages quote arguments."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def command_line() -> argparse.ArgumentParser:
    """Return the argument parser with all commands."""
    parser = _Parser(prog="pixprep", description="Image preprocessing for Triton Inference Server.")
    parser.add_argument("--version", action="version", version=f"pixprep {__version__}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: str, text: str, example: str, among: Any = parsers) -> argparse.ArgumentParser:
        """Add a command that calls ``run``, a ``module.function``. The module is imported only if the command runs."""
        sub: argparse.ArgumentParser = among.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  pixprep {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run, command=sub)
        return sub

    demo = command(
        "demo",
        "servers.show_demo",
        "Build the demo repository, serve it, and classify photos over HTTP and gRPC.",
        "demo cat.jpg holiday_photos --stay",
    )
    demo.add_argument(
        "photos", **FILE, nargs="*", help="image files or folders; default: two photos that ship with pixprep"
    )
    demo.add_argument("--model-repository", **DIRECTORY, default=Path("model_repository"), help=DEFAULT)
    demo.add_argument("--force", **FORCE)
    demo.add_argument(
        "--stay",
        action="store_true",
        help="keep serving on ports 8000 to 8002 until Ctrl-C, with a web page on port 8003",
    )

    build = command(
        "build",
        "pipelines.write_repository",
        "Write a model repository: preprocess, classifier and ensemble. Without arguments, write the demo.",
        "build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models",
    )
    build.add_argument(
        "--output", **DIRECTORY, default=Path("model_repository"), help=f"the repository to write; {DEFAULT}"
    )
    pipeline = build.add_argument_group("pipeline").add_mutually_exclusive_group()
    classifier = build.add_argument_group("classifier")
    models = build.add_argument_group("models")
    several = "for a model with several image inputs, INPUT=FILE for each input"
    pipeline.add_argument(
        "--pipeline",
        type=read_named_file,
        action="append",
        metavar="[INPUT=]FILE",
        help=f"a pipeline file; {several}",
    )
    presets = ("imagenet", "clip", "efficientnet_lite0", "letterbox")
    pipeline.add_argument("--preset", choices=presets, help="a built-in pipeline")
    shared = "reuse the preprocess model that an earlier build wrote to the repository, with its pipeline and options"
    pipeline.add_argument("--preprocess", metavar="MODEL", default="", help=shared)
    one = "with several pipelines: a request has one image, which all pipelines process"
    models.add_argument("--one-image", action="store_true", help=one)
    chain = (
        "ensemble in the repository that detects the boxes (or quads, points) that the pipeline needs for each photo"
    )
    models.add_argument("--boxes-from", metavar="ENSEMBLE", default="", help=chain)
    lines = "Python file with a function `rows` that converts the outputs of that ensemble to boxes"
    models.add_argument("--boxes-by", **FILE, help=lines)
    classifier.add_argument("--onnx", **FILE, help="your classifier as an ONNX file")
    classifier.add_argument("--plan", **FILE, help="your classifier as a TensorRT plan")
    runtimes = ("onnxruntime", "onnxruntime-gpu", "tensorrt")
    classifier.add_argument("--classifier", **one_of(runtimes), help=f"runtime of the classifier; {DEFAULT}")
    classifier.add_argument(
        "--classifier-io",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="input and output of the plan, such as input:FP32:3x224x224 logits:FP32:1000",
    )
    labels = "class names: one per line, or JSON such as a config.json with id2label"
    classifier.add_argument(
        "--labels",
        type=read_named_file,
        action="append",
        metavar="[OUTPUT=]FILE",
        help=f"{labels}; OUTPUT=FILE for a model with several outputs; default: the names in the ONNX file, or "
        "those of the previous build",
    )
    free = "make the fixed batch and image size of an ONNX file dynamic, if it runs in ONNX Runtime afterwards"
    classifier.add_argument("--free-dims", action="store_true", help=free)
    look = "print the inputs and outputs of an ONNX file and describe its first nodes, without building anything"
    classifier.add_argument("--explain", **FILE, help=look)
    models.add_argument(
        "--name", default="", help="name of the ensemble, for a repository with several; default: ensemble"
    )
    how = "request format: a BYTES tensor named `image`, or the UINT8 tensors that clients of dali_backend send"
    models.add_argument("--input", choices=("bytes", "dali"), dest="input_", help=f"{how}; default: bytes")
    on_error = "if an image cannot be processed: fail its request, or return zeros and the reason in output `status`"
    models.add_argument("--on-error", choices=("fail", "zero"), help=f"{on_error}; default: fail")
    models.add_argument(
        "--max-batch-size",
        **COUNT,
        help="maximum batch size of the models; default: 64 images, or for clips, 64 divided by the frames per clip",
    )
    parameter = "parameter of the preprocess model, such as threads=2; may be repeated"
    models.add_argument(
        "--parameter", type=read_parameter, action="append", dest="parameters", metavar="NAME=VALUE", help=parameter
    )
    build.add_argument("--image", **PHOTO)
    models.add_argument("--odd-range", **ODD_RANGE)
    build.add_argument("--force", **FORCE)

    check = command(
        "check",
        "pipelines.check_path",
        "Check a model repository or a pipeline file without a server.",
        "check models",
    )
    check.add_argument("path", type=Path, metavar="DIR|FILE", help="a model repository, or a pipeline file")
    check.add_argument("--image", **{**PHOTO, "help": "also preview the tensor of this photo"})
    check.add_argument("--odd-range", **ODD_RANGE)
    of_file = "for a pipeline file: import SOURCE again and report every difference from the file"
    check.add_argument("--source", metavar="SOURCE", help=of_file)
    check.add_argument("--option", **IMPORT_OPTION)
    check.add_argument("--json", **as_json("a JSON list of objects with the keys where, what and remedy"))

    import_ = command(
        "import",
        "pipelines.import_pipeline",
        "Import the preprocessing of a model as a pipeline file: from torchvision, timm, transformers, Keras ...",
        "import timm:resnet50.a1_in1k pipeline.json",
    )
    sources = (
        "a file such as preprocessor_config.json, config.json, dali.py, model.onnx, or dali_backend's model folder"
    )
    import_.add_argument("source", metavar="SOURCE", help=f"LIBRARY:NAME, or {sources}")
    import_.add_argument(
        "file", **FILE, help="the pipeline file to write; if SOURCE is a model folder, the folder to write"
    )
    import_.add_argument("--option", **IMPORT_OPTION)
    import_.add_argument(
        "--training",
        metavar="SOURCE",
        help="where to import the training transforms from: train.py:NAME for torchvision, a JSON file with the "
        "arguments of create_transform for timm, model.keras for Keras",
    )
    import_.add_argument(
        "--run-python", action="store_true", help="run the Python file that defines the DALI pipeline, to serialize it"
    )
    import_.add_argument("--image", **PHOTO)
    import_.add_argument("--force", **FORCE)

    verify = command(
        "verify",
        "pipelines.verify_pipeline",
        "Compare a pipeline, stage by stage, with the library whose pixels it claims to reproduce.",
        "verify pipeline.json --images photos --output worst.png",
    )
    verify.add_argument("pipeline", **PIPELINE)
    verify.add_argument(
        "--images",
        **FILE,
        nargs="+",
        default=[],
        help="images or folders of images to compare in addition to the built-in ones",
    )
    of_import = (
        "SOURCE that was given to `pixprep import`; default: the file that the pipeline records as its origin, if it "
        "is in the folder of the pipeline"
    )
    verify.add_argument("--source", metavar="SOURCE", help=of_import)
    verify.add_argument("--option", **IMPORT_OPTION)
    draw = "compare the training side, with one set of random parameters per image; the libraries must be installed"
    verify.add_argument("--training", action="store_true", help=draw)
    verify.add_argument(
        "--seed", type=whole(0), default=0, metavar="N", help=f"seed of the random parameters; {DEFAULT}"
    )
    verify.add_argument(
        "--output", **FILE, help="write a PNG of the image that differs most: both results and the difference"
    )
    verify.add_argument("--json", **as_json("the certificate as JSON"))

    explain = command(
        "explain",
        "pipelines.explain_pipeline",
        "Describe a pipeline: its ops, plan and shapes; --output draws one photo at every stage.",
        "explain pipeline.json --image photo.jpg --output stages.png",
    )
    explain.add_argument("pipeline", **PIPELINE)
    size = "height x width of the example image; default: 480x640"
    example = explain.add_mutually_exclusive_group()
    example.add_argument("--size", type=read_size, default=(480, 640), metavar="HxW", help=size)
    example.add_argument("--image", **FILE, help="a photo to use as the example image")
    picture = "write a PNG of the photo at every stage, with the crop, the tensor and its values"
    explain.add_argument("--output", **FILE, help=picture)

    run = command(
        "run",
        "runs.run_files",
        "Run a pipeline on files without a server: print a summary of each output, or write one .npy per output.",
        "run pipeline.json cat.jpg dog.jpg --output tensors",
    )
    run.add_argument("pipeline", **PIPELINE)
    run.add_argument("files", **IMAGES)
    run.add_argument("--output", **DIRECTORY, help="folder in which to write each tensor as .npy")
    run.add_argument("--device", default="cpu", help=f"cpu, gpu, or the index of a GPU such as gpu:1; {DEFAULT}")
    run.add_argument("--threads", **COUNT, help="number of threads; default: one for each core of this process")
    damage = "which damaged JPEGs to reject; default: strict on the CPU, structural on a GPU"
    run.add_argument("--damage", choices=DAMAGES, help=damage)
    formats = f"formats to accept, separated by commas: {', '.join(FORMATS)}; default: all but the last two"
    run.add_argument("--formats", type=read_formats, default=USUAL, metavar="LIST", help=formats)
    run.add_argument("--input", **NUMBERS, default=[])
    run.add_argument("--decoder", **one_of(CODECS), help=f"JPEG decoder on a GPU; {DEFAULT}")
    run.add_argument("--json", **as_json("one JSON object per line"))

    text = "Inspect training data."
    about_data = parsers.add_parser("data", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
    data_check = command(
        "check",
        "runs.check_data",
        "Decode every sample of a data set once, and list the broken ones.",
        "data check coco:instances.json --option images=train2017",
        about_data,
    )
    data_check.add_argument("source", **SOURCE)
    data_check.add_argument("--option", **SOURCE_OPTION)
    through = "also process each sample with the training side of this pipeline file; default: only decode it"
    data_check.add_argument("--pipeline", **FILE, help=through)
    data_check.add_argument("--threads", **COUNT, help="number of threads; default: one for each core of this process")
    data_check.add_argument("--json", **as_json("a JSON object with the keys samples, broken and notes"))

    preview = command(
        "preview",
        "runs.preview_training",
        "Draw a contact sheet of training samples after their augmentation, with boxes and random parameters.",
        "preview pipeline.json train --output sheet.png",
    )
    preview.add_argument("pipeline", **PIPELINE)
    preview.add_argument("source", **SOURCE)
    preview.add_argument("--option", **SOURCE_OPTION)
    preview.add_argument(
        "--output", **FILE, required=True, help="the PNG to write: the samples with their random parameters"
    )
    preview.add_argument("--count", **COUNT, default=12, help=f"number of samples; {DEFAULT}")
    preview.add_argument(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help=f"seed of the sample order and of the random parameters; {DEFAULT}",
    )
    preview.add_argument("--epoch", type=whole(0), default=0, metavar="N", help=f"epoch to show; {DEFAULT}")
    preview.add_argument(
        "--serving", action="store_true", help="show the same samples as the serving side processes them"
    )

    batch = command(
        "batch",
        "runs.run_manifest",
        "Run a pipeline on a list of images with Ray, locally or on a cluster. Writes Parquet with one row per image.",
        "batch manifest.txt --pipeline pipeline.json --output tensors",
    )
    lists = (
        "list of images: a text file with one path per line, or a .csv or .parquet; paths are relative to its folder"
    )
    batch.add_argument("manifest", type=Path, metavar="MANIFEST", help=lists)
    batch.add_argument("--pipeline", **FILE, required=True, help="a pipeline file")
    batch.add_argument(
        "--output", **DIRECTORY, required=True, help="folder of the results; to continue a run, pass the same folder"
    )
    batch.add_argument(
        "--column", metavar="NAME", help="column of a .csv or .parquet; default: path, or the only column"
    )
    batch.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help=f"where the pipeline runs; {DEFAULT}")
    batch.add_argument("--rows-per-file", **COUNT, default=1000, help=f"rows in each Parquet file; {DEFAULT}")
    batch.add_argument(
        "--workers", **COUNT, help="number of processes, each with one core or GPU; default: as many as Ray has"
    )
    batch.add_argument(
        "--address", metavar="HOST:PORT", help="address of a Ray cluster; default: start Ray on this machine"
    )

    serve = command(
        "serve",
        "servers.serve_models",
        "Serve a model repository with the embedded Triton, until Ctrl-C.",
        "serve --model-repository model_repository --http-port 8000",
    )
    serve.add_argument("--model-repository", **DIRECTORY, default=Path("model_repository"), help=DEFAULT)
    serve.add_argument("--host", default="127.0.0.1", help=f"address to listen on; {DEFAULT}")
    serve.add_argument("--allow-remote", action="store_true", help="allow a --host that other machines can reach")
    hosts = (
        "names to accept in the Host and Origin headers of HTTP requests, besides localhost, --host and IP addresses"
    )
    serve.add_argument("--allow-hosts", nargs="+", default=(), metavar="NAME", help=hosts)
    size = "maximum size of an HTTP request body in bytes; default: %(default)s"
    serve.add_argument("--http-max-input-size", **COUNT, default=96 << 20, help=size)
    named = "names of installed custom operators that pipelines may call; see docs/own-operators.md"
    serve.add_argument("--allow-operators", nargs="+", default=(), metavar="NAME", help=named)
    shared = "let clients on this machine register shared memory; such a client can crash Triton"
    serve.add_argument("--allow-shared-memory", action="store_true", help=shared)
    for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        serve.add_argument(
            f"--{name}-port", type=whole(0), default=port, metavar="N", help=f"{DEFAULT}; 0: any free port"
        )
    page = "also serve a web page to browsers on this machine, which shows a photo's stages, classes and latencies"
    serve.add_argument("--page", action="store_true", help=page)
    page_port = "port of the page; default: 8003; 0: any free port"
    serve.add_argument("--page-port", type=whole(0), default=8003, metavar="N", help=page_port)
    serve.add_argument(
        "--log-file", **FILE, help="file for Triton's log; default: a temporary file, kept only if Triton fails"
    )
    lines = "format of the log; json: one object per line, including the lines of Triton's log"
    serve.add_argument("--log-format", **one_of(("text", "json")), help=f"{lines}; {DEFAULT}")
    trace = "send OpenTelemetry spans to this OTLP/HTTP collector, such as http://localhost:4318/v1/traces"
    serve.add_argument("--trace", type=read_collector, dest="trace_url", metavar="URL", help=trace)
    of_these = "trace one in N requests, and every request that has a traceparent header"
    serve.add_argument("--trace-rate", **COUNT, default=100, help=f"{of_these}; {DEFAULT}")
    serve.add_argument(
        "--watch",
        action="store_true",
        help="reload a model when its files change, if it passes `pixprep check` and loads",
    )
    serve.add_argument(
        "--no-check", action="store_true", help="start even if `pixprep check` finds problems in the repository"
    )
    in_flight = "on a GPU: number of images between the steps of ensembles for which GPU memory is reserved"
    ready = "seconds to wait until every model is ready; default: 120, plus 10 for each model"
    serve.add_argument("--ready-timeout", **SECONDS, dest="ready_timeout_s", help=ready)
    grace = (
        "maximum seconds from Ctrl-C or SIGTERM to the exit; requests in flight have all but the last 3 of them to "
        "finish; default: %(default)g"
    )
    serve.add_argument("--grace", **SECONDS, dest="grace_s", default=10.0, help=grace)
    serve.add_argument("--images-in-flight", **COUNT, default=512, help=f"{in_flight}; {DEFAULT}")

    send = command(
        "send",
        "servers.send_images",
        "Send image files, or folders of images, to a server.",
        "send photos --protocol grpc --model ensemble --batch 8",
    )
    health = command(
        "health",
        "servers.ask_health",
        "Send one image through a model; exit code 0 if it responds in time. For Kubernetes and load balancers.",
        "health --model ensemble --timeout 2",
    )
    bench = command(
        "bench",
        "servers.measure_server",
        "Measure a server with perf_analyzer: throughput and latency.",
        "bench photos --protocol grpc --concurrency 1 4 16 --rate 50 --csv-file bench.csv",
    )
    for sub in (send, health, bench):
        add_request(sub, has_images=sub is not health)
    top = f"print the N best classes of each image; 0: print the output itself; {DEFAULT}"
    send.add_argument("--top", type=whole(0), default=5, metavar="N", dest="classes", help=top)
    for sub, limit_s, what in ((send, 30.0, "request"), (health, 5.0, "call to the server")):
        text = f"timeout of each {what} in seconds; default: %(default)g"
        sub.add_argument("--timeout", **SECONDS, dest="timeout_s", default=limit_s, help=text)
    send.add_argument("--json", **as_json("one JSON object per line"))
    closed = "measure closed loops, each with N requests in flight; default: 1 4 16, or none with --rate"
    bench.add_argument("--concurrency", **COUNT, nargs="+", help=closed)
    poisson = "measure open loops, each with R requests per second on average (Poisson arrivals)"
    bench.add_argument("--rate", type=read_positive, nargs="+", default=[], metavar="R", help=poisson)
    bench.add_argument(
        "--seconds", **SECONDS, default=5.0, help="duration of each measurement in seconds; default: %(default)g"
    )
    printed = bench.add_mutually_exclusive_group()
    pasted = "do not measure; print the command line of perf_analyzer instead"
    printed.add_argument("--print-command", action="store_true", help=pasted)
    printed.add_argument("--json", **as_json("the table as JSON"))
    bench.add_argument("--csv-file", **FILE, help="also write the table as CSV")
    bench.add_argument("--json-file", **FILE, help="also write the table as JSON")

    doctor = command(
        "doctor",
        "servers.look_for_traps",
        "Check this machine for known problems, and print the fix for each.",
        "doctor",
    )
    doctor.add_argument("--json", **as_json("a JSON list of objects with the keys name, ok, found and remedy"))
    install = command(
        "install-backend",
        "servers.write_backend",
        "Write the backend, including this package, to the backend directory of a Triton server.",
        "install-backend /opt/tritonserver/backends",
    )
    install.add_argument(
        "directory", **DIRECTORY, help="the backend directory, in which the folder `pixprep` is created"
    )
    return parser
