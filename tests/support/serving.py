"""Runs `pixprep serve` as a process, with clients that compare every response with the engine's own result.

Every request has exactly one outcome. ``right`` means that the tensor matches bit for bit, or that an invalid image was
rejected with the expected error. ``error`` is a different, clear error, and ``lost`` means that the server did not
respond. ``wrong`` is a different tensor, a success instead of a rejection, or an error message that should not be shown
to clients.
"""

import http.client
import inspect
import io
import json
import os
import queue
import re
import runpy
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from tritonclient.utils import InferenceServerException

import pixprep as pp
from pixprep.serving.embedded.stubs import stubs

PIPELINE = pp.presets.imagenet()
PROGRAM = "import sys; from pixprep.cli import main; sys.exit(main())"
PORTS = [word for name in ("http", "grpc", "metrics") for word in (f"--{name}-port", "0")]
TIMEOUT_S = 90.0  # at a load of 18 on two cores, 5 s became 20 s
RAW = {"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"}


def sums(tensors):
    """Return checksums of each tensor: 21 numbers that depend on every bit. They are exact for any order of
    addition.
    """
    bits = tensors.view("uint32").reshape(len(tensors), 21, -1)
    return (bits.sum(axis=2, dtype="uint64") % (1 << 24)).astype("float32")


# A classifier that accepts the tensor on any device and loads quickly.
CLASSIFIER = f"""\
import triton_python_backend_utils as pb_utils
{inspect.getsource(sums)}
class TritonPythonModel:
    places = set()
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("logits", self.logits(r))]) for r in requests]
    def logits(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "tensor")
        place = "CPU" if tensor.is_cpu() else "GPU"
        if place not in self.places:
            self.places.add(place)
            pb_utils.Logger.log_info(f"classifier: the tensor lies on the {{place}}")
        if tensor.is_cpu():
            return sums(tensor.as_numpy())
        import cupy
        return sums(cupy.from_dlpack(tensor).get())
"""
CLASSIFIER_CONFIG = """\
backend: "python"
max_batch_size: 64
input { name: "tensor" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
output { name: "logits" data_type: TYPE_FP32 dims: [ 21 ] }
dynamic_batching { }
"""
ON_GPU = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
ENSEMBLE_CONFIG = """\
platform: "ensemble"
max_batch_size: 64
input { name: "image" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "logits" data_type: TYPE_FP32 dims: [ 21 ] }
ensemble_scheduling {
  step { model_name: "preprocess" model_version: -1
    input_map { key: "image" value: "image" } output_map { key: "tensor" value: "tensor" } }
  step { model_name: "classifier" model_version: -1
    input_map { key: "tensor" value: "tensor" } output_map { key: "logits" value: "logits" } }
}
"""
DATATYPES = {
    "float32": "FP32",
    "float64": "FP64",
    "bool": "BOOL",
    "uint8": "UINT8",
    "object": "BYTES",
    "int32": "INT32",
    "int64": "INT64",
}
MODELS = ("preprocess", "ensemble")
PROTOCOLS = ("http", "http, kept alive", "grpc", "grpc, streamed")


def wait_until(condition, what="not in time", *, within_s=TIMEOUT_S):
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.05)
    return value


def run_program(path, *arguments, cwd):
    """Run `python PATH ARGUMENTS` in a folder, but inside this process, which has already imported the libraries."""
    out, err, code, here = io.StringIO(), io.StringIO(), 0, Path.cwd()
    os.chdir(cwd)
    try:
        with (
            patch("sys.argv", [*map(str, (path, *arguments))]), redirect_stdout(out), redirect_stderr(err),
            warnings.catch_warnings(),
        ):  # fmt: skip
            warnings.simplefilter("ignore", ResourceWarning)  # Python also ignores these warnings by default
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            err.write(f"{code}\n")
            code = 1
    finally:
        os.chdir(here)
    return subprocess.CompletedProcess([path, *arguments], code, out.getvalue(), err.getvalue())


def write_model(repository, name, config="", files=()):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    for file, text in dict(files).items():
        (repository / name / "1" / file).write_text(text)


def write_pipeline(repository, name, pipeline, config=None):
    """Write a model with a pipeline. If the name ends with ``.pixprep``, the model has no config.pbtxt."""
    (repository / name / "1").mkdir(parents=True)
    pipeline.save(repository / name / "1" / "pipeline.json")
    if config is not None:
        (repository / name / "config.pbtxt").write_text(config)


def write_repository(repository, *, instances=1, is_small=True, device="CPU"):
    """Write the models preprocess, classifier and ensemble.

    Unless ``is_small``, also write zero (``on_error`` is ``zero``) and narrow (with a short queue).
    """
    pipeline = {"pipeline.json": PIPELINE.to_json()}
    group = f"instance_group {{ count: {instances} kind: KIND_{device} }}\n"
    write_model(repository, "preprocess", f'backend: "pixprep"\n{group}', pipeline)
    one = f"instance_group {{ kind: KIND_{device} }}\n{ON_GPU * (device == 'GPU')}"
    write_model(repository, "classifier", CLASSIFIER_CONFIG + one, {"model.py": CLASSIFIER})
    write_model(repository, "ensemble", ENSEMBLE_CONFIG, {".gitkeep": ""})
    if is_small:
        return repository
    zero = 'backend: "pixprep"\nparameters { key: "on_error" value { string_value: "zero" } }\n'
    write_model(repository, "zero", zero, pipeline)
    narrow = (
        "max_batch_size: 1\ndynamic_batching { default_queue_policy { max_queue_size: 4 } }\n"
        "instance_group { count: 2 kind: KIND_CPU }\n"
    )
    write_model(repository, "narrow", f'backend: "pixprep"\n{narrow}', pipeline)
    return repository


def is_alive(process):
    """Return whether a psutil process is still running."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Serve:
    """A running ``pixprep serve``.

    Attributes:
        address, grpc: HOST:PORT for each protocol.
        log: Lines that the process has written to stderr so far.
    """

    def __init__(self, repository, *arguments, triton_log, before=(), python=sys.executable, program=PROGRAM):
        """Start the server. ``before`` is a command that wraps the program. ``python`` is the interpreter of the
        environment in which the server runs.
        """
        self.triton_log = triton_log
        command = [*before, str(python), "-c", program, "serve", "--model-repository", str(repository), *PORTS]
        self.process = subprocess.Popen(
            [*command, "--log-file", str(triton_log), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        self._reader = threading.Thread(target=self._read)
        ready = self.process.stdout.readline()
        found = re.fullmatch(r"ready  http http://(\S+)  grpc (\S+)  metrics http://(\S+)/metrics\n", ready)
        if not found:
            raise AssertionError(f"{ready!r}: {self.process.communicate(timeout=TIMEOUT_S)[1]}")
        self._reader.start()
        self.address, self.grpc, self.metrics = found.groups()
        self.family = [self.triton, *self.triton.children(recursive=True)]
        self.prefix = next(iter(stubs(self.triton.pid))).region.name[: len("pixprep_") + 12]

    @property
    def triton(self):
        """Return the current process of Triton."""
        return wait_until(self._triton, "there is no Triton")

    def _triton(self):
        for process in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                if process.name() == "tritonserver" and is_alive(process):
                    return process
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Kill the server unless the test has already ended it. Calling `stop` would take 2 s, or 10 s after a model
        has died.
        """
        is_running = self.process.poll() is None
        self.process.kill()
        self.end()
        if is_running:
            wait_until(lambda: not self.left(), self.left)

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def wait_for(self, pattern, *, after=0, within_s=TIMEOUT_S):
        """Wait until a line of the log matches, and return the match. The first ``after`` lines are skipped."""

        def found():
            return next(filter(None, (re.search(pattern, line) for line in self.log[after:])), None)

        return wait_until(found, lambda: f"no {pattern!r} in {self.log[after:]}", within_s=within_s)

    def stub(self, model):
        """Return the model's only stub process."""
        (stub,) = self.stubs(model)
        return stub

    def stubs(self, model):
        return [stub for stub in stubs(self.triton.pid) if stub.model == model]

    def end(self):
        """Wait until the process ends by itself, and return its exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def stop(self):
        """Send SIGTERM, and return the exit code."""
        self.process.terminate()
        return self.end()

    def left(self):
        """Return everything that the server has not cleaned up: processes, shared memory, temporary files."""
        return [*filter(is_alive, self.family), *Path("/dev/shm").glob(f"{self.prefix}*")]


def output_of(model):
    """Return the name of the model output that clients request."""
    return "logits" if model == "ensemble" else "tensor"


class Oracle:
    """Computes the expected results with the engine in this process. A result is a tensor, or the reason of an
    error.
    """

    def __init__(self, *, device="cpu"):
        self._engine = pp.Engine(PIPELINE, device=device)
        self._lock = threading.Lock()
        self._known = {}

    def __call__(self, encoded):
        encoded = bytes(encoded)
        with self._lock:
            if encoded not in self._known:
                (result,) = self._engine.run([encoded])
                self._known[encoded] = result if isinstance(result, pp.ImageError) else _on_host(result)
            return self._known[encoded]

    def tensors(self, model, images):
        """Return the model's output for a batch of images, or the first error unless the model's ``on_error`` is
        ``zero``.
        """
        results = [self(image) for image in images]
        refusals = [result for result in results if isinstance(result, pp.ImageError)]
        if refusals and model != "zero":
            return refusals[0]
        zeros = np.zeros((3, 224, 224), np.float32)
        tensors = np.stack([zeros if isinstance(result, pp.ImageError) else result for result in results])
        return self.logits(tensors) if model == "ensemble" else tensors

    def logits(self, tensors):
        """Return the logits that the classifier above computes for these tensors."""
        return sums(tensors)

    def agrees(self, got, expected):
        """Return whether a response matches the expected result bit for bit."""
        return got.shape == expected.shape and got.tobytes() == expected.tobytes()

    def close(self):
        self._engine.close()


def _on_host(tensor):
    return tensor.copy() if isinstance(tensor, np.ndarray) else tensor.get()


class ClientError(Exception):
    """Clear error that contains the server's status and message.

    Attributes:
        code: Status, such as 400 or INVALID_ARGUMENT.
    """

    def __init__(self, code, message):
        self.code = str(code).removeprefix("StatusCode.")
        super().__init__(message)


def body_of(images, *, output="tensor"):
    """Return the headers and body of a request in KServe's binary tensor extension."""
    data = b"".join(len(image).to_bytes(4, "little") + bytes(image) for image in images)
    tensor = {"name": "image", "shape": [len(images), 1], "datatype": "BYTES"}
    tensor["parameters"] = {"binary_data_size": len(data)}
    wanted = {"name": output, "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    return {"Inference-Header-Content-Length": str(len(header))}, header + data


def post(address, path, headers, body, *, timeout_s=TIMEOUT_S, kept=None):
    """Send an arbitrary request. Return the status, headers and body of the response.

    ``kept`` is a connection to use and keep open.

    Raises:
        OSError, HTTPException: If the server does not respond.
    """
    connection = kept or http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        if connection is not kept:
            connection.close()


def address(server, protocol="http"):
    """Return HOST:PORT of a ``Server`` for this protocol."""
    return (server.http_url if protocol == "http" else server.grpc_url).removeprefix("http://")


def client_of(server, protocol):
    """Return Triton's own client for this protocol."""
    return getattr(tritonclient, protocol).InferenceServerClient(address(server, protocol))


def infer(client, model, outputs=None, **arrays):
    """Send a request with Triton's own client and return the response. Inputs are arrays by name, but encoded images
    are a list of bytes.
    """
    library = getattr(tritonclient, type(client).__module__.split(".")[1])
    tensors = []
    for name, given in arrays.items():
        array = np.array([[image] for image in given], np.object_) if isinstance(given, list) else given
        datatype = DATATYPES[array.dtype.name]
        tensors.append(library.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array))
    wanted = outputs and [library.InferRequestedOutput(name) for name in outputs]
    return client.infer(model, tensors, outputs=wanted)


def said(body):
    """Return the error message in the body of a response."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace")


def ask_http(address, model, images, *, timeout_s=TIMEOUT_S, kept=None):
    """Return the output of a model, requested over HTTP.

    Raise ClientError if the response is an error, and OSError or HTTPException if the server does not respond.
    """
    name = output_of(model)
    headers, body = body_of(images, output=name)
    status, headers, data = post(address, f"/v2/models/{model}/infer", headers, body, timeout_s=timeout_s, kept=kept)
    if status != 200:
        raise ClientError(status, said(data))
    split = int(headers["Inference-Header-Content-Length"])
    (output,) = (entry for entry in json.loads(data[:split])["outputs"] if entry["name"] == name)
    return np.frombuffer(data[split:], np.float32).reshape(output["shape"])


def ask_grpc(client, model, images, *, timeout_s=TIMEOUT_S, answers=None):
    """Return the output of a model, requested with a gRPC client. If ``answers`` (the responses of the client's stream)
    is given, use this stream.
    """
    name = output_of(model)
    rows = np.empty((len(images), 1), np.object_)
    rows[:, 0] = images
    tensor = tritonclient.grpc.InferInput("image", rows.shape, "BYTES").set_data_from_numpy(rows)
    wanted = [tritonclient.grpc.InferRequestedOutput(name)]
    try:
        if answers is None:
            return client.infer(model, [tensor], outputs=wanted, client_timeout=timeout_s).as_numpy(name)
        client.async_stream_infer(model, [tensor], outputs=wanted)
        result, error = answers.get(timeout=timeout_s)
        if error is not None:
            raise error
        return result.as_numpy(name)
    except queue.Empty:
        raise TimeoutError(f"no answer in {timeout_s:g} s") from None
    except InferenceServerException as error:
        if error.status() == "StatusCode.DEADLINE_EXCEEDED":
            raise TimeoutError(error.message()) from None
        raise ClientError(error.status(), error.message()) from None


class Clients:
    """Sends requests to one server and counts their outcomes. Many threads may use the same object.

    Attributes:
        counts: Number of requests by outcome: right, error, lost, wrong.
        codes: Number of errors by status code.
        notes: Descriptions of lost or wrong responses.
    """

    def __init__(self, serve, oracle, *, is_closing=False):
        """With ``is_closing``, the server is expected to shut down, so a closed connection counts as a clear error."""
        self.serve = serve
        self.oracle = oracle
        self._is_closing = is_closing
        self.counts, self.codes, self.notes = Counter(), Counter(), []
        self._lock = threading.Lock()
        self._local = threading.local()
        self._opened = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self._opened:
            client.close()

    @property
    def sent(self):
        return sum(self.counts.values())

    def grpc(self):
        """Return the gRPC client of this thread."""
        if not hasattr(self._local, "client"):
            self._local.client = tritonclient.grpc.InferenceServerClient(self.serve.grpc)
            self._opened.append(self._local.client)
        return self._local.client

    def _kept(self):
        """Return the persistent HTTP connection of this thread."""
        if not hasattr(self._local, "kept"):
            self._local.kept = http.client.HTTPConnection(self.serve.address, timeout=TIMEOUT_S)
            self._opened.append(self._local.kept)
        return self._local.kept

    def _stream(self):
        """Return the stream of this thread: its own gRPC client, and the queue of its responses."""
        if not hasattr(self._local, "stream"):
            client, answers = tritonclient.grpc.InferenceServerClient(self.serve.grpc), queue.SimpleQueue()
            client.start_stream(lambda result, error: answers.put((result, error)))
            self._opened.append(client)
            self._local.stream = client, answers
        return self._local.stream

    def ask(self, images, *, model="preprocess", protocol="http", timeout_s=TIMEOUT_S):
        """Send one request over one of ``PROTOCOLS``, and return its outcome."""
        expected = self.oracle.tensors(model, images)
        try:
            if protocol == "http":
                got = ask_http(self.serve.address, model, images, timeout_s=timeout_s)
            elif protocol == "http, kept alive":
                got = ask_http(self.serve.address, model, images, kept=self._kept())
            elif protocol == "grpc, streamed":
                client, answers = self._stream()
                got = ask_grpc(client, model, images, timeout_s=timeout_s, answers=answers)
            else:
                got = ask_grpc(self.grpc(), model, images, timeout_s=timeout_s)
        except ClientError as error:
            if isinstance(expected, pp.ImageError) and is_refusal_of(error, expected):
                return self.note("right")
            return self.error(error.code, str(error))
        except (OSError, http.client.HTTPException) as error:
            if protocol == "http, kept alive":
                self._kept().close()  # the next request opens the connection again
            if self._is_closing and not isinstance(error, TimeoutError):
                return self.error("closed", repr(error))
            return self.note("lost", f"{protocol} {model}: {error!r}")
        if isinstance(expected, pp.ImageError):
            return self.note("wrong", f"{protocol} {model}: accepted, but the engine says {expected}")
        if not self.oracle.agrees(got, expected):
            return self.note("wrong", f"{protocol} {model}: another tensor, {got.shape}")
        return self.note("right")

    def error(self, code, message):
        """Count an error, as ``error`` if its message is clear and as ``wrong`` if it is not."""
        if unclear := what_is_unclear(message):
            return self.note("wrong", f"{code}: {unclear}: {message[:300]}")
        with self._lock:
            self.codes[code] += 1
        return self.note("error")

    def note(self, outcome, words=""):
        with self._lock:
            self.counts[outcome] += 1
            if words:
                self.notes.append(words)
        return outcome

    def recover(self, *, within_s=TIMEOUT_S, models=MODELS):
        """Send requests until every model responds correctly, and return the elapsed seconds. Errors until then are
        also counted.
        """
        start = time.monotonic()
        for model in models:
            while self.ask([PHOTO], model=model) != "right":
                time.sleep(0.02)
                assert time.monotonic() - start < within_s, f"{model} does not recover: {self.notes}"
        return time.monotonic() - start

    @contextmanager
    def load(self, count=4, *, images=None, models=MODELS, protocols=("http", "grpc")):
        """Run ``count`` clients during the block. Each client sends valid and invalid images, one request at a time."""
        images = images or MIXED
        ended = threading.Event()

        def work(number):
            for turn in range(number, 1 << 30):
                if ended.is_set():
                    return
                model, protocol = models[turn % len(models)], protocols[number % len(protocols)]
                self.ask([images[turn % len(images)]], model=model, protocol=protocol)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield ended
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def is_refusal_of(error, expected):
    """Return whether a response is an INVALID_ARG error with the engine's reason."""
    return error.code in ("400", "INVALID_ARGUMENT") and f"[{expected.reason}]" in str(error)


def what_is_unclear(message):
    """Return a description of the problem if an error message is unclear, or an empty string if it is clear."""
    if not message.strip():
        return "no words"
    if "Traceback" in message or 'File "' in message:
        return "shows a traceback"
    if found := re.search(r"(?<![\w/])/(?:\w[\w.-]*/)+\w+|pixprep_[0-9a-f]{12}", message):
        return f"shows {found[0]}"
    return ""


def _scaled(height, width, format_="JPEG"):
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:, :, 0] = (np.arange(height) * 255 // height)[:, None]
    pixels[:, :, 1] = np.arange(width) * 255 // width
    pixels[:, :, 2] = np.random.default_rng((height, width)).integers(0, 256, (height, width))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format_)
    return file.getvalue()


PHOTO = _scaled(240, 320)
LARGE = _scaled(3000, 4000)
GOOD = [PHOTO, _scaled(100, 75), _scaled(480, 360), _scaled(64, 64, "PNG"), _scaled(31, 500)]
BAD = [b"", b"not an image", PHOTO[: len(PHOTO) // 2], b"\xff\xd8\xff", PHOTO[:200]]
MIXED = [*GOOD, *GOOD, *BAD[:3], *GOOD]
