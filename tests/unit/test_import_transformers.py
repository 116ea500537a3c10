"""Image processors of transformers are read without it: from a dictionary, a file or a folder, each field by its name.

Their pixels are compared with the library in tests/parity.
"""

import json

import numpy as np
import pytest

from compare import assert_close
from hub_configs import EXACT, REFUSED, clip, convnext, efficientnet, mobilevit, siglip, vit
from pixprep import Engine, Pipeline, PipelineError, center_crop, decode, normalize, resize, tensor
from pixprep.compiler import compile_pipeline
from pixprep.importers.transformers import DEFAULTS, from_transformers

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def test_clip_becomes_five_ops():
    pipeline = from_transformers(clip(224), name="openai/clip-vit-base-patch32")
    assert pipeline.ops == (
        decode(alpha="white"),
        resize(224, filter="bicubic", like="torchvision"),
        center_crop(224, rounding="down"),
        normalize(CLIP_MEAN, CLIP_STD, arithmetic="fused"),
        tensor(),
    )
    assert pipeline.source.library == "transformers"
    assert pipeline.source.name == "openai/clip-vit-base-patch32"
    assert pipeline.source.profile == "torchvision"


def test_fused_constants_are_products_of_float32_as_in_pytorch():
    table = compile_pipeline(from_transformers(clip(224))).outputs["tensor"].table
    levels = np.arange(256, dtype=np.float32)
    for values, mean, std in zip(table, CLIP_MEAN, CLIP_STD, strict=True):
        assert_close(values, (levels - np.float32(mean) * np.float32(255)) / (np.float32(std) * np.float32(255)))
    quotients = [np.float32(value / (1 / 255)) == np.float32(value) * np.float32(255) for value in CLIP_MEAN + CLIP_STD]
    assert not all(quotients)  # else the test says nothing


def test_the_pil_backend_resizes_like_pillow_and_does_not_fuse():
    pipeline = from_transformers(clip(224), backend="pil")
    assert pipeline.ops[1:4] == (
        resize(224, filter="bicubic", like="pillow"),
        center_crop(224, rounding="down"),
        normalize(),
    )
    assert pipeline.ops[4] == normalize(CLIP_MEAN, CLIP_STD, 1.0, arithmetic="divide")
    assert pipeline.source.profile == "pillow"


def test_fields_that_are_absent_have_the_values_of_the_class():
    for name, defaults in DEFAULTS.items():
        bare = from_transformers({"image_processor_type": name})
        assert bare == from_transformers(
            defaults | {"image_processor_type": name, "image_mean": [*defaults["image_mean"]]}
        )


def test_a_null_switches_off_what_is_on_by_default():
    pipeline = from_transformers(clip(224) | {"do_convert_rgb": None, "do_normalize": None, "do_rescale": None})
    assert pipeline.ops[0].alpha == "drop"
    assert pipeline.ops[-1] == tensor(dtype="uint8")
    assert len(pipeline.ops) == 4


@pytest.mark.parametrize(
    "spelling",
    [
        {"image_processor_type": "ViTImageProcessor"},
        {"image_processor_type": "ViTImageProcessorFast"},
        {"image_processor_type": "ViTImageProcessorPil"},
        {"image_processor_type": "ViTFeatureExtractor"},
        {"feature_extractor_type": "ViTFeatureExtractor"},
    ],
)
def test_old_and_new_names_of_a_class_are_the_same(spelling):
    pipeline = from_transformers(spelling, name="vit")
    assert pipeline == from_transformers({"image_processor_type": "ViTImageProcessor"}, name="vit")


@pytest.mark.parametrize("size", [240, [240, 240], {"height": 240, "width": 240}])
def test_a_size_of_a_class_that_squares_has_three_spellings(size):
    assert from_transformers(vit(224) | {"size": size}).ops[1] == resize(
        height=240, width=240, like="torchvision", filter="bilinear"
    )


def test_a_number_is_the_shorter_side_of_a_class_that_does_not_square():
    assert from_transformers(clip(224) | {"size": 240}).ops[1].size == 240
    squared = from_transformers(clip(224) | {"size": 240, "default_to_square": True})
    assert (squared.ops[1].height, squared.ops[1].width) == (240, 240)


def test_convnext_crops_below_384_and_stretches_from_there_on():
    assert from_transformers(convnext(224)).ops[1:3] == (
        resize(256, filter="bicubic", like="torchvision"),
        center_crop(224, rounding="down"),
    )
    assert from_transformers(convnext(384)).ops[1] == resize(
        height=384, width=384, filter="bicubic", like="torchvision"
    )


def test_efficientnet_divides_by_the_standard_deviation_again():
    std = (0.47853944, 0.4732864, 0.47434163)
    pipeline = from_transformers(efficientnet(224, 289))
    assert pipeline.ops[-2] == normalize(std=std, scale=1.0, arithmetic="divide")
    assert pipeline.ops[1].filter == "nearest_exact"
    assert from_transformers(efficientnet(224, 289), backend="pil").ops[1].filter == "nearest"


def test_mobilevit_is_bgr_and_only_rescaled():
    pipeline = from_transformers(mobilevit(288, 256))
    assert pipeline.ops[0].color == "bgr"
    assert pipeline.ops[3] == normalize(arithmetic="multiply")


def test_the_orientation_of_exif_is_a_choice():
    assert from_transformers(vit(224)).ops[0].apply_exif_orientation
    assert not from_transformers(vit(224), apply_exif_orientation=False).ops[0].apply_exif_orientation


@pytest.mark.parametrize("name", EXACT)
def test_a_configuration_of_the_hub_is_imported_compiles_and_survives_its_file(name):
    pipeline = from_transformers(EXACT[name], name=name)
    assert Pipeline.from_json(pipeline.to_json()) == pipeline
    Engine(pipeline).close()


@pytest.mark.parametrize("name", REFUSED)
def test_another_class_is_refused_by_its_name(name):
    config, field = REFUSED[name]
    with pytest.raises(PipelineError, match=field):
        from_transformers(config)


WRONG = {
    "an unknown field": ({"warp": 3}, '"warp": 3 is not understood'),
    "a field of another class": ({"rescale_offset": True}, '"rescale_offset": True is not understood'),
    "another class's flag": ({"do_flip_channel_order": True}, '"do_flip_channel_order": True is not understood'),
    "another class's size": (
        {"use_square_size": True, "image_processor_type": "ViTImageProcessor"},
        '"use_square_size"',
    ),
    "code": ({"auto_map": {"AutoImageProcessor": "x.Y"}}, '"auto_map": .* names code'),
    "a kind": ({"do_resize": "yes"}, "\"do_resize\": 'yes' must be bool"),
    "two edges": ({"size": {"shortest_edge": 224, "longest_edge": 300}}, '"size": .* is not understood'),
    "a longest edge": ({"size": {"longest_edge": 300}}, '"size": .* is not understood'),
    "pixels": ({"size": {"min_pixels": 1, "max_pixels": 300}}, '"size": .* is not understood'),
    "no size": ({"size": None}, '"size": None is not understood'),
    "three sides": ({"size": [1, 2, 3]}, '"size": .* is not understood'),
    "a side of 0": ({"size": 0}, '"size": 0 must be 1 to 16384'),
    "a side that is true": ({"size": {"height": True, "width": 3}}, '"size": .* must be 1 to 16384'),
    "no crop and one side": ({"do_center_crop": False}, '"size": .* different sizes'),
    "no crop and no resize": ({"do_center_crop": False, "do_resize": False}, '"do_resize": False .* different sizes'),
    "a crop of one side": ({"crop_size": {"shortest_edge": 3}}, '"crop_size": .* a height and a width'),
    "an unknown filter": ({"resample": 9}, '"resample": 9 is not supported'),
    "a filter of Pillow": ({"resample": 4}, '"resample": 4 is not supported with the torchvision backend'),
    "no filter": ({"resample": None}, '"resample": None is not supported'),
    "a scale of 0": ({"rescale_factor": 0}, '"rescale_factor": 0 must be a number over 0'),
    "no scale": ({"rescale_factor": None}, '"rescale_factor": None must be a number over 0'),
    "four means": ({"image_mean": [1, 2, 3, 4]}, '"image_mean": .* must be a number or three'),
    "no mean": ({"image_mean": None}, '"image_mean": None must be a number or three'),
    "a deviation of 0": ({"image_std": [0.5, 0.5, 0]}, '"image_std": .* must be over 0'),
    "a pad": ({"do_pad": True, "pad_size": {"height": 300, "width": 300}}, '"do_pad": True with a pad_size'),
    "channels last": ({"data_format": "channels_last"}, '"data_format": \'channels_last\' .* "layout": "hwc"'),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_refused_by_its_field(case):
    change, message = WRONG[case]
    with pytest.raises(PipelineError, match=f"^image processor: {message}"):
        from_transformers(clip(224) | change)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (convnext({"height": 224, "width": 224}), '"size": .* must be a shortest_edge'),
        (convnext(224, crop_pct=0.001), '"crop_pct": 0.001 makes a side of 224'),
        (convnext(224, crop_pct=None), '"crop_pct": None must be a number'),
        (efficientnet(224, 289, do_rescale=False, do_normalize=False), '"include_top": True'),
        ({"size": 224}, '"image_processor_type" is missing'),
    ],
)
def test_the_fields_of_one_class_are_refused_by_name_too(config, message):
    with pytest.raises(PipelineError, match=message):
        from_transformers(config)


def test_a_crop_that_pads_is_refused_for_pil_where_its_margin_is_not_sure():
    for size in ({"shortest_edge": 200}, {"height": 201, "width": 224}):
        from_transformers(clip(224) | {"size": size})
        with pytest.raises(PipelineError, match=r'"crop_size": .* may pad'):
            from_transformers(clip(224) | {"size": size}, backend="pil")
    from_transformers(clip(224) | {"size": {"height": 200, "width": 224}}, backend="pil")


def test_another_backend_is_refused():
    with pytest.raises(PipelineError, match="backend must be"):
        from_transformers(clip(224), backend="jax")


def write(folder, name, values):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_a_folder_gives_the_processor_its_nested_configuration_first(tmp_path):
    folder = write(tmp_path / "siglip2", "preprocessor_config.json", clip(224))
    assert from_transformers(folder).ops[1].size == 224
    write(folder, "processor_config.json", {"processor_class": "SiglipProcessor"})
    assert from_transformers(folder).ops[1].size == 224
    write(folder, "processor_config.json", {"image_processor": siglip(384), "processor_class": "SiglipProcessor"})
    pipeline = from_transformers(str(folder))
    assert (pipeline.ops[1].height, pipeline.source.name) == (384, "siglip2")
    assert from_transformers(folder / "processor_config.json") == pipeline
    assert from_transformers(folder / "preprocessor_config.json").ops[1].size == 224


def test_the_source_says_the_version_that_the_configuration_does():
    assert from_transformers(clip(224) | {"transformers_version": "4.40.1"}).source.version == "4.40.1"


def test_a_name_is_the_folders_or_the_class(tmp_path):
    assert from_transformers(clip(224)).source.name == "CLIPImageProcessor"
    folder = write(tmp_path / "my-clip", "preprocessor_config.json", clip(224))
    assert from_transformers(folder / "preprocessor_config.json").source.name == "my-clip"
    assert from_transformers(folder, name="mine").source.name == "mine"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(PipelineError, match=r"^empty: neither a preprocessor_config.json nor"):
        from_transformers(write(tmp_path / "empty", "config.json", {}))
    with pytest.raises(PipelineError, match=r"^missing.json: cannot be read"):
        from_transformers(tmp_path / "missing.json")
    (tmp_path / "preprocessor_config.json").write_text("[1", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"^preprocessor_config.json: "):
        from_transformers(tmp_path)
    write(tmp_path, "preprocessor_config.json", clip(224) | {"warp": 3})
    with pytest.raises(PipelineError, match=r'^preprocessor_config.json: "warp": 3'):
        from_transformers(tmp_path)
