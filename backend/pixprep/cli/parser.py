"""The command line: arguments and exit codes of each command.

Exit codes: 0 done, 1 failed, 2 wrong usage. Results go to stdout, everything else to stderr.
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
    """Run one command; the exit code."""
    parsed, unknown = command_line().parse_known_args(argv)
    options = vars(parsed)
    command, (module, _, name) = options.pop("command"), options.pop("run").partition(".")
    if unknown:  # the command knows its own usage; the parser of all commands would show none of it
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    from pixprep.cli.output import forget_output, say

    try:
        code: int = getattr(import_module(f"pixprep.cli.{module}"), name)(**options)
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
    forget_output()
    return 1


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints repeat arguments without their controls."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def command_line() -> argparse.ArgumentParser:
    """Make the parser of every command."""
    parser = _Parser(prog="pixprep", description="Image preprocessing for Triton Inference Server.")
    parser.add_argument("--version", action="version", version=f"pixprep {__version__}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: str, text: str, example: str, among: Any = parsers) -> argparse.ArgumentParser:
        """A command and the function that does it, whose module is imported when it runs."""
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
    demo.add_argument("photos", **FILE, nargs="*", help="files or folders; default: two that pixprep brings along")
    demo.add_argument("--model-repository", **DIRECTORY, default=Path("model_repository"), help=DEFAULT)
    demo.add_argument("--force", **FORCE)
    demo.add_argument(
        "--stay", action="store_true", help="keep serving until Ctrl-C, on ports 8000 to 8002, and a page on 8003"
    )

    build = command(
        "build",
        "pipelines.write_repository",
        "Write a model repository: preprocess, classifier, ensemble. Without arguments, the demo.",
        "build --pipeline pipeline.json --onnx classifier.onnx --classifier tensorrt --output models",
    )
    build.add_argument("--output", **DIRECTORY, default=Path("model_repository"), help=f"the repository; {DEFAULT}")
    pipeline = build.add_argument_group("pipeline").add_mutually_exclusive_group()
    classifier = build.add_argument_group("classifier")
    models = build.add_argument_group("models")
    several = "of a model of several images INPUT=FILE, for each of its inputs"
    pipeline.add_argument(
        "--pipeline",
        type=read_named_file,
        action="append",
        metavar="[INPUT=]FILE",
        help=f"a pipeline file; {several}",
    )
    presets = ("imagenet", "clip", "efficientnet_lite0", "letterbox")
    pipeline.add_argument("--preset", choices=presets, help="a pipeline that pixprep brings along")
    shared = "a model of DIR that another build wrote: its pipeline and options, for both ensembles"
    pipeline.add_argument("--preprocess", metavar="MODEL", default="", help=shared)
    one = "of several pipelines: all take the one image of a request"
    models.add_argument("--one-image", action="store_true", help=one)
    chain = "an ensemble of DIR that finds the boxes, or other rows, that the pipeline takes with each photo"
    models.add_argument("--boxes-from", metavar="ENSEMBLE", default="", help=chain)
    lines = "Python lines that make them of its outputs: a function `rows`"
    models.add_argument("--boxes-by", **FILE, help=lines)
    classifier.add_argument("--onnx", **FILE, help="your classifier as ONNX")
    classifier.add_argument("--plan", **FILE, help="your classifier as a TensorRT plan")
    runtimes = ("onnxruntime", "onnxruntime-gpu", "tensorrt")
    classifier.add_argument("--classifier", **one_of(runtimes), help=f"what runs it; {DEFAULT}")
    classifier.add_argument(
        "--classifier-io",
        nargs=2,
        metavar=("INPUT", "OUTPUT"),
        help="inputs and outputs of a plan, such as input:FP32:3x224x224 logits:FP32:1000",
    )
    labels = "names of the classes: one a line, or JSON such as a config.json with id2label"
    classifier.add_argument(
        "--labels",
        type=read_named_file,
        action="append",
        metavar="[OUTPUT=]FILE",
        help=f"{labels}; of several outputs OUTPUT=FILE; default: what the ONNX file holds, or the last build's",
    )
    free = "free the batch and the sides that the export froze, once ONNX Runtime has run them"
    classifier.add_argument("--free-dims", action="store_true", help=free)
    look = "write nothing: say what an ONNX file takes and gives, and what its first nodes do"
    classifier.add_argument("--explain", **FILE, help=look)
    models.add_argument(
        "--name", default="", help="name of the ensemble, where a repository has several; default: ensemble"
    )
    how = "how images come: a BYTES tensor `image`, or as clients of dali_backend send them"
    models.add_argument("--input", choices=("bytes", "dali"), dest="input_", help=f"{how}; default: bytes")
    on_error = "what a bad image does: fail its request, or become zeros with the reason in `status`"
    models.add_argument("--on-error", choices=("fail", "zero"), help=f"{on_error}; default: fail")
    models.add_argument("--max-batch-size", **COUNT, help="default: 64, or as many clips as have 64 frames")
    parameter = "of the preprocess model, such as threads=2; may be repeated"
    models.add_argument(
        "--parameter", type=read_parameter, action="append", dest="parameters", metavar="NAME=VALUE", help=parameter
    )
    build.add_argument("--image", **PHOTO)
    models.add_argument("--odd-range", **ODD_RANGE)
    build.add_argument("--force", **FORCE)

    check = command(
        "check",
        "pipelines.check_path",
        "Check a model repository or a pipeline file, without a server.",
        "check models",
    )
    check.add_argument("path", type=Path, metavar="DIR|FILE", help="a model repository, or a pipeline file")
    check.add_argument("--image", **{**PHOTO, "help": "preview what becomes of this photo, too"})
    check.add_argument("--odd-range", **ODD_RANGE)
    of_file = "of a pipeline file: a difference from what SOURCE is imported as is a problem"
    check.add_argument("--source", metavar="SOURCE", help=of_file)
    check.add_argument("--option", **IMPORT_OPTION)
    check.add_argument("--json", **as_json("a list of objects: where, what, remedy"))

    import_ = command(
        "import",
        "pipelines.import_pipeline",
        "Write a model's own preprocessing as a pipeline file: of torchvision, timm, transformers, Keras ...",
        "import timm:resnet50.a1_in1k pipeline.json",
    )
    sources = (
        "a file such as preprocessor_config.json, config.json, dali.py, model.onnx, or dali_backend's model folder"
    )
    import_.add_argument("source", metavar="SOURCE", help=f"LIBRARY:NAME, or {sources}")
    import_.add_argument("file", **FILE, help="the pipeline file to write; of a model folder, the folder")
    import_.add_argument("--option", **IMPORT_OPTION)
    import_.add_argument(
        "--training",
        metavar="SOURCE",
        help="where the library's importer finds the training side: train.py:NAME of torchvision, arguments.json of "
        "timm's create_transform, model.keras",
    )
    import_.add_argument(
        "--run-python", action="store_true", help="run the Python file that defines a pipeline of DALI, to serialize it"
    )
    import_.add_argument("--image", **PHOTO)
    import_.add_argument("--force", **FORCE)

    verify = command(
        "verify",
        "pipelines.verify_pipeline",
        "Compare a pipeline with the library whose pixels it claims to give, stage by stage.",
        "verify pipeline.json --images photos --output worst.png",
    )
    verify.add_argument("pipeline", **PIPELINE)
    verify.add_argument(
        "--images", **FILE, nargs="+", default=[], help="compare with these too: images, or folders of them"
    )
    of_import = "what the pipeline was imported from, as of `import`; default: the file that it names, if it is beside"
    verify.add_argument("--source", metavar="SOURCE", help=of_import)
    verify.add_argument("--option", **IMPORT_OPTION)
    draw = "compare the training side, of each image one draw; the libraries must be installed"
    verify.add_argument("--training", action="store_true", help=draw)
    verify.add_argument("--seed", type=whole(0), default=0, metavar="N", help=f"of the draws; {DEFAULT}")
    verify.add_argument("--output", **FILE, help="write a PNG: the worst image, both results and their difference")
    verify.add_argument("--json", **as_json("the certificate as JSON"))

    explain = command(
        "explain",
        "pipelines.explain_pipeline",
        "Say what a pipeline does: ops, plan, shapes; and show it, as a picture of one photo at every stage.",
        "explain pipeline.json --image photo.jpg --output stages.png",
    )
    explain.add_argument("pipeline", **PIPELINE)
    size = "height x width of the image in the example; default: 480x640"
    example = explain.add_mutually_exclusive_group()
    example.add_argument("--size", type=read_size, default=(480, 640), metavar="HxW", help=size)
    example.add_argument("--image", **FILE, help="a photo, for whose size and pixels it is explained")
    picture = "write a PNG: the photo at every stage, with the crop, the tensor and its values"
    explain.add_argument("--output", **FILE, help=picture)

    run = command(
        "run",
        "runs.run_files",
        "Run a pipeline on files, without a server: a summary of each output, or one .npy an output.",
        "run pipeline.json cat.jpg dog.jpg --output tensors",
    )
    run.add_argument("pipeline", **PIPELINE)
    run.add_argument("files", **IMAGES)
    run.add_argument("--output", **DIRECTORY, help="write each tensor there as .npy")
    run.add_argument("--device", default="cpu", help=f"cpu, gpu, gpu:1; {DEFAULT}")
    run.add_argument("--threads", **COUNT, help="default: the cores of this process")
    damage = "what is done about damaged JPEGs; default: strict on the CPU, structural on a GPU"
    run.add_argument("--damage", choices=DAMAGES, help=damage)
    formats = f"which may come, by commas, of {', '.join(FORMATS)}; default: all but the last two"
    run.add_argument("--formats", type=read_formats, default=USUAL, metavar="LIST", help=formats)
    run.add_argument("--input", **NUMBERS, default=[])
    run.add_argument("--decoder", **one_of(CODECS), help=f"of JPEGs on a GPU; {DEFAULT}")
    run.add_argument("--json", **as_json("an object a line"))

    text = "Look at what training reads."
    about_data = parsers.add_parser("data", help=text, description=text).add_subparsers(required=True, metavar="WHAT")
    data_check = command(
        "check",
        "runs.check_data",
        "Decode every sample of a data set once, and name what is broken.",
        "data check coco:instances.json --option images=train2017",
        about_data,
    )
    data_check.add_argument("source", **SOURCE)
    data_check.add_argument("--option", **SOURCE_OPTION)
    through = "a pipeline file, through whose training side they go; default: an upright decode"
    data_check.add_argument("--pipeline", **FILE, help=through)
    data_check.add_argument("--threads", **COUNT, help="default: the cores of this process")
    data_check.add_argument("--json", **as_json("an object: samples, broken, notes"))

    preview = command(
        "preview",
        "runs.preview_training",
        "Draw a contact sheet: what training sees of a data set, with boxes and what was drawn.",
        "preview pipeline.json train --output sheet.png",
    )
    preview.add_argument("pipeline", **PIPELINE)
    preview.add_argument("source", **SOURCE)
    preview.add_argument("--option", **SOURCE_OPTION)
    preview.add_argument("--output", **FILE, required=True, help="the PNG to write: the samples and what was drawn")
    preview.add_argument("--count", **COUNT, default=12, help=f"of samples; {DEFAULT}")
    preview.add_argument("--seed", type=whole(0), default=0, metavar="N", help=f"of order and draws; {DEFAULT}")
    preview.add_argument("--epoch", type=whole(0), default=0, metavar="N", help=DEFAULT)
    preview.add_argument("--serving", action="store_true", help="show the serving side, on the same samples")

    batch = command(
        "batch",
        "runs.run_manifest",
        "Run a pipeline on the images of a list with Ray, here or on a cluster: Parquet files, a row an image.",
        "batch manifest.txt --pipeline pipeline.json --output tensors",
    )
    lists = "a list of images: a path a line, or a column of a .csv or .parquet; relative paths lie beside it"
    batch.add_argument("manifest", type=Path, metavar="MANIFEST", help=lists)
    batch.add_argument("--pipeline", **FILE, required=True, help="a pipeline file")
    batch.add_argument("--output", **DIRECTORY, required=True, help="folder of one run; the same folder continues it")
    batch.add_argument("--column", metavar="NAME", help="column of a .csv or .parquet; default: path, or the only one")
    batch.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help=DEFAULT)
    batch.add_argument("--rows-per-file", **COUNT, default=1000, help=DEFAULT)
    batch.add_argument("--workers", **COUNT, help="processes, each with a core or a GPU; default: all that Ray has")
    batch.add_argument("--address", metavar="HOST:PORT", help="address of a Ray cluster; default: Ray on this machine")

    serve = command(
        "serve",
        "servers.serve_models",
        "Serve a model repository with the embedded Triton, until Ctrl-C.",
        "serve --model-repository model_repository --http-port 8000",
    )
    serve.add_argument("--model-repository", **DIRECTORY, default=Path("model_repository"), help=DEFAULT)
    serve.add_argument("--host", default="127.0.0.1", help=DEFAULT)
    serve.add_argument("--allow-remote", action="store_true", help="let --host be more than this machine")
    hosts = "names of this server in the Host and Origin of requests over HTTP, besides localhost, --host and addresses"
    serve.add_argument("--allow-hosts", nargs="+", default=(), metavar="NAME", help=hosts)
    size = "bytes of the body of a request over HTTP; default: %(default)s"
    serve.add_argument("--http-max-input-size", **COUNT, default=96 << 20, help=size)
    named = "installed operators, by their names, that pipelines may call; see docs/own-operators.md"
    serve.add_argument("--allow-operators", nargs="+", default=(), metavar="NAME", help=named)
    shared = "let clients on this machine register shared memory, with which they can end Triton"
    serve.add_argument("--allow-shared-memory", action="store_true", help=shared)
    for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        serve.add_argument(
            f"--{name}-port", type=whole(0), default=port, metavar="N", help=f"{DEFAULT}; 0: any that is free"
        )
    page = "a page for this machine's browser: drop a photo, see its stages, classes and times"
    serve.add_argument("--page", action="store_true", help=page)
    page_port = "default: 8003; 0: any that is free"
    serve.add_argument("--page-port", type=whole(0), default=8003, metavar="N", help=page_port)
    serve.add_argument("--log-file", **FILE, help="Triton's log; default: kept only if Triton fails")
    lines = "of what pixprep logs; json: an object a line, Triton's own lines among them"
    serve.add_argument("--log-format", **one_of(("text", "json")), help=f"{lines}; {DEFAULT}")
    trace = "send OpenTelemetry spans of requests there, by OTLP over HTTP, such as http://localhost:4318/v1/traces"
    serve.add_argument("--trace", type=read_collector, dest="trace_url", metavar="URL", help=trace)
    of_these = "of N requests one is traced, and each that has a traceparent"
    serve.add_argument("--trace-rate", **COUNT, default=100, help=f"{of_these}; {DEFAULT}")
    serve.add_argument("--watch", action="store_true", help="deploy a model whose files change, if it passes and loads")
    serve.add_argument("--no-check", action="store_true", help="start whatever `pixprep check` says of the repository")
    in_flight = "on a GPU: images between the ensemble's steps at once, for which memory is set aside"
    ready = "seconds to wait until every model is ready; default: 120, and 10 for each model"
    serve.add_argument("--ready-timeout", **SECONDS, dest="ready_timeout_s", help=ready)
    grace = "seconds from Ctrl-C or SIGTERM to the end; all but the last 3 for what is in flight; default: %(default)g"
    serve.add_argument("--grace", **SECONDS, dest="grace_s", default=10.0, help=grace)
    serve.add_argument("--images-in-flight", **COUNT, default=512, help=f"{in_flight}; {DEFAULT}")

    send = command(
        "send",
        "servers.send_images",
        "Send images to a server: files, or folders of them.",
        "send photos --protocol grpc --model ensemble --batch 8",
    )
    health = command(
        "health",
        "servers.ask_health",
        "Send one image through a model: exit code 0 if it answers in time. For Kubernetes and load balancers.",
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
    top = f"of each image, the N best classes; 0: the output itself; {DEFAULT}"
    send.add_argument("--top", type=whole(0), default=5, metavar="N", dest="classes", help=top)
    for sub, limit_s, what in ((send, 30.0, "a request"), (health, 5.0, "each call")):
        text = f"seconds that {what} may take; default: %(default)g"
        sub.add_argument("--timeout", **SECONDS, dest="timeout_s", default=limit_s, help=text)
    send.add_argument("--json", **as_json("an object a line"))
    closed = "closed loops, each of N requests in flight; default: 1 4 16, or none with --rate"
    bench.add_argument("--concurrency", **COUNT, nargs="+", help=closed)
    poisson = "Poisson arrivals, each of R requests a second"
    bench.add_argument("--rate", type=read_positive, nargs="+", default=[], metavar="R", help=poisson)
    bench.add_argument("--seconds", **SECONDS, default=5.0, help="time for each of them; default: %(default)g")
    printed = bench.add_mutually_exclusive_group()
    pasted = "measure nothing: print perf_analyzer's command line, to be pasted into a shell"
    printed.add_argument("--print-command", action="store_true", help=pasted)
    printed.add_argument("--json", **as_json("the table as JSON"))
    bench.add_argument("--csv-file", **FILE, help="write the table as CSV too")
    bench.add_argument("--json-file", **FILE, help="write the table as JSON too")

    doctor = command(
        "doctor", "servers.look_for_traps", "Look for each trap that this machine may have, with the remedy.", "doctor"
    )
    doctor.add_argument("--json", **as_json("a list of objects: name, ok, found, remedy"))
    install = command(
        "install-backend",
        "servers.write_backend",
        "Write the backend, with the package in it, into a Triton's backend directory.",
        "install-backend /opt/tritonserver/backends",
    )
    install.add_argument("directory", **DIRECTORY, help="gets the folder `pixprep`")
    return parser
