"""Tests of the last step of an ensemble, which encodes pictures, as `pixprep build --picture` plans it."""

import pytest

from pixprep.errors import PipelineError
from pixprep.postprocessing.pictures import Picture
from pixprep.serving.repository.pbtxt import parse
from pixprep.serving.repository.picture_step import picture_step

IMAGE = {"name": "image", "data_type": "TYPE_STRING", "dims": [1]}
OUTPUTS = [
    {"name": name, "data_type": "TYPE_FP32", "dims": dims}
    for name, dims in (("alpha", [1, 8, 8]), ("score", [3]), ("transform", [4]), ("original_size", [2]))
]


def planned(text, encoding="png", *, outputs=OUTPUTS, image=IMAGE):
    pictures = {"alpha": Picture.parse(text)}
    return picture_step("picture", pictures, encoding, max_batch_size=8, image=image, outputs=outputs)


def test_the_picture_replaces_its_output_and_the_photo_is_an_input_only_if_it_is_shown():
    files, step, outputs = planned("map,range=0..1", "jpeg")
    assert [entry["name"] for entry in outputs] == ["score", "transform", "original_size", "alpha_jpeg"]
    assert (list(step.inputs), list(step.outputs)) == (["alpha", "transform", "original_size"], ["alpha_jpeg"])
    config = parse(files["config.pbtxt"])
    assert (config["max_batch_size"], config["output"]) == (8, [{**IMAGE, "name": "alpha_jpeg", "dims": ["1"]}])
    _, step, outputs = planned("map,range=0..1,draw=alpha", outputs=[OUTPUTS[0], *OUTPUTS[2:]])
    assert ([entry["name"] for entry in outputs], [*step.inputs][-1]) == (["alpha_png"], "image")


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (
            "classes",
            {"outputs": OUTPUTS[:3]},
            "--picture alpha: a picture with the size of the photo needs the output original_size: add this op before "
            "tensor, or declare size=output",
        ),
        ("classes,size=output", {"outputs": []}, '--picture alpha: the model has no output "alpha", but '),
        (
            "map,range=0..1,draw=alpha",
            {"image": {**IMAGE, "data_type": "TYPE_UINT8"}},
            "--picture alpha shows the photo, but requests do not contain an encoded image",
        ),
        (
            "map,range=0..1,draw=alpha",
            {"encoding": "jpeg"},
            "--picture alpha: JPEG does not support an alpha channel: remove --encoding jpeg",
        ),
    ],
)
def test_a_picture_that_the_ensemble_cannot_have_is_refused(text, more, message):
    with pytest.raises(PipelineError) as caught:
        planned(text, **more)
    assert str(caught.value) == message
