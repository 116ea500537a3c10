"""Tests that image processors of transformers are imported from a dictionary, a file or a folder without the library.

Each field is tested by its name. The tests in tests/parity compare the pixels with those of the library.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pixprep import Engine, Pipeline, center_crop, decode, decode_video, normalize, pad, resize, resize_by_rule, tensor
from pixprep.importers.transformers import from_transformers
from pixprep.importers.transformers.classes import DEFAULTS, FIXED, REASONS, WITHOUT_TORCHVISION
from pixprep.pipeline.ops import changed
from pixprep.pipeline.presets import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD
from support.compare import assert_close
from support.hub_configs import EXACT, REFUSED, clip, convnext, efficientnet, mobilevit, siglip, vit
from support.importing import refusal


def test_clip_becomes_five_ops():
    pipeline = from_transformers(clip(224), name="openai/clip-vit-base-patch32")
    assert pipeline.ops == (
        decode(alpha="white"),
        resize(224, filter="bicubic", like="torchvision"),
        center_crop(224, rounding="down"),
        normalize(CLIP_MEAN, CLIP_STD, arithmetic="fused"),
        tensor(),
    )
    assert pipeline.origin.library == "transformers"
    assert pipeline.origin.name == "openai/clip-vit-base-patch32"
    assert pipeline.origin.profile == "torchvision"


def test_fused_constants_are_products_of_float32_as_in_pytorch():
    table = from_transformers(clip(224)).plan.outputs["tensor"].table
    levels = np.arange(256, dtype=np.float32)
    for values, mean, std in zip(table, CLIP_MEAN, CLIP_STD, strict=True):
        assert_close(values, (levels - np.float32(mean) * np.float32(255)) / (np.float32(std) * np.float32(255)))
    quotients = [np.float32(value / (1 / 255)) == np.float32(value) * np.float32(255) for value in CLIP_MEAN + CLIP_STD]
    assert not all(quotients)  # otherwise, the two formulas could not differ


def test_absent_fields_have_the_values_of_the_class():
    for name, own in DEFAULTS.items():
        fixed = {field: value for field, value in FIXED.get(name, {}).items() if own[field] != value}
        defaults = own | fixed
        bare = from_transformers({"image_processor_type": name} | fixed)
        mean = defaults["image_mean"] and [*defaults["image_mean"]]
        assert bare == from_transformers(defaults | {"image_processor_type": name, "image_mean": mean})


@pytest.mark.parametrize("name", FIXED)
def test_a_field_with_one_supported_value_is_rejected_with_another(name):
    options = {"frames": 4} if "Video" in name else {"backend": "pil"} if name in WITHOUT_TORCHVISION else {}
    for field, value in FIXED[name].items():
        assert from_transformers({"image_processor_type": name, field: value}, **options)
        message = refusal(from_transformers, {"image_processor_type": name, field: not value}, **options)
        assert f'"{field}"' in message
        assert f"is not supported for this class unless it is {str(value).lower()}" in message


@pytest.mark.parametrize("name", WITHOUT_TORCHVISION)
def test_a_class_whose_torchvision_backend_is_not_reproducible_needs_its_pil_backend(name):
    message = refusal(from_transformers, {"image_processor_type": name})
    assert f"the torchvision backend of {name} is not supported: it " in message
    assert message.endswith('the PIL backend is supported: pass --option backend=pil, or backend="pil" in Python')
    assert from_transformers({"image_processor_type": name}, backend="pil").plan.unsupported_by_cuda


@pytest.mark.parametrize("name", ["ViTImageProcessorFast", "ViTImageProcessorPil", "ViTFeatureExtractor"])
@pytest.mark.parametrize("field", ["image_processor_type", "feature_extractor_type"])
def test_old_and_new_names_of_a_class_are_equivalent(field, name):
    assert from_transformers({field: name}) == from_transformers({"image_processor_type": "ViTImageProcessor"})


CLIP = clip(224)
LLAVA = CLIP | {"image_processor_type": "LlavaImageProcessor", "do_pad": True, "pad_size": None}
SIDES = {"height": 240, "width": 240}
STD = (0.47853944, 0.4732864, 0.47434163)
TABLE = {"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 900}
YOLOS = {"image_processor_type": "YolosImageProcessor"}
RT_DETR = {"image_processor_type": "RTDetrImageProcessorFast"}
CROP = {"do_center_crop": True, "crop_size": 90}
NULLS = {"do_convert_rgb": None, "do_normalize": None, "do_rescale": None}
DOWN, UP = (center_crop(224, rounding="down", padding_rounding=padding) for padding in (None, "up"))
RESIZE_640 = resize(height=640, width=640, like="torchvision")
SAM, DPT = ({"image_processor_type": f"{name}ImageProcessor"} for name in ("Sam", "DPT"))
DEPTH_ANYTHING = resize(518, side="nearer", multiple=14, rounding="half_even", filter="bicubic", like="torchvision")
DETR_SIZE = {"shortest_edge": 60, "longest_edge": 101}
EXPECTED_OPS = [  # (configuration, options, index of the first compared op, expected ops)
    (CLIP, {"backend": "pil"}, 1, [resize(224, filter="bicubic"), UP, normalize()]),
    (CLIP, {"backend": "pil"}, 4, [normalize(CLIP_MEAN, CLIP_STD, 1.0, arithmetic="divide"), tensor()]),
    (CLIP | NULLS, {}, 0, [decode()]),
    (LLAVA, {}, 1, [pad(square=True, fill=(122, 116, 104)), resize(224, filter="bicubic", like="torchvision"), DOWN]),
    (LLAVA | {"do_pad": None}, {}, 1, [resize(224, filter="bicubic", like="torchvision"), DOWN]),
    (CLIP | NULLS, {}, 2, [DOWN, tensor(dtype="uint8")]),
    *((vit(224) | {"size": size}, {}, 1, [resize(**SIDES, like="torchvision")]) for size in (240, [240, 240], SIDES)),
    (CLIP | {"size": 240}, {}, 1, [resize(240, filter="bicubic", like="torchvision")]),
    (CLIP | {"size": 240, "default_to_square": True}, {}, 1, [resize(**SIDES, filter="bicubic", like="torchvision")]),
    (convnext(224), {}, 1, [resize(256, filter="bicubic", like="torchvision"), DOWN]),
    (convnext(384), {}, 1, [resize(height=384, width=384, filter="bicubic", like="torchvision")]),
    (efficientnet(224, 289), {}, 1, [resize(height=224, width=224, filter="nearest_exact", like="torchvision")]),
    (efficientnet(224, 289), {}, 3, [normalize(std=STD, scale=1.0, arithmetic="divide")]),
    (efficientnet(224, 289), {"backend": "pil"}, 1, [resize(height=224, width=224, filter="nearest")]),
    (mobilevit(288, 256), {}, 0, [decode(color="bgr")]),
    (mobilevit(288, 256), {}, 3, [normalize(arithmetic="multiply"), tensor()]),
    (vit(224), {}, 0, [decode()]),
    (TABLE, {}, 1, [resize(800, max_size=900, rounding="detr", like="torchvision")]),
    (TABLE | {"size": SIDES}, {"backend": "pil"}, 1, [resize(**SIDES)]),
    (YOLOS, {}, 1, [resize(800, max_size=1333, multiple=16, rounding="detr", like="torchvision")]),
    (YOLOS | CROP, {}, 2, [normalize(IMAGENET_MEAN, IMAGENET_STD, arithmetic="fused"), tensor()]),
    (RT_DETR | CROP, {}, 1, [RESIZE_640, normalize(arithmetic="multiply"), tensor()]),
    (RT_DETR, {"backend": "pil"}, 1, [resize(height=640, width=640), normalize(arithmetic="float64"), tensor()]),
    (RT_DETR | {"size": DETR_SIZE}, {}, 1, [resize(60, max_size=101, rounding="detr", like="torchvision")]),
    (SAM, {}, 1, [resize_by_rule(rule="longer_half_up", size=1024, like="torchvision")]),
    (SAM, {}, 3, [tensor(min_height=1024, min_width=1024)]),
    (SAM | {"do_pad": False}, {}, 3, [tensor()]),
    (DPT, {}, 1, [resize(height=384, width=384, filter="bicubic", like="torchvision")]),
    (DPT | {"keep_aspect_ratio": True, "ensure_multiple_of": 14, "size": 518}, {}, 1, [DEPTH_ANYTHING]),
    (vit(224), {"apply_exif_orientation": False}, 0, [decode(apply_exif_orientation=False)]),
]


@pytest.mark.parametrize(("config", "options", "start", "expected"), EXPECTED_OPS)
def test_a_field_becomes_ops(config, options, start, expected):
    pipeline = from_transformers(config, **options)
    assert list(pipeline.ops[start : start + len(expected)]) == expected
    assert pipeline.origin.profile == next(op.like for op in pipeline.ops if hasattr(op, "like"))


@pytest.mark.parametrize("name", EXACT)
def test_a_configuration_of_the_hub_is_imported_compiled_saved_and_loaded(name):
    pipeline = from_transformers(EXACT[name], name=name)
    assert Pipeline.from_json(pipeline.to_json()) == pipeline
    Engine(pipeline).close()


@pytest.mark.parametrize("name", REFUSED)
def test_an_unknown_class_is_rejected_by_its_name(name):
    field, value = next(iter(REFUSED[name].items()))
    assert refusal(from_transformers, REFUSED[name]).startswith(f'image processor: "{field}": {value!r} ')


SIZE = "must be a height and a width, a shortest_edge, or a number, from 1 to 16384 pixels each"
SIZES = ({"shortest_edge": 224, "longest_edge": 300}, {"longest_edge": 300}, {"height": True, "width": 3}, [1, 2, 3], 0)
NO_DETR = ({"shortest_edge": 9}, {"max_height": 9, "max_width": 9}, {"shortest_edge": 9, "longest_edge": 0}, [9, 9])
SEGFORMER = {"image_processor_type": "SegformerImageProcessor", "do_center_crop": True}
MOBILEVIT = {"image_processor_type": "MobileViTImageProcessor", "do_normalize": True}
WRONG = [
    (CLIP | {"warp": 3}, '"warp": 3 is not supported'),
    # this field belongs to a different class
    (CLIP | {"rescale_offset": True}, '"rescale_offset": True is not supported'),
    (vit(224) | {"use_square_size": True}, '"use_square_size": True is not supported'),
    (
        CLIP | {"auto_map": {"AutoImageProcessor": "x.Y"}},
        "\"auto_map\": {'AutoImageProcessor': 'x.Y'} refers to the model's",
    ),
    (CLIP | {"do_resize": "yes"}, "\"do_resize\": 'yes' must be true or false"),
    *((CLIP | {"size": size}, f'"size": {size} {SIZE}') for size in (*SIZES, None)),
    (CLIP | {"crop_size": {"shortest_edge": 3}}, "\"crop_size\": {'shortest_edge': 3} must have a height and a width"),
    (CLIP | {"resample": 9}, '"resample": 9 must be one of 0 (nearest), 1 (lanczos), 2 (bilinear)'),
    (
        CLIP | {"resample": 4},
        'resize: "filter": "box" with "antialias": true is not supported by "like": "torchvision"',
    ),
    (CLIP | {"rescale_factor": 0}, '"rescale_factor": 0 must be greater than 0'),
    (
        CLIP | {"rescale_factor": 1, "do_normalize": False},
        '"rescale_factor": 1 is an integer, so the class computes in uint8, which may overflow: write it with a '
        "decimal point, such as 1.0",
    ),
    (CLIP | {"image_mean": [1, 2, 3, 4]}, '"image_mean": [1, 2, 3, 4] must be a finite number, or one for each'),
    (CLIP | {"image_std": [0.5, 0.5, 0]}, '"image_std": [0.5, 0.5, 0] must be greater than 0'),
    (CLIP | {"do_pad": True, "pad_size": {"height": 300, "width": 300}}, '"do_pad": True is not supported together'),
    *(
        (LLAVA | {"image_mean": mean}, f'"image_mean": {mean} must be three numbers from 0 to 1, because')
        for mean in ([1.1] * 3, 0.5)
    ),
    (LLAVA | {"crop_size": 300}, 'ops[3] "center_crop": its padding has a different colour than that of an earlier op'),
    *((YOLOS | {"size": size}, f'"size": {size} must have shortest_edge and longest_edge, or') for size in NO_DETR),
    *(
        (RT_DETR | {"size": size}, f'"size": {size} must have shortest_edge and longest_edge, or')
        for size in (9, [9, 9])
    ),
    *((YOLOS | {"crop_size": size}, f'"crop_size": {size} {SIZE}') for size in (9.0, [9], {"height": 9})),
    (CLIP | {"pad_size": {"height": 9, "longest_edge": 9}}, "\"pad_size\": {'height': 9, 'longest_edge': 9} must be"),
    (YOLOS | {"do_center_crop": True}, '"crop_size": None must be set unless "do_center_crop" is false'),
    (SAM | {"pad_size": {"height": 900, "width": 1024}}, '"pad_size": {'),
    (SAM | {"size": 1024}, '"size": 1024 must be an object'),
    (SAM | {"size": {"shortest_edge": 1024}}, "\"size\": {'shortest_edge': 1024} must have only a longest_edge, from"),
    (DPT | {"do_pad": True}, '"size_divisor": None must be'),
    (DPT | {"ensure_multiple_of": 0}, '"ensure_multiple_of": 0 must be an integer'),
    (DPT | {"keep_aspect_ratio": True, "size": [9, 8]}, '"size": [9, 8] must be square if'),
    (YOLOS | {"pad_size": {"height": 9, "width": 9}}, '"do_pad": True is not supported together with pad_size'),
    (CLIP | {"data_format": "channels_last"}, "\"data_format\": 'channels_last' is not supported: remove it, and set"),
    (
        convnext({"height": 224, "width": 224}),
        "\"size\": {'height': 224, 'width': 224} must have only a shortest_edge for",
    ),
    (convnext(224, crop_pct=0.001), '"crop_pct": 0.001 must be greater than 0, and 224 / crop_pct must be from 1'),
    (convnext(224, crop_pct=None), '"crop_pct": None must be a finite number'),
    ({"size": 224}, '"image_processor_type" is missing'),
    (SEGFORMER, '"crop_size": None must be set unless "do_center_crop" is false'),
    (MOBILEVIT | {"image_mean": None}, '"image_mean": None must be set unless "do_normalize" is false'),
    (MOBILEVIT | {"image_std": None}, '"image_std": None must be set unless "do_normalize" is false'),
    (
        efficientnet(224, 289) | {"do_rescale": False, "do_normalize": False},
        '"include_top": True requires "do_rescale" or',
    ),
    (
        {"image_processor_type": "GraniteDoclingImageProcessor", "min_patches": 17, "max_patches": 17},
        '"min_patches": 17 and max_patches allow no grid of at most 16 rows and columns',
    ),
]


@pytest.mark.parametrize(("config", "message"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_unsupported_configurations_are_rejected_by_field(config, message):
    assert refusal(from_transformers, config).startswith(f"image processor: {message}")


@pytest.mark.parametrize(
    ("fields", "max_size"),
    [
        ({"do_resize": False}, 4096),
        ({"size": {"shortest_edge": 24}}, 4096),
        ({"size": {"shortest_edge": 5000}}, 5000),
        ({"size": {"height": 30, "width": 24}}, None),
    ],
)
def test_a_tensor_is_bounded_if_the_class_does_not_limit_the_size(fields, max_size, caplog):
    pipeline = from_transformers(CLIP | {"do_center_crop": False} | fields)
    assert pipeline.ops[-1].max_size == max_size
    limits = [each for each in caplog.messages if 'with "max_size" in tensor' in each]
    assert len(limits) == (max_size is not None)
    assert all(f"limits each side to {max_size} pixels" in each for each in limits)


def test_an_error_of_an_op_names_the_field_from_which_it_follows():
    """The op rejects a small bilinear resize without antialiasing, because PyTorch's result depends on the CPU."""
    config = {"image_processor_type": "DepthProImageProcessor", "size": {"height": 60, "width": 60}}
    assert refusal(from_transformers, config).endswith(
        "; this value is computed from \"size\": {'height': 60, 'width': 60}"
    )


def test_an_unknown_backend_is_rejected():
    assert refusal(from_transformers, CLIP, backend="jax").startswith("options: \"backend\": 'jax' must be one of")


def write(folder, name, values):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_a_folder_provides_the_processor_with_its_nested_configuration_first(tmp_path):
    folder = write(tmp_path / "siglip2", "preprocessor_config.json", clip(224))
    assert from_transformers(folder).ops[1].size == 224
    write(folder, "processor_config.json", {"processor_class": "SiglipProcessor"})
    assert from_transformers(folder).ops[1].size == 224
    write(folder, "processor_config.json", {"image_processor": siglip(384), "processor_class": "SiglipProcessor"})
    pipeline = from_transformers(str(folder))
    assert (pipeline.ops[1].height, pipeline.origin.name) == (384, "siglip2")
    assert from_transformers(folder / "processor_config.json") == pipeline
    assert from_transformers(folder / "preprocessor_config.json").ops[1].size == 224


def test_the_origin_has_the_version_of_the_configuration():
    assert from_transformers(clip(224) | {"transformers_version": "4.40.1"}).origin.version == "4.40.1"


def test_the_name_is_that_of_the_folder_or_the_class(tmp_path):
    assert from_transformers(clip(224)).origin.name == "CLIPImageProcessor"
    folder = write(tmp_path / "my-clip", "preprocessor_config.json", clip(224))
    assert from_transformers(folder / "preprocessor_config.json").origin.name == "my-clip"
    assert from_transformers(folder, name="mine").origin.name == "mine"


def test_a_folder_with_only_a_video_processor_is_read_without_the_option_frames(tmp_path):
    """This is the case for V-JEPA 2. If both processors exist, the option ``frames`` selects the video processor."""
    video = {"video_processor_type": "LlavaNextVideoVideoProcessor", "do_sample_frames": True}
    folder = write(tmp_path / "video", "video_preprocessor_config.json", video | {"num_frames": 8})
    assert from_transformers(folder).ops[0] == decode_video(frames=8, sample="segments")
    write(folder, "video_preprocessor_config.json", video)
    assert "set the option frames, such as frames=16" in refusal(from_transformers, folder)
    write(folder, "preprocessor_config.json", clip(224))
    assert from_transformers(folder).ops[0] == decode(alpha="white")
    assert from_transformers(folder, frames=4).ops[0] == decode_video(frames=4, sample="segments")


def test_the_video_processor_of_a_folder_with_both_is_selected_by_an_option(tmp_path):
    both = {"image_processor": clip(224), "video_processor": {"video_processor_type": "Qwen3VLVideoProcessor"}}
    folder = write(tmp_path / "qwen3", "processor_config.json", both)
    selected = decode_video(frames=768, sample="rounded", rate=2, min_frames=4)
    assert from_transformers(folder).ops[0] == decode(alpha="white")
    for path in (folder, folder / "processor_config.json"):
        assert from_transformers(path, video=True).ops[0] == selected
    assert from_transformers(folder, fps=1, frames=32).ops[0] == changed(selected, frames=32, rate=1)
    assert "the option video applies only to video processors" in refusal(from_transformers, clip(224), video=True)


def test_a_variable_number_of_frames_requires_square_frames():
    config = {"video_processor_type": "LlavaNextVideoVideoProcessor", "size": {"shortest_edge": 64}}
    square = from_transformers(config | {"crop_size": 56}, fps=2, frames=4)
    assert square.outputs["pixel_values_videos"].spec.largest == (4, 3, 56, 56)
    for fields in ({"crop_size": {"height": 56, "width": 40}}, {"do_center_crop": False}):
        message = refusal(from_transformers, config | fields, fps=2, frames=4)
        assert "fps requires frames of equal height and width" in message


def test_the_sampling_of_smolvlm_is_read_from_its_own_field():
    sampling = {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 512}}
    config = {"video_processor_type": "SmolVLMVideoProcessor", "do_sample_frames": True, "video_sampling": sampling}
    pipeline = from_transformers(config)
    assert pipeline.ops[0] == decode_video(frames=64, sample="trimmed", rate=1)
    assert pipeline.ops[1].size == 512
    assert from_transformers(config | {"size": {"longest_edge": 2048}}).ops[1].size == 2048
    assert pipeline.outputs["pixel_values"].spec.largest == (64, 3, 364, 364)


def test_an_unreadable_file_is_named(tmp_path):
    folder = write(tmp_path / "empty", "config.json", {})
    assert refusal(from_transformers, folder).startswith("empty: the folder contains neither")
    assert refusal(from_transformers, tmp_path / "missing.json").startswith("missing.json: cannot be read")
    write(tmp_path, "preprocessor_config.json", clip(224) | {"warp": 3})
    assert refusal(from_transformers, tmp_path) == 'preprocessor_config.json: "warp": 3 is not supported'


TOWERS = {
    "Qwen2-VL": ({"image_processor_type": "Qwen2VLImageProcessor"}, "image_grid_thw", 1 / 4),
    "Qwen2.5-VL": (
        {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12_845_056},
        *("image_grid_thw", 1 / 4),
    ),
    "Qwen3-VL": (
        {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16}
        | {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}},
        *("image_grid_thw", 1 / 4),
    ),
    "InternVL": (
        {"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True, "max_patches": 12}
        | {"size": {"height": 448, "width": 448}},
        *("num_patches", 256),
    ),
    "Gemma 4": ({"image_processor_type": "Gemma4ImageProcessor"}, "num_soft_tokens_per_image", 1),
}


def test_the_numbers_of_tokens_in_the_docs_follow_from_the_pipelines():
    page = (Path(__file__).parents[2] / "docs" / "vision-language.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w. -]+)[^|]*\|[^|]*\| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert [name.strip() for name, *_ in rows] == [*TOWERS]
    for name, *shown in rows:
        config, output, factor = TOWERS[name.strip()]
        plan = from_transformers(config).plan
        for count, (width, height) in zip(shown, ((640, 480), (1920, 1080), (4000, 3000)), strict=True):
            numbers = plan.numbers[output].numbers(height, width, plan.place(height, width).placements[output])
            assert int(np.prod(numbers) * factor) == int(count), (name, width)


@pytest.mark.parametrize("name", REASONS)
def test_a_class_that_cannot_be_supported_is_rejected_with_the_reason(name):
    message = refusal(from_transformers, {"image_processor_type": f"{name}Fast"})
    expected = f"'{name}Fast' is not supported; {REASONS[name]}"
    assert message == f'image processor: "image_processor_type": {expected}'
