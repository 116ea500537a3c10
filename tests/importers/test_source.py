"""Tests that the source of an imported pipeline is imported again, and that every op and field that differs is
named.
"""

import json
import re

import msgspec
import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.source import NoSourceError, imported_again, note
from pixprep.importers.verify import verify
from pixprep.pipeline.differences import differences
from pixprep.pipeline.file import settings
from support.dali_graphs import CMN, DECODE, RESIZE, chain
from support.images import noise, png

SOURCES = {
    "preprocessor_config.json": json.dumps({"image_processor_type": "ViTImageProcessor"}),
    "config.json": json.dumps({"architecture": "resnet50", "pretrained_cfg": {"input_size": [3, 224, 224]}}),
    "transforms.json": json.dumps(
        {
            "__version__": "2.0.8",
            "transform": {
                "__class_fullname__": "Compose",
                "p": 1.0,
                "transforms": [
                    {"__class_fullname__": "Resize", "p": 1.0, "height": 32, "width": 40, "interpolation": 1},
                    {"__class_fullname__": "ToFloat", "p": 1.0, "max_value": 255.0},
                    {"__class_fullname__": "ToTensorV2", "p": 1.0},
                ],
            },
        }
    ),
    "model.dali": chain(DECODE, RESIZE, CMN),
}
"""One source file for each library whose files can be read without the library."""
NAMES = {"keras:mobilenet_v2": {"size": 96}, "ultralytics:detect": {"imgsz": 64}, "ultralytics:classify": {"imgsz": 64}}
"""Sources that are given by name, with their options."""
OTHER_VALUES = (
    *(True, False, 0, 1, 2, 7, 0.5, 1.01, [0.1, 0.2, 0.3], [3, 2, 1], "x", "training", "serving"),
    *("bgr", "gray", "fast", "white", "bicubic", "lanczos", "nearest", "box", "pillow", "pillow12", "torchvision"),
    *("opencv", "torch", "longer", "half_away", "half_even", "down", "up", "hwc", "cwh", "float16", "uint8"),
    *("float64", "divide", "multiply", "fused", "top_left", "edge"),
)
"""Replacement values, each of which is valid in some field of some op."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, content in SOURCES.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(pipeline):
    return json.loads(pipeline.to_json())


def changes(file):
    """Yield files with one mistake each, and the message that must name the mistake."""
    for index, op in enumerate(pp.Pipeline.from_json(json.dumps(file)).ops):
        without = file | {"ops": [*file["ops"][:index], *file["ops"][index + 1 :]]}
        yield without, f'"op": "{file["ops"][index]["op"]}"'
        more = {"op": "flip"} if index < len(file["ops"]) - 1 else {"op": "original_size", "name": "more"}
        yield (
            file | {"ops": [*file["ops"][: index + 1], more, *file["ops"][index + 1 :]]},
            f'"{more["op"]}": the source does not have',
        )
        for field in [each.encode_name for each in msgspec.structs.fields(type(op))]:
            for value in OTHER_VALUES:
                if settings(op).get(field) != value:
                    other = file["ops"][index] | {field: value}
                    yield file | {"ops": [*file["ops"][:index], other, *file["ops"][index + 1 :]]}, f": {field} is "


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("source", [*SOURCES, *NAMES])
def test_every_op_and_field_that_differs_from_the_source_is_named(source):
    imported = import_pipeline(source, **NAMES.get(source, {}))
    again, _ = imported_again(pp.Pipeline.from_json(imported.to_json()))
    assert differences(pp.Pipeline.from_json(imported.to_json()), again) == ()
    seen = set()
    for file, words in changes(document(imported)):
        try:
            pipeline = pp.Pipeline.from_json(json.dumps(file))
        except pp.PipelineError:  # the field does not accept this value
            continue
        if pipeline.ops == imported.ops:  # the change had no effect: an explicit default, or 1 instead of True
            continue
        found = differences(pipeline, again)
        assert any(words in each for each in found), (words, file["ops"], found)
        seen.add(words)
    assert {": color is ", ": dtype is ", ": layout is ", ": idct is ", ": chroma is ", ": alpha is "} <= seen
    assert {": apply_exif_orientation is ", '"op": "decode"'} & seen


def test_a_pipeline_is_exact_only_if_its_source_was_compared(folder):
    imported = import_pipeline("preprocessor_config.json")
    some = {"images": [("noise", png(noise(40, 50)))], "generate": False}
    assert verify(imported, **some).summary.startswith("exact: every op and every field of preprocessor_config.json; ")
    (resize,) = (index for index, op in enumerate(imported.ops) if isinstance(op, pp.resize))
    ops = [*imported.ops]
    ops[resize] = pp.resize(height=224, width=224, like="torchvision", filter="bicubic")
    ops.insert(resize + 1, pp.flip())
    found = verify(pp.Pipeline(ops, origin=imported.origin), **some)
    assert (found.holds, found.is_exact) == (True, False)
    assert found.differences == (
        'ops[1] "resize": filter is "bicubic", but "bilinear" in the source',
        'ops[2] "flip": the source does not have this op here',
    )
    assert found.summary == (f"differs from its source preprocessor_config.json: {found.differences[0]}, and 1 more")
    reduced = verify(
        pp.Pipeline([pp.decode(reduced=True), pp.resize(9), pp.center_crop(9), pp.tensor()]), **some, source=imported
    )
    assert "only the ops and their fields were compared" in str(reduced)
    assert "reduced is true, but false in the source" in str(reduced)
    (folder / "preprocessor_config.json").unlink()
    left = verify(imported, **some)
    assert (left.holds, left.is_exact) == (True, False)
    assert (
        left.uncompared
        == "the transformers source preprocessor_config.json was not found next to the pipeline: pass its path with "
        "--source"
    )
    assert left.summary.startswith("not compared with its source, so not exact; op by op the pixels of ")
    own = verify(pp.Pipeline(imported.ops), **some)
    assert own.is_exact
    assert own.summary.startswith("exact, op by op: ")
    text = "the ops and their fields were not compared with a source: the pipeline does not record a source: "
    assert f"{text}pass the source with --source" in str(own)


def test_a_source_is_found_next_to_the_file_above_it_or_at_a_given_path(folder):
    (folder / "model" / "1").mkdir(parents=True)
    imported = import_pipeline("config.json")
    assert imported.origin.source == "config.json"
    for place in (folder, folder / "model"):
        assert imported_again(imported, folder=place)[0] == imported
    assert imported_again(imported, source=folder / "config.json", folder=folder / "model" / "1")[1].endswith(
        "config.json"
    )
    with pytest.raises(NoSourceError, match=r"^the timm source config\.json was not found next to the pipeline"):
        imported_again(imported, folder=folder / "model" / "1")
    vit = import_pipeline(str(folder))
    (folder / "model" / "1" / "preprocessor_config.json").write_text(SOURCES["preprocessor_config.json"])
    assert imported_again(vit, folder=folder / "model" / "1")[0].ops == vit.ops
    mapping = json.loads(SOURCES["config.json"]) | {"architecture": "resnet18"}
    assert imported_again(imported, source=mapping)[0].ops == imported.ops
    with pytest.raises(NoSourceError, match=r"^the source cannot be imported again: none\.json: "):
        imported_again(imported, source="none.json")


def test_options_are_recorded_and_used_again(folder):
    imported = import_pipeline("preprocessor_config.json", backend="pil", apply_exif_orientation=False)
    assert imported.origin.options == ("backend=pil", "apply_exif_orientation=false")
    again = pp.Pipeline.from_json(imported.to_json())
    assert imported_again(again)[0] == imported
    other, _ = imported_again(again, options={"backend": "torchvision"})
    assert any("like is" in each for each in differences(imported, other))
    trained = import_pipeline("config.json", training={"hflip": 0.25}, reprob=0.5)
    assert imported_again(pp.Pipeline.from_json(trained.to_json()))[0] == trained
    ops = [op for op in trained.ops if not (isinstance(op, pp.random_flip))]
    assert any("random_flip" in each for each in differences(pp.Pipeline(ops), trained))
    (folder / "arguments.json").write_text('{"hflip": 0.25}')
    trained = import_pipeline("config.json", training=str(folder / "arguments.json"))
    assert trained.origin.options == ("training=arguments.json",)
    assert imported_again(trained, folder=folder)[0] == trained


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (
            {"library": "torchvision", "name": "t.py:serve"},
            r"^t\.py:serve is Python code, which runs only if you pass it with --source",
        ),
        ({"library": "dali", "name": "x", "source": "dali.py"}, r"^dali\.py is Python code"),
        (
            {"library": "timm", "name": "x", "options": ("training=t.py:train",)},
            r"^the file t\.py:train with the training transforms was not found",
        ),
        ({"library": "timm", "name": "x", "options": ("training=t.py",)}, r"t\.py is Python code"),
        (
            {"library": "timm", "name": "x", "options": ("training=/etc/x.json",)},
            r"^the file /etc/x\.json with the training transforms was not found",
        ),
        ({"library": "transformers", "name": "../x"}, r"^the transformers source \.\./x was not found next to"),
        ({"library": "keras", "name": "/etc/x.keras"}, r"^the keras source /etc/x\.keras was not found next to"),
        ({"library": "own", "name": "x"}, r"^the own source x was not found next to"),
    ],
)
def test_an_untrusted_file_cannot_name_code_or_a_path(folder, origin, message):
    (folder / "preprocessor_config.json").unlink()
    (folder / "t.py").write_text("raise SystemExit('run')")
    (folder / "dali.py").write_text("raise SystemExit('run')")
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(8), pp.tensor()])
    pipeline = pipeline.with_origin(pp.Origin(**{"version": "1", "profile": "pillow"} | origin))
    with pytest.raises(NoSourceError, match=message):
        imported_again(pipeline, folder=folder)


@pytest.mark.parametrize(
    ("source", "option", "message"),
    [
        (
            "keras:resnet50",
            "source=x",
            'unknown option "source" for the keras importer; available options: ',
        ),
        (
            "config.json",
            "config=x",
            'unknown option "config" for the timm importer; available options: ',
        ),
        ("config.json", "source=x", "options of train.py and create_transform: \"source\": 'x' is not supported"),
        (
            "config.json",
            "training=1",
            "training: must be an object with arguments of create_transform, or a JSON file with such an object",
        ),
        ("model.dali", "dtypes=[1]", "model.dali: dtypes must map the names of inputs to dtypes, such as "),
        *(
            ("transforms.json", f"apply_exif_orientation={value}", 'transforms.json: ops[0] "decode": apply_exif_orien')
            for value in ('"\\ud800"', "NaN", "[" * 3000)
        ),
    ],
)
def test_an_unknown_importer_option_is_named_and_check_does_not_report_it(folder, source, option, message):
    imported = import_pipeline(source)
    pipeline = imported.with_origin(msgspec.structs.replace(imported.origin, options=(option,)))
    with pytest.raises(NoSourceError, match=re.escape(f"the source cannot be imported again: {message}")):
        imported_again(pipeline)
    pipeline.save(folder / "pipeline.json")
    assert note(folder / "pipeline.json") == ""
    name, _, value = option.partition("=")
    if value == "x":
        with pytest.raises(pp.PipelineError, match=re.escape(message)):
            import_pipeline(source, **{name: value})


@pytest.mark.parametrize("given", [{}, {"source": "preprocessor_config.json"}])
def test_a_certificate_and_a_note_name_the_options_of_the_import(folder, given):
    imported = import_pipeline("preprocessor_config.json")
    mistaken = pp.Pipeline([pp.decode(apply_exif_orientation=False), *imported.ops[1:]])
    origin = msgspec.structs.replace(imported.origin, options=("apply_exif_orientation=false",))
    mistaken.with_origin(origin).save(folder / "p.json")
    named = "preprocessor_config.json, as imported with apply_exif_orientation=false"
    found = verify(pp.load("p.json"), images=[("noise", png(noise(40, 50)))], generate=False, **given)
    assert found.summary.startswith(f"exact: every op and every field of {named}; the pixels of ")
    assert note(folder / "p.json") == f"is equal to its source {named}, op by op"
    other = imported_again(mistaken.with_origin(origin), **given, options={"backend": "pil", "frames": None})[1]
    assert other == f"{named}, backend=pil, frames=null"
    training = {"hflip": 0.25, "reprob": 0.125, "train_interpolation": "bicubic", "color_jitter": 0.5, "vflip": 0.5}
    long = import_pipeline("config.json", training=training)
    assert imported_again(long)[1] == f"config.json, as imported with {long.origin.options[0][:76]} ..."
    assert imported_again(imported, source=imported, options={"output": "x"})[1] == (
        "the given pipeline, as imported with output=x"
    )


def test_a_note_only_mentions_sources_next_to_the_file(folder):
    file = folder / "pipeline.json"
    import_pipeline("config.json").save(file)
    assert note(file) == "is equal to its source config.json, op by op"
    file.write_text(file.read_text().replace('"op": "tensor"', '"op": "tensor", "dtype": "float16"'))
    assert note(file) == (
        'differs from its source config.json: ops[4] "tensor": dtype is "float16", but "float32" in the source'
    )
    (folder / "config.json").unlink()
    assert note(file) == ""
    pp.presets.imagenet().save(file)
    assert note(file) == ""
