"""Tests that every ``pretrained_cfg`` of timm is imported exactly: tensors equal those of timm's transform on PIL
images bit for bit.
"""

import json
from collections import defaultdict
from functools import cache
from importlib.util import find_spec

import pytest

from pixprep import PipelineError
from pixprep.importers.timm import from_timm
from support.compare import assert_close
from support.images import noise, png, read
from support.importing import ours, photos, refusal

if find_spec("timm") is None:
    pytest.skip("NO TIMM: its importer was not compared", allow_module_level=True)

import timm
from timm.data import create_transform, resolve_data_config

EXACT_SHARE = 1.0
"""Minimum fraction of configurations that are imported exactly. With timm 1.0.31, all 1,826 configurations are exact.
173 of them are distinct, and none is rejected.
"""


def theirs(config, images=None, **options):
    transform = create_transform(**resolve_data_config({}, pretrained_cfg=config, **options))
    return [transform(read(image).convert("RGB")).numpy() for image in images or photos()]


@cache
def configurations():
    """Return the name of every model and its ``pretrained_cfg`` as a dictionary."""
    return {name: timm.models.get_pretrained_cfg(name).to_dict() for name in timm.list_pretrained()}


def sweep(configs, **options):
    """Compare every configuration. Configurations with equal transforms are compared only once.

    Returns:
        The names that are exact, and those rejected with the reason.
    """
    groups, refused = defaultdict(list), {}
    for name, config in configs.items():
        try:
            pipeline = from_timm(config, name=name, **options)
        except PipelineError as error:
            refused[name] = str(error)
            continue
        resolved = resolve_data_config({}, pretrained_cfg=config, **options)
        groups[repr(sorted(resolved.items())), pipeline.ops].append(name)
    for names in groups.values():
        pipeline = from_timm(configs[names[0]], **options)
        for actual, expected in zip(ours(pipeline, photos()), theirs(configs[names[0]], **options), strict=True):
            assert_close(actual, expected)
    exact = [name for names in groups.values() for name in names]
    print(
        f"\ntimm {timm.__version__} {options or ''}: {len(exact)} of {len(configs)} configurations are exact "
        f"({len(exact) / len(configs):.2%}; {len(groups)} distinct), {len(refused)} are refused: {refused}"
    )
    assert all(any(f'"{field}"' in why for field in configs[name]) for name, why in refused.items())
    return exact, refused


def test_every_configuration_is_exact_or_rejected_by_a_named_field(capsys):
    with capsys.disabled():
        exact, refused = sweep(configurations())
    assert len(exact) + len(refused) == len(configurations()) > 1800
    assert len(exact) >= EXACT_SHARE * len(configurations())


def test_the_test_sizes_are_also_exact(capsys):
    tested = {name: config for name, config in configurations().items() if config.get("test_input_size")}
    assert len(tested) > 300
    with capsys.disabled():
        exact, _ = sweep(tested, use_test_size=True)
    assert len(exact) >= EXACT_SHARE * len(tested)


CONFIG = {"input_size": (3, 96, 96), "crop_pct": 0.9, "interpolation": "bicubic", "mean": (0.5, 0.4, 0.3)}
VARIANTS = {
    "squash": {"crop_mode": "squash"},
    "squash whole": {"crop_mode": "squash", "crop_pct": 1.0},
    "border": {"crop_mode": "border", "crop_pct": 1.0},
    "border, not square": {"crop_mode": "border", "crop_pct": 1.0, "input_size": (3, 75, 131)},
    "squash, not square": {"crop_mode": "squash", "input_size": (3, 75, 131)},
    "center, not square": {"input_size": (3, 75, 131)},
    "center, tall": {"input_size": (3, 131, 75)},
    "center, nearly square": {"input_size": (3, 96, 97), "crop_pct": 4.0},
    "a crop larger than the image": {"crop_pct": 1.15},
    "no crop_pct": {"crop_pct": None},
    "crop_pct 0": {"crop_pct": 0},
    "no mean": {"mean": None, "std": ()},
    **{name: {"interpolation": name} for name in ("nearest", "box", "bilinear", "hamming", "lanczos")},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_that_no_model_has_are_also_exact(variant):
    config = CONFIG | VARIANTS[variant]
    images = [*photos(), png(noise(97, 61)), png(noise(41, 300)), png(noise(96, 96)), png(noise(1, 7))]
    for actual, expected in zip(ours(from_timm(config), images), theirs(config, images), strict=True):
        assert_close(actual, expected)


def test_a_name_and_its_hub_file_give_the_same_ops(tmp_path):
    name = "resnet50.a1_in1k"
    config = configurations()[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architecture": "resnet50", "num_classes": 1000, "pretrained_cfg": config}))
    from_name, from_file = from_timm(name), from_timm(path)
    assert from_name == from_file
    assert from_name.origin.name == name
    assert from_name.origin.version == timm.__version__
    assert from_timm(name, use_test_size=True).outputs["tensor"].spec.shape == (3, 288, 288)


@pytest.mark.parametrize(
    "arguments",
    [
        {"img_size": 160},
        {"img_size": [64, 128]},
        {"img_size": 160, "dynamic_img_size": True},
        {"img_size": 160, "strict_img_size": False},
        {"img_size": 160, "use_naflex": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_fixed", [True, False])
def test_the_arguments_of_a_saved_model_change_its_size_like_in_timm(arguments, is_fixed, tmp_path):
    config = CONFIG | {"fixed_input_size": is_fixed}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architecture": "vit", "model_args": arguments, "pretrained_cfg": config}))
    expected, _, _ = timm.models._hub.load_model_config_from_path(tmp_path)
    assert from_timm(path).outputs["tensor"].spec.shape == tuple(expected["input_size"])


@pytest.mark.parametrize("name", ["resnet_50", "resnet50.no_such_tag", "", "../resnet50"])
def test_a_name_unknown_to_timm_is_rejected(name):
    assert refusal(from_timm, name).startswith("timm does not have a pretrained")
