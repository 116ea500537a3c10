"""What the importer of torchvision says without torchvision; its transforms are tested in ``parity``."""

import sys

import pytest

from importing import refusal
from pixprep import SetupError
from pixprep.importers.torchvision import from_torchvision


def test_the_name_of_weights_needs_torchvision_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(SetupError, match=r'^"ResNet50_Weights.DEFAULT" is the name of w.*: pip install torchvision$'):
        from_torchvision("ResNet50_Weights.DEFAULT")


@pytest.mark.parametrize("thing", [None, [], len])
def test_what_is_not_a_transform_is_refused_by_its_class(thing):
    name = type(thing).__name__
    assert refusal(from_torchvision, thing) == f"transforms {name}: is a class of builtins, not of torchvision"


def test_another_input_is_refused():
    text = refusal(from_torchvision, None, input="numpy")
    assert text == "options: \"input\": 'numpy' must be one of pil, tensor"
