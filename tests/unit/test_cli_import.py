"""`pixprep import` and `pixprep verify`: from a definition of training to a file, and to a certificate."""

import json

import numpy as np
import pytest

import pixprep as pp
from images import photo
from pixprep.cli import main
from pixprep.importers import import_pipeline

VIT = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
TIMM = {
    "architecture": "resnet50",
    "pretrained_cfg": {
        "input_size": [3, 224, 224],
        "interpolation": "bicubic",
        "crop_pct": 0.95,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    },
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(VIT))
    (tmp_path / "config.json").write_text(json.dumps(TIMM))
    (tmp_path / "china.jpg").write_bytes(photo())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pixprep(folder, capsys):
    """Run one command in that folder: its exit code, stdout and stderr."""
    assert folder.is_dir()
    return lambda *arguments: (main(arguments), *capsys.readouterr())


@pytest.mark.parametrize(
    ("source", "line", "profile"),
    [
        ("vit", "vit of transformers, pixels as in torchvision", "torchvision"),
        ("vit/preprocessor_config.json", "vit of transformers, pixels as in torchvision", "torchvision"),
        ("transformers:vit", "vit of transformers, pixels as in torchvision", "torchvision"),
        ("config.json", "resnet50 of timm, pixels as in pillow", "pillow"),
        ("keras:resnet50", "resnet50 of keras, pixels as in pillow", "pillow"),
        ("ultralytics:classify", "classify of ultralytics, pixels as in pillow", "pillow"),
    ],
)
def test_a_definition_becomes_a_file_that_runs(folder, pixprep, source, line, profile):
    options = ("--option", "imgsz=224") if "ultra" in source else ()
    code, out, err = pixprep("import", source, "pipeline.json", *options)
    library = line.split()[2].rstrip(",")
    assert (code, err) == (0, "")
    assert out.startswith(f"pipeline.json: {line.split()[0]} of {library}")
    assert out.endswith(f"pixels as in {profile}\n")
    pipeline = pp.load("pipeline.json")
    assert (pipeline.source.library, pipeline.source.profile) == (library, profile)
    assert pipeline.to_json() == (folder / "pipeline.json").read_text()
    with pp.Engine(pipeline, threads=1) as engine:
        (tensor,) = engine.run([photo()])
    assert isinstance(tensor, np.ndarray), tensor


def test_options_reach_the_importer(pixprep):
    assert pixprep("import", "vit", "pil.json", "--option", "backend=pil")[0] == 0
    assert pp.load("pil.json").source.profile == "pillow"
    assert pixprep("import", "ultralytics:detect", "small.json", "--option", "imgsz=320")[0] == 0
    assert pp.load("small.json").outputs["tensor"].spec.shape == (3, 320, 320)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vit", "config.json"), "config.json: exists already; --force writes over it"),
        (
            ("nothing.json", "p.json"),
            "nothing.json: no such file, nor LIBRARY:NAME, such as timm:resnet50.a1_in1k; "
            "libraries are torchvision, timm, transformers, keras, ultralytics, dali",
        ),
        (
            ("china.jpg", "p.json"),
            "china.jpg: say whose it is: LIBRARY:china.jpg, with a library of "
            "torchvision, timm, transformers, keras, ultralytics, dali",
        ),
        (
            ("vit", "p.json", "--option", "backnd=pil"),
            'the importer of transformers has no option "backnd"; it has backend, apply_exif_orientation, name',
        ),
        (("vit", "no/folder/p.json"), "no/folder/p.json: cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_words(pixprep, arguments, message):
    assert pixprep("import", *arguments) == (1, "", f"pixprep: {message}\n")


def test_a_json_file_of_no_library_is_refused(folder, pixprep):
    for text in ("{}", "[1]", "not JSON", '{"class_name": "Model"}', "[" * 100_000):
        (folder / "what.json").write_text(text)
        code, _, err = pixprep("import", "what.json", "p.json")
        assert code == 1
        assert err.startswith("pixprep: what.json: not a preprocessor_config.json, a config.json of timm or a Keras")
    assert not (folder / "p.json").exists()


def test_a_field_that_is_not_understood_is_named_and_nothing_is_written(folder, pixprep):
    (folder / "vit" / "preprocessor_config.json").write_text(json.dumps(VIT | {"warp": 3}))
    code, out, err = pixprep("import", "vit", "p.json")
    assert (code, out) == (1, "")
    assert err == 'pixprep: preprocessor_config.json: "warp": 3 is not understood\n'
    assert not (folder / "p.json").exists()


def test_force_writes_over_a_file(pixprep):
    assert pixprep("import", "vit", "config.json", "--force")[0] == 0
    assert pp.load("config.json").source.name == "vit"


def test_a_pipeline_that_keeps_its_claim_is_certified(pixprep):
    pixprep("import", "config.json", "p.json")
    code, out, err = pixprep("verify", "p.json", "--images", "china.jpg")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == [
        *("output", "stage", "original", "images", "max", "mean"),
        *out.split()[6:9],
        "image",
    ]
    assert "\nexact: " in out
    code, out, _ = pixprep("verify", "p.json", "--json")
    assert code == 0
    assert json.loads(out)["is_exact"] is True


def test_a_pipeline_that_is_not_there_is_refused(pixprep):
    code, out, err = pixprep("verify", "missing.json")
    assert (code, out) == (1, "")
    assert err == "pixprep: missing.json: cannot be read: No such file or directory\n"


def test_the_python_function_is_what_the_command_calls(folder):
    assert import_pipeline(str(folder / "vit"), backend="pil").source.profile == "pillow"
    with pytest.raises(pp.PipelineError, match="no such file"):
        import_pipeline("C:nothing")
