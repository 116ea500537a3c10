"""Tests the importer for torchvision without torchvision. The tests in ``parity`` cover its transforms."""

import sys

import pytest

import pixprep as pp
from pixprep import SetupError
from pixprep.importers.torchvision import from_torchvision
from support.importing import refusal
from support.torchvision_objects import TO_IMAGE, compose, transform, v2


def test_the_name_of_weights_without_torchvision_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(
        SetupError, match=r'"ResNet50_Weights.DEFAULT" is the name of weights, which requires torchvision'
    ):
        from_torchvision("ResNet50_Weights.DEFAULT")


@pytest.mark.parametrize("thing", [None, [], len])
def test_an_object_that_is_not_a_transform_is_rejected_by_its_class(thing):
    name = type(thing).__name__
    assert (
        refusal(from_torchvision, thing) == f"transforms {name}: this class is defined in builtins, not in torchvision"
    )


def test_a_different_input_is_rejected():
    text = refusal(from_torchvision, None, input="numpy")
    assert text == "options: \"input\": 'numpy' must be one of pil, tensor"


@pytest.mark.parametrize("given", ["pil", "tensor"])
def test_training_only_transforms_become_training_ops(given):
    pipeline = from_torchvision(training=compose(v2.RandomResizedCrop(8), TO_IMAGE), input=given)
    assert pipeline.sides == ("training",)
    assert pipeline.ops[0] == pp.decode(apply_exif_orientation=False)
    profile = "pillow" if given == "pil" else "torchvision"
    assert (pipeline.origin.name, pipeline.origin.profile) == ("Compose", profile)


def test_transforms_are_taken_from_an_object_that_has_them():
    """The importer recognizes the class of torchvision's reference scripts by its name.

    An object of an unknown class may do more than apply its transforms.
    """
    chain = compose(v2.CenterCrop(8), TO_IMAGE)
    preset = transform("ClassificationPresetEval", module="presets", transforms=chain)
    assert from_torchvision(preset).ops == from_torchvision(chain).ops
    mine = transform("MyPreset", module="__main__", transforms=chain)
    text = (
        "transforms MyPreset: this class is defined in __main__, not in torchvision: if it only applies its "
        ".transforms, pass them instead"
    )
    assert refusal(from_torchvision, mine) == text
    preset.transforms = compose(transform("RandomHorizontalFlip", module="transforms"), TO_IMAGE)
    assert refusal(from_torchvision, training=preset) == (
        "training ClassificationPresetEval.transforms[0] RandomHorizontalFlip: this class is defined in transforms, "
        "not in torchvision: create the preset with use_v2=True"
    )
    preset.transforms = compose(v2.RandomChannels(), TO_IMAGE)
    assert refusal(from_torchvision, training=preset) == (
        "training ClassificationPresetEval.transforms[0] RandomChannels: this random transform is not supported"
    )


def test_a_file_that_does_not_run_reports_the_reason(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("1 / 0")
    with pytest.raises(pp.SetupError, match=r"train.py cannot be executed .ZeroDivisionError: division by zero.$"):
        from_torchvision(training=f"{path}:train")
