"""What the importer of torchvision says without torchvision; its transforms are tested in ``parity``."""

import sys

import pytest

from pixprep import PipelineError, SetupError
from pixprep.importers.torchvision import from_torchvision, load


def test_the_name_of_weights_needs_torchvision_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(
        SetupError, match=r'^"ResNet50_Weights.DEFAULT" is the name of weights.*: pip install torchvision$'
    ):
        load("ResNet50_Weights.DEFAULT")


@pytest.mark.parametrize(
    ("thing", "cls", "package"),
    [
        (None, "NoneType", "builtins"),
        ([], "list", "builtins"),
        ("resize", "str", "builtins"),
        (len, "builtin_function_or_method", "builtins"),
    ],
)
def test_what_is_not_a_transform_is_refused_by_its_class(thing, cls, package):
    with pytest.raises(PipelineError, match=f"^transforms {cls}: is a class of {package}, not of torchvision$"):
        from_torchvision(thing)


def test_another_input_is_refused():
    with pytest.raises(PipelineError, match=r'^input: must be "pil" or "tensor", not \'numpy\'$'):
        from_torchvision(None, input="numpy")
