"""Transforms of other libraries, in the notation of the tables in `tests/importers`."""

import pytest

from pixprep.importers.albumentations import from_albumentations
from pixprep.importers.dali import from_dali
from pixprep.importers.keras import from_keras
from pixprep.importers.timm import from_timm
from pixprep.importers.ultralytics import from_ultralytics
from support import torchvision_objects
from support.dali_graphs import CMN, DECODE, FLOAT16, UINT8, asked, chain, mapped
from support.dali_graphs import RESIZE as RESIZED
from support.keras_models import HEAD, augmenting, inputs, layer, resizing, sequential
from support.refusals import PUBLIC

BOXES = {"format": "yolo", "label_fields": ["labels"], "min_area": 25.0, "min_visibility": 0.25}
BOXES |= {"min_width": 2, "min_height": 2}
WARPED = {"interpolation": 1, "border_mode": 0, "fill": 7.0, "fill_mask": 0.0, "mask_interpolation": 0}


def transform(name, **fields):
    """Return the configuration of a transform as Albumentations saves it."""
    return {"__class_fullname__": name, "p": 1.0, **fields}


def compose(*transforms, version="2.0.8", **fields):
    """Return a configuration as returned by ``A.to_dict``."""
    return {"__version__": version, "transform": transform("Compose", transforms=list(transforms), **fields)}


def imported(*transforms, side="source", **fields):
    """Return the imported ops between ``decode`` and ``tensor``."""
    return list(from_albumentations(**{side: compose(*transforms, **fields)}).ops[1:-1])


def drawn(*transforms):
    """Return the imported training ops that precede the padding and the crop. Assert that the same transforms are
    rejected for serving.
    """
    chain = compose(*transforms, transform("PadIfNeeded", **PAD), transform("CenterCrop", **CROP))
    with pytest.raises(PUBLIC["PipelineError"], match="is random, which is not supported for serving"):
        from_albumentations(chain)
    pipeline = from_albumentations(training=chain)
    assert pipeline.sides == ("training",)
    return list(pipeline.ops[1:-3])


def numbers_of_a_request(*steps, **options):
    """Return the imported ops between ``decode`` and ``tensor`` of a graph with three inputs: the photo, X and Y."""
    pipeline = asked(*steps, **options)
    assert pipeline.ops[0] == PUBLIC["decode"]()
    assert set(pipeline.inputs) <= {"X", "Y"}
    return list(pipeline.ops[1:-1])


PAD = {"min_height": 8, "min_width": 9, "position": "center", "border_mode": 0, "fill": 114.0}
CROP = {"height": 8, "width": 9}
RESIZE = CROP | {"interpolation": 1}
NORMALIZE = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "max_pixel_value": 255.0}
TIMM = {
    "url": "",
    "hf_hub_id": "timm/some.thing",
    "input_size": [3, 224, 224],
    "test_input_size": [3, 288, 288],
    "test_crop_pct": 1.0,
    "interpolation": "bicubic",
    "crop_pct": 0.95,
    "crop_mode": "center",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "fixed_input_size": False,
    "num_classes": 1000,
    "pool_size": None,
    "classifier": "fc",
}
ULTRALYTICS = {"version": "8.3.40", "task": "detect", "imgsz": [640, 480], "channels": 3}
ULTRALYTICS |= dict.fromkeys(("description", "author", "date", "license", "docs", "args"), "some text")
ULTRALYTICS |= {"stride": 32, "batch": 1, "end2end": False, "names": {0: "person", 1: "bicycle"}}
NAMES = torchvision_objects.NAMES | {
    "t": transform,
    "a": imported,
    "drawn": drawn,
    "compose": compose,
    "from_albumentations": from_albumentations,
    "RESIZE": RESIZE,
    "PAD": PAD,
    "CROP": CROP,
    "NORMALIZE": NORMALIZE,
    "BOXES": BOXES,
    "WARPED": WARPED,
    "ROTATE": WARPED | {"limit": [0, 9]},
    "LONGEST": transform("LongestMaxSize", max_size=[8], interpolation=0),
    "d": lambda *steps: list(from_dali(chain(DECODE, *steps)).ops[1:]),
    "clip": lambda *steps: list(from_dali(chain(*steps)).ops),
    "asked": numbers_of_a_request,
    "matrix": lambda *transforms: from_dali(mapped(*transforms)).ops[2].matrix,
    "RESIZED": RESIZED,
    "CMN": CMN,
    "FIT": ("Resize", {"size": [40.0, 50.0], "mode": "not_larger"}),
    "UINT8": UINT8,
    "INT32": 6,
    "FLOAT16": FLOAT16,
    "CROPPED": {"crop": [8.0, 9.0]},
    "AT": {"crop_pos_x": "X", "crop_pos_y": "Y"},
    "SIZED": (*RESIZED, {}),
    "VIDEO": ("decoders__Video", {"sequence_length": 8}),
    "keras": lambda source, **options: list(from_keras(source, **options).ops),
    "layer": layer,
    "inputs": inputs,
    "resizing": resizing,
    "sequential": sequential,
    "HEAD": HEAD,
    "augmenting": augmenting,
    "timm": lambda changes=(), **options: list(from_timm(TIMM | dict(changes), **options).ops[:-1]),
    "timm_trains": lambda **training: list(from_timm(TIMM, training=training).for_training().side_ops[1:-1]),
    "ultralytics": lambda changes: from_ultralytics(ULTRALYTICS | changes),
    "SCALE": ("Scale", [], "s", {"scale": [2.0, 3.0], "center": [10.0, 20.0]}),
}
"""Names that test cases may use besides the public ones: torchvision, Albumentations, DALI, Keras, timm,
Ultralytics."""
