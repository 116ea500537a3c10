"""Tests custom operators: how they are defined, found and called, and what happens if they fail."""

import logging
import pickle
import threading
from typing import Literal, Optional

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.errors import REASONS
from pixprep.importers.verify import verify
from pixprep.pipeline.ops import op_name
from pixprep.plan.steps.operators import find
from pixprep.show.preview import preview
from pixprep.show.words import explain, op_words
from support.images import jpeg, scene


@pp.operator("acme.scaled", version=1)
def scaled(pixels, *, by: float = 0.5, least: int = 0):
    """Multiply pixel values by a factor."""
    return np.maximum(pixels * np.float32(by), least).astype(np.uint8)


@pp.operator("acme.means", version=2, place="tensor", shape=(3,), dtype="float32")
def means(tensor):
    """Return the mean of each channel."""
    return tensor.mean(axis=(1, 2), dtype=np.float32)


@pp.operator("acme.twice", version=1, place="tensor")
def twice(tensor):
    """Return the doubled tensor, which has the same shape and dtype."""
    return tensor * 2


HEAD = [pp.pixels(), pp.resize(height=8, width=8)]
PHOTO = scene(30, 40)
LEVELS = pp.apply(HEAD, PHOTO)


def run(*ops, images=(PHOTO,), first=HEAD, **options):
    with pp.Engine(pp.Pipeline([*first, *ops]), **options) as engine:
        return engine.run(list(images))


def test_an_operator_on_pixel_values_receives_the_resized_image():
    (result,) = run(scaled(by=0.25), pp.tensor(dtype="uint8", layout="hwc"))
    assert np.array_equal(result, (LEVELS * np.float32(0.25)).astype(np.uint8))


def test_several_operators_alternate_with_other_ops():
    ops = [scaled(by=0.9), pp.center_crop(6), pp.brightness(1.5), scaled(by=0.8, least=9), pp.flip()]
    (result,) = run(*ops, pp.normalize(mean=0.5, std=0.5), pp.tensor())
    by_hand = (LEVELS * np.float32(0.9)).astype(np.uint8)[1:7, 1:7]
    by_hand = pp.apply(pp.brightness(1.5), by_hand)
    by_hand = np.maximum(by_hand * np.float32(0.8), 9).astype(np.uint8)[:, ::-1]
    assert np.array_equal(result, pp.apply([pp.normalize(mean=0.5, std=0.5), pp.tensor()], by_hand))


def test_an_image_before_a_crop_can_have_any_size():
    seen = []

    look = pp.operator("acme.seen", version=1)(lambda pixels: seen.append(pixels.shape) or pixels)
    tall = scene(90, 40)
    ops = [pp.pixels(), pp.resize(16), look(), pp.center_crop(12), pp.tensor(dtype="uint8", layout="hwc")]
    results = run(images=[PHOTO, tall], first=ops, threads=1)
    assert sorted(seen) == [(16, 21, 3), (36, 16, 3)]
    for photo, result in zip((PHOTO, tall), results, strict=True):
        assert np.array_equal(result, pp.apply([pp.resize(16), pp.center_crop(12)], photo))


def test_a_mirror_after_an_operator_is_not_moved_before_it():
    @pp.operator("acme.left", version=1)
    def blacken(pixels):
        pixels[:, :4] = 0
        return pixels

    (result,) = run(blacken(), pp.flip(), pp.tensor(dtype="uint8", layout="hwc"))
    assert not result[:, 4:].any()
    assert result[:, :4].any()


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_operators_receive_rgb_for_any_channel_order_of_the_tensor(color):
    @pp.operator("acme.red", version=1)
    def red(pixels):
        pixels[:, :, 1:] = 0
        return pixels

    fill = (10, 20, 30) if color == "rgb" else (30, 20, 10)
    ops = [pp.pixels(color=color, given="rgb"), pp.resize(height=6, width=6), pp.pad(8, 8, fill=fill), red()]
    (result,) = run(first=[*ops, pp.tensor(dtype="uint8", layout="hwc")])
    result = result if color == "rgb" else result[:, :, ::-1]
    assert result[0, 0].tolist() == [10, 0, 0]
    assert np.array_equal(result[1:7, 1:7, 0], pp.apply(pp.resize(height=6, width=6), PHOTO)[:, :, 0])


def test_an_operator_on_tensors_changes_the_output_that_it_follows():
    pipeline = pp.Pipeline([*HEAD, pp.normalize(), pp.tensor(), twice(), means(name="means"), pp.original_size()])
    assert list(pipeline.outputs) == ["means", "original_size"]
    assert str(pipeline.outputs["means"].spec) == "float32 [3]"
    batch = pp.Engine(pipeline).run_batch([PHOTO])
    tensor = pp.apply([*HEAD, pp.normalize(), pp.tensor()], PHOTO)
    assert np.array_equal(batch["means"][0], (tensor * 2).mean(axis=(1, 2), dtype=np.float32))
    assert batch["original_size"].tolist() == [[30, 40]]


def test_the_output_keeps_its_name_and_layout_if_the_shape_is_kept():
    pipeline = pp.Pipeline([*HEAD, pp.tensor(), twice()])
    assert list(pipeline.outputs) == ["tensor"]
    assert (pipeline.outputs["tensor"].spec.shape, pipeline.outputs["tensor"].spec.layout) == ((3, 8, 8), "chw")
    (result,) = pp.Engine(pipeline).run([PHOTO])
    assert np.array_equal(result, 2 * pp.apply([*HEAD, pp.tensor()], PHOTO))


def test_apply_calls_operators():
    assert np.array_equal(pp.apply(scaled(by=0.25), PHOTO), (PHOTO * np.float32(0.25)).astype(np.uint8))
    assert pp.apply([pp.resize(8), pp.tensor(), means()], PHOTO).shape == (3,)


def test_the_loader_calls_operators():
    pipeline = pp.Pipeline([pp.decode(), *HEAD[1:], scaled(by=0.25), pp.tensor(dtype="uint8", layout="hwc")])
    encoded = [jpeg(scene(30, 40, n)) for n in range(5)]
    expected = pp.Engine(pipeline).run(encoded)
    source = [{"image": each} for each in encoded]
    with pp.Loader(source, pipeline, batch_size=2, last="short", threads=2) as loader:
        found = [row for batch in loader for row in batch["tensor"]]
    assert all(map(np.array_equal, found, expected))


# the file


PIPELINE = pp.Pipeline([*HEAD, scaled(by=0.25), pp.tensor(), means()])
TEXT = PIPELINE.to_json()


def test_a_file_contains_the_name_the_version_and_the_fields():
    assert '{"op": "extern", "operator": "acme.scaled", "version": 1, "fields": {"by": 0.25}}' in TEXT
    assert '{"op": "extern", "operator": "acme.means", "version": 2}' in TEXT


def test_a_file_is_loaded_with_its_operators(tmp_path):
    file = tmp_path / "pipeline.json"
    PIPELINE.save(file)
    loaded = pp.load(file, operators=[means, scaled])
    assert loaded == PIPELINE
    assert hash(loaded) == hash(PIPELINE)
    assert np.array_equal(pp.Engine(loaded).run([PHOTO])[0], pp.Engine(PIPELINE).run([PHOTO])[0])
    assert loaded.for_files().for_training().operators == loaded.operators


REMEDY = (
    "with operators=[...] in pixprep.load, allow_operators in config.pbtxt, `pixprep build --parameter "
    "allow_operators=acme.scaled`, `pixprep serve --allow-operators`, or, for any command, the environment variable "
    "PIXPREP_ALLOW_OPERATORS=acme.scaled"
)


def test_a_file_without_its_operators_is_rejected_with_a_message():
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(TEXT, operators=[means])
    assert str(caught.value) == f'ops[2] "acme.scaled": needs operator acme.scaled 1: install it and allow it {REMEDY}'
    newer = TEXT.replace('"version": 2', '"version": 3')
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline.from_json(newer, operators=[means, scaled])
    assert (
        str(caught.value) == 'ops[4] "acme.means": needs operator acme.means 3, but found version 2: install version 3'
    )


@pytest.mark.parametrize("operators", ["acme.means", means, means(), None, [len], [means, 1]], ids=str)
def test_operators_are_passed_as_a_list_of_operators_or_names(operators, tmp_path):
    file = tmp_path / "pipeline.json"
    PIPELINE.save(file)
    ops = [*HEAD, pp.tensor()]
    for call in (
        lambda: pp.load(file, operators=operators),
        lambda: pp.Pipeline(ops, operators=operators),
        lambda: pp.apply([], PHOTO, operators=operators),
    ):
        with pytest.raises(
            pp.PipelineError, match=r"operators must be a list of operators \(made by pixprep.operator\) or"
        ):
            call()


def test_two_versions_of_an_operator_can_be_passed():
    other = pp.operator("acme.means", version=3, place="tensor", shape=(3,))(lambda tensor: tensor.max(axis=(1, 2)))
    assert find("acme.means", 2, [other, means]) is means
    assert find("acme.means", 3, [other, means]) is other


def test_a_pipeline_with_operators_can_be_explained_and_shown_but_not_verified():
    said = explain(PIPELINE)
    assert "call the operator acme.scaled 1, by 0.25, least 0" in said
    assert "tensor: float32 [3], 12 bytes per image" in said
    assert op_words(PIPELINE)[2::2] == [
        "call the operator acme.scaled 1, by 0.25, least 0",
        "call the operator acme.means 2",
    ]
    shown = preview(pp.Pipeline([*HEAD, scaled(by=0.25), pp.tensor()]), jpeg(PHOTO))
    assert shown.tensors[0].tensor.max() <= 64
    with pytest.raises(pp.PipelineError, match="a custom operator cannot be verified"):
        verify(PIPELINE, generate=False)


# operators that change the size of the image


CORNERS = np.array([[10, 5], [30, 8], [28, 27], [12, 25]], np.float32)


@pp.operator("acme.unwarp", version=1, shape=(24, 16))
def unwarp(pixels, *, side: int = 0):
    """Return the image between four corners, as if it was seen from above."""
    to = np.array([[0, 0], [16, 0], [16, 24], [0, 24]], np.float32)
    matrix = cv2.getPerspectiveTransform(CORNERS + np.float32(side), to)
    return cv2.warpPerspective(pixels, matrix, (16, 24)).reshape(24, 16, -1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_an_operator_can_return_an_image_of_a_different_size(threads, color):
    channels = 1 if color == "gray" else 3
    photos = [scene(*size)[:, :, :channels] for size in ((30, 40), (61, 33), (48, 48))]
    first = [pp.pixels(color=color)]
    ops = [unwarp(side=2), pp.flip(), pp.center_crop(14), pp.brightness(1.2), pp.tensor(dtype="uint8", layout="hwc")]
    results = run(*ops, images=photos, first=first, threads=threads)
    for photo, result in zip(photos, results, strict=True):
        by_hand = unwarp.function(photo, side=2)[:, ::-1][5:19, 1:15]
        assert np.array_equal(result, pp.apply([pp.brightness(1.2)], np.ascontiguousarray(by_hand)))
        assert np.array_equal(pp.apply(ops[:-1], photo), result)


def test_the_declared_size_of_an_operator_is_the_size_of_the_tensor():
    ops = [pp.decode(), pp.image_size(name="before"), unwarp(), pp.image_size(), pp.normalize(), pp.tensor()]
    pipeline = pp.Pipeline(ops)
    assert pipeline.outputs["tensor"].spec.shape == (3, 24, 16)
    with pp.Engine(pipeline) as engine:
        batch = engine.run_batch([jpeg(PHOTO)])
    assert [batch[name].tolist() for name in ("before", "image_size")] == [[[30, 40]], [[24, 16]]]
    assert "call the operator acme.unwarp 1, side 0, result 24 x 16 pixels" in explain(pipeline)
    shown = preview(pp.Pipeline([pp.decode(), unwarp(), pp.flip(), pp.tensor(dtype="uint8")]), jpeg(PHOTO)).tensors[0]
    assert shown.margin == 0
    assert shown.of_photo(shown.tensor).shape == (24, 16, 3)


def test_an_undeclared_size_fails_its_image():
    (error,) = run(
        pp.operator("acme.odd", version=1, shape=(9, 9))(lambda pixels: pixels[:8, :8])(), pp.tensor(dtype="uint8")
    )
    assert str(error) == "[OPERATOR] acme.odd 1 returned uint8 (8, 8, 3), not ndarray of uint8 (9, 9, 3)"


ANNOTATIONS = [pp.boxes(), pp.points(), pp.mask(), pp.masks()]


@pytest.mark.parametrize("after", [pp.transform(), pp.scale_factor(), *ANNOTATIONS], ids=op_name)
def test_ops_that_need_pixel_positions_are_rejected_after_it(after):
    with pytest.raises(pp.PipelineError) as caught:
        pp.Pipeline([*HEAD, unwarp(), after, pp.tensor()])
    assert str(caught.value) == (
        f'ops[3] "{op_name(after)}": {"" * (after in ANNOTATIONS)}the positions of '
        "pixels are unknown after the operator acme.unwarp 1, which has a shape but no motion: pass motion= to "
        "pixprep.operator"
    )
    if after not in ANNOTATIONS:
        assert pp.Pipeline([*HEAD, after, unwarp(), pp.tensor()]).outputs["tensor"].spec.shape == (3, 24, 16)


# errors in operators


def failing(what):
    @pp.operator("acme.failing", version=1)
    def fail(pixels):
        if pixels[0, 0, 0] >= 128:
            return pixels
        return what(pixels)

    return fail


def stop(_):
    raise SystemExit(3)


def refuse(_):
    raise pp.ImageError("OPERATOR", "too dark")


FAILED = {
    "an exception": (lambda _: {}["/etc/shadow"], "acme.failing 1 failed on this image (KeyError); see the log"),
    "an exit": (stop, "acme.failing 1 failed on this image (SystemExit); see the log"),
    "words for the client": (refuse, "acme.failing 1: too dark"),
    "another shape": (lambda p: p[1:], "acme.failing 1 returned uint8 (7, 8, 3), not ndarray of uint8 (8, 8, 3)"),
    "another dtype": (lambda p: p / 2, "acme.failing 1 returned float64 (8, 8, 3), not ndarray of uint8 (8, 8, 3)"),
    "nothing": (lambda _: None, "acme.failing 1 returned NoneType, not ndarray of uint8 (8, 8, 3)"),
    "a list": (lambda p: p.tolist(), "acme.failing 1 returned list, not ndarray of uint8 (8, 8, 3)"),
}


@pytest.mark.parametrize(("what", "detail"), FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_fails_only_its_image(what, detail, threads, caplog):
    images = [np.full((9, 9, 3), level, np.uint8) for level in (255, 3, 200, 4, 130)]
    pipeline = pp.Pipeline([*HEAD, failing(what)(), pp.tensor(dtype="uint8"), pp.original_size(), pp.transform()])
    with caplog.at_level(logging.ERROR), pp.Engine(pipeline, threads=threads) as engine:
        batch = engine.run_batch(images)
    assert [None if error is None else (error.reason, error.detail) for error in batch.errors] == [
        None, ("OPERATOR", detail), None, ("OPERATOR", detail), None,
    ]  # fmt: skip
    assert "OPERATOR" in REASONS
    assert batch["tensor"][:, 0, 0, 0].tolist() == [255, 0, 200, 0, 130]
    assert batch["original_size"][:, 0].tolist() == [9, 0, 9, 0, 9]
    assert [placed is None for placed in batch.placed] == [False, True, False, True, False]
    if "the log" in detail:
        assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_an_error_on_a_sample_makes_it_a_broken_sample():
    levels = [255, 3, 200]
    source = [{"image": np.full((9, 9, 3), level, np.uint8), "name": f"level {level}"} for level in levels]
    pipeline = pp.Pipeline([*HEAD, failing(refuse)(), pp.tensor(dtype="uint8")])
    with pp.Loader(source, pipeline, batch_size=3, on_error="replace", max_errors=1.0, threads=1) as loader:
        (batch,) = loader
        (broken,) = loader.errors
    assert str(broken.error) == "[OPERATOR] level 3: acme.failing 1: too dark"
    assert broken.replaced_by in (0, 2)
    assert (batch["tensor"][:, 0, 0, 0] >= 128).all()


def test_an_operator_receives_its_own_copy_of_the_image():
    @pp.operator("acme.greedy", version=1)
    def greedy(pixels):
        pixels[...] = 7
        return pixels

    before = PHOTO.copy()
    ops = [pp.pixels(), pp.crop(0, 0, 8, 8, name="part"), greedy(), pp.tensor(dtype="uint8", name="sevens")]
    pipeline = pp.Pipeline([*ops, pp.tensor(dtype="uint8", layout="hwc", from_="part", name="whole")])
    batch = pp.Engine(pipeline).run_batch([PHOTO])
    assert (batch["sevens"] == 7).all()
    assert np.array_equal(batch["whole"][0], before[:8, :8])
    assert np.array_equal(PHOTO, before)


def test_an_operator_is_called_by_the_threads_of_the_engine():
    threads, both = set(), threading.Barrier(2)

    @pp.operator("acme.waiting", version=1)
    def wait(pixels):
        both.wait(20)
        threads.add(threading.get_ident())
        return pixels

    results = run(wait(), pp.tensor(), images=[PHOTO, PHOTO], threads=2)
    assert len(threads) == 2
    assert not any(isinstance(result, Exception) for result in results)


def test_a_cupy_only_operator_is_rejected_on_the_cpu():
    cuda = pp.operator("acme.cuda", version=1, arrays="cupy")(same.function)
    with pytest.raises(pp.SetupError, match=r'the operator acme.cuda 1 accepts only CuPy arrays: use device="gpu"'):
        pp.Engine(pp.Pipeline([*HEAD, cuda(), pp.tensor()]))
    both = pp.operator("acme.both", version=1, arrays=("numpy", "cupy"))(same.function)
    assert both.arrays == ("numpy", "cupy")


# how they are defined


def test_an_operator_is_pickled_by_its_import_path():
    assert pickle.loads(pickle.dumps(scaled)) is scaled  # noqa: S301
    assert PIPELINE.plan.outputs["tensor"].calls[0].operator is means
    with pytest.raises(TypeError, match=r"\.stop is not an operator$"):
        pickle.loads(pickle.dumps(pp.operator("acme.stop", version=1)(stop)))  # noqa: S301


def test_fields_can_have_every_plain_type():
    @pp.operator("acme.typed", version=1)
    def typed(
        pixels,
        *,
        flag: bool,
        word: Literal["a", "b"] = "a",
        several: tuple[int, ...] = (1, 2),
        pair: tuple[float, str] = (0.5, "x"),
        none: Optional[float] = None,  # noqa: UP045
        other: int | None = 3,
    ):
        assert (flag, word, several, pair, none, other) == (True, "b", (3,), (1.0, "y"), None, None)
        return pixels

    use = typed(flag=True, word="b", several=[3], pair=[1, "y"], other=None)
    assert not isinstance(run(use, pp.tensor())[0], Exception)
    with pytest.raises(pp.PipelineError, match='"fields": object missing required field `flag`'):
        pp.Pipeline([*HEAD, typed(), pp.tensor()])


@pytest.mark.parametrize(
    "name",
    ["", "denoise", "acme.", ".denoise", "acme..denoise", "acme.de-noise", "acmé.x", "a" * 99 + ".b" * 20],
)
def test_a_name_that_a_file_cannot_contain_is_rejected(name):
    with pytest.raises(TypeError, match=r'an operator must have a name such as "acme.denoise"'):
        pp.operator(name, version=1)
    with pytest.raises(pp.PipelineError, match=r'"operator" must be a name such as "acme.denoise"'):
        pp.extern(operator=name, version=1)


@pp.operator("acme.same", version=1)
def same(pixels):
    """Return the array unchanged."""
    return pixels


KEPT = np.full((8, 8, 3), 10, np.uint8)


@pp.operator("acme.kept", version=1, place="tensor")
def kept(tensor):
    """Return an array that the operator also keeps, as an operator with a cached result does."""
    assert tensor.shape == KEPT.shape
    return KEPT


@pp.operator("acme.written", version=1, place="tensor")
def written(tensor):
    """Write into the array, and return it."""
    tensor += 1
    return tensor


def test_erasing_the_tensor_also_works_with_an_operator():
    end = [pp.normalize(mean=0.5, std=0.5), pp.random_erasing(p=1.0, value=0.75), pp.tensor()]
    results = []
    for ops in (end, [same(), *end]):
        pipeline = pp.Pipeline([*HEAD, *ops[:-1], pp.tensor(only="training")])
        with pp.Engine(pipeline) as engine:
            (numbers,) = engine.plan.draw(seed=1, epoch=0, indices=[3])
            results.append(engine.run_batch([PHOTO], places=[engine.plan.placing(numbers)])["tensor"])
    assert (results[0] == 0.75).any()
    assert np.array_equal(*results)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_a_per_request_colour_does_not_change_before_an_operator(color):
    ops = [pp.pixels(color=color), pp.pad(60, 60, fill="c")]
    first, second = (
        pp.Engine(pp.Pipeline([*ops, *extra, pp.tensor(dtype="uint8", layout="hwc")])).run(
            [PHOTO], inputs={"c": [[10, 20, 30]]}
        )[0]
        for extra in ([], [same()])
    )
    assert first[0, 0].tolist() == [10, 20, 30]
    assert np.array_equal(first, second)


def test_an_operator_can_write_into_an_array_that_the_previous_one_keeps():
    tensors = run(pp.tensor(dtype="uint8", layout="hwc"), kept(), written(), images=[PHOTO] * 4)
    assert [int(tensor.max()) for tensor in tensors] == [11] * 4
    assert KEPT.max() == 10


def test_a_flip_after_a_blur_is_not_moved_before_it():
    blur = pp.gaussian_blur(5, sigma=1.1)
    tensor = pp.tensor(dtype="uint8", layout="hwc")
    for seed in range(5):
        noise = np.random.default_rng(seed).integers(0, 256, (64, 80, 3), np.uint8)
        (blurred,) = pp.Engine(pp.Pipeline([pp.pixels(), pp.center_crop(64), blur, tensor])).run([noise])
        (flipped,) = pp.Engine(pp.Pipeline([pp.pixels(), pp.center_crop(64), blur, pp.flip(), tensor])).run([noise])
        assert np.array_equal(flipped, blurred[:, ::-1])


@pp.operator("acme.noise", version=1)
def noise(pixels, *, most: int = 9, rng: np.random.Generator):
    """Add noise to the pixel values."""
    return (pixels // 2 + rng.integers(0, most, pixels.shape)).astype(np.uint8)


NOISY = [pp.pixels(), pp.resize(height=8, width=8), noise(only="training"), noise(most=5, only="training")]
TRAINED = pp.Pipeline([*NOISY, pp.tensor(dtype="uint8")]).for_training()


def noisy_loader(**options):
    source = [{"image": scene(30, 40, seed)} for seed in range(12)]
    return pp.Loader(source, TRAINED, **{"batch_size": 4, "shuffle": True, "seed": 3} | options)


def test_an_operator_samples_by_seed_epoch_sample_and_op():
    with noisy_loader() as one, noisy_loader(threads=1, batch_size=3) as other:
        found = [np.concatenate([batch["tensor"] for batch in each]) for each in (one, other)]
        assert np.array_equal(*found)
        batch = next(iter(one))
        again = one.replay(1, batch["index"][2], batch["attempt"][2])
        assert np.array_equal(again["tensor"][0], batch["tensor"][2])
        seeds = [draws[key]["seed"] for draws in batch.draws for key in ("extern#0", "extern#1")]
        assert len({*seeds}) == 8
    with noisy_loader(seed=4) as ours:
        assert not {draws["extern#0"]["seed"] for draws in next(iter(ours)).draws} & {*seeds}


def test_recorded_parameters_reproduce_the_image():
    plan = TRAINED.plan
    with pp.Engine(TRAINED) as engine:
        (numbers,) = plan.draw(seed=1, epoch=0, indices=[3])
        first = engine.run_batch([PHOTO], places=[plan.placing(numbers)])
        again = engine.run_batch([PHOTO], places=[plan.replaying(first.placed[0].draws)])
    assert np.array_equal(first["tensor"], again["tensor"])
    rng = [np.random.Generator(np.random.Philox(key=words["seed"])) for words in first.placed[0].draws.values()]
    by_hand = (LEVELS // 2 + rng[0].integers(0, 9, LEVELS.shape)).astype(np.uint8)
    by_hand = (by_hand // 2 + rng[1].integers(0, 5, LEVELS.shape)).astype(np.uint8)
    assert np.array_equal(first["tensor"][0].transpose(1, 2, 0), by_hand)
    assert not np.array_equal(pp.apply(noise(), LEVELS, seed=1), pp.apply(noise(), LEVELS, seed=2))


@pp.operator("acme.turned", version=1, shape=(40, 30), motion=lambda *_: [[0, 1, 0], [1, 0, 0]])
def turned(pixels):
    """Swap the rows and columns."""
    return np.ascontiguousarray(pixels.swapaxes(0, 1))


def shifts(*_, most, rng):
    x, y = rng.integers(0, most, 2)
    return [[1, 0, x], [0, 1, y]]


@pp.operator("acme.shifted", version=1, motion=shifts)
def shifted(pixels, *, most: int = 9, rng: np.random.Generator):
    """Shift the image to the right and downwards, and fill with black."""
    x, y = rng.integers(0, most, 2)
    canvas = np.zeros_like(pixels)
    canvas[y:, x:] = pixels[: len(pixels) - y, : pixels.shape[1] - x]
    return canvas


def moved_sample(*ops):
    mask = scene(30, 40)[:, :, 0]
    sample = {
        "image": np.repeat(mask[:, :, None], 3, axis=2),
        "boxes": [[4.0, 5.0, 9.0, 15.0]],
        "points": [[7.0, 20.0]],
        "mask": mask,
    }
    outputs = [pp.boxes(only="training"), pp.points(only="training"), pp.mask(ignore=0, only="training")]
    chain = [pp.pixels(), pp.crop(0, 0, 30, 40), *ops, *outputs, pp.tensor(dtype="uint8", layout="hwc")]
    with pp.Loader([sample] * 6, pp.Pipeline(chain).for_training(), batch_size=6) as loader:
        return next(iter(loader))


def test_boxes_points_and_masks_follow_the_motion_of_an_operator():
    batch = moved_sample(turned())
    assert np.array_equal(batch["mask"], batch["tensor"][..., 0])
    assert np.array_equal(batch["boxes"][0], [[5, 4, 15, 9]])
    assert np.array_equal(batch["points"][0], [[20, 7]])


def test_a_motion_receives_the_parameters_of_its_operator():
    batch = moved_sample(shifted(most=12, only="training"))
    assert np.array_equal(batch["mask"], batch["tensor"][..., 0])
    moved = np.array([points[0] for points in batch["points"]]) - [7, 20]
    assert np.array_equal(batch["boxes"], np.array([4, 5, 9, 15]) + moved[:, [0, 1, 0, 1]][:, None])
    seeds = [draws["extern#0"]["seed"] for draws in batch.draws]
    drawn = [np.random.Generator(np.random.Philox(key=seed)).integers(0, 12, 2) for seed in seeds]
    assert np.array_equal(moved, drawn)
    assert len({*map(tuple, drawn)}) > 1


def error_of(error):
    def motion(*_):
        raise error

    return motion


@pytest.mark.parametrize(
    ("motion", "said"),
    [
        (lambda *_: [[1, 0], [0, 1]], " failed on .*ValueError"),
        (lambda *_: [[np.nan, 0, 0], [0, 1, 0]], " failed on .*ValueError"),
        (lambda *_: np.zeros((3, 3)), " failed on .*LinAlgError"),
        (lambda *_: None, " failed on .*ValueError"),
        (error_of(pp.ImageError("OPERATOR", "no page is seen")), ": no page is seen"),
        (error_of(SystemExit(3)), " failed on .*SystemExit"),
    ],
    ids=["2 x 2", "no number", "no inverse", "nothing", "with words", "that ends a process"],
)
def test_an_invalid_or_failing_motion_fails_its_image(motion, said):
    lost = pp.operator("acme.lost", version=1, motion=motion)(same.function)
    with pytest.raises(pp.ImageError, match=rf"^\[OPERATOR\] sample \d: motion of acme\.lost 1{said}"):
        moved_sample(lost())


ROAD = np.array([[-22, -60, 2050], [0, -140, 3500], [0, -2, 39]]) / 39
"""Homography that maps a photo of a road, 60 pixels high and 80 wide, to a view from above. In the photo, the horizon
is at y = 19.5."""


def from_above(motion, box, points=((40.0, 30.0),), *, flip_pairs=()):
    """Return the results of training on a photo of a road, for points and for a box that is painted white."""
    back = np.linalg.inv(motion)

    @pp.operator("acme.above", version=1, shape=(60, 60), motion=lambda *_: motion)
    def above(pixels):
        y, x = np.indices((60, 60)) + 0.5
        x, y, w = np.tensordot(back, np.stack([x, y, np.ones_like(x)]), 1)
        x, y = np.floor(x / w).astype(int), np.floor(y / w).astype(int)
        is_seen = (x >= 0) & (x < 80) & (y >= 0) & (y < 60)
        return np.where(is_seen[..., None], pixels[y.clip(0, 59), x.clip(0, 79)], np.uint8(0))

    left, top, right, bottom = box
    image = np.zeros((60, 80, 3), np.uint8)
    image[top:bottom, left:right] = 255
    sample = {"image": image, "boxes": [list(map(float, box))], "points": [points], "mask": image[:, :, 0]}
    ops = [above(), pp.boxes(), pp.points(flip_pairs=flip_pairs, clip=True), pp.mask(ignore=0)]
    pipeline = pp.Pipeline([pp.pixels(), pp.crop(0, 0, 60, 80), *ops, pp.tensor(dtype="uint8", layout="hwc")])
    with pp.Loader([sample], pipeline.for_training(), batch_size=1) as loader:
        return next(iter(loader))


@pytest.mark.parametrize("box", [(30, 30, 50, 50), (30, 10, 50, 50), (0, 0, 80, 60), (35, 2, 45, 30)])
@pytest.mark.parametrize("factor", [1, -2])
def test_a_box_across_the_horizon_of_a_motion_keeps_its_visible_part(box, factor):
    batch = from_above(factor * ROAD, box)
    rows, columns = np.nonzero(batch["tensor"][0][:, :, 0])
    assert len(rows) > 50
    ((left, top, right, bottom),) = batch["boxes"][0]
    assert 0 <= left <= columns.min() + 1
    assert columns.max() <= right <= 60
    assert abs(top - rows.min()) <= 1
    assert abs(bottom - rows.max() - 1) <= 1
    assert np.array_equal(batch["mask"][0], batch["tensor"][0][:, :, 0])


def test_a_box_beyond_the_horizon_is_removed_and_points_before_it_are_kept():
    assert len(from_above(ROAD, (30, 0, 50, 15))["boxes"][0]) == 0
    x, y, w = ROAD @ (40, 30, 1)
    assert np.allclose(from_above(ROAD, (0, 0, 80, 60))["points"][0], [[[x / w, y / w]]])


@pytest.mark.parametrize("factor", [1, -2])
def test_keypoints_are_swapped_by_a_mirror_and_not_by_the_sign_of_a_motion(factor):
    points, mirror = ((38.0, 40.0), (42.0, 40.0)), np.array([[-1, 0, 80], [0, 1, 0], [0, 0, 1]])
    expected = [(place / place[2])[:2] for place in (ROAD @ (*each, 1) for each in points)]
    for motion in (ROAD, ROAD @ mirror):
        found = from_above(factor * motion, (30, 30, 50, 50), points, flip_pairs=((0, 1),))["points"][0][0]
        assert np.allclose(found, expected)


def test_a_mask_follows_a_motion_whose_horizon_passes_through_the_first_corner():
    found = from_above(np.array([[64.0, 0, 0], [0, 0, 64], [0, 1, -1]]), (0, 0, 80, 60))
    assert np.mean(found["mask"][0] != found["tensor"][0][:, :, 0]) < 0.01  # rounding differs only at the horizon
    assert np.mean(found["mask"][0] == 255) > 0.9
