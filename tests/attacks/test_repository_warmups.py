"""Attack: A model rejects its own warm-up request, which contains an invalid or truncated image, a wrong shape, or an
external file.

Defence: ``check``, ``import`` and every reload build the same request from the files as Triton would, and run it in the
engine. Before ``import`` copies files, it rejects links among them, and adds up their sizes.

Outcome: The warm-up is rejected with a one-line message. Before the fix, Triton crashed with signal 11, and took down
all other models, in 9 of 13 starts. ``import`` also copied a private key that a link pointed to. ``READY`` contains the
warm-ups that Triton 2.51 accepts.
"""

import os
import struct

import numpy as np
import pytest

import pixprep as pp
from attacks.repositories import CONFIG, PIPELINE, patience, problems, sparse
from pixprep.serving.repository import check
from pixprep.serving.repository.warmups import warmup_files
from support.images import jpeg, noise

PHOTO = jpeg(noise(64, 64))
PHOTO_BYTES = len(PHOTO)
LENGTH_AND_PHOTO = struct.pack("<I", PHOTO_BYTES) + PHOTO
BYTES_CONFIG = 'backend: "pixprep"\nmax_batch_size: 4\ninput { name: "image" data_type: TYPE_UINT8 dims: [ -1 ] }\n'
STRING_CONFIG = 'backend: "pixprep"\nmax_batch_size: 4\n'
FROM_FILE = 'input_data_file: "f"'


def warmup(kind, dims, data=FROM_FILE, batching="batch_size: 1", name="image"):
    entry = f'inputs {{ key: "{name}" value {{ data_type: TYPE_{kind} dims: [ {dims} ] {data} }} }}'
    return f'model_warmup {{ name: "w" {batching} {entry} }}\n'


READY = {
    "a photo": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES), PHOTO),
    "three of it": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES, batching="batch_size: 3 count: 2"), PHOTO),
    "a photo and more bytes": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES), PHOTO + b"abc"),
    "none": (BYTES_CONFIG + warmup("UINT8", 3, "zero_data: true", batching="batch_size: 0"), b""),
    "a string": (STRING_CONFIG + warmup("STRING", 1), LENGTH_AND_PHOTO),
    "no image, which becomes zeros": (
        STRING_CONFIG + 'parameters { key: "on_error" value { string_value: "zero" } }' + warmup("STRING", 1),
        struct.pack("<I", 3) + b"abc",
    ),
}
REFUSED = {
    "zeros": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES, "zero_data: true"), b"", "[UNKNOWN_FORMAT] a file of zeros"),
    "noise": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES, "random_data: true"), b"", "[UNKNOWN_FORMAT] not a JPEG"),
    "half a photo": (BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES // 2), PHOTO, "[TRUNCATED]"),
    "too few bytes": (
        BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES + 5),
        PHOTO,
        f'input "image": "f" has {PHOTO_BYTES:,} bytes',
    ),
    "too many images": (
        BYTES_CONFIG + warmup("UINT8", PHOTO_BYTES, batching="batch_size: 9"),
        PHOTO,
        "batch_size is 9, but max_batch_size is 4",
    ),
    "a batch in its dims": (
        BYTES_CONFIG + warmup("UINT8", f"1, {PHOTO_BYTES}"),
        PHOTO,
        f"is TYPE_UINT8 [1, {PHOTO_BYTES}], but the model requires TYPE_UINT8 [-1]",
    ),
    "free dims": (BYTES_CONFIG + warmup("UINT8", -1), PHOTO, "is TYPE_UINT8 [-1], but the model requires"),
    "another type": (BYTES_CONFIG + warmup("INT8", PHOTO_BYTES), PHOTO, "is TYPE_INT8"),
    "terabytes": (
        BYTES_CONFIG + warmup("UINT8", 1 << 40, "zero_data: true"),
        b"",
        "the limit max_request_bytes is 67,108,864",
    ),
    "no length": (STRING_CONFIG + warmup("STRING", 1), PHOTO, "each with its length before it"),
    "bytes after it": (STRING_CONFIG + warmup("STRING", 1), LENGTH_AND_PHOTO + b"xx", "each with its length before it"),
    "an empty string": (STRING_CONFIG + warmup("STRING", 1, "zero_data: true"), b"", "[EMPTY]"),
    "another input": (
        STRING_CONFIG + warmup("STRING", 1, name="other"),
        LENGTH_AND_PHOTO,
        'input "image" of the model is missing',
    ),
    "no data": (STRING_CONFIG + warmup("STRING", 1, ""), b"", "has no data: add input_data_file"),
    "a file elsewhere": (
        STRING_CONFIG + warmup("STRING", 1, 'input_data_file: "../config.pbtxt"'),
        LENGTH_AND_PHOTO,
        "is not a plain file name",
    ),
    "no file": (
        STRING_CONFIG + warmup("STRING", 1, 'input_data_file: "g"'),
        LENGTH_AND_PHOTO,
        '"g" cannot be read in warmup: No such file',
    ),
    "a thousand": (
        STRING_CONFIG + warmup("STRING", 1) * 1000,
        LENGTH_AND_PHOTO,
        "1,000 samples exceed the limit of 64",
    ),
}


def found(models, config, content):
    (models / CONFIG).write_text(config)
    (models / "m" / "warmup").mkdir()
    (models / "m" / "warmup" / "f").write_bytes(content)
    return problems(models)


@pytest.mark.parametrize("case", READY)
def test_a_warmup_that_triton_accepts_is_not_a_problem(models, case):
    assert found(models, *READY[case]) == []


@pytest.mark.parametrize("case", REFUSED)
def test_a_warmup_that_would_crash_triton_is_one_line(models, case):
    config, content, words = REFUSED[case]
    (line,) = found(models, config, content)
    assert line.startswith(f"{CONFIG}: model_warmup")
    assert words in line


def test_per_request_inputs_are_also_tried(models):
    pp.Pipeline([pp.decode(), pp.crop("AT", 0, 4, 4, unit="free"), pp.tensor()]).save(models / PIPELINE)
    image = f'inputs {{ key: "image" value {{ data_type: TYPE_STRING dims: [ 1 ] {FROM_FILE} }} }}'
    for data, words in {
        "zero_data: true": None,
        "random_data: true": "random_data may contain NaN",
        'input_data_file: "half"': None,
        'input_data_file: "nan"': "[BAD_INPUT]",
    }.items():
        (models / "m" / "warmup").mkdir(exist_ok=True)
        (models / "m" / "warmup" / "half").write_bytes(np.float32(0.5).tobytes())
        (models / "m" / "warmup" / "nan").write_bytes(np.float32("nan").tobytes())
        (models / "m" / "warmup" / "f").write_bytes(LENGTH_AND_PHOTO)
        config = STRING_CONFIG + warmup("FP32", 1, data, batching=f"batch_size: 1 {image}", name="AT")
        (models / CONFIG).write_text(config)
        assert [words in line for line in problems(models)] == ([True] if words else [])


def test_pixels_can_be_random_and_have_the_size_that_the_model_accepts(models):
    pp.Pipeline([pp.pixels(), pp.resize(height=4, width=4), pp.tensor()]).save(models / PIPELINE)
    (models / CONFIG).write_text(STRING_CONFIG + warmup("UINT8", "8, 8, 3", "random_data: true"))
    assert problems(models) == []
    (models / CONFIG).write_text(STRING_CONFIG + warmup("UINT8", "8, 8, 4", "random_data: true"))
    assert [problem.where for problem in check(models)] == [CONFIG]


def test_other_models_can_have_any_warmup(models):
    (models / "n" / "1").mkdir(parents=True)
    (models / "n" / "1" / "model.py").touch()
    (models / "n" / "config.pbtxt").write_text('backend: "python"\n' + warmup("FP32", 3, "random_data: true", name="x"))
    assert problems(models) == []


SAMPLE = [{"batch_size": 1, "inputs": {"image": {"input_data_file": "f"}}}]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("../secret"), "is a symbolic link: replace it with a copy of the file in warmup"),
        (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
        (os.mkfifo, "cannot be read in warmup: Not a regular file"),
        (os.mkdir, "cannot be read in warmup: Is a directory"),
        (sparse(3 << 30), "the files in warmup have over 67,108,864 bytes"),
    ],
)
def test_a_file_that_import_would_copy_must_be_small_and_regular(tmp_path, make, words):
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "warmup").mkdir()
    make(tmp_path / "warmup" / "f")
    with patience(), pytest.raises(pp.PipelineError) as caught:
        warmup_files(tmp_path, SAMPLE)
    assert words in str(caught.value)


def test_a_linked_folder_is_not_followed_and_all_files_share_the_limit(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "f").write_text("a key")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "warmup").symlink_to("../elsewhere")
    with pytest.raises(pp.PipelineError, match='"f" is a symbolic link'):
        warmup_files(tmp_path / "m", SAMPLE)
    (tmp_path / "warmup").mkdir()
    for name in ("f", "g"):
        (tmp_path / "warmup" / name).write_bytes(bytes(60))
    two = [*SAMPLE, {"batch_size": 1, "inputs": {"image": {"input_data_file": "g"}}}]
    assert [*warmup_files(tmp_path, two, most=120)] == ["f", "g"]
    with pytest.raises(pp.PipelineError, match='"g" exceeds the limit: the files in warmup have over 119 bytes'):
        warmup_files(tmp_path, two, most=119)
