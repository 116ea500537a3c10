"""Options of everything that serves: a build, the embedded server, and requests to a server.

A function that takes such a struct accepts its fields as keyword arguments, and ``pixprep`` accepts them as options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pixprep.options import Name, NamedFiles, Pictures, Port, Rows, Shell

Runtime = Literal["onnxruntime", "onnxruntime-gpu", "tensorrt"]
Protocol = Literal["http", "grpc"]
IMAGES_IN_FLIGHT = 512


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of ``build``.

    If the repository contains an earlier build, the default values of ``input_``, ``on_error``, ``max_batch_size``,
    ``parameters`` and ``odd_range`` are the values in that build.

    In Python, ``pipeline`` is a ``Pipeline``, or, for a classifier with several image inputs, a mapping from each input
    to its pipeline. With a mapping, the preprocess models are named ``preprocess_INPUT``, and the inputs of the
    ensemble are named ``INPUT_image``. ``labels`` is a path, or a mapping from outputs to paths. With a ``name``, the
    other models are named ``NAME_preprocess`` and ``NAME_classifier``.

    Attributes:
        pipeline: A pipeline file; for a model with several image inputs, INPUT=FILE for each input.
        preprocess: Reuse the preprocess model that an earlier build wrote to the repository, with its pipeline and
            options.
        onnx: Your classifier as an ONNX file.
        plan: Your classifier as a TensorRT plan. Also pass the ONNX file that it was built from, or describe
            its input and outputs.
        classifier: Runtime of the classifier.
        classifier_io: The input and then each output of a plan without its ONNX file, with Triton's data type and the
            dims of one image, such as input:FP32:3x224x224 logits:FP32:1000.
        labels: Class names: one per line, or JSON such as a config.json with id2label; OUTPUT=FILE for a model with
            several outputs; default: the names in the ONNX file, or those of the previous build.
        constants: Value of an input of the ONNX file, such as conf=0.4 or bits=[0,1,1,0]; may be repeated.
        quantizations: Scale and zero point of an integer input of the ONNX file, such as x=[0.0078125,0]; default: the
            values in the file; may be repeated.
        free_dims: Make the fixed batch size and image size of an ONNX file dynamic, and test the changed model in ONNX
            Runtime.
        one_image: With several pipelines: a request has one image, which all pipelines process.
        boxes_from: Ensemble in the repository that detects the boxes (or quads, points) that the pipeline needs for
            each photo.
        boxes_by: File with a Python function `rows` that converts the outputs of that ensemble to boxes; default: the
            objects that `pixprep.detections` finds in the outputs.
        name: Name of the ensemble, for a repository with several ensembles; default: ensemble.
        input_: Request format: a BYTES tensor named `image`, or the UINT8 tensors that clients of dali_backend send;
            default: bytes.
        on_error: If an image cannot be processed: fail its request, or return zeros and the reason in output `status`;
            default: fail.
        max_batch_size: Maximum batch size of the models; default: 64 images, or for clips, 64 divided by the frames
            per clip.
        parameters: Parameter of the preprocess model, such as threads=2; may be repeated.
        odd_range: Accept a value range that is unusual for classifiers.
        encoding: Format in which an additional last step encodes the pictures: the output OUTPUT_png or OUTPUT_jpeg is
            BYTES [1].
        force: Overwrite existing files.
    """

    pipeline: Annotated[NamedFiles, Shell(metavar="[INPUT=]FILE")] = None
    preprocess: Annotated[str, Shell(metavar="MODEL")] = ""
    onnx: Path | None = None
    plan: Path | None = None
    classifier: Runtime = "onnxruntime"
    classifier_io: Annotated[Sequence[str] | None, Shell(metavar="NAME:TYPE:DIMS")] = None
    labels: Annotated[NamedFiles, Shell(metavar="[OUTPUT=]FILE")] = None
    constants: Annotated[Any, Shell(name="--constant", kind="constant", action="append", metavar="NAME=VALUE")] = None
    quantizations: Annotated[
        Any, Shell(name="--quantization", kind="constant", action="append", metavar="INPUT=[SCALE,ZERO_POINT]")
    ] = None
    free_dims: bool = False
    one_image: bool = False
    boxes_from: Annotated[str, Shell(metavar="ENSEMBLE")] = ""
    boxes_by: Path | None = None
    name: Name = ""
    input_: Literal["bytes", "dali"] | None = None
    on_error: Literal["fail", "zero"] | None = None
    max_batch_size: int | None = None
    parameters: Annotated[
        Mapping[str, str] | None,
        Shell(name="--parameter", kind="parameter", action="append", metavar="NAME=VALUE"),
    ] = None
    odd_range: bool = False
    pictures: Pictures = None
    encoding: Literal["png", "jpeg"] = "png"
    force: bool = False


@dataclass(kw_only=True, eq=False, repr=False)  # ``Server`` inherits these methods
class ServerOptions:
    """Options of the embedded server.

    In Python, ``images_in_flight`` is None by default: the CUDA memory pool of each GPU has Triton's default size.

    Attributes:
        host: Address to listen on.
        allow_remote: Allow a --host that other machines can reach.
        allow_hosts: Names to accept in the Host and Origin headers of HTTP requests, besides localhost, --host and IP
            addresses; default: all names if other machines can reach the server.
        http_max_input_size: Maximum size of an HTTP request body in bytes.
        allow_shared_memory: Let clients on this machine register shared memory; such a client can crash Triton, because
            reading memory that its owner has truncated raises SIGBUS.
        http_port: Port for HTTP; 0: any free port.
        grpc_port: Port for gRPC; 0: any free port.
        metrics_port: Port for Prometheus; 0: any free port.
        log_file: File for Triton's log; default: a temporary file, kept only if Triton fails.
        trace_url: Send OpenTelemetry spans to this OTLP/HTTP collector, such as http://localhost:4318/v1/traces.
        trace_rate: Trace one in N requests, and every request that has a traceparent header.
        ready_timeout_s: Seconds to wait until every model is ready; default: 120, plus 10 for each model.
        grace_s: Maximum number of seconds from Ctrl-C or SIGTERM to the exit; the last 3 are reserved for stopping
            Triton after the requests in flight.
        images_in_flight: On a GPU: number of images whose tensors fit into the memory that is reserved between the
            steps of ensembles.
    """

    host: str = "127.0.0.1"
    allow_remote: bool = False
    allow_hosts: Sequence[str] = ()
    http_max_input_size: int = 96 << 20
    allow_shared_memory: bool = False
    http_port: Port = 8000
    grpc_port: Port = 8001
    metrics_port: Port = 8002
    log_file: Path | None = None
    trace_url: Annotated[str | None, Shell(name="--trace", kind="collector", metavar="URL")] = None
    trace_rate: int = 100
    ready_timeout_s: float | None = None
    grace_s: float = 10.0
    images_in_flight: Annotated[int | None, Shell(default=IMAGES_IN_FLIGHT)] = None


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options of every request to a server.

    Attributes:
        protocol: Protocol of the requests.
        url: HOST:PORT of the server; default: localhost:8000 for HTTP, localhost:8001 for gRPC.
        model: Model to call.
    """

    protocol: Protocol = "http"
    url: str | None = None
    model: str = "ensemble"


@dataclass(frozen=True, kw_only=True)
class HealthOptions(RequestOptions):
    """Options of a health check.

    Attributes:
        timeout_s: Timeout of each call to the server in seconds.
    """

    timeout_s: float = 5.0


@dataclass(frozen=True, kw_only=True)
class ImageRequestOptions(RequestOptions):
    """Options of requests with images of the user.

    Attributes:
        batch: Images per request.
        inputs: Values of the model's numeric inputs by name, see ``Rows``.
    """

    batch: int = 1
    inputs: Rows = None


@dataclass(frozen=True, kw_only=True)
class SendOptions(ImageRequestOptions):
    """Options of ``client.send``, which returns each of the best classes as ``b"score:index:label"``.

    Attributes:
        classes: Print the N best classes of each image; 0: print the output itself.
        concurrency: Number of requests in flight at the same time.
        timeout_s: Timeout of each request in seconds.
    """

    classes: Annotated[int, Shell(name="--top", least=0, default=5)] = 0
    concurrency: int = 4
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(ImageRequestOptions):
    """Options of a measurement with perf_analyzer.

    ``shared_memory`` passes images and tensors in shared memory, which the server must allow.

    Attributes:
        concurrency: Measure closed loops, each with N requests in flight; default: 1 4 16, or none with --rate.
        rate: Measure open loops, each with R requests per second on average (Poisson arrivals).
        seconds: Duration of each measurement in seconds. If no request is completed within a third of it, the
            measurement is repeated with 4 and then 16 times the duration.
    """

    concurrency: Sequence[int] = ()
    rate: Annotated[Sequence[float], Shell(metavar="R")] = ()
    seconds: float = 5.0
    shared_memory: Annotated[bool, Shell(is_hidden=True)] = False
