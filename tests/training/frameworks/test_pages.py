"""Tests the programs in the pages about training: each runs after the previous ones, and must print the output that the
page shows.

A program that imports a framework runs only where the framework is installed: `make training` installs all of them.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from support.images import jpeg, scene
from support.records import example, record, tar_bytes, tar_members, write_tfrecord

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {"loader.md": 12, "sources.md": 6, "importing.md": 1, "video.md": 1}
"""Number of programs about training that each page contains."""
MEANT = {
    "s3://": "fsspec",
    "read.videos": "av",
    "read.tfrecord": "google_crc32c",
    "read.parquet": "pyarrow",
    "read.lmdb": "lmdb",
    "loader.tf(": "tensorflow",
}
"""Libraries that a program needs but does not import."""
SKIPPED = {"onnx", "datasets", "nibabel"}
"""Libraries whose programs do not run here. tests/serving/test_clip_classifiers.py runs the program that uses onnx,
the program that uses datasets needs the network, and tests/parity/test_medical.py runs the program that uses nibabel.
"""


def programs(page):
    """Return (program, its output, the libraries that it needs) for each program of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for program, shown in re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL):
        tree = ast.walk(ast.parse(program))
        names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)}
        names |= {library for words, library in MEANT.items() if words in program}
        libraries = {name.partition(".")[0] for name in names} - {"pixprep"}
        if not libraries & SKIPPED:
            yield program, shown, libraries


CASES = [(page, number) for page, count in PAGES.items() for number in range(count)]


def is_there(library):
    """Return whether a library is installed and works. For example, torchvision's extension may be built for a
    different PyTorch.
    """
    try:
        import_module(library)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """Return a folder with the files that the pages name: photos of two classes, records, and clips with their
    pipeline.
    """
    for index in range(40):
        path = tmp_path / "train" / ("cat", "dog")[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(scene(80, 100, index)))
    write_tfrecord(tmp_path / "flowers-0.tfrecord")
    corners = {
        f"image__object__bbox__{side}": [0.1 if "min" in side else 0.9] for side in ("xmin", "ymin", "xmax", "ymax")
    }
    sizes = {"image__height": [80], "image__width": [100], "image__object__class__label": [1]}
    pet = example(image__encoded=[jpeg(scene(80, 100))], **corners, **sizes)
    (tmp_path / "pets.tfrecord").write_bytes(record(pet))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def buckets(monkeypatch):
    """Provide in-memory buckets of S3 and of Google Cloud Storage."""
    memory = import_module("fsspec.implementations.memory").MemoryFileSystem

    class Buckets(memory):
        protocol = ("s3", "gs")
        store, pseudo_dirs = {}, [""]

        @classmethod
        def _strip_protocol(cls, path):
            return memory._strip_protocol(f"memory://{path.rpartition('://')[2]}")

    for name in Buckets.protocol:
        monkeypatch.setitem(import_module("fsspec.registry")._registry, name, Buckets)
    files = Buckets()
    for number in range(128):
        files.pipe(f"s3://bucket/train-{number:03}.tar", tar_bytes(tar_members(1, number)))
    files.pipe("gs://bucket/photos/0.jpg", jpeg(scene(8, 8)))


def test_the_pages_have_these_programs():
    assert {page: len(list(programs(page))) for page in PAGES} == PAGES


@pytest.mark.filterwarnings("ignore")  # warnings of frameworks
@pytest.mark.parametrize(("page", "number"), CASES, ids=[f"{page} {number}" for page, number in CASES])
def test_a_program_of_a_page_runs(page, number, page_folder, capsys, request):
    found = list(programs(page))
    missing = [library for library in sorted(found[number][2]) if not is_there(library)]
    if missing:
        pytest.skip(f"NO {missing[0].upper()}: program {number + 1} of docs/{page} did not run: make training")
    if "s3://" in found[number][0]:
        request.getfixturevalue("buckets")
    if "read.parquet" in found[number][0]:
        table = import_module("pyarrow").table({"image": [jpeg(scene(8, 8))], "label": [1]})
        (page_folder / "food101").mkdir()
        import_module("pyarrow.parquet").write_table(table, page_folder / "food101" / "train-0.parquet")
    if "read.lmdb" in found[number][0]:
        for name, values in (
            ("MJ_train", {b"num-samples": b"1", b"image-000000001": jpeg(scene(8, 8)), b"label-000000001": b"word"}),
            ("bedroom_train_lmdb", {b"0": jpeg(scene(8, 8))}),
        ):
            with import_module("lmdb").open(str(page_folder / name)) as store, store.begin(write=True) as writing:
                for key, value in values.items():
                    writing.put(key, value)
    if page == "video.md":
        for path in (page_folder / "train").glob("*/?.jpg"):
            path.with_suffix(".mp4").write_bytes(import_module("support.clips").clip(count=20))
        (_, pipeline) = re.findall(r"^```json\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)[:2]
        (page_folder / "clips.json").write_text(pipeline)
    names = {}
    for program, shown, libraries in found[: number + 1]:
        if program == found[number][0] or not libraries:
            exec(program, names)  # noqa: S102
            printed = capsys.readouterr().out
            assert printed == shown or "loader.stats()" in program
    if page == "video.md":
        assert next(iter(names["loader"]))["tensor"].shape == (8, 16, 3, 224, 224)
    if "loader.stats()" in program:
        assert " batches, " in printed
        assert (page_folder / "trace.json").stat().st_size > 1000
    if page == "importing.md":
        assert {path.name for path in page_folder.glob("*.json")} == {"pipeline.json", "training.json"}
