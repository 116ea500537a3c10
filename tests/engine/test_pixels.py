"""Tests that an engine accepts arrays of pixels instead of files, and that the tensors equal those of decoded files."""

import io
import json

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.engine.decoders import Limits
from pixprep.engine.decoders.deep import windowed
from pixprep.engine.decoders.pixels import PixelsDecoder, host_array
from pixprep.importers.verify import verify
from pixprep.serving.embedded.request import pixels_of
from pixprep.show.words import op_words
from support.images import scene

TAIL = [pp.normalize(mean=(0.4, 0.5, 0.6), std=0.25), pp.tensor()]
GEOMETRIES = {
    "resize": [pp.resize(height=24, width=31)],
    "crop of a resize": [pp.resize(32), pp.center_crop(24)],
    "crop before": [pp.center_crop(fraction=0.5), pp.resize(height=20, width=24, filter="bicubic")],
    "padded before": [pp.pad(square=True, fill=7), pp.resize(height=24, width=20), pp.flip()],
    "mirrored before": [pp.flip("vertical"), pp.flip(), pp.resize(height=20, width=24)],
    "letterbox": [pp.letterbox(64, 48, fill=(1, 2, 3))],
    "rows first": [pp.resize(height=4, width=60)],
    "crop alone": [pp.crop(1, 2, 5, 4)],
    "opencv": [pp.resize(height=20, width=24, like="opencv")],
    "torch": [pp.resize(height=20, width=24, like="torch")],
    "tensorflow": [pp.resize(height=20, width=24, like="tensorflow")],
}
SIZES = [(50, 80), (200, 101), (7, 6), (375, 500)]


def encoded(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def layouts(array):
    """Yield the same array in different memory layouts."""
    yield array
    yield np.asfortranarray(array)
    yield array[::-1].copy()[::-1]
    yield array[:, ::-1].copy()[:, ::-1]
    margins = [(1, 2), (3, 4)] + [(0, 0)] * (array.ndim - 2)
    yield np.pad(array, margins, constant_values=99)[1:-2, 3:-4]
    if array.shape[2:] == (3,):
        yield np.concatenate([array, array[:, :, :1]], axis=2)[:, :, :3]
    frozen = array.copy()
    frozen.flags.writeable = False
    yield frozen


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize(("color", "given"), [("rgb", None), ("rgb", "bgr"), ("bgr", None), ("bgr", "rgb")])
def test_pixels_give_the_same_tensor_as_their_file(geometry, color, given):
    with (
        pp.Engine(pp.Pipeline([pp.decode(color=color), *geometry, *TAIL]), threads=1) as of_files,
        pp.Engine(pp.Pipeline([pp.pixels(color=color, given=given), *geometry, *TAIL]), threads=1) as of_pixels,
    ):
        for height, width in SIZES:
            photo = scene(height, width)
            (expected,) = of_files.run([encoded(photo)])
            arrays = list(layouts(photo[:, :, ::-1] if (given or color) == "bgr" else photo))
            for result in of_pixels.run(arrays):
                assert np.array_equal(result, expected)


@pytest.mark.parametrize("shape", ["(h, w)", "(h, w, 1)"])
def test_gray_pixels_have_one_channel_or_no_channel_axis(shape):
    geometry = [pp.resize(32), pp.center_crop(24), pp.tensor(dtype="uint8")]
    photo = scene(50, 80)[:, :, 0]
    (expected,) = pp.Engine(pp.Pipeline([pp.decode(color="gray"), *geometry])).run([encoded(photo)])
    engine = pp.Engine(pp.Pipeline([pp.pixels(color="gray"), *geometry]))
    for array in layouts(photo if shape == "(h, w)" else photo[:, :, None]):
        assert np.array_equal(engine.run([array])[0], expected)


def test_a_list_can_have_different_sizes_and_an_array_has_one_size():
    engine = pp.Engine(pp.Pipeline([pp.pixels(), pp.resize(32), pp.center_crop(24), pp.tensor()]), threads=2)
    photos = [scene(40 + n, 90 - n, n) for n in range(9)]
    for photo, result in zip(photos, engine.run(photos), strict=True):
        assert np.array_equal(engine.run([photo])[0], result)
    stack = np.stack([scene(40, 50, n) for n in range(5)])
    assert all(map(np.array_equal, engine.run(stack), engine.run(list(stack))))
    assert engine.run([]) == []


class Foreign:
    """Array of a different library, which NumPy reads in place."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


def test_arrays_of_other_libraries_are_accepted():
    engine = pp.Engine(pp.Pipeline([pp.pixels(), pp.resize(32), pp.center_crop(24), pp.tensor()]))
    photo = scene(50, 60)
    expected, *others = engine.run([photo, Foreign(photo), Image.fromarray(photo)])
    assert all(np.array_equal(other, expected) for other in others)


def test_nothing_is_copied_before_the_kernel():
    plan = pp.Pipeline([pp.pixels(given="bgr"), pp.crop(1, 1, 4, 4), pp.tensor(dtype="uint8")]).plan
    decoder = PixelsDecoder(plan, Limits(), of=host_array)
    photo = scene(20, 30)
    for given in (photo, Foreign(photo), photo[::2, ::-1]):
        (chunk,) = decoder.chunks([given], [plan.place])
        with decoder.decode(chunk) as (image,):
            assert np.shares_memory(image.pixels, photo)
    before = photo.copy()
    pp.Engine(pp.Pipeline([pp.pixels(), pp.resize(height=9, width=9), pp.flip(), pp.tensor()])).run([photo])
    assert np.array_equal(photo, before)


NO_CHANNELS = ': set "color": "gray" for gray images'
SHAPES = {
    (20, 30): f"[UNSUPPORTED] the pixels must have the shape (height, width, 3), not (20, 30){NO_CHANNELS}",
    (20, 30, 1): f"[UNSUPPORTED] the pixels must have the shape (height, width, 3), not (20, 30, 1){NO_CHANNELS}",
    (3, 20, 30): "[UNSUPPORTED] the pixels must have the shape (height, width, 3), not (3, 20, 30): move the "
    "channels to the end with array.transpose(1, 2, 0), or permute(1, 2, 0) in PyTorch",
    (20, 30, 4): "[UNSUPPORTED] the pixels must have the shape (height, width, 3), not (20, 30, 4): remove the fourth "
    "channel with array[:, :, :3]",
    (5,): "[UNSUPPORTED] the pixels must have the shape (height, width, 3), not (5,)",
    (0, 30, 3): "[BAD_DIMENSIONS] 0 x 30 pixels; height and width must be 1 to 40 (parameter max_side)",
    (41, 1, 3): "[BAD_DIMENSIONS] 41 x 1 pixels; height and width must be 1 to 40 (parameter max_side)",
    (40, 40, 3): "[TOO_MANY_PIXELS] 40 x 40 pixels; the limit is 1,000 (parameter max_pixels)",
}


@pytest.mark.parametrize("window", [(-160, 240), (0, 1), (-32768, 32767), (3, 514)])
def test_a_window_of_an_array_is_mapped_like_the_window_of_decode(window):
    values = np.arange(-32768, 32768, dtype=np.int16).reshape(256, 256)
    for dtype in ("int16", "float32"):
        array = pp.Pipeline(
            [pp.pixels(color="gray", dtype=dtype, window=window), pp.center_crop(256), pp.tensor(dtype="uint8")]
        )
        (tensor,) = pp.Engine(array).run_batch([values.astype(dtype)])["tensor"]
        assert np.array_equal(tensor[0], windowed(values, window))


def test_values_that_a_window_does_not_accept_are_rejected():
    pipeline = pp.Pipeline([pp.pixels(color="gray", dtype="float32", window=(0, 1)), pp.center_crop(2), pp.tensor()])
    batch = pp.Engine(pipeline).run_batch([np.full((2, 2), np.nan, np.float32), np.ones((2, 2), np.float32)])
    assert str(batch.errors[0]) == "[BAD_INPUT] a pixel is NaN: replace it by a number"
    assert (batch["tensor"][1] == 255).all()
    with pytest.raises(TypeError, match=r"ndarray of uint8: pixels must be float32$"):
        pp.Engine(pipeline).run_batch([np.zeros((2, 2), np.uint8)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "int16"}, '"dtype": "int16" requires "window"'),
        ({"window": (0, 1)}, '"window" requires "dtype"'),
        ({"dtype": "float32", "window": (1, 1)}, '"window" must be \\(low, high\\) with low < high'),
    ],
)
def test_a_window_that_does_not_match_the_dtype_is_rejected(fields, message):
    with pytest.raises(pp.PipelineError, match=message):
        pp.pixels(**fields)


def test_an_invalid_array_is_an_error_at_its_index():
    limits = pp.Limits(max_side=40, max_pixels=1000)
    engine = pp.Engine(pp.Pipeline([pp.pixels(), pp.resize(8), pp.center_crop(8), pp.tensor()]), limits=limits)
    photo = scene(20, 30)
    results = engine.run([photo, *(np.zeros(shape, np.uint8) for shape in SHAPES), photo])
    assert np.array_equal(results[0], results[-1])
    assert [str(result) for result in results[1:-1]] == list(SHAPES.values())


PIPELINE = pp.Pipeline([pp.pixels(given="bgr"), pp.resize(32), pp.center_crop(24), *TAIL])


def test_the_pipeline_for_files_decodes_instead():
    assert PIPELINE.for_files() == pp.Pipeline([pp.decode(), *PIPELINE.ops[1:]])
    assert pp.presets.imagenet().for_files() is not None
    photo = scene(60, 90)
    assert np.array_equal(
        pp.Engine(PIPELINE.for_files()).run([encoded(photo)])[0], pp.Engine(PIPELINE).run([photo[:, :, ::-1]])[0]
    )


def test_a_pipeline_of_pixels_can_be_explained_shown_verified_and_run_on_photos(tmp_path, capsys):
    file, photo = tmp_path / "pipeline.json", tmp_path / "photo.png"
    PIPELINE.save(file)
    photo.write_bytes(encoded(scene(60, 90)))
    assert pp.load(file) == PIPELINE
    assert op_words(PIPELINE)[0] == "accept pixel arrays: uint8 [height, width, 3], BGR"
    for arguments in (
        ["check", file, "--image", photo],
        ["explain", file, "--image", photo, "--output", tmp_path / "stages.png"],
        ["run", file, photo],
    ):
        assert main([str(argument) for argument in arguments]) == 0
    said = capsys.readouterr().out
    assert "accept pixel arrays: uint8 [height, width, 3], BGR" in said
    assert verify(PIPELINE, generate=False, images=[photo]).is_exact


def test_files_are_decoded_for_a_model_that_accepts_pixels():
    photo = scene(60, 90)
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(photo).save(turned, "PNG", exif=exif)
    assert np.array_equal(pixels_of(encoded(photo), "rgb"), photo)
    assert np.array_equal(pixels_of(encoded(photo), "bgr"), photo[:, :, ::-1])
    assert np.array_equal(pixels_of(turned.getvalue(), "rgb"), np.rot90(photo, -1))
    assert pixels_of(encoded(photo), "gray").shape == (60, 90, 1)
    for array in (photo, np.asfortranarray(photo)):
        file = io.BytesIO()
        np.save(file, array)
        assert np.array_equal(pixels_of(file.getvalue(), "bgr"), photo)


# the Loader


TRAINING = pp.Pipeline(
    [pp.pixels(), pp.random_resized_crop(16), pp.random_flip(), pp.resize(height=16, width=16, only="serving"), *TAIL]
)


def test_the_loader_returns_the_same_for_arrays_as_for_files():
    photos = [scene(30 + n, 40, n) for n in range(12)]
    of_files = pp.Pipeline([pp.decode(), *TRAINING.ops[1:]])
    sources = (
        [{"image": encoded(photo), "label": n} for n, photo in enumerate(photos)],
        [{"image": photo, "label": n} for n, photo in enumerate(photos)],
    )
    batches = []
    for source, pipeline in zip(sources, (of_files, TRAINING), strict=True):
        with pp.Loader(source, pipeline.for_training(), batch_size=4, shuffle=True, seed=3, threads=2) as loader:
            batches.append([batch for _ in range(2) for batch in loader])
    for one, other in zip(*batches, strict=True):
        assert one["index"].tolist() == other["index"].tolist()
        assert np.array_equal(one["tensor"], other["tensor"])
        assert one.draws == other.draws


def test_samples_can_be_arrays_or_pillow_images():
    photos = [scene(30, 40, n) for n in range(4)]
    rows = [(Image.fromarray(photo), n) for n, photo in enumerate(photos)]
    source = pp.read.rows(rows, image=0, label=1)
    with pp.Loader(source, TRAINING.for_training(), batch_size=2, threads=1) as loader:
        labels = [label for batch in loader for label in batch["label"].tolist()]
    assert labels == [0, 1, 2, 3]


def test_a_sample_of_a_wrong_shape_is_a_broken_sample():
    source = [{"image": scene(30, 40, n)} for n in range(5)] + [{"image": np.zeros((30, 40), np.uint8), "name": "odd"}]
    with pp.Loader(
        source, TRAINING.for_training(), batch_size=2, on_error="replace", max_errors=1.0, threads=1
    ) as ours:
        assert sum(len(batch) for batch in ours) == 6
        (broken,) = ours.errors
    assert str(broken.error).startswith(
        "[UNSUPPORTED] odd: the pixels must have the shape (height, width, 3), not (30, 40)"
    )


@pytest.mark.parametrize(
    ("image", "pipeline", "message"),
    [
        (b"x", TRAINING, '"image": this pipeline begins with pixels and accepts arrays, not bytes'),
        (np.zeros((2, 2, 3)), TRAINING, '"image": ndarray of float64: pixels must be uint8, 0 to 255'),
        (
            scene(4, 4),
            pp.presets.imagenet(),
            "must be the bytes of a file or its pathlib.Path, not ndarray: to pass an array of pixels, begin",
        ),
    ],
    ids=["bytes", "floats", "an array for decode"],
)
def test_a_source_of_wrong_images_is_rejected_with_a_message(image, pipeline, message):
    with (
        pp.Loader([{"image": image}], pipeline.for_training(), batch_size=1, threads=1) as loader,
        pytest.raises(pp.DataError, match=message),
    ):
        next(iter(loader))


def test_the_file_of_a_pipeline_of_pixels_is_canonical():
    text = PIPELINE.to_json()
    assert json.loads(text)["ops"][0] == {"op": "pixels", "given": "bgr"}
    assert pp.Pipeline.from_json(text) == PIPELINE
