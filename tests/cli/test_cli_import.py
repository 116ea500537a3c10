"""Tests of `pixprep import` and `pixprep verify`, which convert a training definition to a pipeline file and to a
certificate.
"""

import json

import numpy as np
import pytest

import pixprep as pp
from support import detectors
from support.images import photo

VIT = {"image_processor_type": "ViTImageProcessor"}
TIMM = {"architecture": "resnet50", "pretrained_cfg": {"input_size": [3, 224, 224]}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(VIT))
    (tmp_path / "config.json").write_text(json.dumps(TIMM))
    (tmp_path / "china.jpg").write_bytes(photo())
    return tmp_path


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("vit", ("vit", "transformers", "torchvision")),
        ("vit/preprocessor_config.json", ("vit", "transformers", "torchvision")),
        ("transformers:vit", ("vit", "transformers", "torchvision")),
        ("config.json", ("resnet50", "timm", "pillow")),
        ("keras:resnet50", ("resnet50", "keras", "pillow")),
        ("ultralytics:classify", ("classify", "ultralytics", "pillow")),
    ],
)
def test_a_definition_becomes_a_file_that_runs(folder, pixprep, source, origin):
    name, library, profile = origin
    options = ("--option", "imgsz=224") if library == "ultralytics" else ()
    code, out, err = pixprep("import", source, "pipeline.json", *options)
    assert code == 0
    assert err.startswith('preview of china.jpg, a photo that ships with pixprep:\n  "tensor": ')
    assert err.splitlines()[2:] == ["next  pixprep verify pipeline.json"]
    assert out.startswith(f"pipeline.json: {name} of {library}")
    assert out.endswith(f", pixels as in {profile}\n")
    pipeline = pp.load("pipeline.json")
    assert (pipeline.origin.library, pipeline.origin.profile) == (library, profile)
    assert pipeline.to_json() == (folder / "pipeline.json").read_text()
    with pp.Engine(pipeline, threads=1) as engine:
        (tensor,) = engine.run([photo()])
    assert isinstance(tensor, np.ndarray), tensor


@pytest.mark.parametrize("name", ["VitPoseImageProcessor", "Qwen2VLImageProcessor", "Owlv2ImageProcessorPil"])
def test_a_pipeline_that_cannot_be_verified_is_explained_next(folder, pixprep, name):
    fields = {"image_processor_type": name}
    (folder / "own.json").write_text(json.dumps(fields))
    options = ("--option", "backend=pil") if name.endswith("Pil") else ()
    code, _, err = pixprep("import", "transformers:own.json", "own_pipeline.json", *options)
    assert code == 0
    assert err.splitlines()[-1] == "next  pixprep explain own_pipeline.json"
    code, _, err = pixprep("verify", "own_pipeline.json")
    assert code != 0
    assert "cannot be verified" in err


def test_options_are_passed_to_the_importer_and_force_overwrites_a_file(pixprep):
    assert pixprep("import", "vit", "pil.json", "--option", "backend=pil")[0] == 0
    assert pp.load("pil.json").origin.profile == "pillow"
    assert pixprep("import", "vit", "pil.json", "--force")[0] == 0
    assert pp.load("pil.json").origin.profile == "torchvision"
    assert pixprep("import", "ultralytics:detect", "small.json", "--option", "imgsz=320")[0] == 0
    assert pp.load("small.json").outputs["tensor"].spec.shape == (3, 320, 320)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "the library of what.json cannot be recognized: write LIBRARY:what.json, where LIBRARY is one of "),
        ("[1]", "what.json: must be a JSON object"),
        ("not JSON", "what.json: is not JSON"),
        (json.dumps(VIT | {"warp": 3}), 'what.json: "warp": 3 is not supported'),
        ('{"class_name": "Model"}', 'what.json: "class_name": "Model" must be "Sequential" or "Functional"'),
    ],
)
def test_an_unsupported_json_file_is_rejected_and_nothing_is_written(folder, pixprep, text, message):
    (folder / "what.json").write_text(text)
    code, _, err = pixprep("import", "what.json", "p.json")
    assert code == 1
    assert err.startswith(f"pixprep: {message}")
    assert not (folder / "p.json").exists()


def test_a_package_that_prepares_images_itself_is_named(folder, pixprep):
    (folder / "finder").mkdir()
    (folder / "finder" / "__init__.py").write_text("blob = cv2.dnn.blobFromImage(image, swapRB=True)")
    detectors.save(folder / "finder" / "model.onnx")
    code, _, err = pixprep("import", "finder/model.onnx", "found.json")
    assert code == 0
    assert err.splitlines()[0] == (
        "model.onnx: the pipeline contains Ultralytics' preprocessing only; __init__.py in the same package reorders "
        "channels "
        "(swapRB), resizes (blobFromImage) (docs/detection.md)"
    )


@pytest.mark.usefixtures("few_images")
def test_an_exact_pipeline_is_certified(pixprep, folder):
    pixprep("import", "config.json", "p.json")
    options = ("--source", "config.json", "--option", "use_test_size=true")
    code, out, err = pixprep("verify", "p.json", "--images", "china.jpg", "--json", "--output", "worst.png", *options)
    assert (code, err) == (0, "worst.png: not written, because no image differs\n")
    assert not (folder / "worst.png").exists()
    assert json.loads(out)["is_exact"] is True
    named = "config.json, as imported with use_test_size=true"
    assert json.loads(out)["summary"].startswith(f"exact: every op and every field of {named}; the pixels of ")
    assert pixprep("check", "p.json", *options)[1].endswith(f"p.json: is equal to its source {named}, op by op\n")


@pytest.mark.usefixtures("few_images")
def test_verify_and_check_name_differences_from_the_source(pixprep, folder):
    pixprep("import", "config.json", "p.json")
    assert pixprep("check", "p.json")[1].endswith("p.json: is equal to its source config.json, op by op\n")
    (folder / "p.json").write_text((folder / "p.json").read_text().replace("0.485", "0.458"))
    named = 'ops[3] "normalize": mean is [0.458, 0.456, 0.406], but [0.485, 0.456, 0.406] in the source'
    code, out, _ = pixprep("verify", "p.json")
    assert out.startswith("output  stage ")
    assert (code, out.splitlines()[-1]) == (1, f"differs from its source config.json: {named}")
    code, out, _ = pixprep("check", "p.json")
    assert (code, out.splitlines()[-1]) == (0, f"p.json: differs from its source config.json: {named}")
    code, out, _ = pixprep("check", "p.json", "--source", "config.json")
    assert (code, out) == (1, f"p.json: differs from config.json: {named}\n")
    code, out, _ = pixprep("check", "p.json", "--source", "config.json", "--option", "hflip=0.1", "--json")
    assert (code, len(json.loads(out)) > 1) == (1, True)
    assert "differs from config.json, as imported with hflip=0.1: " in json.loads(out)[0]["what"]
    refused = pixprep("check", ".", "--source", "config.json")[2]
    assert refused == "pixprep: --source requires a pipeline file, and . is a folder\n"
    (folder / "config.json").unlink()
    code, out, _ = pixprep("verify", "p.json")
    assert code == 1
    assert (
        "the ops and their fields were not compared with a source: the timm source config.json was not found "
        "next to the pipeline" in out
    )
