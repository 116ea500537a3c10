"""Attack: A web server returns objects that never end, declare a size of one exabyte, or are gzip bombs.

Defence: The declared size of a response is compared with the limit first. Whatever size was declared, at most the limit
and one chunk are read. Compressed responses are rejected, and requests contain ``Accept-Encoding: identity``.

Outcome: Only this sample is rejected, with constant memory.
"""

import gzip
import resource
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.broken_data import small_jpeg
from support.loading import PLAIN
from support.records import coco_annotations, tar_bytes, tar_members, write_coco

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")
pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install fsspec[http]")
MIB = 1 << 20
BOMB = gzip.compress(bytes(150 * MIB), 6)


class Hostile(BaseHTTPRequestHandler):
    """Request handler that sends valid photos, or the attack that the requested name selects."""

    sent = 0

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.tar)))
        self.end_headers()

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.encodings.add(self.headers["Accept-Encoding"])
        if name.endswith("gone.jpg"):
            return self.answer(b"<p>" + bytes(MIB), status=404)
        if name.startswith("bomb"):
            return self.answer(BOMB, {"Content-Encoding": "gzip"})
        if name.startswith("endless") or (name == "photos" and self.server.is_endless):
            return self.endless({})
        if name.startswith("stated"):
            return self.endless({"Content-Length": str(1 << 40)})
        if name.endswith(".tar"):
            if self.server.is_endless:
                return self.endless({})
            begin, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            return self.answer(self.server.tar[int(begin) : int(end) + 1], status=206)
        return self.answer(small_jpeg(int(name[0])))

    def answer(self, body, headers=(), status=200):
        self.send_response(status)
        for item in {"Content-Length": str(len(body)), **dict(headers)}.items():
            self.send_header(*item)
        self.end_headers()
        self.send(body)

    def endless(self, headers):
        self.send_response(200)
        for item in headers.items():
            self.send_header(*item)
        self.end_headers()
        while self.server.sent < 3000 * MIB and self.send(bytes(MIB)):
            self.server.sent += MIB

    def send(self, body):
        try:
            self.wfile.write(body)
        except OSError:  # the client has disconnected
            return False
        return True

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as found:
        found.encodings, found.sent, found.is_endless = set(), 0, False
        found.tar = tar_bytes(tar_members(3))
        found.url = f"http://127.0.0.1:{found.server_port}/photos"
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@contextmanager
def growth_within(mib):
    """Assert that the memory of the process never grows by more than ``mib``."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < mib, grown


def names(*images):
    """Return COCO annotations whose images have these names."""
    content = coco_annotations(len(images))
    for entry, name in zip(content["images"], images, strict=True):
        entry["file_name"] = name
    return content


def load_epoch(root, tmp_path, images, **options):
    """Load one epoch of images with these names. Return the indices of the samples and the error messages."""
    write_coco(tmp_path, len(images), names(*images))
    source = read.coco(root, tmp_path / "instances.json")
    with pp.Loader(source, PLAIN, batch_size=4, last="short", on_error="skip", max_errors=1.0, **options) as loader:
        came = sorted(int(index) for batch in loader for index in batch["index"])
        return came, {each.index: str(each.error) for each in loader.errors}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "endless.jpg",
            "[TOO_LARGE_BYTES] image 110: {}/endless.jpg: the response exceeds the limit of 20,971,520 bytes",
        ),
        (
            "stated.jpg",
            "[TOO_LARGE_BYTES] image 110: {}/stated.jpg: the response exceeds the limit of 20,971,520 bytes",
        ),
        (
            "bomb.jpg",
            "[UNREADABLE] image 110: {}/bomb.jpg: the server sent a response with the unrequested encoding 'gzip'",
        ),
        ("1gone.jpg", "[UNREADABLE] image 110: cannot be read: no such object"),
        (
            "1.jpg::http://127.0.0.1:9/x",
            "[BAD_RECORD] image 110: the file name '1.jpg::http://127.0.0.1:9/x' is a URL, not a path in ",
        ),
    ],
)
def test_an_endless_object_breaks_its_sample_in_constant_memory(server, tmp_path, name, words):
    load_epoch(server.url, tmp_path, ["0.jpg", "2.jpg"])  # the first read allocates memory once
    with patience(30), growth_within(120):
        came, errors = load_epoch(server.url, tmp_path, ["0.jpg", name, "2.jpg", "3.jpg"])
    assert came == [0, 2, 3]
    (error,) = errors.values()
    assert error.startswith(words.format(server.url))
    assert ("(parameter max_image_bytes)" in error) == ("TOO_LARGE_BYTES" in error)
    assert server.encodings == {"identity"}
    assert server.sent < 200 * MIB


def test_the_limit_is_that_of_the_loader(server, tmp_path):
    limits = pp.Limits(max_image_bytes=len(small_jpeg(0)) - 1)
    came, errors = load_epoch(server.url, tmp_path, ["0.jpg", "0.jpg"], limits=limits)
    assert came == []
    assert f"exceeds the limit of {limits.max_image_bytes:,} bytes (parameter max_image_bytes)" in errors[0]
    limits = pp.Limits(max_image_bytes=len(small_jpeg(0)))
    assert load_epoch(server.url, tmp_path, ["0.jpg", "0.jpg"], limits=limits)[0] == [0, 1]


def test_ranges_of_a_shard_and_lists_of_files_also_end(server):
    source = read.tar(f"{server.url}/a.tar")
    assert source[2]["image"] == small_jpeg(2)
    server.is_endless = True
    with (
        patience(30),
        growth_within(120),
        pytest.raises(pp.DataError, match=r"a\.tar: the response exceeds the limit of "),
    ):
        source[2]
    with (
        patience(30),
        growth_within(300),
        pytest.raises(pp.DataError, match=r"photos: the response exceeds the limit of 67,108,"),
    ):
        read.files(server.url)
