"""Tests of the error messages of `pixprep send` for an invalid address, and for a batch that the model does not
support.
"""

import io
from threading import Barrier
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
from PIL import Image

from pixprep.errors import PixprepError, SetupError
from pixprep.serving.embedded import client, request
from pixprep.serving.embedded.connection import Triton


@pytest.mark.parametrize("url", ["https://triton:8000", "triton", "triton:8000/v2", ":8000"])
def test_an_invalid_address_is_rejected(url):
    with pytest.raises(SetupError) as caught:
        Triton(url, protocol="http")
    meant = "triton:8000" if "triton:" in url else "localhost:8000"
    assert str(caught.value) == f"invalid URL {url}: pass HOST:PORT such as {meant} (TLS is not supported)"


@pytest.mark.parametrize(
    ("batch", "datatype", "message"),
    [
        (0, "BYTES", 'batch size 0: model "m" accepts 1 to 8 images per request'),
        (9, "BYTES", 'batch size 9: model "m" accepts 1 to 8 images per request'),
        (
            2,
            "UINT8",
            'batch size 2: the input of model "m" is UINT8, which requires images of equal length: '
            "send one image per request, or declare the input as BYTES",
        ),
    ],
)
def test_a_batch_that_does_not_fit_into_one_request_is_rejected(batch, datatype, message):
    model_input = request.ModelInput(names=("image",), datatype=datatype, max_batch_size=8)
    with pytest.raises(PixprepError) as caught:
        client.check_batch(batch, "m", model_input)
    assert str(caught.value) == message
    client.check_batch(1, "m", model_input)


def test_a_batched_image_has_one_row_of_inputs_and_an_image_with_boxes_any_number():
    angle = request.NumberInput(name="angle", datatype="FP32", shape=(1,))
    of_a_batch = request.ModelInput(names=("image",), datatype="BYTES", max_batch_size=8, numbers=(angle,))
    for count in (0, 2):
        with pytest.raises(PixprepError, match=f'^input "angle" has {count} rows: pass one row per image$'):
            of_a_batch.rows({"angle": [[1.0]] * count})
    boxes = request.NumberInput(name="boxes", datatype="FP32", shape=(4,))
    of_boxes = request.ModelInput(names=("image",), datatype="BYTES", max_batch_size=0, numbers=(boxes,))
    assert of_boxes.rows({"boxes": []})["boxes"].shape == (0, 4)


@pytest.mark.parametrize("dims", [[1], [-1, -1, 3], [3, 48, 96]])
def test_each_probe_has_a_different_image_even_after_a_resize(dims):
    entry = {"name": "image", "data_type": "TYPE_STRING" if dims == [1] else "TYPE_UINT8", "dims": dims}
    bodies = [request.sample({"backend": "pixprep", "max_batch_size": 8, "input": [entry]}) for _ in range(8)]
    (size,) = {int(headers["Inference-Header-Content-Length"]) for headers, _ in bodies}
    if dims == [1]:
        images = [np.asarray(Image.open(io.BytesIO(body))) for _, body in bodies]
    else:
        shape = [64 if dim == -1 else dim for dim in dims]
        images = [np.frombuffer(body[size:], np.uint8).reshape(shape) for _, body in bodies]
        images = [image.transpose(1, 2, 0) if dims[0] == 3 else image for image in images]
    small = {Image.fromarray(image).resize((4, 4), Image.Resampling.BOX).tobytes() for image in images}
    assert len(small) == len(bodies)


class Connection:
    """A connection that counts the requests that have started."""

    begun = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_several_requests_are_in_flight_and_the_responses_are_in_the_order_of_the_files():
    met, begun = Barrier(3), Connection()

    def ask(_, start):
        begun.begun += 1
        if start < 3:  # the first three requests wait for each other
            met.wait(20)
        return [start]

    found = client._in_order(ask, range(100), connect=Connection, threads=3)
    for expected in range(100):
        assert next(found) == [expected]
        assert begun.begun <= expected + 6  # responses do not accumulate if the consumer is slow
    assert list(found) == []


def test_an_error_or_an_early_end_stops_the_remaining_requests():
    begun = Connection()

    def ask(_, start):
        begun.begun += 1
        if start == 2:
            raise SetupError("the server ended")
        return [start]

    found = client._in_order(ask, range(1000), connect=Connection, threads=2)
    with pytest.raises(SetupError, match=r"^the server ended$"):
        list(found)
    found = client._in_order(lambda _, start: [start], range(1000), connect=Connection, threads=2)
    next(found)
    found.close()
    assert begun.begun <= 6
    assert not [thread for thread in enumerate_threads() if thread.name.startswith("send")]
