"""Attack: A user imports a malicious model file from a hub: a .keras file that inflates to gigabytes, a JSON bomb, or
Protocol Buffers that claim 2 GiB or are nested endlessly.

Defence: Every file, including files inside archives, is read up to a limit, and lengths are compared with the remaining
bytes.

Outcome: The file is rejected with a one-line message and little memory. The tests of each importer go further and
mutate real files.
"""

import json
import os
import struct
import tracemalloc
import zipfile

import pytest

from attacks.repositories import patience, sparse
from pixprep.errors import PixprepError
from pixprep.importers import import_pipeline
from support.dali_graphs import graph, operator

SOURCE = operator("ExternalSource", [], ["a"], dtype=[4])
DECODER = operator("decoders__Image", ["a"], ["b"])
DEEP = '{"a":' * 100_000
FILES = {
    "deep JSON": ("preprocessor_config.json", DEEP.encode()),
    "half a surrogate pair": ("preprocessor_config.json", b'{"image_processor_type": "\\ud800\\u001b[31m"}'),
    "NaN": ("preprocessor_config.json", b'{"image_processor_type": "ViTImageProcessor", "size": {"height": NaN}}'),
    "UTF-16": ("preprocessor_config.json", "{}".encode("utf-16")),
    "a list": ("config.json", b"[]"),
    "a number of 5,000 digits": ("config.json", b'{"pretrained_cfg": {"input_size": [3, %s, 8]}}' % (b"9" * 5000)),
    "lists for a type": ("m.dali", graph(SOURCE, outputs=["a"])),
    "lists for an axis": (
        "m.dali",
        graph(SOURCE, DECODER, operator("Transpose", ["b"], ["c"], perm=[[], [], []]), outputs=["c"]),
    ),
    "an archive that is none": ("m.keras", b"PK\3\4" + bytes(999)),
    **{
        f"{what} {name}": (name, content)
        for name in ("m.dali", "m.onnx")
        for what, content in {
            "zeros in": bytes(999),
            "a number without an end in": b"\xff" * 999,
            "2 GiB that are not in": b"\x0a\xff\xff\xff\xff\x07" + bytes(99),
            "groups in groups in": b"\x0b" * 999_999,
            "messages in messages in": b"\x3a\x80\x80\x10" * 99_999,
        }.items()
    },
}


def refusal(path):
    """Return the output of ``pixprep import``, and the peak of the memory that Python allocated, in MiB."""
    tracemalloc.start()
    try:
        with patience(), pytest.raises(PixprepError) as caught:
            import_pipeline(str(path))
        return str(caught.value), tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", FILES)
def test_an_invalid_file_is_one_line(tmp_path, what):
    name, content = FILES[what]
    (tmp_path / name).write_bytes(content)
    text, peak = refusal(tmp_path / name)
    assert name in text
    assert text.isprintable()
    assert peak < 32


@pytest.mark.parametrize("name", ["config.json", "metadata.json"])
def test_an_archive_that_inflates_to_128_mb_is_read_up_to_the_limit(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "m.keras", "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        for _ in range(128):
            file.write(b" " * (1 << 20))
    text, peak = refusal(tmp_path / "m.keras")
    assert text.startswith("m.keras: ")
    assert peak < 64


def test_an_archive_writes_nothing(tmp_path):
    (tmp_path / "inside").mkdir()
    with zipfile.ZipFile(tmp_path / "inside" / "m.keras", "w") as archive:
        archive.writestr("../config.json", "{}")
        archive.writestr("config.json", DEEP)
    refusal(tmp_path / "inside" / "m.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def endless_directory(path):
    """Return an archive of zeros whose last bytes declare that all the zeros are its directory."""
    sparse(1 << 31)(path)
    with path.open("ab") as file:
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, (1 << 31) - 1, 0, 0))


def packed(kind, content, corrupted_index=None):
    """Return a function that creates an archive with this compression method. If ``spoiled``, one byte is corrupted."""

    def make(path):
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr("config.json", content)
            archive.writestr("metadata.json", "{}")
        if corrupted_index:
            data = bytearray(path.read_bytes())
            data[corrupted_index] ^= 255
            path.write_bytes(data)

    return make


@pytest.mark.parametrize(
    "make",
    [
        endless_directory,
        packed(zipfile.ZIP_BZIP2, b" " * (256 << 20)),
        packed(zipfile.ZIP_BZIP2, bytes(range(256)), 50),
        packed(zipfile.ZIP_LZMA, bytes(range(256)), 60),
        packed(zipfile.ZIP_DEFLATED, bytes(range(256)), 60),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
    ],
    ids=["an endless directory", "a bzip2 bomb", "broken bzip2", "broken LZMA", "broken deflate", "a FIFO", "a device"],
)
def test_a_lying_archive_is_one_line_with_little_memory(tmp_path, make):
    """Before the fix, an oversized directory took 2 GiB and bzip2 took 1 GiB. LZMA caused a traceback, and a FIFO or a
    device blocked ``import`` forever.
    """
    make(tmp_path / "m.keras")
    text, peak = refusal(tmp_path / "m.keras")
    assert text in (
        "m.keras: not a .keras file: for an .h5 file, save model.to_json() as a .json file and pass it",
        "m.keras: cannot be read: Not a regular file",
    )
    assert peak < 16


def test_a_valid_archive_is_read_without_its_gigabytes_of_weights(tmp_path):
    layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 8, 8, 3]}}]
    layers += [{"class_name": "Rescaling", "config": {"scale": 0.5, "offset": 0.0}}]
    model = json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
    packed(zipfile.ZIP_DEFLATED, model)(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras", "a") as archive, archive.open("model.weights.h5", "w") as file:
        for _ in range(20):  # more than one read returns
            file.write(bytes(1 << 20))
    assert import_pipeline(str(tmp_path / "m.keras")).outputs["tensor"].spec.shape == (8, 8, 3)


@pytest.mark.parametrize("name", ["m.dali", "m.onnx", "m.json"])
def test_gigabytes_are_not_read(tmp_path, name):
    sparse(3 << 30)(tmp_path / name)
    assert os.path.getsize(tmp_path / name) > 1 << 31  # noqa: PTH202
    _, peak = refusal(tmp_path / name)
    assert peak < 64
