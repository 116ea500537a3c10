"""What `pixprep send` says of an address of another form, and of a batch that a model does not take."""

import pytest

from pixprep.errors import PixprepError, SetupError
from pixprep.serve import client


@pytest.mark.parametrize("url", ["https://triton:8000", "triton", "triton:8000/v2", ":8000"])
def test_an_address_of_another_form_is_refused(url):
    with pytest.raises(SetupError) as caught:
        client.Triton(url, protocol="http")
    assert str(caught.value) == f"{url}: write HOST:PORT, such as localhost:8000 (plain, without TLS)"


@pytest.mark.parametrize(
    ("batch", "datatype", "message"),
    [
        (0, "BYTES", 'batch 0: model "m" takes 1 to 8 images a request'),
        (9, "BYTES", 'batch 9: model "m" takes 1 to 8 images a request'),
        (
            2,
            "UINT8",
            'batch 2: model "m" takes UINT8, whose rows must be equally long: '
            "send one image a request, or make its input BYTES",
        ),
    ],
)
def test_a_batch_that_one_request_cannot_carry_is_refused(batch, datatype, message):
    model_input = client.ModelInput(name="image", datatype=datatype, max_batch_size=8)
    with pytest.raises(PixprepError) as caught:
        client.check_batch(batch, "m", model_input)
    assert str(caught.value) == message
    client.check_batch(1, "m", model_input)
