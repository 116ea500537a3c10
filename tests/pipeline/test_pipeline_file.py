"""Tests the pipeline file: its canonical bytes, and the full message for each mistake."""

import json
import sys
from functools import partial
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pixprep as pp
from pixprep.errors import PipelineError
from pixprep.pipeline import file
from pixprep.pipeline.ops import OPS
from pixprep.plan.profiles import PROFILES
from pixprep.spec import Like
from support.canonical import CANONICAL, DEFAULTS, GOLDEN, SCHEMA, defaults, smallest
from support.pipeline_texts import HEAD, TAIL

REMAKE_HINT = "if this change is meant: python tests/golden/remake.py"


@pytest.mark.parametrize("name", CANONICAL)
def test_the_bytes_of_a_file_are_pinned(name, tmp_path):
    CANONICAL[name].save(tmp_path / "pipeline.json")
    assert (tmp_path / "pipeline.json").read_bytes() == (GOLDEN / f"{name}.json").read_bytes(), REMAKE_HINT
    assert pp.load(GOLDEN / f"{name}.json") == CANONICAL[name]


def test_the_json_schema_in_the_docs_matches_the_code():
    assert SCHEMA.read_text(encoding="utf-8") == f"{json.dumps(file.schema(), indent=2)}\n", REMAKE_HINT


def test_a_file_can_name_a_schema_for_editors():
    text = pp.presets.imagenet().to_json()
    named = text.replace("{\n", '{\n  "$schema": "pipeline.schema.json",\n', 1)
    assert pp.Pipeline.from_json(named) == pp.presets.imagenet()
    with pytest.raises(PipelineError) as caught:
        pp.Pipeline.from_json(text.replace("{\n", '{\n  "$schema": {},\n', 1))
    assert str(caught.value) == "$.$schema: must be a string"


def test_the_schema_contains_every_op_and_field():
    definitions = file.schema()["$defs"]
    for name, cls in pp.ops.OPS.items():
        properties = definitions[cls.__name__]["properties"]
        assert properties["op"] == {"enum": [name]}
        assert set(properties) == {"op", *cls.__struct_encode_fields__}
        assert definitions[cls.__name__]["additionalProperties"] is False


VALID_OPS = f"docs/operators.md lists the {len(OPS)} ops"
MISTAKES = {
    # the document
    "": "not JSON: the file is empty",
    "hello": "not JSON: line 1 column 1: expecting value",
    "{'format': 1}": "not JSON: line 1 column 2: JSON strings require double quotes",
    '{"format": "pixprep/1",\n "ops": [': "not JSON: line 2 column 10: the text ends early",
    '{"format": "pixprep/1", "ops": [1,\n  ]}': "not JSON: line 1 column 34: remove the trailing comma",
    '{"format": "pixprep/1",\n}': "not JSON: line 1 column 23: remove the trailing comma",
    '{"format": "pixprep/1", // ours\n "ops": []}': "not JSON: line 1 column 25: JSON does not support comments",
    '# ours\n{"format": "pixprep/1"}': "not JSON: line 1 column 1: JSON does not support comments",
    '{"format": "pixprep/1"} more': "not JSON: line 1 column 25: extra data",
    b"\xff\xfe": "not a pipeline file: byte 0 is not UTF-8",
    "[" * 100_000: "not a pipeline file: the JSON is nested too deeply",
    "9" * 5000: "not a pipeline file: a number has too many digits",
    "[]": 'a pipeline file must be an object with "format" and "ops", not a list',
    "7": 'a pipeline file must be an object with "format" and "ops", not a number',
    # the format
    '{"ops": []}': '$.format is missing: add "format": "pixprep/1"',
    '{"format": "pixprep/2", "ops": []}': (
        '$.format: "pixprep/2" is not supported by this version, which reads "pixprep/1": upgrade pixprep'
    ),
    '{"format": "dali", "ops": []}': '$.format: must be "pixprep/1"',
    '{"format": "pixprep/1", "opps": []}': '$: no such field "opps"; did you mean "ops"?',
    '{"format": "pixprep/1", "version": 1}': '$: no such field "version"; valid fields: format, origin, ops',
    # the list of ops
    '{"format": "pixprep/1"}': "$.ops: must be a list of at least one op",
    '{"format": "pixprep/1", "ops": []}': "$.ops: must be a list of at least one op",
    '{"format": "pixprep/1", "ops": ['
    + '{"op": "flip"},' * 256
    + '{"op": "flip"}]}': "$.ops: must contain at most 256 ops, not 257",
    '{"format": "pixprep/1", "ops": ["decode"]}': (
        'ops[0]: an op must be an object such as {"op": "decode"}, not a string'
    ),
    # names
    HEAD + '{"op": "rezise", "size": 8}, ' + TAIL: 'ops[1] "rezise": no such op; did you mean "resize"?',
    HEAD + '{"op": "zzz"}, ' + TAIL: f'ops[1] "zzz": no such op; {VALID_OPS}',
    HEAD + '{"op": 3}, ' + TAIL: f"ops[1] 3: no such op; {VALID_OPS}",
    HEAD + '{"size": 3}, ' + TAIL: 'ops[1]: the field "op" is missing',
    HEAD + '{"op": "resize", "sise": 8}, ' + TAIL: 'ops[1] "resize": no such field "sise"; did you mean "size"?',
    HEAD + '{"op": "letterbox", "height": 4}, ' + TAIL: 'ops[1] "letterbox": the field "width" is missing',
    HEAD + '{"op": "pad", "height": 9, "width": 9, "fill": true}, ' + TAIL: (
        'ops[1] "pad": fill: expected an integer or a string or a list, got true or false'
    ),
    # values
    HEAD + '{"op": "resize", "size": NaN}, ' + TAIL: "$.ops[1].size: line 1 column {}: NaN is not a JSON number".format(
        len(HEAD + '{"op": "resize", "size": ') + 1
    ),
    HEAD + '{"op": "NaN", "mean": [1,\n -Infinity]}, ' + TAIL: (
        "$.ops[1].mean[1]: line 2 column 2: -Infinity is not a JSON number"
    ),
    "format: pixprep/1\nops:\n- op: decode\n": "not JSON: line 1 column 1: this is YAML: write it as JSON",
    "---\n# ours\nformat: pixprep/1\n": "not JSON: line 1 column 1: this is YAML: write it as JSON",
    HEAD
    + '{"op": "resize", "size": "8"}, '
    + TAIL: 'ops[1] "resize": "size" must be a number or the name of an input, not "8"',
    HEAD
    + '{"op": "resize", "size": 8.5}, '
    + TAIL: 'ops[1] "resize": size: expected an integer or a string, got a number',
    HEAD + '{"op": "resize", "size": 8, "filter": "cubic"}, ' + TAIL: (
        'ops[1] "resize": filter: "cubic" is not supported; did you mean "bicubic"?'
    ),
    HEAD + '{"op": "flip", "axis": "both"}, ' + TAIL: (
        'ops[1] "flip": axis: "both" is not supported; valid values: horizontal, vertical'
    ),
    HEAD + '{"op": "normalize", "mean": [1, "x", 3]}, ' + TAIL: (
        'ops[1] "normalize": mean[1]: expected a number, got a string'
    ),
    HEAD + '{"op": "resize", "size": 0}, ' + TAIL: 'ops[1] "resize": "size" must be between 1 and 16384 pixels, not 0',
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=map(str, range(len(MISTAKES))))
def test_a_mistake_is_rejected_with_a_message(text, message):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text)
    assert str(caught.value) == message


def test_a_message_abbreviates_a_long_value():
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(HEAD + json.dumps({"op": "x" * 5000}) + "]}")
    assert str(caught.value) == f'ops[1] "{"x" * 75} ...: no such op; {VALID_OPS}'


def test_the_message_about_a_file_begins_with_its_name_without_folders(tmp_path):
    path = tmp_path / "pipeline.json"
    with pytest.raises(pp.PipelineError, match=r"^pipeline.json: cannot be read: "):
        pp.load(path)
    path.write_text("[]")
    with pytest.raises(pp.PipelineError, match=r"^pipeline.json: a pipeline file must be an object "):
        pp.load(path)


def test_a_folder_is_rejected_and_the_pipeline_file_in_it_is_named(tmp_path):
    version = tmp_path / "models" / "preprocess" / "1"
    version.mkdir(parents=True)
    with pytest.raises(pp.PipelineError) as caught:
        pp.load(version)
    assert str(caught.value) == "1: is a folder: pass the path of a pipeline file"
    (version / "pipeline.json").touch()
    for folder in (version, version.parent, tmp_path / "models"):
        with pytest.raises(pp.PipelineError) as caught:
            pp.load(folder)
        assert str(caught.value) == f"{folder.name}: is a folder: did you mean {version}/pipeline.json?"


@pytest.mark.parametrize("ops", ["pipeline.json", pp.decode()])
def test_a_pipeline_is_made_of_a_list_of_ops(ops):
    with pytest.raises(
        pp.PipelineError, match=r"^ops must be a list such as \[decode\(\), tensor\(\)\]; to read a pipeline file"
    ):
        pp.Pipeline(ops)


ORIGIN = '"origin": {"library": "timm", "version": "1.0", "name": "resnet50", "profile": "pillow"}'


PLAIN = pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor()])
IMPORTED = PLAIN.to_json().replace('"ops"', f'{ORIGIN},\n  "ops"')


def test_an_origin_is_read_and_written_between_format_and_ops():
    imported = pp.Pipeline.from_json(IMPORTED)
    assert imported.origin == pp.Origin(library="timm", version="1.0", name="resnet50", profile="pillow")
    assert imported.to_json() == IMPORTED
    assert imported != PLAIN
    assert "resnet50" in repr(imported)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (ORIGIN, '"origin": 3', "$.origin: expected an object, got an integer"),
        ('"version": "1.0", ', "", "$.origin: object missing required field `version`"),
        ('"timm"', '""', "$.origin.library: expected a string of length >= 1"),
        ('"timm"', f'"{"x" * 201}"', "$.origin.library: expected a string of length <= 200"),
        ('"pillow"', '"pil"', "$.origin.profile: invalid enum value 'pil'"),
        ('"version"', '"path": "x", "version"', "$.origin: object contains unknown field `path`"),
    ],
)
def test_an_invalid_origin_is_rejected_with_a_message(old, new, message):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(IMPORTED.replace(old, new, 1))
    assert str(caught.value) == message


def test_an_int_is_accepted_as_a_float_and_a_list_as_a_tuple():
    text = HEAD + '{"op": "center_crop", "height": 8}, {"op": "normalize", "mean": [1, 2, 3]}, {"op": "tensor"}]}'
    python = [pp.decode(), pp.center_crop(8), pp.normalize(mean=[1, 2, 3]), pp.tensor()]
    assert pp.Pipeline.from_json(text) == pp.Pipeline(python)
    assert '"mean": [1.0, 2.0, 3.0]' in pp.Pipeline(python).to_json()


@pytest.mark.parametrize(
    ("made", "plain"),
    [
        (lambda: pp.resize(height=np.int64(8), width=np.uint8(9)), pp.resize(height=8, width=9)),
        (
            lambda: pp.resize(height=8, width=9, like="dali", roi=np.float32([1.5, 2, 6, 7])),
            pp.resize(height=8, width=9, like="dali", roi=(1.5, 2.0, 6.0, 7.0)),
        ),
        (lambda: pp.normalize(mean=(np.float32(0.1),)), pp.normalize(mean=(0.10000000149011612,))),
        (lambda: pp.normalize(std=np.array(2)), pp.normalize(std=2)),
        (lambda: pp.normalize(mean=[np.float64(0.5)] * 3), pp.normalize(mean=[0.5] * 3)),
        (lambda: pp.decode(reduced=np.bool_(1), color=np.str_("bgr")), pp.decode(reduced=True, color="bgr")),
    ],
)
def test_numpy_scalars_and_arrays_are_saved_as_numbers_and_lists(made, plain):
    assert msgspec.json.encode(made()) == msgspec.json.encode(plain)


def test_the_defaults_of_the_format_never_change():
    assert DEFAULTS.read_text(encoding="utf-8") == defaults(), REMAKE_HINT
    assert {entry["op"] for entry in smallest()} == set(OPS)


@pytest.mark.parametrize("entry", list(smallest()), ids=str)
def test_only_values_that_differ_from_the_defaults_are_saved(entry):
    made = msgspec.convert(entry, OPS[entry["op"]])
    expected = {key: value for key, value in entry.items() if (key, value) != ("like", "pillow")}
    assert file.to_dict(made) == expected
    assert msgspec.convert(file.settings(made), type(made)) == made


def test_an_explicit_default_gives_an_equal_pipeline():
    ops = [{"op": "decode", "alpha": "drop"}, {"op": "resize", "size": 8, "side": "shorter", "antialias": True}]
    rest = [{"op": "center_crop", "height": 8, "width": 8}, {"op": "tensor"}]
    text = json.dumps({"format": "pixprep/1", "ops": ops + rest})
    assert pp.Pipeline.from_json(text) == pp.Pipeline([pp.decode(), pp.resize(8), pp.center_crop(8), pp.tensor()])


sides = st.integers(1, 300)
levels = st.integers(0, 255)
fills = st.one_of(levels, st.tuples(levels, levels, levels))
reals = st.floats(-100, 100, width=32, allow_subnormal=False)
means = st.one_of(reals, st.tuples(reals, reals, reals))
stds = st.one_of(st.floats(1e-3, 1), st.tuples(*[st.floats(1e-3, 1)] * 3))
roundings = st.sampled_from(["down", "half_even", "half_away"])
options = st.sampled_from(
    [
        {"like": like, "antialias": antialias, "filter": filter_name}
        for like in get_args(Like)
        for filter_name, antialias in PROFILES[like].methods
        if antialias or filter_name != "bilinear" or not PROFILES[like].min_sides  # small sizes are rejected
    ]
)
anchors = st.sampled_from(["center", "top_left"])


@st.composite
def pipelines(draw):
    """Generate valid pipelines: ops before the resize, the resize, ops after it, and a second branch."""
    how = draw(options)
    ops = [
        pp.decode(name="start", color=draw(st.sampled_from(["rgb", "bgr"])), apply_exif_orientation=draw(st.booleans()))
    ]
    flips = st.builds(pp.flip, st.sampled_from(["horizontal", "vertical"]))
    crops = st.builds(pp.crop, st.integers(0, 99), st.integers(0, 99), sides, sides)
    squares = st.builds(pp.center_crop, fraction=st.floats(0.01, 1))
    ops += draw(st.lists(st.one_of(flips, crops, squares), max_size=1))
    ops.append(
        draw(
            st.one_of(
                st.builds(
                    partial(pp.letterbox, **how), sides, sides, fill=fills, anchor=anchors, enlarge=st.booleans()
                ),
                st.builds(partial(pp.resize, **how), height=sides, width=sides),
                st.builds(partial(pp.resize, **how), height=sides, width=sides, mode=st.sampled_from(["fit", "cover"])),
                st.builds(partial(pp.resize, **how), sides, side=st.sampled_from(["shorter", "longer"])),
            )
        )
    )
    ops += draw(st.lists(flips, max_size=2))
    if not any(isinstance(op, pp.letterbox) for op in ops):
        ops += [pp.center_crop(draw(st.integers(1, 40)), draw(st.integers(1, 40)), rounding=draw(roundings))]
    ops += [pp.transform(name="where")] * draw(st.integers(0, 1))
    ops += [pp.tensor(name="levels", dtype="float32" if PROFILES[how["like"]].real else "uint8")] * draw(
        st.integers(0, 1)
    )
    arithmetic = st.sampled_from(["float64", "divide", "multiply", "fused", "fused_multiply"])
    normalizes = st.builds(pp.normalize, mean=means, std=stds, scale=st.floats(0.01, 1), arithmetic=arithmetic)
    ops += draw(st.lists(normalizes, max_size=2))
    ops += [pp.tensor(layout=draw(st.sampled_from(["chw", "hwc"])))]
    ops += [pp.original_size(from_="start")] * draw(st.integers(0, 1))
    return ops


@settings(max_examples=60, derandomize=True)
@given(pipelines())
def test_saving_and_loading_gives_an_equal_pipeline(ops):
    origin = pp.Origin(library="timm", version="1.0", name="é", profile="pillow") if len(ops) % 2 else None
    pipeline = pp.Pipeline(ops, origin=origin)
    text = pipeline.to_json()
    again = pp.Pipeline.from_json(text)
    assert again == pipeline
    assert again.to_json() == text
    assert hash(again) == hash(pipeline)
    assert again.outputs == pipeline.outputs
    assert again.plan == pipeline.plan


def test_a_file_is_read_with_few_calls():
    text = pp.Pipeline([pp.decode(), pp.resize(256), pp.center_crop(224), pp.normalize(), pp.tensor()]).to_json()
    calls = []
    sys.setprofile(lambda _, event, __: calls.append(event) if event == "call" else None)
    try:
        file.loads(text)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 150  # if each op asked every class for its name, there would be 925 more calls
