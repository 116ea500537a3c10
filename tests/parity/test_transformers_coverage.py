"""Counts the image processors of the installed transformers whose default configuration is imported and equals the
class bit for bit, and the model types that use these processors.
"""

from collections import defaultdict
from importlib.util import find_spec

import numpy as np
import pytest

from pixprep import Engine, PipelineError
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.classes import PAIRS, WITHOUT_TORCHVISION
from support.images import png, read, scene
from support.importing import photos
from support.processors import COLORS, LEFT_OUT, inputs_for, outputs_of, without_ties

if find_spec("transformers") is None or find_spec("torchvision") is None:
    pytest.skip("NO TRANSFORMERS: its classes were not counted", allow_module_level=True)

import transformers
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

TIMM = {"input_size": [3, 96, 96], "interpolation": "bicubic", "crop_pct": 0.9, "architecture": "resnet18"}
FIELDS = {
    "ImageGPTImageProcessor": {"clusters": COLORS},
    "TimmWrapperImageProcessor": {"pretrained_cfg": TIMM, "architecture": "resnet18"},
}
"""Arguments of classes that cannot be used without arguments."""


def model_types():
    """Return a mapping from each class name, without its backend suffix, to the model types that use the class."""
    found = defaultdict(set)
    for model_type, names in IMAGE_PROCESSOR_MAPPING_NAMES.items():
        for name in names.values() if isinstance(names, dict) else [names]:
            if name:
                found[name.removesuffix("Fast").removesuffix("Pil")].add(model_type)
    return found


def first_difference(name):
    """Return the name of the first output that is missing or differs from that of the class, or an empty string.

    Raises:
        PipelineError: The class or its default configuration is not supported.
    """
    fields = FIELDS.get(name, {})
    backend, suffix = ("pil", "Pil") if name in WITHOUT_TORCHVISION else ("torchvision", "")
    pipeline = from_transformers({"image_processor_type": name, **fields}, backend=backend)
    own = getattr(transformers, name + suffix)(**fields)
    encoded = [*photos()[:2], png(scene(301, 259))]
    with Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch(encoded, inputs=inputs_for(pipeline, len(encoded)))
    for index, image in enumerate(encoded):
        photo = read(image).convert("RGB")
        images = [photo, photo] if name in PAIRS else photo
        is_timm = name == "TimmWrapperImageProcessor"
        expected = own(images, return_tensors="pt") if is_timm else outputs_of(own, images)
        expected = {"pixel_values": expected} if isinstance(expected, np.ndarray) else expected
        given = {"pixel_values" if output == "tensor" else output: rows for output, rows in batch.outputs.items()}
        if missing := {*expected} - {*given} - LEFT_OUT.get(name, set()):
            return f"{name}: {missing} is missing"
        for key, values in given.items():
            ours = np.asarray(values[index])
            if key not in expected and not ours.size:  # an image without tiles
                continue
            theirs = np.asarray(expected[key])
            theirs = theirs[:, 0] if name in PAIRS else theirs
            while theirs.ndim > ours.ndim and len(theirs) == 1:
                theirs = theirs[0]
            theirs = without_ties(own, photo, ours, theirs)
            if ours.dtype != theirs.dtype or not np.array_equal(ours.reshape(theirs.shape), theirs):
                return f"{name}: {key}"
    return ""


def test_the_classes_and_model_types_that_are_equal_are_counted(capsys):
    types, equal, refused, wrong = model_types(), [], [], []
    for name in types:
        try:
            difference = first_difference(name)
        except PipelineError:
            refused.append(name)
            continue
        (wrong if difference else equal).append(difference or name)
    covered = {model_type for name in equal for model_type in types[name]}
    every = set().union(*types.values())
    with capsys.disabled():
        print(
            f"\ntransformers {transformers.__version__}: {len(equal)} of {len(types)} classes are equal, "
            f"{len(covered)} of {len(every)} model types; refused: {', '.join(sorted(refused))}"
        )
    assert wrong == []
    assert len(equal) >= 128
    assert len(covered) >= 213
