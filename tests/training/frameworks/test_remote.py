"""Tests training from a web server and from buckets through fsspec's own clients. A local server imitates each remote
service.
"""

import os
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.loading import PLAIN
from support.records import tar_bytes, tar_members, write_folder, write_tfrecord

pytest.importorskip("aiohttp", reason="NO AIOHTTP: make training")
pytest.importorskip("fsspec", reason="NO FSSPEC: make training")
pytestmark = pytest.mark.filterwarnings("ignore")  # the clients emit warnings


class Handler(SimpleHTTPRequestHandler):
    """Serves files with range requests. ``faults`` is the number of responses that are interrupted in the middle."""

    faults = 0

    def do_GET(self):
        path = self.translate_path(self.path)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not os.path.isfile(path):  # noqa: PTH113
            super().do_GET()
            return
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
        if wanted:
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if Handler.faults:
            Handler.faults -= 1
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def served(handler):
    """Start a server in a thread and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def stop():
        server.shutdown()
        thread.join()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}", stop


@pytest.fixture
def web(tmp_path):
    Handler.faults = 0
    url, stop = served(partial(Handler, directory=tmp_path))
    yield url
    stop()


def amazon(monkeypatch):
    """Start a local S3. Yield its file system and the scheme of its URLs."""
    server = pytest.importorskip("moto.server", reason="NO MOTO: make training").ThreadedMotoServer(port=0)
    s3fs = pytest.importorskip("s3fs", reason="NO S3FS: make training")
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    return s3fs.S3FileSystem(), "s3", server.stop


def google(monkeypatch):
    """Start a local Google Cloud Storage. Yield its file system and the scheme of its URLs."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="NO EMULATOR: make training")
    objects = emulator.Storage(use_memory_fs=True)
    # the emulator's own server handles only one connection at a time
    url, stop = served(partial(emulator.RequestHandler, objects))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    # the client would use gRPC, which the emulator does not support
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    gcsfs = pytest.importorskip("gcsfs", reason="NO GCSFS: make training")  # gcsfs reads the setting above on import
    gcsfs.GCSFileSystem.clear_instance_cache()
    return gcsfs.GCSFileSystem(token="anon", project="any"), "gs", stop  # noqa: S106


@pytest.fixture(params=[amazon, google], ids=lambda cloud: cloud.__name__)
def bucket(request, tmp_path, monkeypatch):
    """Return a function that uploads the files of ``tmp_path`` to a bucket and returns the bucket's URL."""
    files, scheme, stop = request.param(monkeypatch)
    files.mkdir("photos")

    def put():
        files.put(f"{tmp_path}/", "photos/", recursive=True)
        return f"{scheme}://photos"

    yield put
    type(files).clear_instance_cache()
    stop()


def write(path):
    write_folder(path / "folder", 6)
    write_tfrecord(path / "a.tfrecord", 3)
    for number in range(2):
        (path / f"{number}.tar").write_bytes(tar_bytes(tar_members(20, number)))


def epoch(source, **options):
    with pp.Loader(source, PLAIN, batch_size=3, seed=4, shuffle=True, **options) as loader:
        return np.concatenate([batch["tensor"] for batch in loader])


def makers():
    return (
        lambda root: read.tar(f"{root}/{{0..1}}.tar"),
        lambda root: read.tfrecord(f"{root}/a.tfrecord", label="image/class/label", checksums=False),
        lambda root: read.files([f"{root}/folder/china/0.jpg", f"{root}/folder/flower/1.jpg"] * 2),
    )


def test_a_web_server_gives_the_same_batches_as_the_disk(web, tmp_path):
    write(tmp_path)
    for make in makers():
        assert np.array_equal(epoch(make(web)), epoch(make(tmp_path)))


def test_interrupted_responses_are_retried_and_then_end_the_epoch(web, tmp_path):
    write(tmp_path)
    source = read.tar(f"{web}/0.tar")
    whole = epoch(source)
    Handler.faults = 3
    assert np.array_equal(epoch(source), whole)
    Handler.faults = 10_000
    with pytest.raises(pp.DataError, match=r"/0\.tar: could not be read in 5 attempts: ClientPayloadError"):
        epoch(source, on_error="skip", max_errors=1.0)


def test_an_unreachable_server_is_one_error():
    with pytest.raises(pp.DataError, match=r"^http://127\.0\.0\.1:1/a\.tar: could not be read in 5 attempts: "):
        read.tar("http://127.0.0.1:1/a.tar")


def test_a_missing_page_is_one_error_without_retries(web):
    with pytest.raises(pp.DataError, match=r"/no\.tar: cannot be read: no such object$"):
        read.tar(f"{web}/no.tar")


def test_a_bucket_gives_the_same_batches_as_the_disk(bucket, tmp_path):
    write(tmp_path)
    url = bucket()
    for make in (*makers(), lambda root: read.files(f"{root}/folder"), lambda root: read.tar(f"{root}/*.tar")):
        assert np.array_equal(epoch(make(url)), epoch(make(tmp_path)))
    with pytest.raises(pp.DataError, match=r"photos/no\.tar: cannot be read: no such object"):
        read.tar(f"{url}/no.tar")
