"""Tests that timm's configurations are imported without timm, and the errors for unsupported configurations."""

import json
import sys

import pytest

import pixprep as pp
from pixprep.importers import import_pipeline
from pixprep.importers.timm import from_timm
from support.importing import only, refusal
from support.sources import TIMM as CONFIG

HUB = {"architecture": "some", "num_features": 9, "tags": ["of the hub"], "pretrained_cfg": CONFIG | {"tag": "thing"}}


def resize(*size, **options):
    return pp.resize(*size, filter="bicubic", like="pillow", **options)


def test_the_origin_is_timm_and_the_pixels_are_pillows():
    origin = from_timm(CONFIG, name="some.thing").origin
    assert (origin.library, origin.name, origin.profile) == ("timm", "some.thing", "pillow")


def test_the_test_size_is_used_on_request():
    assert list(from_timm(CONFIG, use_test_size=True).ops[1:-2]) == [resize(288), pp.center_crop(288)]
    without = {name: value for name, value in CONFIG.items() if not name.startswith("test_")}
    assert from_timm(without, use_test_size=True).ops == from_timm(without).ops


CHANNELS = "must be [channels, height, width], with sides from 1 to 16384 pixels"
BORDER = {"crop_mode": "border"}
MISTAKES = [
    ({"interpolation": "random"}, "\"interpolation\": 'random' must be one of nearest, lanczos, bilinear"),
    ({"crop_mode": "fancy"}, "\"crop_mode\": 'fancy' must be one of center, squash, border"),
    ({"input_size": [1, 28, 28]}, '"input_size": [1, 28, 28] must have 3 channels: pixprep'),
    *(({"input_size": size}, f'"input_size": {size} {CHANNELS}') for size in ([3, 224], [3, 9.5, 9], 9, None)),
    ({"test_input_size": [288]}, f'"test_input_size": [288] {CHANNELS}'),
    ({"test_crop_pct": "0.9"}, "\"test_crop_pct\": '0.9' must be a finite number"),
    (
        {"test_crop_pct": 5e-324},
        '"test_crop_pct": 5e-324 must be greater than 0, and 288 x 288 divided by it must have sides from 1 to 16384 '
        "pixels",
    ),
    (
        {"test_crop_pct": None, "crop_pct": -1},
        '"crop_pct": -1 must be greater than 0, and 288 x 288 divided by it must have sides',
    ),
    ({"mean": [0.5, 0.5]}, '"mean": [0.5, 0.5] must be a finite number, or one for each of 3 channels'),
    ({"std": [0.5, 0, 0.5]}, '"std": [0.5, 0, 0.5] must be greater than 0'),
    (BORDER | {"test_crop_pct": 0.95}, '"crop_pct": 0.95 must be 1 with "crop_mode": "border"'),
    (BORDER | {"mean": [-1, 0, 2]}, '"mean": [-1, 0, 2] must be from 0 to 1 with "crop_mode":'),
    ({"rotate": 0}, '"rotate": 0 is not supported'),
    (
        {"pretrained_cfg": {"architecture": "some"}},
        'is not the configuration of a timm model, because "input_size" is missing',
    ),
    ({"pretrained_cfg": 3}, '"pretrained_cfg": 3 must be an object'),
    ({"model_args": {"in_chans": 1}}, 'model_args: "in_chans": 1 must be 3: pixprep decodes images to RGB'),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=lambda x: str(x)[:40])
def test_unsupported_configurations_are_rejected_by_field(changes, message):
    is_test = any(field.startswith("test_") for field in changes)
    text = refusal(from_timm, CONFIG | changes, name="some.thing", use_test_size=is_test)
    assert text.startswith(f"some.thing: {message}")


def write(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_configuration_of_a_hub_is_read_without_timm(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    pipeline = from_timm(write(tmp_path, HUB))
    assert pipeline == from_timm(str(tmp_path / "config.json"))
    assert pipeline.ops == from_timm(CONFIG).ops == from_timm(HUB).ops
    assert pipeline.origin.name == "some.thing"


def test_the_flat_configuration_of_an_old_hub_is_also_read(tmp_path):
    flat = CONFIG | {"architecture": "some", "labels": ["cat"], "num_features": 9}
    assert from_timm(write(tmp_path, flat)).ops == from_timm(CONFIG).ops


def test_a_model_name_without_timm_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models", None)
    with pytest.raises(
        pp.SetupError, match=r'"resnet50" is the name of a model, which requires timm \(import of timm\.models'
    ):
        from_timm("resnet50")


def test_timms_arguments_become_training_ops():
    pipeline = from_timm(CONFIG, training={})
    assert pipeline.sides == ("serving", "training")
    assert pipeline.side_ops == tuple(
        only(op, "serving") if isinstance(op, pp.resize | pp.center_crop) else op for op in from_timm(CONFIG).ops
    )
    assert pipeline.for_training().side_ops[1:-2] == (
        pp.random_resized_crop(224, filter="bicubic"),
        pp.random_flip(),
        pp.color_jitter(0.4, 0.4, 0.4),
    )
    assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline


SPELLED = {
    "aa": "rand-m9",
    "--reprob": 0.2,
    "recount": 3,
    "remode": "const",
    "color-jitter": 0.3,
    "train_interpolation": "bicubic",
}
"""Options as timm's train.py defines them."""


def test_command_line_options_are_arguments_with_different_names():
    plain = {"auto_augment": "rand-m9", "re_prob": 0.2, "re_count": 3, "color_jitter": 0.3, "interpolation": "bicubic"}
    assert from_timm(CONFIG, training=SPELLED).ops == from_timm(CONFIG, training=plain).ops


def test_command_line_options_can_be_combined_with_the_importers_options(tmp_path):
    config, train = write(tmp_path, HUB), tmp_path / "train.json"
    train.write_text(json.dumps({"aa": "rand-m9", "remode": "const"}), encoding="utf-8")
    rest = {name.strip("-").replace("-", "_"): SPELLED[name] for name in SPELLED if name not in ("aa", "remode")}
    whole = import_pipeline(f"timm:{config}", training=str(train), **rest)
    assert whole.ops == from_timm(CONFIG, training=SPELLED).ops
    assert import_pipeline(f"timm:{config}", scale=[0.2, 0.9]).for_training().side_ops[1].scale == (0.2, 0.9)
    twice = refusal(import_pipeline, f"timm:{config}", training=str(train), auto_augment="v0")
    assert twice == "train.json: auto_augment is given twice, once as 'auto_augment'"
    wrong = refusal(import_pipeline, f"timm:{config}", use_testsize=True)
    assert wrong == 'options of train.py and create_transform: "use_testsize": True is not supported'


def test_command_line_options_imply_the_command_lines_defaults():
    plain = {"re_prob": 0.2, "re_mode": "pixel", "interpolation": "random"}
    assert from_timm(CONFIG, training={"reprob": 0.2}).ops == from_timm(CONFIG, training=plain).ops
    assert from_timm(CONFIG, training={"re_num_splits": 0}).ops == from_timm(CONFIG, training={}).ops
    squeezed = from_timm(CONFIG, training={"no-aug": True}).for_training().side_ops
    assert squeezed[1] == pp.resize(height=224, width=224, filter="bicubic", only="training")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixup": 0.2}, '"mixup": 0.2 applies to batches: use Loader(mix=pp.Mix(classes, mixup=..., cutmix=...))'),
        ({"aug-repeats": 3}, '"aug_repeats": 3 applies to the order of the samples: use Loader(repeats=...)'),
        ({"aa": "v0", "auto-augment": "v0r"}, "auto_augment is given twice, once as 'auto-augment'"),
        (
            {"auto_augment": "3a"},
            "\"auto_augment\": '3a' is not supported, because no op equals Pillow's GaussianBlur:",
        ),
        (
            {"auto_augment": "augmix-m5"},
            "\"auto_augment\": 'augmix-m5' is not supported, because the op aug_mix implements torchvision's",
        ),
        (
            {"auto_augment": "rand-m9-t3aw"},
            "\"auto_augment\": 'rand-m9-t3aw' contains 't3aw', which is not supported, because no op equals Pillow's",
        ),
        (
            {"auto_augment": "rand-m9-inc"},
            "\"auto_augment\": 'rand-m9-inc' contains 'inc', which is not supported: use m, n",
        ),
        ({"auto_augment": "rand-m9-w0"}, "\"auto_augment\": 'rand-m9-w0' contains 'w0', which is not supported: use m"),
        ({"auto_augment": "rand-m9.5"}, "\"auto_augment\": 'rand-m9.5' contains 'm9.5', which is not supported: use m"),
        (
            {"auto_augment": "v0-m9"},
            "\"auto_augment\": 'v0-m9' contains 'm9', which is not supported: use mstd, each with a number",
        ),
        ({"auto_augment": "rand-m9-m8"}, "\"auto_augment\": 'rand-m9-m8' contains m twice"),
        ({"auto_augment": "rand-n21"}, '"num_ops" must be between 0 and 20, not 21'),
        ({"auto_augment": "ra"}, "\"auto_augment\": 'ra' must begin with one of rand, original, originalr, v0, v0r"),
        (
            {"auto_augment": "v0", "interpolation": "lanczos"},
            "\"interpolation\": 'lanczos' is not supported with auto_augment,",
        ),
        (
            {"auto_augment": "v0", "mean": (-1, 0, 0)},
            '"mean": (-1, 0, 0) must not be negative with auto_augment, which uses it',
        ),
        ({"train_crop_mode": "rkrc"}, "\"train_crop_mode\": 'rkrc' must be 'rrc'"),
        ({"color_jitter_prob": 1.5}, '"p" must be between 0 and 1, not 1.5'),
        ({"color_jitter": [0.1, 0.2]}, '"color_jitter": [0.1, 0.2] must be one number, or 3 or 4'),
        ({"re_mode": "noise", "re_prob": 0.2}, "\"re_mode\": 'noise' must be one of const, rand, pixel"),
        ({"re_num_splits": 2}, '"re_num_splits": 2 is not supported'),
        ({"use_prefetcher": True}, '"use_prefetcher": True must be False'),
        ({"is_training": False}, '"is_training": False must be True'),
        ({"scale": [0.1]}, '"scale": [0.1] must be two finite numbers'),
        ({"warp": 1}, '"warp": 1 is not supported'),
        ({"input_size": (3, 128)}, '"input_size": (3, 128) must be [channels, height, width], with sides'),
    ],
    ids=str,
)
def test_an_argument_that_is_not_exact_is_rejected_by_name(arguments, message):
    refused = refusal(from_timm, CONFIG, training=arguments)
    assert refused.startswith("training: ")
    assert message in refused


def test_different_means_in_training_are_rejected():
    text = refusal(from_timm, CONFIG, training={"mean": (0.5, 0.5, 0.5)}, name="some")
    assert text.startswith('some: ops: the values of the tensor "tensor" must be the same in training (')
