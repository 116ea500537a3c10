"""Tests of pixprep on a real Ray cluster: despite crashes, every row is correct and occurs exactly once, and invalid
rows contain an error.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

ray = pytest.importorskip("ray", reason="NO RAY: make scale-ray")

import pyarrow.parquet as pq  # noqa: E402

import pixprep as pp  # noqa: E402
import pixprep.ray  # noqa: E402
from pixprep.cli.parser import main  # noqa: E402

IMAGES = Path(__file__).parents[2] / "client_examples" / "images"
PIPELINE = pp.Pipeline([pp.decode(), pp.resize(32), pp.center_crop(24), pp.normalize(mean=0.5, std=0.25), pp.tensor()])
BROKEN = b"not an image"
CODE = """
import sys; from pathlib import Path; import pixprep as pp, pixprep.ray
done = pixprep.ray.batch(Path(sys.argv[1]), pp.load(sys.argv[2]), Path(sys.argv[3]), rows_per_file=20, workers=2)
print(done.rows, done.errors, done.files, done.skipped)
"""

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray itself causes warnings


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write 300 files with four different contents. One file in fifty is broken, and one file is missing."""
    folder = tmp_path_factory.mktemp("photos")
    contents = [path.read_bytes() for path in sorted(IMAGES.glob("*.jpg"))]
    for index in range(300):
        encoded = BROKEN if index % 50 == 7 else contents[index % len(contents)]
        (folder / f"{index:03}.jpg").write_bytes(encoded)
    (folder / "123.jpg").unlink()
    (folder / "manifest.txt").write_text("".join(f"{index:03}.jpg\n" for index in range(300)))
    PIPELINE.save(folder / "pipeline.json")
    return folder


@pytest.fixture(scope="module")
def expected(photos):
    """Return the expected result of each row by its index: the tensor, or the reason of the error."""
    with pp.Engine(PIPELINE, threads=1) as engine:
        found = {}
        for index in range(300):
            path = photos / f"{index:03}.jpg"
            found[index] = engine.run([path.read_bytes()])[0] if path.exists() else "[UNREADABLE]"
    return found


def check_row(index, tensor, error, expected):
    want = expected[index]
    if isinstance(want, np.ndarray):
        assert error is None, (index, error)
        assert np.array_equal(tensor, want), index
    else:
        assert error.startswith(str(want)[:12]), (index, error)
        assert not np.any(tensor)


def check_folder(folder, expected):
    """Assert that every row of the output folder is correct, occurs exactly once, and is in order."""
    at = 0
    for path in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(path)
        tensors = table["tensor"].combine_chunks().to_numpy_ndarray()
        for name, tensor, error in zip(table["path"].to_pylist(), tensors, table["error"].to_pylist(), strict=True):
            assert name.endswith(f"{at:03}.jpg")
            check_row(at, tensor, error, expected)
            at += 1
    assert at == 300
    assert not list(folder.glob("*.tmp"))


@pytest.fixture
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def workers():
    """Return the processes of the Ray actors that pixprep started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if line.startswith(("ray::_Rows", "ray::_MapWorker", "ray::MapWorker")):
            found.append(process)
    return found


@pytest.mark.usefixtures("cluster")
def test_ray_data_returns_every_row_once_and_invalid_rows_with_the_reason(photos, expected):
    rows = [
        {"index": index, "bytes": (photos / f"{index:03}.jpg").read_bytes()} for index in range(300) if index != 123
    ]
    found = pixprep.ray.preprocess(ray.data.from_items(rows), PIPELINE, workers=2).take_all()
    assert sorted(row["index"] for row in found) == sorted(row["index"] for row in rows)
    assert set(found[0]) == {"index", "tensor", "error"}
    for row in found:
        check_row(row["index"], row["tensor"], row["error"], expected)


@pytest.mark.usefixtures("cluster")
def test_ray_data_also_reads_paths(photos, expected):
    rows = [{"index": index, "where": str(photos / f"{index:03}.jpg")} for index in range(100, 140)]
    found = pixprep.ray.preprocess(ray.data.from_items(rows), PIPELINE, image="where", workers=1).take_all()
    assert len(found) == 40
    for row in found:
        check_row(row["index"], row["tensor"], row["error"], expected)


@pytest.mark.parametrize(("cores", "workers"), [(2, None), (2, 2), (2, (1, 9)), (1, None)])
def test_files_are_read_in_parallel_with_the_workers_for_any_number_of_cores(photos, cores, workers):
    """The code comes from docs/scale.md. If the workers reserved every core of the cluster, Ray could never start to
    read files.
    """
    code = (
        "import sys, ray, pixprep.ray\n"
        f"ray.init(num_cpus={cores}, include_dashboard=False, log_to_driver=False)\n"
        "files = ray.data.read_binary_files(sys.argv[1], include_paths=True, file_extensions=['jpg'])\n"
        f"tensors = pixprep.ray.preprocess(files, pixprep.load(sys.argv[2]), workers={workers})\n"
        "print(sum(row['error'] is None for row in tensors.take_all()))\n"
    )
    command = [sys.executable, "-c", code, photos, photos / "pipeline.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "293"


@pytest.mark.usefixtures("cluster")
def test_more_workers_than_the_cluster_can_run_are_rejected():
    for options, words in (
        ({"workers": 9}, "9 workers need one core each, but this Ray cluster has only 2"),
        ({"workers": (3, 9)}, "3 workers need one core each, but this Ray cluster has only 2"),
        ({"threads": 3}, "1 workers need 3 cores each, but this Ray cluster has only 2"),
        ({"device": "gpu"}, "1 workers need one GPU each, but this Ray cluster has only 0"),
    ):
        with pytest.raises(pp.SetupError, match=f"^{words}$"):
            pixprep.ray.preprocess(ray.data.from_items([{"bytes": b""}]), PIPELINE, **options)


@pytest.mark.usefixtures("cluster")
def test_a_row_without_an_image_fails_alone(photos, expected, tmp_path):
    """These rows contain None, a number, a name with a null byte, or a FIFO without a writer.

    Such a row must not end or block the job.
    """
    os.mkfifo(tmp_path / "pipe")
    good = (photos / "000.jpg").read_bytes()
    for column, photo, others in (
        ("bytes", good, {"None": None, "empty": b""}),
        ("where", str(photos / "000.jpg"), {"None": None, "NUL": "a\0b.jpg", "pipe": str(tmp_path / "pipe")}),
    ):
        rows = [{"index": name, column: value} for name, value in ({"good": photo} | others).items()]
        found = pixprep.ray.preprocess(ray.data.from_items(rows), PIPELINE, image=column, workers=1).take_all()
        by_name = {row["index"]: row for row in found}
        assert set(by_name) == {"good", *others}
        check_row(0, by_name.pop("good")["tensor"], None, expected)
        for name, row in by_name.items():
            assert re.match(r"\[(BAD_RECORD|UNREADABLE|EMPTY)\] ", row["error"]), (name, row["error"])
            assert not np.any(row["tensor"])


TABLES = {
    "short rows.csv": (b"id,path\n1,000.jpg\n2\n3,\n4,000.jpg\n", "BAD_RECORD", "BAD_RECORD"),
    "not utf-8.txt": (b"000.jpg\nph\xf6to.jpg\na\0b.jpg\n000.jpg\n", "UNREADABLE", "UNREADABLE"),
    "a mark first.csv": (b"\xef\xbb\xbfpath,id\n000.jpg,1\n.,2\n..,3\n000.jpg,4\n", "UNREADABLE", "UNREADABLE"),
}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("name", TABLES)
def test_a_line_of_a_manifest_without_a_file_is_a_row_with_an_error(photos, tmp_path, name):
    text, *reasons = TABLES[name]
    (tmp_path / name).write_bytes(text)
    (tmp_path / "000.jpg").symlink_to(photos / "000.jpg")
    done = pixprep.ray.batch(tmp_path / name, PIPELINE, tmp_path / "out", workers=1)
    assert (done.rows, done.errors) == (4, 2)
    (path,) = (tmp_path / "out").glob("part-*.parquet")
    first, *between, last = pq.read_table(path)["error"].to_pylist()
    assert first is last is None
    assert [text[1:].partition("]")[0] for text in between] == reasons


@pytest.mark.usefixtures("cluster")
def test_a_table_of_nulls_and_numbers_has_rows_with_errors(tmp_path):
    table = pytest.importorskip("pyarrow").table
    for name, values in (("nulls", [None, None]), ("numbers", [1, 2])):
        pq.write_table(table({"path": values}), tmp_path / f"{name}.parquet")
        done = pixprep.ray.batch(tmp_path / f"{name}.parquet", PIPELINE, tmp_path / name, workers=1)
        assert (done.rows, done.errors) == (2, 2)


@pytest.mark.usefixtures("cluster")
def test_a_batch_writes_every_row_and_a_second_call_finds_it_done(photos, expected, tmp_path):
    seen, left = [], tmp_path / ".pixprep-killed.tmp"
    left.touch()
    done = pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path, rows_per_file=64, workers=2,
                             progress=lambda *counts: seen.append((*counts, left.exists())))  # fmt: skip
    assert (done.rows, done.errors, done.files, done.skipped) == (300, 7, 5, 0)
    assert (seen[0][-1], seen[-1]) == (False, (300, 7, False))
    check_folder(tmp_path, expected)
    again = pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path, rows_per_file=64, workers=2)
    assert (again.rows, again.files, again.skipped) == (0, 0, 5)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_can_be_a_table(photos, tmp_path, suffix):
    pyarrow = pytest.importorskip("pyarrow")
    path = photos / f"table.{suffix}"
    table = pyarrow.table({"id": [1, 2], "path": ["000.jpg", "001.jpg"]})
    if suffix == "csv":
        path.write_text("id,path\n1,000.jpg\n2,001.jpg\n")
    else:
        pq.write_table(table, path)
    assert pixprep.ray.batch(path, PIPELINE, tmp_path, workers=1).rows == 2
    with pytest.raises(pp.PixprepError, match="has no column 'file': select one of id, path"):
        pixprep.ray.batch(path, PIPELINE, tmp_path / "other", column="file", workers=1)


@pytest.mark.usefixtures("cluster")
def test_a_folder_of_a_different_run_is_rejected(photos, tmp_path):
    pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path, rows_per_file=150, workers=2)
    with pytest.raises(pp.PixprepError, match="was written with a different rows_per_file: use a different folder"):
        pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path, rows_per_file=100, workers=2)
    other = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()])
    with pytest.raises(pp.PixprepError, match="was written with a different pipeline"):
        pixprep.ray.batch(photos / "manifest.txt", other, tmp_path, rows_per_file=150, workers=2)


def test_a_folder_that_another_run_is_writing_to_is_rejected(photos, tmp_path):
    """The first run starts Ray, which takes several seconds. The run locks the folder before that."""
    first = subprocess.Popen([sys.executable, "-c", CODE, photos / "manifest.txt", photos / "pipeline.json", tmp_path])
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pixprep.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        other = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()])
        for pipeline in (PIPELINE, other):
            with pytest.raises(pp.PixprepError, match="another process is writing to this folder: wait until it ends"):
                pixprep.ray.batch(photos / "manifest.txt", pipeline, tmp_path, workers=2)
        assert first.wait(timeout=240) == 0
    finally:
        first.kill()


@pytest.mark.parametrize("state", [None, "", "[]", "{}", "null", "{", "\udcff"])
def test_a_folder_without_information_about_its_files_is_rejected(photos, tmp_path, state):
    (tmp_path / "part-00000000.parquet").touch()
    if state is not None:
        (tmp_path / "pixprep.json").write_text(state, errors="surrogateescape")
    with pytest.raises(pp.PixprepError) as error:
        pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path)
    assert str(error.value) == (
        f"{tmp_path} contains files, but no valid pixprep.json that describes them: use a different folder, or empty it"
    )


@pytest.mark.usefixtures("cluster")
def test_workers_that_die_are_replaced_and_no_row_is_lost(photos, expected, tmp_path):
    killed = []

    def kill(*_):
        if len(killed) < 3 and workers():
            killed.append(workers()[0].pid)
            os.kill(killed[-1], signal.SIGKILL)

    done = pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path, rows_per_file=20, workers=2, progress=kill)
    assert len(killed) == 3
    assert done.rows == 300
    check_folder(tmp_path, expected)


@pytest.mark.usefixtures("cluster")
def test_a_file_that_cannot_be_written_ends_the_run_and_is_named(photos, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(
        pp.PixprepError, match=rf"^{out}/part-0000000[1-9].parquet: could not be written: .*No such file"
    ):
        pixprep.ray.batch(photos / "manifest.txt", PIPELINE, out, rows_per_file=20, workers=1,
                          progress=lambda *_: shutil.rmtree(out))  # fmt: skip


def test_a_restarted_driver_continues_where_it_stopped(photos, expected, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", CODE, photos / "manifest.txt", photos / "pipeline.json", out]
    first = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list(out.glob("part-*.parquet"))) < 3:
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.02)
    family = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    for process in family:
        if process.is_running():
            process.kill()
    written = len(list(out.glob("part-*.parquet")))
    assert 3 <= written < 15
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout.split()
    assert [int(number) for number in done] == [300 - 20 * written, pytest.approx(7, abs=7), 15 - written, written]
    check_folder(out, expected)


@pytest.mark.usefixtures("cluster")
def test_the_command_writes_every_row_and_continues(photos, expected, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["batch", photos / "manifest.txt", "--pipeline", photos / "pipeline.json", "--output", out,
             "--rows-per-file", 64, "--workers", 2]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(
        rf"{out}: images 300, failed 7, files written 5, already complete 0, [\d.]+ s \([\d.]+ images/s\)\n", said
    )
    check_folder(out, expected)
    (out / "part-00000002.parquet").unlink()
    assert main([str(word) for word in words]) == 0
    assert ", files written 1, already complete 4, " in capsys.readouterr().out
    check_folder(out, expected)


def test_the_command_needs_one_core(photos, expected, tmp_path):
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        assert pixprep.ray.batch(photos / "manifest.txt", PIPELINE, tmp_path).rows == 300
    finally:
        ray.shutdown()
    check_folder(tmp_path, expected)


@pytest.mark.usefixtures("cluster")
def test_a_run_in_which_every_row_fails_has_failed(photos, tmp_path):
    manifest = tmp_path / "manifest.txt"
    manifest.write_text("not there.jpg\nnor there.jpg\n")
    words = ["batch", manifest, "--pipeline", photos / "pipeline.json", "--output", tmp_path / "out"]
    assert main([str(word) for word in words]) == 1


@pytest.mark.usefixtures("cluster")
def test_each_mistake_is_one_line(photos, tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()

    def said(manifest, output, *more):
        words = ["batch", manifest, "--pipeline", photos / "pipeline.json", "--output", output, *more]
        assert main([str(word) for word in words]) == 1
        return capsys.readouterr().err

    manifest, out = photos / "manifest.txt", tmp_path / "out"
    names = "a manifest is a text file with one image path per line, or a .csv or .parquet file"
    assert said(photos / "no.txt", out) == f"pixprep: {photos}/no.txt: no such file: {names}\n"
    assert said(manifest, file) == f"pixprep: {file}: File exists\n"
    columns = (
        "a column can be selected only in .csv and .parquet files, and this is a text file with one image path per line"
    )
    assert said(manifest, out, "--column", "x") == f"pixprep: {manifest}: {columns}\n"
    assert (
        said(manifest, out, "--workers", 99)
        == "pixprep: 99 workers need one core each, but this Ray cluster has only 2\n"
    )
    for name, text in {"no.parquet": b"no table", "no.csv": b'path\n"' + b"x" * 200_000}.items():
        (tmp_path / name).write_bytes(text)
        assert re.fullmatch(
            rf"pixprep: {tmp_path}/{name}: is not a valid (Parquet|CSV) file: .*\n", said(tmp_path / name, out)
        )
    taking = pp.Pipeline([pp.decode(), pp.flip(when="turned"), pp.resize(height=8, width=8), pp.tensor()])
    taking.save(tmp_path / "taking.json")
    turned = 'the pipeline has the per-image input "turned" (bool [n, 1]), which is not supported here'
    assert said(manifest, out, "--pipeline", tmp_path / "taking.json") == f"pixprep: {turned}: use pixprep.Engine\n"
    needed = "1 workers need one GPU each, but this Ray cluster has only 0"
    assert said(manifest, out, "--device", "gpu") == f"pixprep: {needed}\n"


def test_an_unreachable_cluster_is_one_line(photos, tmp_path, capsys):
    words = ["batch", photos / "manifest.txt", "--pipeline", photos / "pipeline.json", "--output", tmp_path / "out",
             "--address", "127.0.0.1:1"]  # fmt: skip
    assert main([str(word) for word in words]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("pixprep: the Ray cluster at 127.0.0.1:1 cannot be reached: ")


@pytest.fixture
def network(tmp_path):
    """Write a model that returns the sum of each channel, and a list of the channels whose sum is above a limit."""
    onnx = pytest.importorskip("onnx", reason="NO ONNX: pip install onnx onnxruntime")
    pytest.importorskip("onnxruntime", reason="NO ONNX RUNTIME: pip install onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT

    def write(batch):
        nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0)]
        outputs = [helper.make_tensor_value_info("sums", kind, [batch, 3])]
        if batch == 1:
            nodes += [
                helper.make_node("Greater", ["sums", "limit"], ["is_above"]),
                helper.make_node("NonZero", ["is_above"], ["found"]),
                helper.make_node("Transpose", ["found"], ["rows"]),
            ]
            outputs.append(helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, ["n", 2]))
        values = {"axes": np.array([2, 3]), "limit": np.float32(100)}
        weights = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
        x = helper.make_tensor_value_info("x", kind, [batch, 3, 24, 24])
        graph = helper.make_graph(nodes, "sums", [x], outputs, weights)
        path = tmp_path / f"{batch}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    return write


@pytest.mark.parametrize("batch", ["batch", 1])
def test_batch_writes_the_outputs_of_a_model_in_place_of_the_tensors(photos, expected, tmp_path, network, batch):
    out, onnx = tmp_path / "out", network(batch)
    words = ["batch", photos / "manifest.txt", "--pipeline", photos / "pipeline.json", "--onnx", onnx]
    assert main([*map(str, [*words, "--output", out, "--workers", "2", "--rows-per-file", "100"])]) == 0
    table = pq.read_table(sorted(out.glob("part-*.parquet")))
    assert table.column_names == ["path", "sums", *["rows"] * (batch == 1), "error"]
    for index, row in enumerate(table.to_pylist()):
        want = expected[index]
        if not isinstance(want, np.ndarray):
            assert row["error"].startswith(str(want)[:12])
            assert not any(row["sums"])
            assert row.get("rows") is None
            continue
        sums = want.sum(axis=(1, 2), dtype=np.float64)
        np.testing.assert_allclose(row["sums"], sums, rtol=1e-4)
        if batch == 1:
            assert row["rows"] == [[0, channel] for channel in range(3) if sums[channel] > 100]
