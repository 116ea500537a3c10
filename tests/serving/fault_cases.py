"""Cases of the fault table. Each case causes one fault on a live server that other clients use meanwhile, and counts
the outcome of every request.

A case sends requests through ``site.clients`` and may return a remark. While it runs, two other clients, the
neighbours, send valid images. Their errors count as lost requests unless the fault is expected to make the model
unavailable for all clients.
"""

import gzip
import http.client
import json
import random
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import psutil
import tritonclient.grpc

from support.endurance import endurance
from support.images import JUNK, jpeg, jpegs, others, scene
from support.serving import (
    GOOD,
    LARGE,
    MODELS,
    PHOTO,
    RAW,
    Clients,
    Serve,
    body_of,
    post,
    said,
    what_is_unclear,
    write_repository,
)

PROTOCOLS = ("http", "grpc")
SHM = Path("/dev/shm")
INFER = "/v2/models/{}/infer"
NOT_HERE = {
    18: ("800,000 chunks", "a proxy's matter: the embedded server reads a body to its end; see docs/security.md"),
    **dict.fromkeys(range(25, 32), ("a process that dies, SIGTERM", "tests/serving/server/test_supervision.py")),
    32: ("kill -9 of one of three behind a load balancer", "needs a load balancer"),
    33: ("rolling restart of three with drain", "needs a load balancer"),
    34: ("preprocess loaded again under load", "tools/soak.py"),
    37: ("/dev/shm of 1 MiB: no start", "tests/serving/test_server_setup.py"),
    39: ("8,000 requests, a tenth of them bad", "tools/soak.py does 15,000"),
    40: ("NumPy 2 in the environment: no start", "tests/serving/test_server_setup.py"),
    41: ("port in use, no repository", "tests/serving/test_server_setup.py, test_cli.py"),
    42: ("GPU out of memory, sticky CUDA error, GPU lost", "needs a GPU"),
    43: (
        "pipeline.json that is broken",
        "tests/serving/server/test_embedded_server.py, tests/pipeline/test_pipeline_file.py",
    ),
}
CASES = {}


@dataclass(frozen=True)
class Row:
    """Row of the fault table: the outcomes of all requests of one case.

    Attributes:
        right: Number of correct outcomes: tensors that match the engine's bit for bit, and invalid requests that were
            rejected as specified.
        errors: Number of requests that failed with a clear error instead of the expected response.
        lost: Number of requests without a response, plus the neighbours' errors.
        wrong: Number of wrong tensors, invalid requests that succeeded, and error messages that should not be shown to
            clients.
        recovery_s: Seconds from the end of the fault until every model responded correctly again.
        remark: Measurements of the case, or descriptions of the lost or wrong responses.
    """

    number: int
    fault: str
    sent: int
    right: int
    errors: int
    lost: int
    wrong: int
    recovery_s: float
    remark: str

    HEAD = f"row  {'fault':<72}  sent right errors lost wrong back s  remark"

    def __str__(self):
        return (
            f"{self.number:>3}  {self.fault:<72} {self.sent:>5} {self.right:>5} {self.errors:>6} {self.lost:>4} "
            f"{self.wrong:>5} {self.recovery_s:>6.1f}  {self.remark}"
        )


@dataclass(frozen=True)
class Case:
    """Case of the fault table, with its function, and whether the neighbours may get errors while the case runs."""

    fault: str
    do: object
    takes_the_model: bool


def case(number, fault, *, takes_the_model=False):
    """Return a decorator that adds a function of a site to the table of cases."""

    def enter(do):
        CASES[number] = Case(fault, do, takes_the_model)
        return do

    return enter


class Site:
    """Environment in which a case runs.

    Attributes:
        serve: The server.
        clients: Clients that count the outcomes of this case.
        scale: Factor for the number of requests: 1 in the usual tests, more in the long run.
    """

    def __init__(self, serve, oracle, folder, scale=1):
        self.serve = serve
        self.oracle = oracle
        self.folder = folder
        self.scale = scale
        self.clients = Clients(serve, oracle)

    def count(self, clients):
        """Add the outcomes that other clients have counted."""
        self.clients.counts.update(clients.counts)
        self.clients.codes.update(clients.codes)
        self.clients.notes += clients.notes

    def both(self, images, *, models=MODELS):
        """Send the images in one request per protocol."""
        for model in models:
            for protocol in ("http", "grpc"):
                self.clients.ask(images, model=model, protocol=protocol)

    def raw(self, codes, headers, body, *, model="preprocess", path=None, timeout_s=60):
        """Send an arbitrary HTTP request. The outcome is ``right`` if the response has one of the statuses
        ``codes``.
        """
        try:
            status, _, text = post(self.serve.address, path or INFER.format(model), headers, body, timeout_s=timeout_s)
        except (OSError, http.client.HTTPException) as error:
            return self.clients.note("lost", repr(error))
        if status == 200 and status not in codes:
            return self.clients.note("wrong", f"accepted: {headers} {body[:80]}")
        if status != 200 and (unclear := what_is_unclear(said(text))):
            return self.clients.note("wrong", f"{status}: {unclear}")
        return self.clients.note("right") if status in codes else self.clients.error(status, said(text))

    def in_json(self, codes, tensor, *, model="preprocess", **rest):
        """Send a request whose tensor is encoded as JSON, and return its outcome."""
        body = json.dumps({"inputs": [tensor] if tensor else [], **rest}).encode()
        return self.raw(codes, {}, body, model=model)

    def stats(self, model="preprocess"):
        """Return the number of images that the model has processed, from Triton's statistics."""
        _, _, text = get(self.serve.address, f"/v2/models/{model}/stats")
        return int(json.loads(text)["model_stats"][0]["inference_count"])


def get(address, path):
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def run(number, serve, oracle, folder, *, scale=1):
    """Run one case, and return its row of the table."""
    it = CASES[number]
    site = Site(serve, oracle, folder, scale)
    with site.clients, Clients(serve, oracle) as neighbours:
        with neighbours.load(2, images=GOOD):
            try:
                remark = it.do(site) or ""
            except AssertionError as error:
                remark = ""
                site.clients.note("wrong", str(error) or "not as it should be")
            recovery_s = neighbours.recover()
        if not it.takes_the_model and neighbours.counts["error"]:
            neighbours.counts["lost"] += neighbours.counts.pop("error")
            neighbours.notes.append(f"a neighbour got {dict(neighbours.codes)}")
        counts = site.clients.counts + neighbours.counts
        notes = site.clients.notes + neighbours.notes
        if site.clients.codes or neighbours.codes:
            remark += f" {dict(site.clients.codes + neighbours.codes)}"
    return Row(
        number, it.fault, counts.total(), counts["right"], counts["error"], counts["lost"], counts["wrong"], recovery_s,
        " | ".join(notes[:3]) or remark.strip(),
    )  # fmt: skip


def rss_mib(*pids):
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**20


def shm_mib(serve):
    return sum(path.stat().st_size for path in SHM.glob(f"{serve.prefix}*")) / 2**20


# Cases that concern the contents of a request.


@case(1, "no bytes; an empty body")
def _(site):
    site.both([b""])
    for model in MODELS:
        site.raw([400], RAW, b"", model=model)


@case(2, "text, HTML, beginnings of image files")
def _(site):
    for junk in JUNK.values():
        site.both([junk])


@case(3, "JPEG cut off after 10, 50, 99 %")
def _(site):
    for share in (0.1, 0.5, 0.99):
        site.both([PHOTO[: int(len(PHOTO) * share)]])


@case(4, "images with bits flipped")
def _(site):
    rng = random.Random(4)
    small = [jpeg(scene(60, 80)), jpeg(scene(47, 61), progressive=True), *others().values()]

    def damaged(number):
        image = bytearray(small[number % len(small)])
        for _ in range(rng.randint(1, 8)):
            image[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
        return bytes(image)

    images = [damaged(number) for number in range(80 * site.scale)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: site.clients.ask([pair[1]], protocol=PROTOCOLS[pair[0] % 2]), enumerate(images)))


@case(5, "a header that promises 65500 x 65500, 20000 x 20000, 0 x n")
def _(site):
    pids = [stub.pid for stub in site.serve.stubs("preprocess")]
    before = rss_mib(*pids)
    start = PHOTO.index(b"\xff\xc0") + 5
    for height, width in ((65500, 65500), (20000, 20000), (0, 320), (240, 0)):
        lie = PHOTO[:start] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + PHOTO[start + 4 :]
        site.both([lie])
    return f"memory of the stub +{rss_mib(*pids) - before:.0f} MiB"


@case(6, "progressive JPEG of 1,000 scans")
def _(site):
    image = jpeg(scene(40, 60), progressive=True)
    last = image.rindex(b"\xff\xda")
    site.both([image[:-2] + image[last:-2] * 1000 + image[-2:]])


@case(7, "every kind of JPEG and of other images")
def _(site):
    for number, image in enumerate([*jpegs().values(), *others().values()]):
        site.clients.ask([image], protocol=PROTOCOLS[number % 2])


@case(8, "1 bad image of 8 in one request; the same to on_error zero")
def _(site):
    site.both([*GOOD[:4], b"bad", *GOOD[:3]], models=[*MODELS, "zero"])


@case(9, "good and bad requests in one dynamic batch")
def _(site):
    images = [GOOD[0], b"bad", GOOD[1], PHOTO[:99]] * 8
    with ThreadPoolExecutor(len(images)) as pool:
        list(pool.map(lambda image: site.clients.ask([image]), images))


@case(10, "a batch of 0, to the ensemble and directly")
def _(site):
    for model in MODELS:
        headers, body = body_of([], output="logits" if model == "ensemble" else "tensor")
        site.raw([400], headers, body, model=model)


@case(11, "a batch of 65, of 10,000")
def _(site):
    for count in (65, 10_000):
        site.raw([400], *body_of([b"x"] * count))


@case(12, "wrong type, name, rank; no input; unknown model, output")
def _(site):
    good = {"name": "image", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}
    site.in_json([400], {**good, "datatype": "FP32", "data": [1.0]})
    site.in_json([400], {**good, "name": "picture"})
    site.in_json([400], {**good, "shape": [1]})
    site.in_json([400], {**good, "shape": [1, 1, 1]})
    site.in_json([400], None)
    site.in_json([400], good, outputs=[{"name": "picture"}])
    site.in_json([404, 400], good, model="resnet")


# If one length is invalid, Triton 2.51 rejects the whole dynamic batch; see docs/security.md.
@case(13, "lies in lengths: of the bytes, the data, the header", takes_the_model=True)
def _(site):
    headers, body = body_of([PHOTO])
    split = int(headers["Inference-Header-Content-Length"])
    for length in (0, len(PHOTO) - 1, len(PHOTO) + 1, 2**31, 2**32 - 1):
        site.raw([400], headers, body[:split] + length.to_bytes(4, "little") + body[split + 4 :])
    for size in (-5, 0, 3, 2**31, 2**63 - 1, 10**30):
        header = body[:split].replace(str(len(PHOTO) + 4).encode(), str(size).encode())
        site.raw([400, 500], {**headers, "Inference-Header-Content-Length": str(len(header))}, header + body[split:])
    for length in ("-1", "1", str(split - 1), str(len(body)), str(len(body) + 1), "99999999999999999999", "x"):
        site.raw([400, 500], {"Inference-Header-Content-Length": length}, body)


@case(14, "broken JSON; JSON 2,000 deep")
def _(site):
    deep = [b"[" * 2000 + b"]" * 2000, b'{"inputs":' * 2000 + b"1" + b"}" * 2000]
    for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", *deep):
        site.raw([400, 500], {}, body)


@case(15, "mutated requests, HTTP and gRPC", takes_the_model=True)
def _(site):
    rng = random.Random(15)
    _, body = body_of([GOOD[3]])
    rows = np.empty((1, 1), np.object_)
    rows[0, 0] = GOOD[3]
    message = infer_request(rows).SerializeToString()

    def mutate(data, most):
        data = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(most, len(data)))
            data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
        return bytes(data)

    words = f"POST {INFER.format('preprocess')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    words += f"Inference-Header-Content-Length: {len(body) - len(GOOD[3]) - 4}\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(150 * site.scale):
        data = mutate(words.encode() + body, 600)
        with socket.create_connection(site.serve.address.split(":"), timeout=30) as connection:
            answer = b""
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.makefile("rb").read()
            except TimeoutError:
                site.clients.note("lost", f"no end: {data[:200]}")
                continue
            except OSError:
                pass  # Triton closed the connection while it received garbage
        if answer and not answer.startswith(b"HTTP/1.1 200") and what_is_unclear(answer.decode(errors="replace")):
            site.clients.note("wrong", answer.decode(errors="replace"))
        else:  # closing an incomplete request without a response is expected
            site.clients.note("right")
    with grpc.insecure_channel(site.serve.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(150 * site.scale):
            try:
                call(mutate(message, len(message)), timeout=30)
                site.clients.note("right")
            except grpc.RpcError as error:
                is_lost = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                site.clients.note("lost" if is_lost else "right", repr(error) if is_lost else "")


@case(16, "64 MB of garbage, four times", takes_the_model=True)
def _(site):
    before = shm_mib(site.serve)
    for _ in range(4):
        site.raw([400], RAW, b"\x55" * (64 << 20))
    return f"/dev/shm +{shm_mib(site.serve) - before:.0f} MiB, which Triton keeps"


@case(17, "a gzip bomb, 0.2 MB for 200 MB", takes_the_model=True)
def _(site):
    pid = site.serve.triton.pid
    before, in_shm = rss_mib(pid), shm_mib(site.serve)
    site.raw([400], {**RAW, "Content-Encoding": "gzip"}, gzip.compress(bytes(200 << 20)), timeout_s=120)
    return f"memory of Triton +{rss_mib(pid) - before:.0f} MiB, /dev/shm +{shm_mib(site.serve) - in_shm:.0f} MiB"


@case(19, "300 uploads that never end")
def _(site):
    head = f"POST {INFER.format('preprocess')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
    head += "Inference-Header-Content-Length: 0\r\n\r\nhalf"
    half = [socket.create_connection(site.serve.address.split(":"), timeout=30) for _ in range(300)]
    for connection in half:
        connection.sendall(head.encode())
    slowest = 0.0
    for image in GOOD * 4:
        start = time.monotonic()
        site.clients.ask([image])
        slowest = max(slowest, time.monotonic() - start)
    for connection in half:
        connection.close()
    return f"slowest answer beside them {1e3 * slowest:.0f} ms"


@case(20, "clients that disconnect once they have sent", takes_the_model=True)
def _(site):
    handled = site.stats()
    headers, body = body_of([LARGE])
    words = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
    for _ in range(20):
        with socket.create_connection(site.serve.address.split(":"), timeout=60) as connection:
            connection.sendall(f"POST {INFER.format('narrow')} HTTP/1.1\r\n{head}\r\n".encode() + body)
    site.clients.ask([PHOTO])
    return f"{site.stats('narrow')} of 20 still executed, the queue being 4 long" if handled else ""


@case(21, "gRPC calls that are cancelled", takes_the_model=True)
def _(site):
    handled = site.stats()
    rows = np.empty((2, 1), np.object_)
    rows[:, 0] = [LARGE, LARGE]
    with grpc.insecure_channel(site.serve.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        message = infer_request(rows).SerializeToString()
        calls = [call.future(message, timeout=60) for _ in range(10)]
        for future in calls:
            if future.cancel() or future.cancelled():
                site.clients.note("right", "")
                continue
            # completed before the cancellation
            answer = tritonclient.grpc.service_pb2.ModelInferResponse.FromString(future.result())
            is_right = answer.raw_output_contents == [site.clients.oracle.tensors("preprocess", [LARGE] * 2).tobytes()]
            site.clients.note("right" if is_right else "wrong", "" if is_right else "another tensor")
    site.clients.ask([PHOTO])
    return f"{site.stats() - handled} images handled meanwhile, the neighbours' among them"


def infer_request(rows):
    """Return the gRPC message of a request to preprocess with these images."""
    tensor = tritonclient.grpc.InferInput("image", rows.shape, "BYTES").set_data_from_numpy(rows)
    return tritonclient.grpc.service_pb2.ModelInferRequest(
        model_name="preprocess", inputs=[tensor._get_tensor()], raw_input_contents=[tensor._get_content()]
    )


@case(22, "a deadline of 50 ms for a second's work", takes_the_model=True)
def _(site):
    rows = np.empty((8, 1), np.object_)
    rows[:, 0] = [LARGE] * 8
    tensor = tritonclient.grpc.InferInput("image", [8, 1], "BYTES").set_data_from_numpy(rows)
    with tritonclient.grpc.InferenceServerClient(site.serve.grpc) as client:
        try:
            client.infer("preprocess", [tensor], client_timeout=0.05)
            site.clients.note("wrong", "in time")
        except tritonclient.utils.InferenceServerException as error:
            is_late = error.status() == "StatusCode.DEADLINE_EXCEEDED"
            site.clients.note("right" if is_late else "lost", "" if is_late else str(error))


@case(23, "overload: 60 at once for a queue of 4", takes_the_model=True)
def _(site):
    def ask(number):
        site.clients.ask([LARGE], model="narrow", protocol=PROTOCOLS[number % 2])

    with ThreadPoolExecutor(60) as pool:
        list(pool.map(ask, range(60)))
    assert set(site.clients.codes) <= {"503", "UNAVAILABLE"}, site.clients.codes


@case(24, "200 clients of 5 requests", takes_the_model=True)
def _(site):
    with ThreadPoolExecutor(200) as pool:
        list(pool.map(lambda number: site.clients.ask([GOOD[number % 5]]), range(1000 if site.scale > 1 else 400)))


# Cases in which the person who operates the server makes a mistake or changes something.


def in_own_mounts(folder, size):
    """Return a command prefix that mounts a file system of this size on a folder. Return None if mounting is not
    permitted.
    """
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    script = f'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$@"'
    words = [*unshare, script, "sh"]
    allowed = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if allowed else None


@case(35, "a broken pipeline is loaded: the old one goes on")
def _(site):
    with endurance(site.folder / "own35", site.oracle) as it, it.clients.load(4, images=GOOD):
        pipeline = it.server.snapshot.folder / "preprocess" / "1" / "pipeline.json"
        pipeline.write_text(pipeline.read_text().replace('"resize"', '"rezise"'))
        assert "no such op; did you mean" in it.server.load("preprocess")
        it.more_right(8)
    site.count(it.clients)
    assert not it.clients.codes


@case(36, "/dev/shm of 34 MiB, and a batch that does not fit")
def _(site):
    before = in_own_mounts("/dev/shm", "34m")
    if before is None:
        return "not tried: this machine lets nobody mount"
    folder = site.folder / "small"
    with (
        Serve(write_repository(folder / "models"), triton_log=folder / "triton.log", before=before) as serve,
        Clients(serve, site.oracle) as clients,
    ):
        clients.ask([PHOTO])
        codes = []
        for _ in range(2):
            try:
                status, _, text = post(serve.address, INFER.format("preprocess"), *body_of([GOOD[3]] * 64))
                codes.append(f"{status} {said(text)[:120]}" if status != 200 else "200")
            except (OSError, http.client.HTTPException) as error:
                codes.append(repr(error))
        recovery_s = clients.recover()
        site.count(clients)
        return f"a batch of 64: {codes[0]}; right again after {recovery_s:.1f} s"


@case(38, "the disk of the log is full")
def _(site):
    folder = site.folder / "full"
    with (
        Serve(write_repository(folder / "models"), triton_log="/dev/full") as serve,
        Clients(serve, site.oracle) as clients,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda number: clients.ask([GOOD[number % 5]]), range(100)))
        site.count(clients)


@case(44, "a thousand connections one after the other (a clock that jumps: not here)")
def _(site):
    for number in range(1000 if site.scale > 1 else 200):
        site.clients.ask([GOOD[3]], model=MODELS[number % 2])
