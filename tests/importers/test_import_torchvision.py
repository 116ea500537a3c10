"""The importer of torchvision without torchvision; its transforms are tested in ``parity``."""

import sys

import numpy as np
import pytest

import pixprep as pp
from pixprep import SetupError
from pixprep.importers.torchvision import from_torchvision
from support.importing import refusal


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


def transform(name, *, module="torchvision.transforms.v2._x", **fields):
    """An object as torchvision has it, as far as the importer looks."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(fields)
    return made


CROPPED = {
    "size": (8, 8),
    "scale": (0.08, 1.0),
    "ratio": (3 / 4, 4 / 3),
    "interpolation": "bilinear",
    "antialias": True,
}
TO_IMAGE, TO_FLOAT = transform("ToImage"), transform("ToDtype", dtype="torch.float32", scale=True)


def compose(*parts):
    return transform("Compose", transforms=list(parts))


@pytest.mark.parametrize("given", ["pil", "tensor"])
def test_transforms_of_training_become_the_training_side(given):
    like = "pillow" if given == "pil" else "torchvision"
    train = compose(
        transform("RandomResizedCrop", **CROPPED),
        transform("RandomHorizontalFlip", p=0.5),
        transform("ColorJitter", brightness=(0.6, 1.4), contrast=None, saturation=None, hue=(-0.1, 0.1)),
        TO_IMAGE,
        TO_FLOAT,
    )
    pipeline = from_torchvision(training=train, input=given)
    assert pipeline.sides == ("training",)
    assert list(pipeline.ops) == [
        pp.decode(apply_exif_orientation=False),
        pp.random_resized_crop(8, like=like),
        pp.random_flip(),
        pp.color_jitter((0.6, 1.4), hue=(-0.1, 0.1), like=like),
        pp.normalize(arithmetic="multiply"),
        pp.tensor(only="training"),
    ]
    assert (pipeline.origin.name, pipeline.origin.profile) == ("Compose", like)


def test_an_object_that_has_transforms_is_asked_for_them():
    """One of the references is known by its name; another may do more than apply them."""
    chain = compose(transform("CenterCrop", size=8), TO_IMAGE)
    preset = transform("ClassificationPresetEval", module="presets", transforms=chain)
    assert from_torchvision(preset).ops == from_torchvision(chain).ops
    mine = transform("MyPreset", module="__main__", transforms=chain)
    text = (
        "transforms MyPreset: is a class of __main__, not of torchvision: give its .transforms, if it does nothing else"
    )
    assert refusal(from_torchvision, mine) == text
    preset.transforms = compose(transform("RandomHorizontalFlip", module="transforms"), TO_IMAGE)
    assert refusal(from_torchvision, training=preset) == (
        "training ClassificationPresetEval.transforms[0] RandomHorizontalFlip: is a class of transforms, not of "
        "torchvision: make the preset with use_v2=True"
    )
    preset.transforms = compose(transform("RandomChannels"), TO_IMAGE)
    assert refusal(from_torchvision, training=preset) == (
        "training ClassificationPresetEval.transforms[0] RandomChannels: is not understood (it is random)"
    )


def test_behind_to_image_the_rounding_is_that_of_tensors():
    train = compose(transform("RandomResizedCrop", **CROPPED), TO_IMAGE, transform("RandomInvert", p=0.1))
    train.transforms.append(transform("RandomAutocontrast", p=0.2))
    ops = from_torchvision(training=train).ops
    assert ops[1:4] == (
        pp.random_resized_crop(8),
        pp.random_invert(p=0.1),
        pp.random_autocontrast(like="torchvision", p=0.2),
    )
    assert ops[-1] == pp.tensor(dtype="uint8", only="training")


def test_detection_ends_with_the_boxes_of_training():
    chain = compose(
        transform("RandomZoomOut", fill={"others": (1.0, 2.0, 3.0)}, side_range=(1.0, 2.0), p=0.3),
        transform("RandomHorizontalFlip", p=0.5),
        transform("Resize", size=[8], interpolation="bilinear", antialias=True, max_size=16),
        transform("SanitizeBoundingBoxes", min_size=2.0, min_area=4.0, labels_getter="default"),
        transform("ConvertBoundingBoxFormat", format="XYWH"),
        TO_IMAGE,
    )
    ops = from_torchvision(training=chain).ops
    assert ops[1] == pp.random_zoom_out((1, 2, 3), (1.0, 2.0), 0.3)
    assert ops[3:5] == (pp.resize(8, max_size=16), pp.boxes(format="xywh", min_size=2.0))
    served = from_torchvision(compose(*chain.transforms[2:]))
    assert served.ops[1:] == (pp.resize(8, max_size=16), pp.tensor(dtype="uint8"))


def test_a_random_transform_is_not_served():
    text = refusal(from_torchvision, compose(transform("RandomVerticalFlip", p=0.5)))
    assert text == (
        "transforms[0] RandomVerticalFlip: is random, and serving draws nothing: give these transforms as training"
    )


FIXED = {
    "RandomRotation": ({"degrees": (33.3, 33.3), "expand": False}, "degrees"),
    "RandomAffine": (
        {"degrees": (0.1, 0.1), "scale": (1.1, 1.1), "shear": (0.1, 0.1, -9.1, -9.1)},
        "degrees scale shear",
    ),
    "ColorJitter": ({"brightness": (0.3, 0.3), "hue": (-0.1, -0.1)}, "brightness hue"),
    "GaussianBlur": ({"kernel_size": (3, 3), "sigma": (0.7, 0.7)}, "sigma"),
    "RandomResizedCrop": (CROPPED | {"scale": (0.3, 0.3)}, "scale"),
}


@pytest.mark.parametrize("name", FIXED)
def test_a_range_of_one_number_is_the_float32_that_is_drawn(name):
    fields, drawn = FIXED[name]
    moved = {"interpolation": "bilinear", "fill": 0} if name in ("RandomRotation", "RandomAffine") else {}
    chain = compose(transform(name, **moved | fields), transform("CenterCrop", size=8), TO_IMAGE)
    op = from_torchvision(training=chain).ops[1]
    for field in drawn.split():
        expected = np.float32(fields[field])
        assert np.array_equal(np.broadcast_to(getattr(op, field), expected.shape), expected)


def test_a_blur_of_one_sigma_may_be_served_and_a_random_one_not():
    fields = {"kernel_size": (3, 5)}
    resize = transform("Resize", size=[8, 8], interpolation="bilinear", antialias=True, max_size=None)
    served = from_torchvision(compose(resize, transform("GaussianBlur", sigma=(1.0, 1.0), **fields), TO_IMAGE))
    assert served.ops[2] == pp.gaussian_blur((3, 5), 1.0)
    chain = compose(resize, transform("GaussianBlur", sigma=(0.1, 2.0), **fields), TO_IMAGE)
    assert '"sigma": (0.1, 2.0) is random, and serving draws nothing' in refusal(from_torchvision, chain)
    assert from_torchvision(training=chain).ops[2] == pp.random_gaussian_blur((3, 5), (0.1, 2.0))


def test_a_padding_behind_a_rotation_that_expands_is_refused():
    """How large its result is depends on the angle."""
    turn = {"degrees": (-9.0, 9.0), "interpolation": "nearest", "fill": 0, "center": None}
    pad = transform("Pad", padding=2, fill=9, padding_mode="constant")
    chain = [transform("CenterCrop", size=8), transform("RandomRotation", expand=False, **turn), pad, TO_IMAGE]
    assert pp.pad(12, 12, fill=9) in from_torchvision(training=compose(*chain)).ops
    chain[1] = transform("RandomRotation", expand=True, **turn)
    text = refusal(from_torchvision, training=compose(*chain))
    assert text.startswith('training[2] Pad: "padding": 2 of images of any size is not understood: resize or crop')


def test_a_ratio_that_float32_does_not_hold_is_refused_alone():
    """Where no window fits, torchvision takes it as it stands."""
    crop = transform("RandomResizedCrop", **CROPPED | {"ratio": (0.4, 0.4)})
    assert refusal(from_torchvision, training=compose(crop, TO_IMAGE)) == (
        'training[0] RandomResizedCrop: "ratio": (0.4, 0.4) must be two numbers, or one that float32 holds: it is '
        "drawn as 0.400000006, and used as it stands where no window fits"
    )


def test_a_file_that_does_not_run_says_why(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("1 / 0")
    with pytest.raises(pp.SetupError, match=r"train.py: does not run: ZeroDivisionError: division by zero$"):
        from_torchvision(training=f"{path}:train")


def test_one_channel_of_gray_is_a_field_of_the_tensor_and_no_draw_grays_it_again():
    gray = transform("Grayscale", num_output_channels=1)
    crop, some = transform("CenterCrop", size=8), transform("RandomGrayscale", p=0.5)
    assert from_torchvision(compose(crop, gray, TO_IMAGE)).ops[2:] == (
        pp.grayscale(),
        pp.tensor(dtype="uint8", channels=1),
    )
    trained = from_torchvision(training=compose(crop, gray, some, gray, TO_IMAGE), input="tensor").ops
    assert trained[2:] == (pp.grayscale(like="torchvision"), pp.tensor(dtype="uint8", channels=1, only="training"))
    three = transform("Grayscale", num_output_channels=3)
    assert from_torchvision(training=compose(crop, gray, three, some, TO_IMAGE)).ops[2:] == (
        pp.grayscale(),
        pp.random_gray(p=0.5),
        pp.tensor(dtype="uint8", only="training"),
    )
    choice = transform("RandomChoice", transforms=[gray, crop], probabilities=[0.5, 0.5])
    text = refusal(from_torchvision, training=compose(crop, choice, TO_IMAGE))
    assert text == ("training[1] RandomChoice: changes what the data is in some draws alone: put that behind it")
    jitter = transform("ColorJitter", brightness=None, contrast=None, saturation=(0.5, 1.5), hue=None)
    text = refusal(from_torchvision, training=compose(crop, gray, jitter, TO_IMAGE))
    assert '"channels": 1 needs three equal channels' in text


@pytest.mark.parametrize("padding", [None, 0, (0, 0), [0, 0, 0, 0]])
def test_a_crop_that_pads_no_side_has_no_fill(padding):
    how = {"size": (8, 8), "padding": padding, "pad_if_needed": False, "fill": 7, "padding_mode": "reflect"}
    train = compose(transform("RandomCrop", **how), TO_IMAGE, TO_FLOAT)
    assert pp.random_crop(8, 8) in from_torchvision(training=train).ops
