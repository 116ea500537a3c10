"""Which files `pixprep send` means, and what it says when there is nobody to send them to."""

import socket

import pytest

from pixprep.errors import PixprepError, SetupError
from pixprep.triton import client


@pytest.fixture
def folder(tmp_path):
    for name in ("b.JPG", "a.png", "c.webp", "notes.txt", "d.tiff", "e.jpeg.part"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "inner.jpg").mkdir()
    return tmp_path


def test_a_folder_means_its_image_files_sorted(folder):
    assert [path.name for path in client.expand([folder])] == ["a.png", "b.JPG", "c.webp", "d.tiff"]


def test_a_file_that_is_named_is_taken_whatever_its_suffix(folder):
    assert client.expand([folder / "notes.txt", folder / "a.png"]) == [folder / "notes.txt", folder / "a.png"]


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(PixprepError) as caught:
        client.expand([tmp_path / "cat.jpg"])
    assert str(caught.value) == f"{tmp_path / 'cat.jpg'}: no such file or folder"


def test_a_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(PixprepError) as caught:
        client.expand([tmp_path])
    assert str(caught.value) == (f"{tmp_path}: no image in this folder (.jpg .jpeg .png .webp .bmp .tif .tiff .gif)")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_no_server_is_one_line_with_the_url(tmp_path, protocol):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    photo = tmp_path / "cat.jpg"
    photo.write_bytes(b"x")
    with pytest.raises(SetupError) as caught:
        next(client.send([photo], url=f"127.0.0.1:{port}", protocol=protocol))
    assert str(caught.value) == (
        f"nothing answers {protocol} at 127.0.0.1:{port} (Connection refused): "
        "is `pixprep serve` running, on this port?"
    )


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
