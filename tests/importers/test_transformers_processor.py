"""Errors and attributes of an ``ImageProcessor``, for which transformers need not be installed."""

import pickle
import sys

import numpy as np
import pytest

from pixprep import ImageError, PipelineError, SetupError
from pixprep.importers.transformers import CLASSES
from pixprep.importers.transformers.batches import FORMS, UNSUPPORTED
from pixprep.importers.transformers.classes import FIXED, WITHOUT_TORCHVISION
from pixprep.importers.transformers.processor import ImageProcessor
from support.images import png, scene
from support.importing import refusal

VITPOSE = {"image_processor_type": "VitPoseImageProcessor"}
QWEN = {"image_processor_type": "Qwen2VLImageProcessor"}


@pytest.fixture(autouse=True)
def _without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)


def test_fields_of_the_configuration_and_defaults_are_attributes():
    processor = ImageProcessor(QWEN | {"merge_size": 4, "image_mean": [0.5, 0.4, 0.3], "max_pixels": 28**2 * 64})
    assert (processor.merge_size, processor.patch_size, processor.image_mean) == (4, 14, (0.5, 0.4, 0.3))
    assert processor.crop_size is None
    values = processor.to_dict()
    assert values["size"] == {"shortest_edge": 3136, "longest_edge": 28**2 * 64}
    assert values["image_processor_type"] == "Qwen2VLImageProcessor"
    assert ImageProcessor(values).to_dict() == values
    with pytest.raises(AttributeError, match=r"^the ImageProcessor of Qwen2VLImageProcessor does not have .* 'colour'"):
        processor.colour  # noqa: B018
    with pytest.raises(SetupError, match=r"pip install transformers"):
        processor.size  # noqa: B018
    assert repr(processor) == "<ImageProcessor: Qwen2VLImageProcessor, backend torchvision>"


def test_the_number_of_patches_needs_no_image():
    processor = ImageProcessor(QWEN)
    assert processor.get_number_of_image_patches(480, 640) == 34 * 46
    assert processor.get_number_of_image_patches(480, 640, {"max_pixels": 28**2 * 16, "videos": 1}) == 4 * 12
    smol = ImageProcessor({"image_processor_type": "SmolVLMImageProcessor"})
    assert smol.get_number_of_image_patches(480, 640) == (13, 3, 4)
    with pytest.raises(AttributeError, match="does not have the method get_number_of_image_patches"):
        ImageProcessor({"image_processor_type": "CLIPImageProcessor"}).get_number_of_image_patches(9, 9)
    with pytest.raises(ImageError):
        processor.get_number_of_image_patches(1, 9000)


def test_a_result_requires_transformers():
    with pytest.raises(SetupError, match=r"^an ImageProcessor returns objects of transformers .*: pip install"):
        ImageProcessor(QWEN, backend="pil")(scene(30, 40), return_tensors="np")


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_class_with_another_form_of_batch_is_refused(name):
    message = refusal(ImageProcessor, {"image_processor_type": name})
    assert f"{name} is not supported by ImageProcessor, because {UNSUPPORTED[name]}" in message


def test_a_video_processor_or_an_unsupported_value_is_refused():
    video = {"image_processor_type": "InternVLImageProcessor"}
    message = "InternVLVideoProcessor is not supported by ImageProcessor, because it is not an image processor"
    assert message in refusal(ImageProcessor, video)
    idefics = {"image_processor_type": "Idefics2ImageProcessor", "do_pad": False}
    assert '"do_pad": must be true for Idefics2ImageProcessor' in refusal(ImageProcessor, idefics)


def test_every_other_class_of_the_importer_is_supported():
    assert {*FORMS} == {*CLASSES}
    for name in FORMS.keys() - UNSUPPORTED.keys():
        fields = {"image_grid_pinpoints": [[224, 448]]} if name == "LlavaNextImageProcessor" else FIXED.get(name, {})
        backend = "pil" if name in WITHOUT_TORCHVISION else "torchvision"
        own = ImageProcessor({"image_processor_type": name, **fields}, backend=backend)
        assert own.to_dict()["image_processor_type"] == name


def test_keyword_arguments_that_are_not_supported_are_named():
    processor = ImageProcessor(QWEN)
    for options, name in (
        ({"annotations": []}, "annotations"),
        ({"device": "cuda"}, "device"),
        ({"size": None}, "size"),
    ):
        with pytest.raises(PipelineError, match=f"^Qwen2VLImageProcessor: {name}=.*pass original="):
            processor(scene(30, 40), **options)
    with pytest.raises(PipelineError, match=r'"patch_size": 0 must be'):
        processor(scene(30, 40), patch_size=0)
    onevision = ImageProcessor({"image_processor_type": "LlavaOnevisionImageProcessor"})
    with pytest.raises(PipelineError, match="samples with several images: not supported"):
        onevision([[scene(30, 40), scene(30, 40)]])
    recognizer = ImageProcessor({"image_processor_type": "PPOCRV6SmallRecImageProcessor"})
    with pytest.raises(PipelineError, match="several images, whose sizes depend on each other in this class: not"):
        recognizer([scene(30, 40), scene(30, 40)])


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ((), "a list of boxes with left, top, width and height, not None"),
        ((5,), "left, top, width and height, not 5$"),
        ((np.array(5),), "left, top, width and height, not 5$"),
        (([],), "not 0 lists"),
        (([[1, 2, 3, 4]],), "'int' object is not subscriptable"),
        (([[[1, 2, 3]]],), r"not \[1.0, 2.0, 3.0\]"),
        (([[["left", 2, 3, 4]]],), "could not convert string to float: 'left'"),
        (
            ([np.ones((2, 4), np.float16)],),
            "boxes with values of type float16: not supported by pixprep; pass original=",
        ),
        (([[]],), "the images have no boxes: pass at least one box"),
        (([[[1, 2, 3, 4]]], 5), "further positional arguments: not supported"),
    ],
)
def test_missing_and_invalid_boxes_are_rejected(boxes, message):
    with pytest.raises(PipelineError, match=f"^VitPoseImageProcessor: .*{message}"):
        ImageProcessor(VITPOSE)(scene(30, 40), *boxes)


def test_an_invalid_box_raises_with_the_number_of_its_image():
    boxes = [[], [[1, 2, 30, 40], [900, 2, 3, 4]]]
    with pytest.raises(
        ImageError, match=r"^\[DOES_NOT_FIT\] image 2 of 2: \"boxes\", row 2 of 2: the region is outside"
    ):
        ImageProcessor(VITPOSE, threads=1)([scene(30, 40)] * 2, boxes=boxes)
    (image,) = ImageProcessor(VITPOSE).fetch_images([png(scene(30, 40))])
    assert image.size == (40, 30)


def test_the_original_is_called_if_the_configuration_is_not_supported(monkeypatch):
    warned = []
    monkeypatch.setattr("pixprep.importers.transformers.processor.log.warning", lambda *words: warned.append(words))

    def original(images, *arguments, **options):
        return images, arguments, options

    processor = ImageProcessor({"image_processor_type": "FuyuImageProcessor"}, original=original)
    assert processor("photo", 1, return_tensors="pt", a=2) == ("photo", (1,), {"return_tensors": "pt", "a": 2})
    assert [words[0] for words in warned] == ["%s; all images are processed by the original image processor"]
    qwen = ImageProcessor(QWEN, original=original)
    assert qwen("photo", device="cuda")[2] == {"return_tensors": None, "device": "cuda"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"text", "UNKNOWN_FORMAT"),
        ("no such file.png", "no such file.png cannot be read: No such file"),
        (np.zeros((9, 9, 3), np.float32), "pixels of float32 are not supported: pass uint8"),
        (np.zeros((9, 9, 4), np.uint8), r"pixels of the shape \(9, 9, 4\) are not supported"),
        (np.zeros((0, 9, 3), np.uint8), r"pixels of the shape \(0, 9, 3\) are not supported"),
        (object(), "object is not an array"),
    ],
)
def test_a_bad_image_raises_with_its_number(bad, message):
    with pytest.raises(ImageError, match=rf"^\[.*image 2 of 3.*{message}|{message}.*image 2 of 3"):
        ImageProcessor(QWEN)([scene(30, 40), bad, png(scene(30, 40))])


def test_a_gray_image_is_refused_by_a_class_that_does_not_convert_it():
    processor = ImageProcessor({"image_processor_type": "ViTImageProcessor"})
    with pytest.raises(ImageError, match="one channel, and the class does not convert it"):
        processor(np.zeros((9, 9), np.uint8))
    with pytest.raises(PipelineError, match="pass at least one image"):
        processor([])


def test_a_copy_from_pickle_has_the_same_configuration():
    processor = ImageProcessor(QWEN | {"merge_size": 4}, threads=1)
    processor.fetch_images([png(scene(30, 40))])
    copy = pickle.loads(pickle.dumps(processor))  # noqa: S301  (its own bytes)
    assert copy.to_dict() == processor.to_dict()
    assert np.array_equal(np.asarray(copy.fetch_images(png(scene(30, 40)))), scene(30, 40))
