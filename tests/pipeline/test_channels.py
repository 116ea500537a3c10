"""Tests tensors with one channel instead of three equal ones, and with four channels: in the engine, in training, and
in pictures.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.verify import verify
from pixprep.importers.verify.stages import Stage
from pixprep.show.drawing import true_colours
from pixprep.show.pictures import stages
from pixprep.show.preview import preview
from pixprep.show.words import explain, op_words
from support.clips import clip
from support.images import noise, photo, png, scene

PHOTOS = [png(scene(50, 70)), png(noise(90, 40)), png(noise(33, 35, seed=1))]
SIZED = [pp.resize(40), pp.center_crop(32, 36)]
GRAY = [pp.grayscale()]
TYPES = [(dtype, layout) for dtype in ("float32", "float16", "uint8") for layout in ("chw", "hwc", "hcw", "1wch")]
GRAYS = {
    "behind the geometry": [*SIZED, *GRAY],
    "of the whole photo": [*GRAY, *SIZED],
    "of a letterbox": [*GRAY, pp.letterbox(32, 36, fill=7)],
    "of real values": [*GRAY, pp.resize(height=32, width=36, like="tensorflow")],
    "by a matrix": [*SIZED, pp.color_matrix(((0.3, 0.6, 0.1, 2.0),) * 3)],
    "cropped behind it": [pp.resize(40), *GRAY, pp.crop(0, 0, 32, 36), pp.contrast(1.3), pp.flip()],
    "resized behind a warp": [pp.resize(50), *GRAY, pp.rotate(20, fill=9), pp.resize(height=32, width=36)],
}


def made(*ops, color="rgb", encoded=PHOTOS, **tensor):
    """Return the tensors as an array (n, height, width, channels)."""
    pipeline = pp.Pipeline([pp.decode(color=color), *ops, pp.tensor(**tensor)])
    with pp.Engine(pipeline, threads=1, odd_range=True) as engine:
        batch = engine.run_batch(encoded)
    assert batch.errors == [None] * len(encoded)
    return pipeline.outputs["tensor"].spec.view(batch.padded("tensor"), "hwc")


def normalized(dtype, mean=(0.485, 0.456, 0.406), std=0.25):
    return [] if dtype == "uint8" else [pp.normalize(mean=mean, std=std)]


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize(("dtype", "layout"), TYPES)
def test_a_fourth_channel_has_its_value_and_the_others_do_not_change(dtype, layout, color):
    ops, how = [*SIZED, *normalized(dtype)], {"dtype": dtype, "layout": layout, "color": color}
    plain = made(*ops, **how)
    for value in (0, 255, (1, 2, 3, 200)):
        fourth = np.ravel(value)[-1]
        found = made(*ops, **how, channels=4, pad_value=value)
        assert np.array_equal(found, np.pad(plain, ((0, 0),) * 3 + ((0, 1),), constant_values=fourth)), value
        padded = made(*ops, **how, channels=4, pad_value=value, multiple=25, min_height=64)
        whole = np.full((3, 75, 50, 4), value, dtype)
        whole[:, :32, :36] = found
        assert np.array_equal(padded, whole), value


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("ops", GRAYS.values(), ids=GRAYS)
def test_one_channel_equals_each_of_the_three(ops, color):
    for dtype, layout in TYPES:
        if dtype == "uint8" and getattr(ops[-1], "like", "") == "tensorflow":
            continue
        values = [*ops, *normalized(dtype, 0.5)]
        three, one = (made(*values, dtype=dtype, layout=layout, color=color, channels=count) for count in (None, 1))
        assert one.shape == (3, 32, 36, 1)
        assert np.array_equal(np.repeat(one, 3, axis=3), three)
        assert len(np.unique(one)) > 40


TURN = ((0.9, 0.1, 2), (-0.1, 0.9, 3))
KEEPING = [
    *(pp.brightness(1.3, like=like) for like in ("pillow", "torchvision", "opencv")),
    *(op(1.4, like=like) for op in (pp.contrast, pp.saturation) for like in ("pillow", "torchvision", "opencv")),
    *(pp.sharpness(1.7, like=like) for like in ("pillow", "torchvision")),
    *(pp.gaussian_blur(5, 1.1, like=like) for like in ("torchvision", "opencv")),
    *(pp.rotate(20, filter="bilinear", fill=9, like=like) for like in ("pillow", "torchvision", "dali")),
    *(pp.affine(10, filter="bilinear", like=like) for like in ("pillow", "torchvision", "opencv")),
    *(pp.autocontrast(like=like) for like in ("pillow", "torchvision")),
    *(pp.equalize(), pp.invert(), pp.gamma(1.4), pp.posterize(3), pp.solarize(90), pp.permute_channels((2, 0, 1))),
    *(pp.erase(3, 4, 9, 8, fill=200), pp.pad(50, 50, fill=3), pp.warp(matrix=TURN, height=40, width=40)),
    pp.color_matrix(((1.3, 0, 0, 4), (0, 1.3, 0, 4), (0, 0, 1.3, 4))),
]


@pytest.mark.parametrize("op", KEEPING, ids=str)
@pytest.mark.parametrize("like", ["pillow", "torchvision", "opencv"])
def test_ops_allowed_after_gray_keep_the_channels_equal(op, like):
    """Other ops would make the channels differ. ``KEEPING`` lists the ops that a pipeline file accepts after
    ``gray``.
    """
    three, one = (
        made(pp.resize(height=41, width=39), pp.grayscale(like=like), op, dtype="uint8", channels=count)
        for count in (None, 1)
    )
    assert np.array_equal(np.repeat(one, 3, axis=3), three)


UNEQUAL = '"channels": 1 requires three equal channels: add grayscale'
COLOURING = {
    "nothing gray": [],
    "a sum of other factors": [pp.color_matrix(((0.3, 0.6, 0.1, 2.0),) * 2 + ((0.3, 0.6, 0.2, 2.0),))],
    "hues": [*GRAY, pp.hue_saturation_value(0, 20, 0)],
    "a coloured margin": [*GRAY, pp.pad(50, 50, fill=(1, 2, 3))],
    "a coloured margin of the photo": [*GRAY, pp.pad(120, 120, fill=(1, 2, 3)), pp.resize(height=9, width=9)],
    "a coloured corner": [*GRAY, pp.rotate(9, fill=(1, 2, 3))],
    "a coloured rectangle": [*GRAY, pp.erase(1, 1, 9, 9, fill=(1, 2, 3))],
    "a mean a channel": [*GRAY, pp.normalize(mean=(0.1, 0.2, 0.3))],
}


@pytest.mark.parametrize("ops", COLOURING.values(), ids=COLOURING)
def test_one_channel_is_rejected_if_three_may_differ(ops):
    with pytest.raises(pp.PipelineError, match=UNEQUAL):
        made(*ops, channels=1, max_size=100)


RANDOM = {
    "moved": (pp.random_rotate(30), True),
    "sometimes": (pp.random_invert(p=0.5), True),
    "chosen": (pp.random_choice([[pp.gaussian_blur(3, 1.0)], [pp.rotate(4)]]), True),
    "gray in some images": (pp.random_gray(p=0.5), True),
    "coloured": (pp.color_jitter(hue=0.1), False),
    "chosen colours": (pp.random_choice([[pp.gaussian_blur(3, 1.0)], [pp.hue(0.1)]]), False),
}


@pytest.mark.parametrize(("op", "is_kept"), RANDOM.values(), ids=RANDOM)
def test_a_random_op_after_gray_is_accepted_if_it_adds_no_colour(op, is_kept):
    ops = [pp.decode(), pp.resize(height=24, width=20), *GRAY, op, pp.normalize(mean=0.5)]
    if not is_kept:
        with pytest.raises(pp.PipelineError, match=UNEQUAL):
            pp.Pipeline([*ops, pp.tensor(channels=1)]).for_training()
        return
    batches = []
    for count in (None, 1):
        pipeline, source = pp.Pipeline([*ops, pp.tensor(channels=count)]), [{"image": each} for each in PHOTOS * 4]
        with pp.Loader(source, pipeline, batch_size=12) as loader:
            batches.append(next(iter(loader))["tensor"])
    assert np.array_equal(np.repeat(batches[1], 3, axis=1), batches[0])


@pytest.mark.parametrize("gray", [[pp.random_gray(p=0.9)], [pp.random_apply([pp.grayscale()], 0.9)]], ids=str)
def test_gray_for_only_some_images_does_not_allow_one_channel(gray):
    with pytest.raises(pp.PipelineError, match=UNEQUAL):
        pp.Pipeline([pp.decode(), *SIZED, *gray, pp.tensor(channels=1)]).for_training()


@pytest.mark.parametrize("value", [0.25, "random", "random_color"])
def test_erased_values_of_one_channel_equal_the_first_of_three(value):
    ops = [pp.decode(), *SIZED, *GRAY, pp.normalize(mean=0.5, std=0.5), pp.random_erasing(1.0, value=value)]
    found = []
    for count in (None, 1):
        pipeline = pp.Pipeline([*ops, pp.tensor(channels=count)]).for_training()
        places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=1, epoch=0, indices=range(3))]
        with pp.Engine(pipeline, threads=1) as engine:
            found.append(engine.run_batch(PHOTOS, places=places)["tensor"])
    assert np.array_equal(found[1], found[0][:, :1])
    with pytest.raises(pp.PipelineError, match=UNEQUAL):
        pp.Pipeline([*ops[:-1], pp.random_erasing(value=(0.1, 0.2, 0.3)), pp.tensor(channels=1)]).for_training()


@pytest.mark.parametrize("number", ["max", "mean"])
def test_an_image_can_be_scaled_by_its_own_number_with_any_channels(number):
    scaled = pp.normalize(scale=number, mean=0.1, std=0.5)
    three, one, four = (made(*SIZED, *GRAY, scaled, channels=count) for count in (None, 1, 4))
    assert np.array_equal(one, three[..., :1])
    assert np.array_equal(four, np.pad(three, ((0, 0),) * 3 + ((0, 1),)))


def test_a_batch_of_open_sizes_is_padded_in_every_channel():
    ops, how = [pp.resize(24, max_size=70), pp.normalize(mean=(0.1, 0.5, 0.2))], {"multiple": 8}
    plain = made(*ops, **how)
    found = made(*ops, **how, channels=4, pad_value=(0, 0, 0, 1))
    assert np.array_equal(found, np.pad(plain, ((0, 0),) * 3 + ((0, 1),), constant_values=1))
    leveled, four = (made(*ops, **how, pad_level=(9, 0, 255), channels=count) for count in (None, 4))
    assert np.array_equal(four, np.pad(leveled, ((0, 0),) * 3 + ((0, 1),)))
    gray = [pp.resize(24, max_size=70), *GRAY, pp.normalize(mean=0.3)]
    three, one = (made(*gray, **how, pad_level=9, channels=count) for count in (None, 1))
    assert np.array_equal(one, three[..., :1])


@pytest.mark.parametrize("layout", ["tchw", "thwc", "cthw"])
def test_each_frame_of_a_clip_has_the_channels(layout):
    pytest.importorskip("av")
    found = []
    for ops, fields in (([], {}), ([], {"channels": 4, "pad_value": 2}), (GRAY, {}), (GRAY, {"channels": 1})):
        pipeline = pp.Pipeline([pp.decode_video(frames=3), *SIZED, *ops, pp.tensor(layout=layout, **fields)])
        with pp.Engine(pipeline, threads=1, odd_range=True) as engine:
            (tensor,) = engine.run([clip("vp9.webm")])
        found.append(pipeline.outputs["tensor"].spec.view(tensor, "thwc"))
    plain, four, gray, one = found
    assert np.array_equal(four, np.pad(plain, ((0, 0),) * 3 + ((0, 1),), constant_values=2))
    assert np.array_equal(one, gray[..., :1])


def test_mixup_and_mosaic_do_not_change_a_fourth_channel():
    source = [{"image": photo, "label": index % 3} for index, photo in enumerate(PHOTOS * 4)]
    for mix in (pp.Mix(3, mixup=1.0), pp.Mix(3, cutmix=1.0), pp.Mosaic(height=8)):
        found = []
        for fields in ({}, {"channels": 4, "pad_value": 0.1}):
            pipeline = pp.Pipeline([pp.decode(), *SIZED, pp.normalize(), pp.tensor(layout="hwc", **fields)])
            with pp.Loader(source, pipeline, batch_size=12, mix=mix, seed=2) as loader:
                found.append(next(iter(loader))["tensor"])
        assert np.array_equal(found[1], np.pad(found[0], ((0, 0),) * 3 + ((0, 1),), constant_values=np.float32(0.1)))


def test_previews_pictures_and_explain_show_the_channels():
    pipeline = pp.Pipeline([pp.decode(color="bgr"), *SIZED, pp.normalize(), pp.tensor(channels=4, pad_value=1)])
    (shown,) = preview(pipeline, photo()).tensors
    assert (shown.channels, shown.tensor.shape, shown.shape) == (["blue", "green", "red"], (32, 36, 3), [4, 32, 36])
    assert "fourth channel: 1" in explain(pipeline)
    assert op_words(pipeline)[-1] == "output the image as float32 chw, 4 channels"
    gray = pp.Pipeline([pp.decode(color="bgr"), *SIZED, *GRAY, pp.normalize(mean=0.5), pp.tensor(channels=1)])
    (shown,) = preview(gray, photo()).tensors
    assert (shown.channels, shown.tensor.shape, shown.levels.shape) == (["gray"], (32, 36, 1), (32, 36, 1))
    assert "gray: " in explain(gray)
    assert "red: " not in explain(gray)
    for each in (pipeline, gray):
        assert stages(each, photo()).width > 1000
        with pp.Engine(each, threads=1) as engine:
            (tensor,) = engine.run([photo()])
        levels = true_colours(each.plan.outputs["tensor"], tensor).astype(int)
        expected = Stage([pp.decode(), *[op for op in each.ops[1:-1] if not isinstance(op, pp.normalize)]]).run(photo())
        assert np.abs(levels - expected[:, :, : levels.shape[2]]).max() <= 1


@pytest.mark.parametrize(
    "ops",
    [[pp.tensor(channels=4, pad_value=(0, 0, 0, 1), multiple=24)], [*GRAY, pp.tensor(channels=1)]],
    ids=["four", "one"],
)
def test_verify_compares_every_channel(ops):
    certificate = verify(pp.Pipeline([pp.decode(), *SIZED, *ops]), images=[("photo", photo())], generate=False)
    assert all(row.holds for row in certificate.rows)
    assert {"tensor", "end to end"} <= {row.stage for row in certificate.rows}
