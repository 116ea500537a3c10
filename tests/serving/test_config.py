"""Tests of config.pbtxt: fields are derived from the pipeline, and invalid files are rejected with clear messages."""

import pytest

import pixprep as pp
from pixprep.cores import cores
from pixprep.serving.triton import config as model_config
from support.refusals import refusal, refusals

PIPELINE = pp.presets.letterbox(size=320)
TENSOR = {"name": "tensor", "data_type": "TYPE_FP32", "dims": [3, 320, 320]}


TAIL = [pp.resize(height=8, width=8), pp.tensor(dtype="uint8")]
CROPS = pp.Pipeline([pp.decode(), pp.crop(box="boxes"), pp.flip(when="turn"), pp.transform(), *TAIL])
FRAMES = pp.Pipeline([pp.pixels(given="bgr"), pp.resize(height=8, width=8), pp.tensor()])
CLIPS = pp.Pipeline([pp.decode_video(frames=8), pp.resize(height=4, width=4), pp.tensor(layout="cthw")])
TURNS = pp.Pipeline([pp.decode(), pp.flip(when="turn"), pp.pad(square=True, fill="paint"), *TAIL])


def test_everything_is_derived_from_the_pipeline():
    assert model_config.complete({}, PIPELINE) == {
        "max_batch_size": 64,
        "input": [{"name": "image", "data_type": "TYPE_STRING", "dims": [1]}],
        "output": [{"name": "transform", "data_type": "TYPE_FP32", "dims": [4]}, TENSOR],
        "dynamic_batching": {},
    }


def test_a_pipeline_with_per_request_numbers_has_an_input_for_each():
    assert model_config.complete({}, TURNS) == {
        "max_batch_size": 64,
        "input": [
            {"name": "image", "data_type": "TYPE_STRING", "dims": [1]},
            {"name": "turn", "data_type": "TYPE_BOOL", "dims": [1]},
            {"name": "paint", "data_type": "TYPE_UINT8", "dims": [3]},
        ],
        "output": [{"name": "tensor", "data_type": "TYPE_UINT8", "dims": [3, 8, 8]}],
        "dynamic_batching": {},
    }


def test_inputs_can_have_any_numeric_type_and_examples_for_clients():
    pipeline = pp.Pipeline(
        [pp.pixels(layout="chw", dtype="float32"), pp.crop("AT[1]", "AT", "N", 8, max_size=9), pp.tensor()]
    )
    written = [{"name": "N", "data_type": "TYPE_INT16", "dims": [1]}]
    frames = {"name": "image", "data_type": "TYPE_FP32", "dims": [3, -1, -1], "allow_ragged_batch": True}
    full = model_config.complete({"input": written}, pipeline)
    assert full["input"] == [frames, {"name": "AT", "data_type": "TYPE_FP32", "dims": [2]}, written[0]]
    assert full["output"] == [{"name": "tensor", "data_type": "TYPE_FP32", "dims": [3, -1, 8]}]
    assert full["parameters"]["examples"] == {"string_value": '{"N":[9]}'}
    assert model_config.complete(full, pipeline) == full


def test_a_limit_of_the_response_becomes_a_limit_of_the_batch_for_equal_tensor_sizes():
    written = {"parameters": {"max_response_bytes": {"string_value": "767"}}}
    assert model_config.complete(written, TURNS)["max_batch_size"] == 3
    detector = pp.Pipeline([pp.decode(), pp.resize(height=640, width=640), pp.tensor(), pp.image_size(name="size")])
    assert model_config.complete({}, detector)["max_batch_size"] == 64
    # the sizes differ per image, so the limit applies to each request instead
    follows = pp.Pipeline([pp.decode(), pp.resize(height=8, max_size=90), pp.tensor()])
    assert model_config.complete(written, follows)["max_batch_size"] == 64


@pytest.mark.parametrize("written", [{}, {"max_batch_size": 0}])
def test_a_pipeline_with_boxes_does_not_batch(written):
    assert model_config.complete(written | {"parameters": {"on_error": {"string_value": "zero"}}}, CROPS) == {
        "max_batch_size": 0,
        "parameters": {"on_error": {"string_value": "zero"}},
        "input": [
            {"name": "image", "data_type": "TYPE_STRING", "dims": [1]},
            {"name": "boxes", "data_type": "TYPE_FP32", "dims": [-1, 4]},
            {"name": "turn", "data_type": "TYPE_BOOL", "dims": [-1, 1]},
        ],
        "output": [
            {"name": "transform", "data_type": "TYPE_FP32", "dims": [-1, 4]},
            {"name": "tensor", "data_type": "TYPE_UINT8", "dims": [-1, 3, 8, 8]},
            {"name": "status", "data_type": "TYPE_STRING", "dims": [-1, 1]},
        ],
    }


def test_declared_inputs_keep_the_name_of_the_image():
    image = {"name": "photo", "data_type": "TYPE_UINT8", "dims": ["-1"]}
    boxes = {"name": "boxes", "data_type": "TYPE_FP32", "dims": ["-1", "4"]}
    for written in ([image], [boxes, image]):
        names = [entry["name"] for entry in model_config.complete({"input": written}, CROPS)["input"]]
        assert names == ["photo", "boxes", "turn"]


def test_matching_declarations_are_kept():
    written = {"max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 500}, "output": [TENSOR]}
    written["input"] = [{"name": "DALI_INPUT_0", "data_type": "TYPE_UINT8", "dims": ["-1"]}]
    written["parameters"] = {"on_error": {"string_value": "zero"}}
    full = model_config.complete(written, PIPELINE)
    assert (full["max_batch_size"], full["dynamic_batching"]) == (8, written["dynamic_batching"])
    assert full["input"] == [written["input"][0] | {"allow_ragged_batch": True}]
    assert full["output"][-1] == {"name": "status", "data_type": "TYPE_STRING", "dims": [1]}


def complete(pipeline, **written):
    """Return the options that result from a configuration."""
    return model_config.complete(written, pipeline)


def texts(**parameters):
    """Return parameters of a model in the form of Triton's configuration file."""
    return {name: {"string_value": value} for name, value in parameters.items()}


@refusals("serving")
def test_an_invalid_configuration_is_rejected_with_the_fix(call, words):
    pipelines = {"PIPELINE": PIPELINE, "CROPS": CROPS, "TURNS": TURNS, "FRAMES": FRAMES, "CLIPS": CLIPS}
    assert refusal(call, complete=complete, texts=texts, **pipelines) == words


def test_tritons_own_parameters_are_ignored():
    given = {"EXECUTION_ENV_PATH": {"string_value": "x"}, "threads": {"string_value": "3"}}
    assert model_config.options({"parameters": given}).engine.threads == 3


def test_every_limit_is_a_parameter():
    texts = {name: str(index + 1) for index, name in enumerate(pp.Limits.__dataclass_fields__)} | {
        "formats": "png,jpeg"
    }
    texts_of_requests = {"max_request_bytes": "9", "max_response_bytes": "8"}
    given = {name: {"string_value": text} for name, text in (texts | texts_of_requests).items()}
    options = model_config.options({"parameters": given})
    assert (options.max_request_bytes, options.max_response_bytes) == (9, 8)
    assert model_config.options({}).max_response_bytes == 320 << 20
    found = {name: str(value) for name, value in vars(options.engine.limits).items()}
    assert found == texts | {"formats": "('jpeg', 'png')"}
    assert model_config.options({}).engine.limits == pp.Limits()


def test_parameters_with_choices_have_defaults():
    options = model_config.options({})
    words = (options.on_error, options.engine.damage, options.engine.decoder, options.outputs)
    assert words == ("fail", None, "consistent", "gpu")
    assert options.accept_base64 is False
    assert model_config.options({"parameters": {"accept_base64": {"string_value": "true"}}}).accept_base64 is True


@pytest.mark.parametrize("name", ["max_frames", "max_expansion"])
def test_zero_disables_optional_limits(name):
    assert getattr(model_config.options({"parameters": {name: {"string_value": "0"}}}).engine.limits, name) == 0


def test_instances_divide_the_cores():
    for count in (1, 2, 4, 1000):
        assert model_config.options({"instance_group": [{"count": count}]}).engine.threads == max(1, cores() // count)


@pytest.mark.parametrize(
    ("policy", "groups", "is_stalling"),
    [
        ({"max_queue_size": 4}, [{"count": 1}], True),
        ({"allow_timeout_override": True}, [{"count": 1, "gpus": [1]}], True),
        ({"default_timeout_microseconds": "1000"}, [{"count": 1, "gpus": []}], True),
        ({"max_queue_size": 4}, [{"count": 2}], False),
        ({"max_queue_size": 4}, [{"count": 1}, {"count": 1}], False),
        ({"max_queue_size": 4}, [{"count": 1, "gpus": [0, 1]}], False),
        ({"max_queue_size": 0, "timeout_action": "REJECT"}, [{"count": 1}], False),
        (None, [{"count": 1}], False),
    ],
)
@pytest.mark.parametrize("level", ["default_queue_policy", "priority_queue_policy"])
def test_a_queue_policy_with_one_instance_is_reported_to_stall(policy, groups, is_stalling, level):
    written = {"1": policy} if level == "priority_queue_policy" and policy else policy
    config = {"dynamic_batching": {level: written} if policy else {}, "instance_group": groups}
    assert model_config.is_stalling(config) == is_stalling
    assert not model_config.is_stalling({"instance_group": groups})


# Pipelines whose input is decoded pixels.

GRAY = pp.Pipeline([pp.pixels(color="gray"), pp.resize(height=8, width=8), pp.tensor()])


def test_the_input_for_pixels_is_ragged_and_declares_its_channels():
    full = model_config.complete({}, FRAMES)
    assert full["input"] == [
        {"name": "image", "data_type": "TYPE_UINT8", "dims": [-1, -1, 3], "allow_ragged_batch": True}
    ]
    assert full["parameters"] == {"pixels": {"string_value": "bgr"}}
    assert model_config.inputs({}, GRAY)[0]["dims"] == [-1, -1, 1]
    assert "parameters" not in model_config.complete({}, PIPELINE)


def test_the_input_for_pixels_can_have_a_name_and_a_fixed_size():
    written = {"name": "camera", "data_type": "TYPE_UINT8", "dims": ["1080", "1920", "3"]}
    assert model_config.inputs({"input": [written]}, FRAMES) == [written]
    written = {"name": "camera", "data_type": "TYPE_UINT8", "dims": ["-1", "-1", "3"]}
    assert model_config.inputs({"input": [written]}, FRAMES) == [written | {"allow_ragged_batch": True}]


@pytest.mark.parametrize(
    ("data_type", "dims"),
    [
        ("TYPE_STRING", [1]), ("TYPE_UINT8", [-1]), ("TYPE_UINT8", [-1, -1, 1]), ("TYPE_UINT8", [3, -1, -1]),
        ("TYPE_UINT8", [0, -1, 3]), ("TYPE_FP32", [-1, -1, 3]),
    ],
)  # fmt: skip
def test_an_input_that_cannot_contain_pixels_is_rejected(data_type, dims):
    with pytest.raises(pp.PipelineError) as caught:
        model_config.inputs({"input": [{"name": "image", "data_type": data_type, "dims": dims}]}, FRAMES)
    assert str(caught.value) == (
        f'config.pbtxt: input "image" is {data_type} {dims}, which does not match the pixels that the pipeline '
        "requires: "
        "declare TYPE_UINT8 with dims [ -1, -1, 3 ] as the only image input"
    )


def test_operators_are_allowed_by_name():
    given = {"parameters": {"allow_operators": {"string_value": "acme.denoise, acme.patches"}}}
    assert model_config.options(given).allow_operators == ("acme.denoise", "acme.patches")
    assert model_config.options({}).allow_operators == ()


def test_the_number_of_frames_of_a_clip_is_declared_for_clients():
    assert model_config.complete({}, CLIPS)["parameters"] == {"frames": {"string_value": "8"}}
    assert "parameters" not in model_config.complete({}, PIPELINE)
