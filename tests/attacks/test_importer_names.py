"""Attack: A file to import contains names with 200,000 characters, control sequences, or one half of a surrogate pair.

Defence: Each line of a ``PipelineError`` is printable wherever the error is raised, and long lines are shortened in the
middle.

Outcome: The error is a single line that begins with the file and ends with the fix. Before the fix, the line was as
long as the name.
"""

import json

import pytest

import pixprep as pp
from pixprep.errors import shown
from pixprep.importers import import_pipeline
from support.dali_graphs import graph, operator

CONTROLS = "\x1b[31m\x07\u202e\n"
NAMES = {"long": "n" * 200_000, "controls": CONTROLS, "long controls": CONTROLS * 50_000}
HF, TIMM = "preprocessor_config.json", "config.json"


def layers(*names):
    entries = [{"class_name": name, "name": name, "config": {}} for name in names]
    return {"class_name": "Sequential", "config": {"name": "m", "layers": entries}}


def al(**fields):
    return {"__version__": "2.0.8", "transform": {"__class_fullname__": "Compose", "transforms": [fields]}}


FILES = {
    "transformers: a class": (HF, lambda name: {"image_processor_type": name}),
    "transformers: a field": (HF, lambda name: {"image_processor_type": "ViTImageProcessor", name: 3}),
    "transformers: a value": (HF, lambda name: {"image_processor_type": "ViTImageProcessor", "size": {name: 3}}),
    "timm: a field": (TIMM, lambda name: {"architecture": "a", "pretrained_cfg": {name: 3}}),
    "timm: a value": (TIMM, lambda name: {"architecture": "a", "pretrained_cfg": {"interpolation": name}}),
    "timm: an architecture": (TIMM, lambda name: {"architecture": name, "pretrained_cfg": {"input_size": name}}),
    "keras: a layer": (TIMM, lambda name: layers("InputLayer", name)),
    "albumentations: a transform": ("a.json", lambda name: al(__class_fullname__=name)),
    "albumentations: a field": ("a.json", lambda name: al(__class_fullname__="HorizontalFlip", **{name: 1})),
    "albumentations: a version": ("a.json", lambda name: {"__version__": name, "transform": {}}),
}


def refusal(path, **options):
    with pytest.raises(pp.PipelineError) as caught:
        import_pipeline(str(path), **options)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) <= 1600
    return text


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("case", FILES)
def test_a_message_is_one_printable_line_for_names_of_any_length(tmp_path, case, kind):
    file, make = FILES[case]
    (tmp_path / file).write_text(json.dumps(make(NAMES[kind])))
    assert file in refusal(tmp_path / file)


@pytest.mark.parametrize("kind", NAMES)
def test_names_in_dali_files_and_onnx_metadata_are_also_cut(tmp_path, kind):
    name = NAMES[kind]
    (tmp_path / "m.dali").write_bytes(graph(operator(name, [], ["a"]), outputs=["a"]))
    assert "m.dali" in refusal(tmp_path / "m.dali")
    metadata = json.dumps({"task": name, "imgsz": [64, 64]}).encode()
    (tmp_path / "m.engine").write_bytes(len(metadata).to_bytes(4, "little") + metadata)
    assert "m.engine" in refusal(tmp_path / "m.engine")
    refusal(f"keras:{name}")


@pytest.mark.parametrize("text", ["a" * 1600, "é", "a: b"])
def test_a_short_message_is_unchanged(text):
    assert str(pp.PipelineError(text)) == text


def test_a_long_message_keeps_its_position_and_its_fix():
    text = str(pp.PipelineError("FILE: " + "\x1b" * 200_000 + ": REMEDY", "second\nline"))
    first, second = text.split("\n")
    assert first.startswith("FILE: \\x1b\\x1b")
    assert first.endswith("\\x1b: REMEDY")
    assert second == "second\\nline"
    assert shown(first) == first
