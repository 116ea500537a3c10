"""Attack: A pipeline file contains any text that could make its reader hang or crash, or that could mislead a person.

Defence: At most 1 MiB and one byte are read, and decoded as UTF-8. Unknown and duplicate fields are rejected with their
path. Numbers must be finite, have at most 20 digits, and respect limits. If the interpreter's recursion limit is
reached, this is reported as an error. A name is an ASCII identifier of at most 128 characters. Messages quote the file
in ASCII, shortened to 80 characters. ``origin`` contains only printable words. No text from a file is ever used as a
format string. An op uses the image of one earlier op, so that every pipeline is a tree. A plan whose arithmetic
overflows for pixel value 0 or 255 is rejected.

Outcome: The file is rejected within milliseconds, with one short ASCII line. Before the fixes, the search for
duplicates took minutes for 1 MiB of fields, a lone surrogate raised a UnicodeEncodeError, and the message repeated a
number of 4,300 digits. The length of names was not limited, ``origin`` kept control characters, and ``normalize`` in
float32 could successfully return a tensor of NaN.
"""

import json
import os
import re
import time
import tracemalloc

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

import pixprep as pp
from pixprep.pipeline.file import MAX_BYTES
from pixprep.serving import repository
from pixprep.serving.repository.ports import parse_io
from support.faces import PLAN
from support.pipeline_texts import HEAD, TAIL, VALID, with_op

ORIGIN = (
    '{"format": "pixprep/1", "origin": {"library": "timm", "version": "1", %s}, "ops": ' + VALID.partition('"ops": ')[2]
)
TWICE = r"the field .* occurs twice in the same object"
TEXTS = {
    # text that is not valid UTF-8, or that UTF-8 cannot represent
    "a BOM": (VALID.encode("utf-8-sig"), ""),
    "UTF-16 with a BOM": (VALID.encode("utf-16"), ""),
    "UTF-16": (VALID.encode("utf-16-le"), ""),
    "UTF-32": (VALID.encode("utf-32"), ""),
    "Latin-1": (VALID.replace("decode", "décode").encode("latin-1"), ""),
    "overlong UTF-8": (VALID.encode().replace(b"d", b"\xc1\xa4", 1), ""),
    "UTF-8 surrogates": (VALID.encode().replace(b"decode", b"\xed\xa0\x80"), ""),
    "NUL at the end": (VALID.encode() + b"\0", ""),
    "NUL in a string": (VALID.encode().replace(b"decode", b"deco\0de"), ""),
    "an escaped NUL": (VALID.replace("decode", "decode\\u0000"), ""),
    "a surrogate for an op": (VALID.replace("decode", "\\ud800"), ""),
    "a surrogate for a field": (VALID.replace('"height"', '"\\ud800"'), ""),
    "a surrogate for a choice": (with_op('"op": "flip", "axis": "\\ud800"'), ""),
    "a surrogate for a name": (with_op('"op": "flip", "name": "\\ud800"'), ""),
    "a surrogate for an earlier op": (with_op('"op": "flip", "from": "\\ud800"'), ""),
    "a surrogate in the origin": (ORIGIN % '"name": "\\ud800", "profile": "pillow"', ""),
    "a surrogate for a profile": (ORIGIN % '"name": "x", "profile": "\\ud800"', ""),
    "a surrogate for a field of the origin": (ORIGIN % '"name": "x", "profile": "pillow", "\\ud800": 1', ""),
    "a raw surrogate": (VALID.replace("decode", "\ud800"), ""),
    # duplicate fields: different readers would see different pipelines
    "the format twice": (HEAD.replace('"pixprep/1"', '"pixprep/1", "format": "pixprep/1"') + TAIL, TWICE),
    "the op twice": (HEAD + '{"op": "resize", "op": "flip"}, ' + TAIL, TWICE),
    "an escaped name twice": (with_op('"op": "flip", "axis": "vertical", "\\u0061xis": "horizontal"'), TWICE),
    # a future version of the format, and words that readers may interpret differently
    "a format with a tail": (VALID.replace("pixprep/1", "pixprep/1.0"), r"\$\.format: "),
    "a format that is a list": (VALID.replace('"pixprep/1"', '["pixprep/1"]'), r"\$\.format: "),
    "an op": (with_op('"op": "exec", "code": "import os"'), r"ops\[1\] \"exec\": no such op"),
    "a dunder": (with_op('"op": "__class__"'), r"ops\[1\] \"__class__\": no such op"),
    "a field": (with_op('"op": "flip", "__init__": 1'), r"ops\[1\] \"flip\": no such field"),
    "Python's name of a field": (with_op('"op": "flip", "from_": "x"'), r"ops\[1\] \"flip\": no such field"),
    "a number for a word": (with_op('"op": "flip", "axis": 1'), r"ops\[1\] \"flip\": axis"),
    "true for a number": (with_op('"op": "pad", "height": true, "width": 8'), r"ops\[1\] \"pad\": height"),
    # errors whose messages could quote a long text
    **{
        f"a megabyte in {field}": (
            with_op('"op": "flip", ' * ('"op"' not in field) + field % ("x" * 1_000_000)), "",
        )
        for field in ('"name": "%s"', '"from": "%s"', '"op": "%s"', '"axis": "%s"', '"%s": 1')
    },
    "250 long names": (
        HEAD + ", ".join(json.dumps({"op": "flip", "name": f"n{number}_".ljust(128, "x")}) for number in range(250))
        + ', {"op": "flip", "from": "y"}]}',
        r"existing names: .*, \.\.\.$",
    ),
    "a control character in a field of the origin": (
        ORIGIN % '"name": "x", "profile": "pillow", "\\u001b[31m": 1',
        r"^\$\.origin: object contains unknown field `\\x1b\[31m`$",
    ),
}  # fmt: skip
"""Texts, each with its error message."""


def refusal(text, most=1500):
    """Return the error message for a text. Assert that the message is printable and has at most ``most`` characters."""
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text)
    said = str(caught.value)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < most
    return said


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_not_a_pipeline_is_rejected_in_a_short_line(text, message):
    assert re.search(message, refusal(text))


def test_the_unmodified_texts_are_read():
    assert pp.Pipeline.from_json(VALID.encode()).outputs
    assert pp.Pipeline.from_json(ORIGIN % '"name": "é", "profile": "pillow"').origin.name == "é"
    assert pp.Pipeline.from_json(HEAD + '{"op": "flip", "axis": "vertical"}, ' * 2 + TAIL).outputs


def test_a_duplicate_among_a_hundred_thousand_fields_is_found_quickly():
    text = "{" + ",".join(f'"{number:05d}":1' for number in range(100_000)) + ',"99999":1}'
    assert len(text) < 1 << 20
    start = time.process_time()
    assert 'the field "99999" occurs twice' in refusal(text)
    assert time.process_time() - start < 10


PLACES = {
    "the file": "%s",
    "the format": '{"format": %s}',
    "the origin": '{"format": "pixprep/1", "origin": %s, "ops": [{"op": "decode"}]}',
    "an op": HEAD + "%s]}",
    "an op's name": with_op('"op": %s'),
    "a word": with_op('"op": "flip", "axis": %s'),
    "a number": with_op('"op": "normalize", "mean": %s'),
    "a field that is not known": with_op('"op": "flip", "x": %s'),
}
DEPTHS = (*range(10, 900, 99), *range(900, 1010), 10_000, 170_000)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_any_depth_of_nesting_is_rejected_with_a_message(place, opening, closing):
    for depth in DEPTHS:
        refusal(PLACES[place] % (opening * depth + "1" + closing * depth), most=1400)


# long files


def test_a_file_of_a_hundred_megabytes_is_rejected_after_its_first_megabyte(tmp_path):
    path = tmp_path / "pipeline.json"
    path.touch()
    os.truncate(path, 100_000_000)
    tracemalloc.start()
    with pytest.raises(pp.PipelineError, match="not a pipeline file: it has more than 1,048,576 bytes"):
        pp.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_BYTES


def test_the_limit_of_one_mebibyte_is_exact(tmp_path):
    path = tmp_path / "pipeline.json"
    path.write_text(VALID + " " * (MAX_BYTES - len(VALID)))
    assert pp.load(path).outputs
    path.write_text(VALID + " " * (MAX_BYTES - len(VALID) + 1))
    with pytest.raises(pp.PipelineError, match="more than 1,048,576 bytes"):
        pp.load(path)


# pipelines with many ops


def test_the_deepest_tree_is_compiled_quickly():
    flips = [pp.flip(name=f"f{number}", from_=f"f{number - 1}" if number else None) for number in range(127)]
    crop = [pp.center_crop(8, name="crop")]
    outputs = [pp.tensor(name=f"t{number}", from_="crop") for number in range(127)]
    start = time.process_time()
    pipeline = pp.Pipeline.from_json(pp.Pipeline([pp.decode(), *flips, *crop, *outputs]).to_json())
    plan = pipeline.plan
    assert time.process_time() - start < 10
    assert len(plan.outputs) == 127


def test_a_chain_of_250_normalizations_is_compiled_quickly():
    steps = [pp.normalize(mean=0.5, std=1, scale=1, arithmetic="divide")] * 252
    start = time.process_time()
    pp.Pipeline([pp.decode(), pp.center_crop(8), *steps, pp.tensor()])
    assert time.process_time() - start < 10


@pytest.mark.parametrize("from_", ["itself", "later"])
def test_an_op_that_refers_to_its_own_image_or_a_later_one_is_rejected(from_):
    ops = [pp.decode(), pp.flip(name="itself", from_=from_), pp.center_crop(8, name="later"), pp.tensor()]
    with pytest.raises(pp.PipelineError, match="no earlier op has the name"):
        pp.Pipeline(ops)


# numbers

FIELDS = {
    "a side": '"op": "resize", "size": %s',
    "a level": '"op": "pad", "height": 8, "width": 8, "fill": %s',
    "a share": '"op": "center_crop", "fraction": %s',
    "a factor": '"op": "normalize", "scale": %s',
    "a deviation": '"op": "normalize", "std": %s',
    "a mean": '"op": "normalize", "mean": [0, 0, %s]',
}
NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 20, "-" + "9" * 20, "9" * 4300, "9" * 900_000)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_an_invalid_or_too_large_number_is_rejected_in_a_short_line(field, number):
    refusal(with_op(FIELDS[field] % number), most=200)


def test_long_lists_of_numbers_are_not_repeated_in_the_message():
    for field in ('"op": "normalize", "std": [%s]', '"op": "pad", "height": 8, "width": 8, "fill": [%s]'):
        refusal(with_op(field % ",".join(["-1"] * 200_000)), most=200)


COMPILED = HEAD + '{"op": "center_crop", "height": 8}, {"op": "normalize", %s}, {"op": "tensor", "dtype": "%s"}]}'
NO_FLOAT32 = 'ops[2] "normalize": "arithmetic": "{}" requires the constant {}, which is outside the range of float32:'


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        ('"scale": 1e300, "std": 1e300, "arithmetic": "multiply"', NO_FLOAT32.format("multiply", "1e+300")),
        ('"mean": 1, "scale": 5e-324, "arithmetic": "fused"', NO_FLOAT32.format("fused", "inf")),
        ('"mean": 1e-30, "std": 1e-50, "arithmetic": "fused"', NO_FLOAT32.format("fused", "1e-50")),
        ('"std": 1e-50, "scale": 1e-50, "arithmetic": "divide"', NO_FLOAT32.format("divide", "1e+50")),
        ('"mean": [0, 0, 1e-39], "arithmetic": "divide"', NO_FLOAT32.format("divide", "1e-39")),
        ('"scale": 1e-300, "arithmetic": "fused_multiply"', NO_FLOAT32.format("fused_multiply", "1e-300")),
        (
            '"scale": 1e38, "std": 1e38, "arithmetic": "multiply"',
            'ops[3] "tensor": normalize: an intermediate result exceeds the range of float32',
        ),
        (
            '"scale": 1e300}, {"op": "normalize", "scale": 1e-300, "arithmetic": "divide"',
            'ops[3] "normalize": "arithmetic": "divide" requires the constant 1e+300,',
        ),
    ],
)
def test_arithmetic_that_would_give_nan_or_infinity_is_not_compiled(normalize, words):
    for dtype in ("float32", "float16"):
        assert refusal(COMPILED % (normalize, dtype)).startswith(words)


SAME = 'so all pixels would have the same value: choose a larger "scale", or a smaller "mean" or "std"'


@pytest.mark.parametrize(
    ("normalize", "dtype", "difference"),
    [
        ('"scale": 1e-300', "float32", "0"),
        ('"scale": 1e-10', "float16", "0"),
        ('"std": 1e300', "float32", "0"),
        ('"std": 1e6', "float16", "1e-06"),
        ('"mean": 1e30', "float32", "0"),
        ('"mean": [0, 0, 1e9]', "float32", "0"),
        ('"mean": 1e30}, {"op": "normalize", "scale": 1e-30, "arithmetic": "multiply"', "float32", "0"),
    ],
)
def test_arithmetic_that_makes_all_pixels_equal_is_not_compiled(normalize, dtype, difference):
    said = refusal(COMPILED % (normalize, dtype))
    assert f"normalize: black and white differ by only {difference} in {dtype}, {SAME}" in said


@pytest.mark.parametrize(
    ("normalize", "dtype"),
    [
        ('"scale": 1e-300}, {"op": "normalize", "scale": 1e300', "float32"),  # in float64, like 1
        ('"scale": 1e-35', "float32"),
        ('"mean": 1e-300', "float16"),
        ('"mean": 1e6, "scale": 1', "float32"),
    ],
)
def test_small_and_large_numbers_that_keep_pixel_values_distinct_are_compiled(normalize, dtype):
    (plan,) = pp.Pipeline.from_json(COMPILED % (normalize, dtype)).plan.outputs.values()
    assert all(len(set(levels)) > 200 for levels in plan.table.tolist())


# words that contain paths, format strings, markup or control sequences

WORDS = (
    "../../etc/passwd", "/etc/passwd", "{0.__class__}", "%s%n", "$(reboot)", "<script>alert(1)</script>",
    "\x1b[31m\x1b]0;title\x07", "line\nanother: no problem found", "\u202etxt.exe", 'x" } parameters { key: "on_error',
    "\x00", "",
)  # fmt: skip


LOOK_ALIKES = (
    "\u0455tatus",  # a Cyrillic letter
    "\uff53tatus",  # a full-width letter, which NFKC converts to an s
    "\u017ftatus",  # a long s, which NFKC also converts
    "i\u043cage",
    "ten\u200dsor",  # a zero-width joiner
    "tens\u03bfr",
    "\u00fcberall",
    "t\u0065\u0301nsor",
    "\u0661st",
)


@pytest.mark.parametrize("word", LOOK_ALIKES, ids=ascii)
@pytest.mark.parametrize("op", ["tensor", "flip", "decode", "transform"])
def test_a_name_that_looks_like_a_different_one_is_rejected(word, op):
    ops = [{"op": "decode"}, {"op": "center_crop", "height": 8}, {"op": "flip"}, {"op": "transform"}, {"op": "tensor"}]
    next(each for each in ops if each["op"] == op)["name"] = word
    assert '"name" must consist of ASCII letters, digits and _, not ' in refusal(
        json.dumps({"format": "pixprep/1", "ops": ops})
    )


@pytest.mark.parametrize("word", WORDS, ids=ascii)
@pytest.mark.parametrize("field", ["name", "from", "op", "axis", "x"])
def test_an_unknown_word_is_rejected_and_shown_in_ascii(word, field):
    op = {"op": "flip", field: word} if field != "x" else {"op": "flip", word: 1}
    refusal(HEAD + json.dumps(op) + ", " + TAIL)


@pytest.mark.parametrize("word", [word for word in WORDS if not word.isprintable()] + ["", "x" * 201], ids=ascii)
@pytest.mark.parametrize("field", ["library", "version", "name", "profile"])
def test_an_origin_that_cannot_be_printed_is_rejected(word, field):
    origin = {"library": "timm", "version": "1", "name": "x", "profile": "pillow"} | {field: word}
    said = refusal(VALID.replace('"ops"', f'"origin": {json.dumps(origin)}, "ops"'))
    assert said.startswith(f"$.origin.{field}: ")


@pytest.mark.parametrize("word", [word for word in WORDS if word], ids=ascii)
def test_a_classifiers_names_stay_strings_in_config_pbtxt(tmp_path, word):
    """The pipeline's names are identifiers, but those of a classifier may be any text."""
    (tmp_path / "model.plan").write_bytes(PLAN)
    built = repository.build(
        tmp_path / "out",
        pipeline=pp.Pipeline.from_json(VALID),
        plan=tmp_path / "model.plan",
        classifier="tensorrt",
        classifier_io=[f"{word}:FP32:3x8x8", f"{word}2:FP32:10"],
    )
    assert parse_io([f"{word}:FP32:3x8x8", f"{word}2:FP32:10"], source="x").inputs[0].name == word
    text = (tmp_path / "out" / "classifier" / "config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert [tensor.name for tensor in (*config.input, *config.output)] == [word, f"{word}2"]
    assert list(config.parameters) == ["PIXPREP_BUILD_CHECKSUM"]
    assert all(path.is_relative_to(tmp_path / "out") for path in built.paths)
