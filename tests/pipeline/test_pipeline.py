"""Wiring of the graph: branches, names, outputs, and one whole message for each mistake."""

import numpy as np
import pytest

import pixprep as pp

CROP, TENSOR, NORMALIZE = pp.center_crop(8), pp.tensor(), pp.normalize()
SMALL = pp.crop(0, 0, 4, 4)
SIZE_UNKNOWN = (
    "the size differs from image to image, and has no bound: add center_crop or letterbox, or give resize a height "
    "and a width, or a max_size"
)
FIRST = "the first op, and no other, must be decode, or pixels where nothing is encoded"
ONE_FILL = "its margin has another colour than an earlier one: use one fill"
KEPT = "is kept for Triton: choose another; the one tensor goes to a model's input of any name"
BEFORE_NORMALIZE = "must come before normalize: it works on the levels 0 to 255"

MISTAKES = [
    ([], "ops: no op gives a tensor: end with tensor"),
    ([pp.decode(), CROP], "ops: no op gives a tensor: end with tensor"),
    ([CROP, TENSOR], f'ops[0] "center_crop": {FIRST}'),
    ([pp.decode(), pp.pixels(), CROP, TENSOR], f'ops[1] "pixels": {FIRST}'),
    ([pp.decode(), pp.resize(8), TENSOR], f'ops[2] "tensor": {SIZE_UNKNOWN}'),
    ([pp.decode(), CROP, NORMALIZE, pp.resize(8), TENSOR], f'ops[3] "resize": {BEFORE_NORMALIZE}'),
    ([pp.decode(), SMALL, NORMALIZE, pp.pad(9, 9), TENSOR], f'ops[3] "pad": {BEFORE_NORMALIZE}'),
    ([pp.decode(), SMALL, NORMALIZE, CROP, TENSOR], f'ops[3] "center_crop": {BEFORE_NORMALIZE}'),
    (
        [pp.decode(), CROP, NORMALIZE, pp.tensor(dtype="uint8")],
        'ops[3] "tensor": uint8 cannot hold normalized values: use float32 or float16, or drop normalize',
    ),
    (
        [pp.decode(), CROP, pp.normalize(scale=300), pp.tensor(dtype="float16")],
        'ops[3] "tensor": float16 ends at 65504, but values reach 76500',
    ),
    (
        [pp.decode(color="gray"), CROP, pp.normalize(mean=(1, 2, 3)), TENSOR],
        'ops[2] "normalize": "mean" has 3 values, but the image has 1 channel',
    ),
    (
        [pp.decode(), CROP, pp.normalize(std=(1, 2)), TENSOR],
        'ops[2] "normalize": "std" has 2 values, but the image has 3 channels',
    ),
    (
        [pp.decode(), pp.letterbox(8, 8, fill=(1, 2)), TENSOR],
        'ops[1] "letterbox": "fill" has 2 values, but the image has 3 channels',
    ),
    (
        [pp.decode(), SMALL, pp.crop(1, 0, 4, 4), TENSOR],
        'ops[2] "crop": the window ends at 5, but the height of the image is 4',
    ),
    (
        [pp.decode(), CROP, pp.pad(7, 9), TENSOR],
        'ops[2] "pad": the canvas 7 x 9 is smaller than the image, which is at least 8 x 8',
    ),
    ([pp.decode(name="a"), pp.center_crop(8, name="b"), pp.tensor(from_="c")], (
        'ops[2] "tensor": from: no earlier op is named "c"; named are: a, b'
    )),
    ([pp.decode(name="a", from_="a"), CROP, TENSOR], (
        'ops[0] "decode": from: no earlier op is named "a"; named are: none'
    )),
    ([pp.decode(name="a"), pp.center_crop(8, name="a"), TENSOR], (
        'ops[1] "center_crop": name: "a" is the name of ops[0] already'
    )),
    ([pp.decode(), CROP, pp.tensor(name="image")], f'ops[2] "tensor": name: "image" {KEPT}'),
    ([pp.decode(), CROP, pp.tensor(name="status")], f'ops[2] "tensor": name: "status" {KEPT}'),
    ([pp.decode(), CROP, TENSOR, pp.tensor(dtype="float16")], (
        'ops[3] "tensor": there is an output "tensor" already: give this one another "name"'
    )),
    ([pp.decode, CROP, TENSOR], (
        "ops[0]: an op is made by a call such as decode(), not <class 'pixprep.pipeline.ops.decode.Decode'>"
    )),
    ([pp.decode(), CROP, pp.normalize(mean=[np.float32(1)]), TENSOR], (
        'ops[2] "normalize": Encoding objects of type numpy.float32 is unsupported'
    )),
    ([pp.decode(), pp.resize(height=8, width=8, like="tensorflow"), pp.tensor(dtype="uint8")], (
        'ops[2] "tensor": uint8 cannot hold what TensorFlow\'s resize gives: use float32 or float16'
    )),
    # what does not fold
    ([pp.decode(), pp.resize(9), pp.resize(height=8, width=8), TENSOR], (
        'ops[2] "resize": the image is resized already, and pixels should be resampled once'
    )),
    ([pp.decode(), pp.pad(square=True), pp.resize(height=8, width=8, like="tensorflow"), TENSOR], (
        'ops[2] "resize": must come before pad: with "like": "tensorflow" and "filter": "bilinear", which round '
        'nothing, margins are not resampled'
    )),
    ([pp.decode(reduced=True), pp.pad(square=True), pp.resize(height=8, width=8), TENSOR], (
        'ops[2] "resize": must come before pad: margins are not resampled with "reduced": true of decode'
    )),
    ([pp.decode(), pp.pad(square=True), pp.letterbox(9, 9), TENSOR], f'ops[2] "letterbox": {ONE_FILL}'),
    ([pp.decode(), pp.letterbox(9, 9), pp.pad(10, 10), TENSOR], f'ops[2] "pad": {ONE_FILL}'),
    ([pp.decode(), pp.letterbox(9, 9), pp.center_crop(10), TENSOR], f'ops[2] "center_crop": {ONE_FILL}'),
    # numbers that come with an image
    ([pp.decode(), pp.crop(box="a b"), CROP, TENSOR], (
        'ops[1] "crop": an input: ASCII letters, digits and _, not "a b"'
    )),
    ([pp.decode(), pp.letterbox(9, 9, fill="x" * 129), TENSOR], (
        'ops[1] "letterbox": an input: 129 letters; at most 128'
    )),
    ([pp.decode(), pp.crop(box="image"), CROP, TENSOR], (
        'ops[1] "crop": an input "image": the name is kept for Triton'
    )),
    ([pp.decode(), pp.crop(box="tensor"), CROP, TENSOR], (
        'ops: the input "tensor" has the name of an op or an output: give it another'
    )),
    ([pp.decode(name="a"), pp.crop(box="a"), CROP, TENSOR], (
        'ops: the input "a" has the name of an op or an output: give it another'
    )),
    ([pp.decode(), pp.crop(box="a"), pp.flip(when="a"), CROP, TENSOR], (
        'ops[2] "flip": the input "a" is float32 [n, 4] (left, top, right, bottom) of an earlier op, and here '
        'bool [n, 1]'
    )),
    ([pp.decode(), pp.letterbox(9, 9, fill="a"), pp.pad(10, 10, fill="b"), TENSOR], f'ops[2] "pad": {ONE_FILL}'),
    ([pp.decode(), pp.random_flip(), pp.crop(box="boxes"), CROP, pp.boxes(name="b"), pp.tensor(only="training")], (
        'ops: the input "boxes" has the name of a sample\'s annotation: give it another'
    )),
]  # fmt: skip


@pytest.mark.parametrize(("ops", "message"), MISTAKES, ids=map(str, range(len(MISTAKES))))
def test_a_wrong_graph_is_refused_in_words(ops, message):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline(ops)
    assert str(caught.value) == message


def test_an_op_takes_the_image_of_the_op_before_it_or_of_the_one_it_names():
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


def test_inputs_are_known_by_name_and_of_one_side():
    pipeline = pp.Pipeline(
        [
            pp.decode(color="bgr"), pp.crop(box="face", only="serving"), pp.flip(when="turned"),
            pp.letterbox(8, 8, fill="paint"), pp.pad(9, 9, fill="paint"), TENSOR,
        ]
    )  # fmt: skip
    assert {name: str(spec) for name, spec in pipeline.for_serving().inputs.items()} == {
        "face": "float32 [n, 4] (left, top, right, bottom)",
        "turned": "bool [n, 1]",
        "paint": "uint8 [n, 3] (a level for each channel)",
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


def test_equal_pipelines_are_equal_and_hash_alike():
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
