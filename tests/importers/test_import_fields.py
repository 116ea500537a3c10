"""Tests how importers read values from other libraries' configurations, and the errors for invalid values."""

import json

import numpy as np
import pytest

from pixprep import Origin, Pipeline, decode, letterbox, resize, tensor
from pixprep.importers.assembly import assembled
from pixprep.importers.fields import MAX_BYTES, Fields, read_file, read_json, reading
from support.importing import refusal

SIDE = "must be an integer from 1 to 16384, in pixels"
SIDES = "must be one side, or a height and a width, from 1 to 16384 pixels each"
NUMBER, NUMBERS = "must be a finite number", "must be a finite number, or one for each of 3 channels"
HUGE = 10**400


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        ("flag", True, True), ("text", "", ""), ("number", 3, 3.0), ("number", [0.5], 0.5), ("numbers", -1, -1.0),
        ("numbers", (1, 2, 3), (1.0, 2.0, 3.0)), ("numbers", np.float32([1, 2, 3]), (1.0, 2.0, 3.0)),
        ("numbers", np.float32(0.5), 0.5), ("side", 16384, 16384), ("side", 224.0, 224), ("sides", [64], (64,)),
        ("sides", 64, (64,)), ("pair", 64, (64, 64)), ("pair", [64, 48.0], (64, 48)),
    ],
)  # fmt: skip
def test_a_value_is_read(reader, value, expected):
    with reading({"x": value}, "a.json") as fields:
        assert getattr(fields, reader)("x") == expected


@pytest.mark.parametrize(
    ("reader", "value", "why"),
    [
        *(("flag", value, "must be true or false") for value in (1, "yes", [])),
        *(("text", value, "must be a string") for value in (1, None, ["x"])),
        ("mapping", [1], "must be an object"),
        *(("number", value, NUMBER) for value in (None, "1", True, [], [1, 2, 3], float("nan"), float("inf"))),
        *(("numbers", value, NUMBERS) for value in (None, {}, [1, 2], [1, "2", 3], [1, float("nan"), 1], [[1, 2, 3]])),
        *(("side", value, SIDE) for value in (0, 16385, 9.5, True, "9", [9, 9], None, float("inf"))),
        *(("sides", value, SIDES) for value in (0, [], [1, 2, 3], [9, 0.5], [True, 9], {"height": 9}, "9")),
    ],
)
def test_an_invalid_value_is_rejected_by_its_field(reader, value, why):
    fields = Fields({"x": value}, "a.json")
    assert refusal(getattr(fields, reader), "x") == f'a.json: "x": {value!r} {why}'


@pytest.mark.parametrize("reader", ["number", "numbers", "side", "pair"])
def test_a_number_of_400_digits_is_rejected_and_shortened(reader):
    text = refusal(getattr(Fields({"x": HUGE}, "a.json"), reader), "x")
    assert text.startswith('a.json: "x": 1000')
    assert len(text) < 200


def test_an_absent_or_null_field_has_its_default_or_is_rejected():
    fields = Fields({"null": None}, "a.json")
    assert [fields.number(name, 3.0) for name in ("null", "absent")] == [3.0, 3.0]
    assert [fields.flag(name) for name in ("null", "absent")] == [False, False]
    assert refusal(fields.side, "null") == f'a.json: "null": None {SIDE}'
    assert refusal(fields.side, "absent") == f'a.json: "absent" is missing: it {SIDE}'


def test_zero_is_not_positive():
    fields = Fields({"x": [0.5, 0, 0.5]}, "a.json")
    assert fields.numbers("x") == (0.5, 0.0, 0.5)
    assert refusal(fields.numbers, "x", positive=True) == 'a.json: "x": [0.5, 0, 0.5] must be greater than 0'


def test_a_choice_is_looked_up_and_the_others_are_listed():
    fields = Fields({"name": "lanczos", "code": 1, "bool": True, "list": ["lanczos"]}, "a.json")
    assert fields.choice("name", ("nearest", "lanczos")) == "lanczos"
    assert fields.choice("code", {0: "nearest", 1: "lanczos"}) == "lanczos"
    assert fields.choice("absent", {"a": 1}, "a") == 1
    assert refusal(fields.choice, "name", {"a": 1, "b": 2}) == "a.json: \"name\": 'lanczos' must be one of a, b"
    for name, value in (("bool", "True"), ("list", "['lanczos']")):
        text = refusal(fields.choice, name, {0: "nearest", 1: "lanczos"})
        assert text == f'a.json: "{name}": {value} must be one of 0 (nearest), 1 (lanczos)'


def test_a_field_with_a_single_valid_value_can_be_absent():
    fields = Fields({"x": 4, "null": None, "on": True}, "a.json")
    fields.expect("x", 3, 4)
    fields.expect("null", 3)
    fields.expect_false("absent")
    assert refusal(fields.expect, "x", 3, "3") == "a.json: \"x\": 4 must be 3 or '3'"
    assert refusal(fields.expect_false, "on") == 'a.json: "on": True is not supported'


def test_an_unused_field_is_rejected():
    def read():
        with reading({"x": 1, "y": 2, "warp": 3}, "a.json") as fields:
            fields.number("x")
            fields.ignore("y")

    assert refusal(read) == 'a.json: "warp": 3 is not supported'
    assert refusal(Fields({"\x1b[2J": 3}, "a.json").finish) == 'a.json: "\\u001b[2J": 3 is not supported'


def test_an_error_of_an_op_names_its_position_once():
    def read():
        with reading({}, "a.json"), reading({}, "a.json"):
            resize(0)

    assert refusal(read) == 'a.json: resize: "size" must be between 1 and 16384 pixels, not 0'


def test_a_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"123456")
    assert read_file(path, max_bytes=6) == b"123456"
    assert read_file(path, max_bytes=3, is_complete=False)[:3] == b"123"
    assert refusal(read_file, path, max_bytes=5) == "a.bin: the file has 6 bytes; the maximum is 5"
    assert refusal(read_file, tmp_path, max_bytes=5, is_complete=False).startswith(f"{tmp_path.name}: cannot be read: ")
    assert refusal(read_file, tmp_path / "b.bin", max_bytes=5).startswith("b.bin: cannot be read: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "a.json: must be a JSON object"),
        ("{", "a.json: is not JSON"),
        ("", "a.json: is not JSON"),
        (" " * (MAX_BYTES + 1), "a.json: the file has 16,777,217 bytes; the maximum is 16,777,216"),
    ],
    ids=["a list", "cut off", "empty", "large"],
)
def test_a_file_that_is_not_a_json_object_is_rejected(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    assert refusal(read_json, tmp_path / "a.json").startswith(message)
    (tmp_path / "a.json").write_text(json.dumps({"x": 1}))
    assert read_json(tmp_path / "a.json") == {"x": 1}


def test_the_origin_has_the_profile_of_the_resize():
    for op, like in ((resize(height=8, width=8, like="dali"), "dali"), (letterbox(8, 8, like="opencv"), "opencv")):
        pipeline = assembled([decode(), op, tensor()], library="toy", name="n", where="a.json")
        assert pipeline.origin == Origin(library="toy", version="unknown", name="n", profile=like)
        assert Pipeline.from_json(pipeline.to_json()) == pipeline
