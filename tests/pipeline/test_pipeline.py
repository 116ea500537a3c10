"""Tests how ops are connected to a graph: branches, names and outputs."""

import pytest

import pixprep as pp

CROP, TENSOR = pp.center_crop(8), pp.tensor()


def test_an_op_receives_the_image_of_the_previous_op_or_of_the_one_it_names():
    pipeline = pp.Pipeline(
        [
            pp.decode(name="start"), pp.center_crop(8), pp.tensor(name="eight"), pp.center_crop(4),
            pp.tensor(name="four"), pp.center_crop(6, from_="start"), pp.tensor(name="six"),
        ]
    )  # fmt: skip
    assert [str(output.spec.shape) for output in pipeline.outputs.values()] == ["(3, 8, 8)", "(3, 4, 4)", "(3, 6, 6)"]
    chain = [type(op).__name__ for op in pipeline.outputs["four"].chain]
    assert chain == ["Decode", "CenterCrop", "CenterCrop", "Tensor"]
    assert [type(op).__name__ for op in pipeline.outputs["six"].chain] == ["Decode", "CenterCrop", "Tensor"]


def test_inputs_are_identified_by_name_in_one_mode():
    pipeline = pp.Pipeline(
        [
            pp.decode(color="bgr"), pp.crop(box="face", only="serving"), pp.flip(when="turned"),
            pp.letterbox(8, 8, fill="paint"), pp.pad(9, 9, fill="paint"), TENSOR,
        ]
    )  # fmt: skip
    assert {name: str(spec) for name, spec in pipeline.for_serving().inputs.items()} == {
        "face": "float32 [n, 4] (left, top, right, bottom)",
        "turned": "bool [n, 1]",
        "paint": "uint8 [n, 3] (a pixel value per channel)",
    }
    assert list(pipeline.for_training().inputs) == ["turned", "paint"]
    assert pp.presets.imagenet().inputs == {}
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline


def test_outputs_keep_the_order_of_the_ops():
    ops = [pp.decode(), pp.original_size(), CROP, pp.transform(), pp.tensor(), pp.tensor(name="again", layout="hwc")]
    assert list(pp.Pipeline(ops).outputs) == ["original_size", "transform", "tensor", "again"]


def test_every_image_between_two_ops_has_a_spec():
    images = [str(image) for image in pp.presets.imagenet().images]
    assert images == [
        "? x ? rgb, uint8 0..255",
        "? x ? rgb, uint8 0..255",
        "224 x 224 rgb, uint8 0..255",
        "224 x 224 rgb, real -2.118..2.64",
        "224 x 224 rgb, real -2.118..2.64",
    ]


def test_equal_pipelines_are_equal_and_have_equal_hashes():
    assert pp.presets.imagenet() == pp.presets.imagenet()
    assert hash(pp.presets.imagenet()) == hash(pp.presets.imagenet())
    assert pp.presets.imagenet() != pp.presets.clip()
    assert pp.presets.imagenet() != "imagenet"


@pytest.mark.parametrize(
    ("preset", "spec"),
    [
        (pp.presets.imagenet, "float32 [3, 224, 224] chw, values -2.118..2.64"),
        (pp.presets.clip, "float32 [3, 224, 224] chw, values -1.792..2.146"),
        (pp.presets.efficientnet_lite0, "float32 [3, 224, 224] chw, values -0.9922..1"),
        (pp.presets.letterbox, "float32 [3, 640, 640] chw, values 0..1"),
    ],
)
def test_presets_have_the_numbers_of_their_models(preset, spec):
    assert str(preset().outputs["tensor"].spec) == spec
