"""Tests that faulty requests get a clear error from a live server, while two other clients, the neighbours, get the
right response to every request.

No request may be lost or get a wrong tensor. ``make soak`` sends more requests, and also kills processes.
"""

import gzip
import http.client
import itertools
import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from support.endurance import endurance, growth
from support.images import JUNK, jpeg, jpegs, others, scene
from support.limits import in_own_mounts
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

pytestmark = pytest.mark.server

PROTOCOLS = ("http", "grpc")
INFER = "/v2/models/{}/infer"


@contextmanager
def neighbours(serve, oracle, *, may_fail=False):
    """Yield clients for the faulty requests, while two other clients send valid ones.

    Afterwards, wait until every model responds correctly, and assert that every request had exactly one right outcome.
    With ``may_fail``, clear errors are also accepted, because the fault makes the model unavailable for all clients.
    """
    with Clients(serve, oracle) as clients, Clients(serve, oracle) as beside:
        with beside.load(2, images=GOOD):
            yield clients
            beside.recover()
        for each in (clients, beside):
            outcomes = {"right", *["error"] * may_fail}
            assert set(each.counts) <= outcomes, (each.counts, each.codes, each.notes, serve.log[-20:])
        assert clients.counts["right"]


def raw(clients, codes, headers, body, *, model="preprocess"):
    """Send an arbitrary HTTP request. The outcome is ``right`` if the response has one of the statuses ``codes``."""
    try:
        status, _, text = post(clients.serve.address, INFER.format(model), headers, body)
    except (OSError, http.client.HTTPException) as error:
        return clients.note("lost", repr(error))
    if status == 200:
        return clients.note("wrong", f"accepted: {headers} {body[:80]}")
    if unclear := what_is_unclear(said(text)):
        return clients.note("wrong", f"{status}: {unclear}")
    return clients.note("right") if status in codes else clients.error(status, said(text))


def damaged_images():
    """Return 80 images with up to eight flipped bits each."""
    rng = random.Random(4)
    small = [jpeg(scene(60, 80)), jpeg(scene(47, 61), progressive=True), *others().values()]
    for number in range(80):
        image = bytearray(small[number % len(small)])
        for _ in range(rng.randint(1, 8)):
            image[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
        yield bytes(image)


def declaring(height, width):
    """Return a photo whose header declares this size."""
    start = PHOTO.index(b"\xff\xc0") + 5
    return PHOTO[:start] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + PHOTO[start + 4 :]


def of_many_scans():
    image = jpeg(scene(40, 60), progressive=True)
    last = image.rindex(b"\xff\xda")
    return image[:-2] + image[last:-2] * 1000 + image[-2:]


IMAGES = {
    "text and beginnings of files": JUNK.values,
    "cut off": lambda: [PHOTO[: int(len(PHOTO) * share)] for share in (0.1, 0.5, 0.99)],
    "false sizes": lambda: [declaring(*size) for size in ((65500, 65500), (20000, 20000), (0, 320), (240, 0))],
    "1,000 scans": lambda: [of_many_scans()],
    "flipped bits": damaged_images,
    "valid images of every kind": lambda: [*jpegs().values(), *others().values()],
}


@pytest.mark.parametrize("kind", IMAGES)
def test_each_image_gets_its_tensor_or_its_reason(usual, oracle, kind):
    with neighbours(usual, oracle) as clients, ThreadPoolExecutor(4) as pool:
        images = [*IMAGES[kind]()]
        asked = [
            pool.submit(clients.ask, [image], model=MODELS[number // 2 % 2], protocol=PROTOCOLS[number % 2])
            for number, image in enumerate(images * (1 if len(images) > 9 else 4))
        ]
        assert {each.result() for each in asked} == {"right"}


def test_one_bad_image_fails_its_request_in_a_batch_of_good_and_bad_ones(usual, oracle):
    with neighbours(usual, oracle) as clients, ThreadPoolExecutor(32) as pool:
        for model, protocol in itertools.product((*MODELS, "zero"), PROTOCOLS):
            clients.ask([*GOOD[:4], b"bad", *GOOD[:3]], model=model, protocol=protocol)
        assert {*pool.map(lambda image: clients.ask([image]), [GOOD[0], b"bad", GOOD[1], PHOTO[:99]] * 8)} == {"right"}


GIVEN = {"name": "image", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}
NOT_AS_SPECIFIED = [
    {"inputs": [{**GIVEN, "datatype": "FP32", "data": [1.0]}]},
    {"inputs": [{**GIVEN, "name": "picture"}]},
    {"inputs": [{**GIVEN, "shape": [1]}]},
    {"inputs": [{**GIVEN, "shape": [1, 1, 1]}]},
    {"inputs": []},
    {"inputs": [GIVEN], "outputs": [{"name": "picture"}]},
]


def test_a_request_with_a_wrong_batch_type_name_or_rank_is_rejected(usual, oracle):
    with neighbours(usual, oracle) as clients:
        for model in MODELS:
            raw(clients, [400], RAW, b"", model=model)
            raw(clients, [400], *body_of([], output="logits" if model == "ensemble" else "tensor"), model=model)
        for count in (65, 10_000):
            raw(clients, [400], *body_of([b"x"] * count))
        for content in NOT_AS_SPECIFIED:
            raw(clients, [400], {}, json.dumps(content).encode())
        raw(clients, [400, 404], {}, json.dumps({"inputs": [GIVEN]}).encode(), model="resnet")
        deep = [b"[" * 2000 + b"]" * 2000, b'{"inputs":' * 2000 + b"1" + b"}" * 2000]
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", *deep):
            raw(clients, [400], {}, body)


def test_false_lengths_and_bombs_are_rejected(usual, oracle):
    """If one length is invalid, Triton 2.51 rejects the whole dynamic batch; see docs/security.md."""
    headers, body = body_of([PHOTO])
    split = int(headers["Inference-Header-Content-Length"])
    with neighbours(usual, oracle, may_fail=True) as clients:
        for length in (0, len(PHOTO) - 1, len(PHOTO) + 1, 2**31, 2**32 - 1):
            raw(clients, [400], headers, body[:split] + length.to_bytes(4, "little") + body[split + 4 :])
        for size in (-5, 0, 3, 2**31, 2**63 - 1, 10**30):
            header = body[:split].replace(str(len(PHOTO) + 4).encode(), str(size).encode())
            declared = {**headers, "Inference-Header-Content-Length": str(len(header))}
            raw(clients, [400, 500], declared, header + body[split:])
        for length in ("-1", "1", str(split - 1), str(len(body)), str(len(body) + 1), "99999999999999999999", "x"):
            raw(clients, [400, 500], {"Inference-Header-Content-Length": length}, body)
        raw(clients, [413], {**RAW, "Content-Encoding": "gzip"}, gzip.compress(bytes(100 << 20), compresslevel=1))


def infer_request(rows):
    """Return the gRPC message of a request to preprocess with these images."""
    tensor = tritonclient.grpc.InferInput("image", rows.shape, "BYTES").set_data_from_numpy(rows)
    return tritonclient.grpc.service_pb2.ModelInferRequest(
        model_name="preprocess", inputs=[tensor._get_tensor()], raw_input_contents=[tensor._get_content()]
    ).SerializeToString()


def rows_of(*images):
    rows = np.empty((len(images), 1), np.object_)
    rows[:, 0] = images
    return rows


def test_mutated_requests_get_a_response_or_a_closed_connection(usual, oracle):
    rng = random.Random(15)
    _, body = body_of([GOOD[3]])
    message = infer_request(rows_of(GOOD[3]))

    def mutate(data, most):
        data = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(min(most, len(data)))
            data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
        return bytes(data)

    head = f"POST {INFER.format('preprocess')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Inference-Header-Content-Length: {len(body) - len(GOOD[3]) - 4}\r\nContent-Length: {len(body)}\r\n\r\n"
    with neighbours(usual, oracle, may_fail=True) as clients:
        for _ in range(150):
            answer = b""
            with socket.create_connection(usual.address.split(":"), timeout=90) as connection:
                try:
                    connection.sendall(mutate(head.encode() + body, 600))
                    connection.shutdown(socket.SHUT_WR)
                    answer = connection.makefile("rb").read()
                except TimeoutError:
                    clients.note("lost", "the connection remains open")
                except OSError:  # the server closed the connection while it received garbage
                    pass
            text = answer.decode(errors="replace")
            unclear = text and not answer.startswith(b"HTTP/1.1 200") and what_is_unclear(text)
            clients.note("wrong" if unclear else "right", text if unclear else "")
        with grpc.insecure_channel(usual.grpc) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for _ in range(150):
                try:
                    call(mutate(message, len(message)), timeout=90)
                    clients.note("right")
                except grpc.RpcError as error:
                    is_lost = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                    clients.note("lost" if is_lost else "right", repr(error) if is_lost else "")


def test_300_unfinished_uploads_do_not_affect_other_clients(usual, oracle):
    head = f"POST {INFER.format('preprocess')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
    head += "Inference-Header-Content-Length: 0\r\n\r\nhalf"
    with neighbours(usual, oracle) as clients:
        half = [socket.create_connection(usual.address.split(":"), timeout=90) for _ in range(300)]
        for connection in half:
            connection.sendall(head.encode())
        assert {clients.ask([image]) for image in GOOD * 4} == {"right"}
        for connection in half:
            connection.close()


def test_clients_that_disconnect_cancel_or_set_a_short_deadline_are_abandoned(usual, oracle):
    headers, body = body_of([LARGE])
    words = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in words.items())
    expected = oracle.tensors("preprocess", [LARGE] * 2).tobytes()
    with neighbours(usual, oracle, may_fail=True) as clients:
        for _ in range(20):
            with socket.create_connection(usual.address.split(":"), timeout=90) as connection:
                connection.sendall(f"POST {INFER.format('narrow')} HTTP/1.1\r\n{head}\r\n".encode() + body)
        with grpc.insecure_channel(usual.grpc) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            calls = [call.future(infer_request(rows_of(LARGE, LARGE)), timeout=90) for _ in range(10)]
            for future in calls:
                if not future.cancel() and not future.cancelled():  # it was completed before
                    answer = tritonclient.grpc.service_pb2.ModelInferResponse.FromString(future.result())
                    assert answer.raw_output_contents == [expected]
        tensor = tritonclient.grpc.InferInput("image", [8, 1], "BYTES").set_data_from_numpy(rows_of(*[LARGE] * 8))
        with (
            tritonclient.grpc.InferenceServerClient(usual.grpc) as client,
            pytest.raises(InferenceServerException) as caught,
        ):
            client.infer("preprocess", [tensor], client_timeout=0.05)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert clients.ask([PHOTO]) == "right"


def test_more_requests_than_a_queue_can_hold_get_a_clear_error(usual, oracle):
    def ask(number):
        clients.ask([LARGE], model="narrow", protocol=PROTOCOLS[number % 2])

    with neighbours(usual, oracle, may_fail=True) as clients, ThreadPoolExecutor(60) as pool:
        list(pool.map(ask, range(60)))
        assert set() < set(clients.codes) <= {"503", "UNAVAILABLE"}


def test_200_clients_at_once_get_their_responses(usual, oracle):
    with neighbours(usual, oracle, may_fail=True) as clients, ThreadPoolExecutor(200) as pool:
        list(pool.map(lambda number: clients.ask([GOOD[number % 5]]), range(400)))


def test_a_batch_that_does_not_fit_into_shared_memory_fails_and_the_next_request_is_served(oracle, tmp_path):
    before = in_own_mounts("/dev/shm", "34m")
    if before is None:
        pytest.skip("MAY NOT MOUNT: run the test as root")
    models = write_repository(tmp_path / "models")
    with (
        Serve(models, triton_log=tmp_path / "triton.log", before=before) as serve,
        Clients(serve, oracle) as clients,
    ):
        assert clients.ask([PHOTO]) == "right", clients.notes
        for _ in range(2):
            assert post(serve.address, INFER.format("preprocess"), *body_of([GOOD[3]] * 64))[0] != 200
        clients.recover()
        assert not clients.counts["wrong"], clients.notes


def test_a_full_disk_for_the_log_costs_no_request(oracle, tmp_path):
    (tmp_path / "disk").mkdir()
    before = in_own_mounts(tmp_path / "disk", "16k")
    if before is None:
        pytest.skip("MAY NOT MOUNT: run the test as root")
    models = write_repository(tmp_path / "models")
    with (
        Serve(models, triton_log=tmp_path / "disk" / "triton.log", before=before) as serve,
        Clients(serve, oracle) as clients,
        ThreadPoolExecutor(8) as pool,
    ):
        assert {*pool.map(lambda number: clients.ask([GOOD[number % 5]]), range(100))} == {"right"}, clients.notes


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_one_outlier_of_memory_is_not_growth_and_a_leak_is(factor):
    steady, leak = [100.0] * 12, [100.0 + step for step in range(12)]
    for place in range(12):
        assert growth([*steady[:place], factor * 100, *steady[place + 1 :]]) == 0
        assert growth([*leak[:place], factor * leak[place], *leak[place + 1 :]]) > 0.015
    assert growth([1.0, 2.0]) == 1


@pytest.mark.slow(reason="8 s of requests; make soak looks for leaks")
def test_after_2000_requests_and_some_hang_ups_the_server_uses_the_same_resources(tmp_path, oracle):
    with endurance(tmp_path, oracle) as it:
        it.steady(500)
        before = it.held()
        it.steady(1500)
        it.hang_up(40)
        after = it.held()
        assert it.clients.counts["right"] == it.clients.sent >= 2000, it.clients.notes
        assert after.regions == before.regions
        assert abs(after.files - before.files) <= 2  # one connection may have been opened or closed
        assert abs(after.threads - before.threads) <= 4  # gRPC starts additional threads under load
        it.reload(2)
        assert it.held().regions == before.regions
        assert it.clients.counts["lost"] == it.clients.counts["wrong"] == 0, it.clients.notes
