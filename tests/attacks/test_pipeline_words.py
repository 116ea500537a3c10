"""Attack: names that are paths, formats, markup or control sequences, to get into messages, logs and config.pbtxt.

Defence: a name is an ASCII identifier of at most 128 letters; what a message repeats is in ASCII and cut at 80
characters; ``origin`` holds printable words; nothing of a file is ever a format string.
Outcome: nothing of it reaches a terminal or a configuration as it is. Before the mends, names had no limit, and
``origin`` kept control characters, which ``pixprep import`` printed.
"""

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

import pixprep as pp
from attacks.pipelines import HEAD, VALID, with_op
from pixprep.serving import repository
from pixprep.serving.repository.ports import parse_io
from serving.faces import PLAN

WORDS = (
    "../../etc/passwd", "/etc/passwd", "{0.__class__}", "%s%n", "$(reboot)", "<script>alert(1)</script>",
    "\x1b[31m\x1b]0;title\x07", "line\nanother: no problem found", "\u202etxt.exe", 'x" } parameters { key: "on_error',
    "\x00", "",
)  # fmt: skip


LOOK_ALIKES = (
    "\u0455tatus",  # a Cyrillic letter
    "\uff53tatus",  # a full-width one, which NFKC makes an s
    "\u017ftatus",  # a long s, likewise
    "i\u043cage",
    "ten\u200dsor",  # with a joiner, of no width
    "tens\u03bfr",
    "\u00fcberall",
    "t\u0065\u0301nsor",
    "\u0661st",
)


@pytest.mark.parametrize("word", LOOK_ALIKES, ids=ascii)
@pytest.mark.parametrize("op", ["tensor", "flip", "decode", "transform"])
def test_a_name_that_looks_like_another_is_refused(word, op):
    ops = [{"op": "decode"}, {"op": "center_crop", "height": 8}, {"op": "flip"}, {"op": "transform"}, {"op": "tensor"}]
    next(each for each in ops if each["op"] == op)["name"] = word
    with pytest.raises(pp.PipelineError, match="name: ASCII letters, digits and _, not ") as caught:
        pp.Pipeline.from_json(json.dumps({"format": "pixprep/1", "ops": ops}))
    assert str(caught.value).isascii()


@pytest.mark.parametrize("word", WORDS, ids=ascii)
@pytest.mark.parametrize("field", ["name", "from", "op", "axis", "x"])
def test_a_word_that_is_none_is_refused_and_shown_in_ascii(word, field):
    op = {"op": "flip", field: word} if field != "x" else {"op": "flip", word: 1}
    text = HEAD + json.dumps(op) + ', {"op": "center_crop", "height": 8}, {"op": "tensor"}]}'
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("field", ['"name": "%s"', '"from": "%s"', '"op": "%s"', '"axis": "%s"', '"%s": 1'])
def test_a_word_of_a_megabyte_is_not_repeated(field):
    text = with_op('"op": "flip", ' * ('"op"' not in field) + field % ("x" * 1_000_000))
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(text)
    assert len(str(caught.value)) < 1300


def test_hundreds_of_long_names_are_not_listed():
    names = ", ".join(json.dumps({"op": "flip", "name": f"n{number}_".ljust(128, "x")}) for number in range(250))
    with pytest.raises(pp.PipelineError, match=r"named are: .*, \.\.\.$") as caught:
        pp.Pipeline.from_json(HEAD + names + ', {"op": "flip", "from": "y"}]}')
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("word", [word for word in WORDS if not word.isprintable()] + ["", "x" * 201], ids=ascii)
@pytest.mark.parametrize("field", ["library", "version", "name", "profile"])
def test_an_origin_that_cannot_be_printed_is_refused(word, field):
    origin = {"library": "timm", "version": "1", "name": "x", "profile": "pillow"} | {field: word}

    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(VALID.replace('"ops"', f'"origin": {json.dumps(origin)}, "ops"'))
    assert str(caught.value).startswith(f"$.origin.{field}: ")
    assert str(caught.value).isprintable()


def test_an_unknown_field_of_the_origin_is_shown_without_its_control_characters():
    origin = '"origin": {"library": "a", "version": "1", "name": "x", "profile": "pillow", "\\u001b[31m": 1}'
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(VALID.replace('"ops"', f'{origin}, "ops"'))
    assert str(caught.value) == "$.origin: object contains unknown field `\\x1b[31m`"


@pytest.mark.parametrize("word", [word for word in WORDS if word], ids=ascii)
def test_a_classifiers_names_stay_strings_in_config_pbtxt(tmp_path, word):
    """The pipeline's names are identifiers; those of a classifier may be anything."""
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
