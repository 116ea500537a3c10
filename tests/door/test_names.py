"""Tests of the error messages for mistakes that users of torchvision, timm, Albumentations or a DataLoader make."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pixprep as pp
from pixprep import names
from pixprep.pipeline.ops import OPS
from support.images import jpeg, scene

PIPELINE = pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()])
SAMPLE = {"image": jpeg(scene(9, 9))}
KIND = "keyword-only " * (sys.version_info >= (3, 12))  # wording of Python's own message, which depends on its version


def loader(source=(SAMPLE,) * 4, pipeline=PIPELINE, **options):
    return pp.Loader([*source], pipeline, **{"batch_size": 2, "shard": (0, 1), **options})


def first(source, **options):
    with loader(source, **options) as made:
        return next(iter(made))


MISTAKES = [
    # Wrong names.
    (lambda: pp.__wrapped__, "module 'pixprep' has no attribute '__wrapped__'"),
    (lambda: pp.Compose([]), "module 'pixprep' has no attribute 'Compose'; did you mean 'Pipeline'?"),
    (lambda: pp.DataLoader, "module 'pixprep' has no attribute 'DataLoader'; did you mean 'Loader'?"),
    (lambda: pp.HorizontalFlip, "module 'pixprep' has no attribute 'HorizontalFlip'; did you mean 'random_flip'?"),
    (lambda: pp.random_vertical_flip, 'random_vertical_flip\'; did you mean random_flip(axis="vertical")?'),
    (lambda: pp.CoarseDropout, "'CoarseDropout'; did you mean 'random_erasing'?"),
    (lambda: pp.RandomBrightnessContrast, "'RandomBrightnessContrast'; did you mean 'color_jitter'?"),
    (lambda: pp.LongestMaxSize, "'LongestMaxSize'; did you mean resize(..., side=\"longer\")?"),
    (lambda: pp.CutMix, "'CutMix'; did you mean Mix, an argument of the Loader?"),
    (lambda: pp.BboxParams, "'BboxParams'; did you mean 'boxes'?"),
    (lambda: pp.ToDtype, "'ToDtype'; did you mean 'tensor'?"),
    (lambda: pp.RandomResizedCrop, "'RandomResizedCrop'; did you mean 'random_resized_crop'?"),
    (lambda: pp.normalise, "'normalise'; did you mean 'normalize'?"),
    (
        lambda: pp.Transpose,
        "'Transpose'; pixprep does not include it, but a custom operator can implement it: see docs/own-operators.md",
    ),
    (lambda: pp.read.ImageFolder, "module 'pixprep.read' has no attribute 'ImageFolder'; did you mean 'files'?"),
    (lambda: pp.read.csv, "'csv'; did you mean 'table'?"),
    # Wrong fields.
    (lambda: pp.resize(8, interpolation="bicubic"), 'resize: no such field "interpolation"; did you mean "filter"?'),
    (lambda: pp.random_crop(size=8), 'random_crop: no such field "size"; did you mean "height" and "width"?'),
    (lambda: pp.color_jitter(brightness_limit=1), 'no such field "brightness_limit"; did you mean "brightness"?'),
    (lambda: pp.boxes(min_visibility=0.1), 'boxes: no such field "min_visibility"; did you mean "min_visible"?'),
    (pp.gaussian_blur, 'gaussian_blur: the field "kernel_size" is missing'),
    # Wrong values.
    (
        lambda: pp.resize((8, 9)),
        "resize: size: expected an integer or a string, got a list: use height=8, width=9",
    ),
    (lambda: pp.Pipeline([pp.decode(), pp.resize(8, 9), pp.tensor()]), 'ops[1] "resize": side: expected a string'),
    (lambda: pp.resize(8, filter="cubic"), 'resize: filter: "cubic" is not supported; did you mean "bicubic"?'),
    (lambda: pp.resize(8, filter=3), "resize: filter: expected a string, got an integer"),
    (
        lambda: pp.random_resized_crop(8, scale=0.5),
        "scale: expected a list, got a number: use two numbers, such as [0.08",
    ),
    (lambda: pp.tensor(dtype="float"), 'tensor: dtype: "float" is not supported; did you mean "float32"?'),
    (
        lambda: pp.tensor(dtype=np.float32),
        "tensor: unsupported type of a value in dtype=<class 'numpy.float32'>: use numbers",
    ),
    # Wrong orders.
    (
        lambda: pp.Pipeline(pp.decode(), pp.tensor()),
        "Pipeline: too many positional arguments: pass the ops as one list",
    ),
    (lambda: pp.Loader(PIPELINE, [SAMPLE], batch_size=1), "source of samples, not a Pipeline: pass the source first"),
    (
        lambda: pp.apply(PIPELINE, np.zeros((9, 9, 3), np.uint8)),
        "apply accepts ops, not a Pipeline: run a Pipeline with an Engine",
    ),
    # Wrong options of the Loader.
    (
        lambda: pp.Loader([SAMPLE], PIPELINE, 4),
        "too many positional arguments: arguments after the pipeline are keyword-only",
    ),
    (
        lambda: pp.Loader([SAMPLE], PIPELINE),
        f"Loader: missing a required {KIND}argument: 'batch_size': write Loader(source, pipeline, batch_size=...)",
    ),
    (lambda: pp.Loader([SAMPLE], [pp.decode()], batch_size=1), "not list: use Pipeline([...])"),
    (
        lambda: loader(num_workers=4),
        'Loader: no argument "num_workers": the Loader uses threads instead of worker processes; set threads',
    ),
    (lambda: loader(drop_last=True), 'Loader: no argument "drop_last": use last="drop", "short" or "pad"'),
    (lambda: loader(sampler=None), 'no argument "sampler": use weights, shares, repeats or group_by, or'),
    (lambda: loader(batchsize=4), 'Loader: no argument "batchsize": use batch_size'),
    (
        lambda: loader(collate_fn=None),
        'no argument "collate_fn": batches are already collated; select their contents with loader.torch',
    ),
    (lambda: loader(device="mps"), 'unknown device "mps": use "cpu", "gpu"'),
    (lambda: pp.Mix(num_classes=2), 'Mix: no argument "num_classes": use classes'),
    (lambda: pp.Mosaic(p=0.5), f"Mosaic: missing a required {KIND}argument: 'height': write Mosaic(height=...)"),
    (lambda: pp.Mosaic(640), "Mosaic: too many positional arguments: pass all arguments by name, such as p=0.5"),
    (lambda: pp.Mosaic(imgsz=640), 'Mosaic: no argument "imgsz": use height and width'),
    (lambda: pp.MixUp(prob=0.5), 'MixUp: no argument "prob": use p'),
    (lambda: pp.CopyPaste(probability=0.5), 'CopyPaste: no argument "probability": the arguments are p, recent'),
    (pp.Engine, "Engine: missing a required argument: 'pipeline': write Engine(pipeline)"),
    (lambda: pp.Engine(PIPELINE, 4), "arguments after the pipeline are keyword-only: write threads=4"),
    (lambda: pp.Engine(PIPELINE, num_threads=4), 'Engine: no argument "num_threads": use threads'),
    (lambda: pp.Chain([], close_mosaic=10), 'Chain: no argument "close_mosaic": use until, the number of all epochs'),
    # Wrong sources and samples.
    (lambda: pp.read.files("trian"), "trian: no such folder"),
    (lambda: pp.read.tar(str(Path(__file__).parent)), "door: is a folder: use a pattern such as "),
    (
        lambda: pp.Loader("train", PIPELINE, batch_size=1),
        "source must not be a path or a single image: use pixprep.read.files to read 'train'",
    ),
    (lambda: first([{"img": b""}]), 'sample 0 has no field "image"; its fields are: img'),
    (lambda: first([(b"", 1)]), 'samples must be dicts with an "image", not tuple: pixprep.read.rows(rows, image=0'),
    (
        lambda: first([SAMPLE])["label"],
        'the batch does not contain "label"; it contains tensor, index, attempt, is_padding',
    ),
    (lambda: first([SAMPLE] * 2, mix=pp.Mix(2, 1.0)), 'Mix: "label" of each sample must be an integer from 0 to 1'),
]


@pytest.mark.parametrize(("write", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_a_mistake_is_reported_with_its_position_and_the_fix(write, said):
    with pytest.raises((pp.PixprepError, TypeError, AttributeError, KeyError)) as caught:
        write()
    assert said in str(caught.value.args[0])


NEAR = {
    "rezise": "resize",
    "reszie": "resize",
    "resizing": "resize",
    "normalise": "normalize",
    "normalise_image": "normalize",
    "center_corp": "center_crop",
    "CentreCrop": "center_crop",
    "centercrop": "center_crop",
    "resized_crop": "random_resized_crop",
    "random_resize_crop": "random_resized_crop",
    "random_erase": "random_erasing",
    "random_rotation": "random_rotate",
    "sharpen": "sharpen",
    "hflip": "flip",
    "gausian_blur": "gaussian_blur",
    "letter_box": "letterbox",
    "colour_jiter": "color_jitter",
    "decode_jpeg": "decode",
    "tenosr": "tensor",
    "random_scale": "scale_jitter",
    "RandomContrast": "color_jitter",
    "Transpose": names.OWN,
}
FAR = """random_rain random_gamma random_jpeg random_width random_mirror
extract rescale cast lens_distortion ringing transposed random_fog"""


def test_a_name_is_similar_if_each_of_its_words_is():
    assert {word: names.meant(word, OPS, names.OPS) for word in NEAR} == NEAR
    assert {word: names.meant(word, OPS, names.OPS) for word in FAR.split()} == dict.fromkeys(FAR.split(), "")
    # these words are handled by the general rule, without the table
    for word in ("random_scale", "random_rain", "transpose"):
        assert names.meant(word, OPS) == ""
    with pytest.raises(pp.PipelineError, match=r'"random_rain": no such op; docs/operators.md lists the '):
        pp.Pipeline.from_json('{"format": "pixprep/1", "ops": [{"op": "decode"}, {"op": "random_rain"}]}')


def test_suggested_names_exist():
    for ours in names.OPS.values():
        for word in re.findall(r"^\w+|(?<= or )\w+", ours if ours != names.OWN else ""):
            assert hasattr(pp, word), ours
    fields = {field for cls in OPS.values() for field in cls.__struct_fields__}
    assert {field for ours in names.FIELDS.values() for field in ours} <= fields
    assert {*names.SOURCES.values()} <= {*pp.read.__all__}
