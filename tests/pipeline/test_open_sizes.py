"""Tests sizes that depend on the image: the formulas of other packages, the bounds, and tensors with open dimensions.

Each formula is written here as in its package (rapidocr 3.10, PaddleX 3.7, ddddocr 1.6, torchvision 0.28).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.engine import Engine
from pixprep.importers.verify import verify
from pixprep.importers.verify.originals import size_of
from pixprep.pipeline.ops import Resize
from pixprep.pipeline.walk import MAX_OUTPUT_BYTES
from pixprep.serving.repository import build, check, side_notes
from pixprep.serving.repository.trial import try_out
from pixprep.serving.triton import config, pool
from pixprep.show.preview import preview
from pixprep.show.words import explain
from pixprep.spec import ImageSpec
from pixprep.training.frameworks import value
from support import images
from support.detectors import save_echo

Size = tuple[int, int]
NUMBERS = np.random.default_rng(27)
SIZES: list[Size] = [
    *((1, 1), (1, 5000), (5000, 1), (48, 320), (320, 48), (31, 480), (800, 1333), (1333, 800), (799, 800), (640, 640)),
    *((int(h), int(w)) for h, w in NUMBERS.integers(1, 2500, (1500, 2))),
    *((int(h), int(w)) for h, w in NUMBERS.integers(1, 100, (500, 2))),
]


def rapidocr_recognizer(h: int, w: int, most: int = 10**6) -> Size:
    """Return the size from rapidocr's ``resize_norm_img`` for a batch of one image; ``most`` is PaddleX's maximum."""
    width = int(48 * max(320 / 48, w * 1.0 / h))
    if width > most:
        return 48, most
    return 48, min(math.ceil(48 * (w / float(h))), width)


def ddddocr(h: int, w: int) -> Size:
    """Return the size from ``_preprocess_image`` of ddddocr's recognizer."""
    return 64, int(w * (64 / h))


def rapidocr_detector(h: int, w: int) -> Size:
    """Return the size from ``DetPreProcess.resize`` with ``limit_type`` min and ``limit_side_len`` 736.

    If the size is 0, rapidocr detects nothing.
    """
    ratio = 1.0
    if min(h, w) < 736:
        ratio = float(736) / h if h < w else float(736) / w
    return tuple(max(int(round(int(side * ratio) / 32) * 32), 32) for side in (h, w))  # type: ignore[return-value]


def paddle_detector(h: int, w: int, *, kind: str, limit: int, most: int = 4000) -> Size:
    """Return the size from PaddleX's ``resize_image_type0``."""
    ratio = 1.0
    if kind == "resize_long":
        ratio = float(limit) / max(h, w)
    elif kind == "max" and max(h, w) > limit:
        ratio = float(limit) / h if h > w else float(limit) / w
    elif kind == "min" and min(h, w) < limit:
        ratio = float(limit) / h if h < w else float(limit) / w
    rows, columns = int(h * ratio), int(w * ratio)
    if max(rows, columns) > most:
        ratio = float(most) / max(rows, columns)
        rows, columns = int(rows * ratio), int(columns * ratio)
    return max(int(round(rows / 32) * 32), 32), max(int(round(columns / 32) * 32), 32)


def torchvision_detector(h: int, w: int) -> Size:
    """Return the size from ``_resize_image_and_masks`` and ``interpolate`` with ``recompute_scale_factor``."""
    scale = min(800 / min(h, w), 1333 / max(h, w))
    return max(1, math.floor(float(h) * scale)), max(1, math.floor(float(w) * scale))


def torchvision_resize(h: int, w: int) -> Size:
    """Return ``_compute_resized_output_size`` for a size of 256 with ``max_size`` 400."""
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = 256, int(256 * long / short)
    if new_long > 400:
        new_short, new_long = int(400 * new_short / new_long), 400
    return (max(1, new_long), max(1, new_short)) if w <= h else (max(1, new_short), max(1, new_long))


def dpt(h: int, w: int) -> Size:
    """Return ``get_resize_output_image_size`` of transformers' DPT, for a square size with ``keep_aspect_ratio``."""
    scale = 518 / w if abs(1 - 518 / w) < abs(1 - 518 / h) else 518 / h
    return max(1, round(scale * h / 14)) * 14, max(1, round(scale * w / 14)) * 14


FORMULAS: dict[str, tuple[dict[str, Any], Callable[[int, int], Size]]] = {
    "rapidocr, recognizer": ({"height": 48, "rounding": "up", "up_to": 320}, rapidocr_recognizer),
    "PaddleOCR, recognizer": (
        {"height": 48, "rounding": "up", "up_to": 320, "max_size": 3200},
        lambda h, w: rapidocr_recognizer(h, w, 3200),
    ),
    "ddddocr": ({"height": 64}, lambda h, w: (64, max(1, ddddocr(h, w)[1]))),
    "a width alone": ({"width": 64}, lambda h, w: (max(1, ddddocr(w, h)[1]), 64)),
    "rapidocr, detector": (
        {"size": 736, "mode": "scale", "shrink": False, "multiple": 32, "rounding": "half_even"},
        rapidocr_detector,
    ),
    "PaddleOCR, min": (
        {"size": 64, "mode": "scale", "shrink": False, "multiple": 32, "rounding": "half_even", "max_size": 4000},
        lambda h, w: paddle_detector(h, w, kind="min", limit=64),
    ),
    "PaddleOCR, max": (
        {"size": 960, "side": "longer", "mode": "scale", "enlarge": False, "multiple": 32, "rounding": "half_even"},
        lambda h, w: paddle_detector(h, w, kind="max", limit=960),
    ),
    "PaddleOCR, resize_long": (
        {"size": 960, "side": "longer", "mode": "scale", "multiple": 32, "rounding": "half_even"},
        lambda h, w: paddle_detector(h, w, kind="resize_long", limit=960),
    ),
    "torchvision, detectors": ({"size": 800, "mode": "scale", "max_size": 1333}, torchvision_detector),
    "torchvision, max_size": ({"size": 256, "max_size": 400}, torchvision_resize),
    "DPT, Depth Anything": ({"size": 518, "side": "nearer", "multiple": 14, "rounding": "half_even"}, dpt),
    "a height, up to multiples": (
        {"height": 48, "multiple": 16, "rounding": "up", "max_size": 320},
        lambda h, w: (48, max(1, math.ceil(min(48 * (w / h), 320) / 16)) * 16),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_resize_has_the_size_of_the_package_it_reproduces_within_its_bounds(name: str) -> None:
    fields, formula = FORMULAS[name]
    op = Resize(**fields)
    found = {size: op._step.size(*size) for size in SIZES}
    assert found == {size: formula(*size) for size in SIZES}
    blank = {size: np.broadcast_to(np.uint8(0), (*size, 3)) for size in SIZES}
    assert found == {size: size_of(op, pixels) for size, pixels in blank.items()}, "verify has another formula"
    image = op.infer(ImageSpec())
    for size, (rows, columns) in found.items():
        assert image.min_height <= rows <= (image.max_height or rows), size
        assert image.min_width <= columns <= (image.max_width or columns), size


# tensors with open dimensions

RECOGNIZER = pp.Pipeline(
    [
        pp.decode(color="bgr"),
        pp.resize(height=48, max_size=3200, rounding="up", up_to=320, like="opencv"),
        pp.normalize(mean=0.5, std=0.5, arithmetic="divide"),
        pp.image_size(name="size"),
        pp.tensor(min_width=320),
    ]
)
DETECTOR = pp.Pipeline(
    [
        pp.decode(),
        pp.resize(80, mode="scale", max_size=133),
        pp.normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        pp.image_size(name="size"),
        pp.tensor(multiple=32),
    ]
)
PHOTOS = [images.png(images.scene(*size)) for size in ((40, 60), (30, 1000), (200, 31), (90, 90))]


def rapidocr_tensor(pixels: Any, width: int) -> Any:
    """Return the result of ``resize_norm_img`` for BGR pixels, in a batch of this width."""
    h, w = pixels.shape[:2]
    resized_w = min(math.ceil(48 * (w / float(h))), width)
    resized = cv2.resize(pixels, (resized_w, 48)).astype("float32").transpose((2, 0, 1)) / 255
    resized -= 0.5
    resized /= 0.5
    padded = np.zeros((3, 48, width), dtype=np.float32)
    padded[:, :, :resized_w] = resized
    return padded


def test_a_text_recognizer_gets_the_same_tensors_as_from_rapidocr() -> None:
    spec = RECOGNIZER.outputs["tensor"].spec
    assert (spec.shape, spec.most, spec.n_bytes) == ((3, 48, -1), (3, 48, 3200), 4 * 3 * 48 * 3200)
    with Engine(RECOGNIZER) as engine:
        for photo, tensor in zip(PHOTOS, engine.run(PHOTOS), strict=True):
            pixels = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
            width = rapidocr_recognizer(*pixels.shape[:2])[1]
            np.testing.assert_array_equal(tensor, rapidocr_tensor(pixels, max(320, width)))


def test_a_batch_is_padded_to_its_widest_image_and_reports_the_image_sizes() -> None:
    with Engine(RECOGNIZER) as engine:
        batch = engine.run_batch([*PHOTOS[::2], b"junk", PHOTOS[1]])
    assert [tensor.shape for tensor in batch["tensor"]] == [(3, 48, 320)] * 2 + [(3, 48, 320), (3, 48, 1600)]
    assert batch["size"].tolist() == [[48, 72], [48, 8], [0, 0], [48, 1600]]
    padded = batch.padded("tensor")
    assert padded.shape == (4, 3, 48, 1600)
    for row, photo in ((0, PHOTOS[0]), (1, PHOTOS[2]), (3, PHOTOS[1])):
        pixels = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(padded[row], rapidocr_tensor(pixels, 1600))
    assert batch.padded("tensor", slice(0, 2)).shape == (2, 3, 48, 320)
    assert not padded[2].any()


def test_a_detector_gets_multiples_of_32_for_the_largest_image_of_its_batch() -> None:
    spec = DETECTOR.outputs["tensor"].spec
    assert (spec.shape, spec.most) == ((3, -1, -1), (3, 160, 160))
    with Engine(DETECTOR) as engine:
        batch = engine.run_batch(PHOTOS)
    assert batch["size"].tolist() == [[80, 120], [3, 133], [133, 20], [80, 80]]
    assert [tensor.shape for tensor in batch["tensor"]] == [(3, 96, 128), (3, 32, 160), (3, 160, 32), (3, 96, 96)]
    padded = batch.padded("tensor")
    assert padded.shape == (4, 3, 160, 160)
    for tensor, one, (rows, columns) in zip(padded, batch["tensor"], batch["size"], strict=True):
        np.testing.assert_array_equal(tensor[:, :rows, :columns], one[:, :rows, :columns])
        assert not tensor[:, rows:].any()
        assert not tensor[:, :, columns:].any()


def test_a_padding_value_can_apply_to_one_mode_only() -> None:
    drawn = [pp.decode(), pp.random_resize(20, 40, only="training"), pp.center_crop(32, only="serving")]
    pipeline = pp.Pipeline([*drawn, pp.tensor(pad_value=-1.0, max_size=90)])
    assert pipeline.for_training().outputs["tensor"].spec.is_open
    assert pipeline.for_serving().outputs["tensor"].spec.shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("margin", "layout"),
    [({"pad_value": -7.5}, "cwh"), ({"pad_value": (1.5, -2, 0)}, "hwc"), ({"pad_level": (9, 0, 250)}, "chw")],
)
@pytest.mark.parametrize(
    "middle",
    [
        (),
        (pp.brightness(0.5),),
        (pp.rotate(30),),
        (pp.normalize(mean=0.5, std=0.5),),
        (pp.random_erasing(p=1.0), pp.random_flip(p=1.0)),
    ],
    ids=["plain", "levels", "turned", "normalized", "drawn"],
)
def test_padding_has_its_value_and_does_not_change_the_image(
    layout: Any, margin: dict[str, Any], middle: tuple[Any, ...]
) -> None:
    first: list[Any] = [pp.decode(), pp.resize(40, side="longer"), *middle]
    bare, around = (
        pp.Pipeline([*first, pp.tensor(layout=layout, **fields)])
        for fields in ({}, {"min_height": 64, "min_width": 50, "multiple": 3, **margin})
    )
    places = None
    with Engine(bare) as engine, Engine(around) as other:
        if bare.plan.is_random:
            numbers = bare.plan.draw(seed=1, epoch=0, indices=range(len(PHOTOS)))
            places = [[each.plan.placing(number) for number in numbers] for each in (bare, around)]
        plain = engine.run_batch(PHOTOS, places=places and places[0])["tensor"]
        padded = other.run_batch(PHOTOS, places=places and places[1])["tensor"]
    ((field, value),) = margin.items()
    value = np.broadcast_to(np.array(value, np.float64), 3)
    if field == "pad_level" and any(isinstance(op, pp.normalize) for op in middle):
        value = (value / 255 - 0.5) / 0.5
    value = value.astype(np.float32).reshape(3 if layout == "hwc" else (3, 1, 1))
    for one, whole in zip(plain, padded, strict=True):
        assert whole.shape == tuple({"c": 3, "h": 66, "w": 51}[axis] for axis in layout)
        inside = tuple(map(slice, one.shape))
        np.testing.assert_array_equal(whole[inside], one)
        whole[inside] = value
        assert (whole == value).all()


def test_padding_before_normalize_is_equal_in_a_tensor_and_its_batch() -> None:
    """CRAFT uses this order: it resizes the longer side, pads with zeros to a multiple of 32, and then normalizes.

    Triton pads with the same black.
    """
    resize, arithmetic = pp.resize(90, side="longer"), pp.normalize(mean=(0.485, 0.456, 0.406), std=0.225)
    first: list[Any] = [pp.decode(), resize, pp.pad(multiple=32, anchor="top_left", fill=(0, 7, 255)), arithmetic]
    before = pp.Pipeline([*first, pp.tensor(pad_level=(0, 7, 255))])
    behind = pp.Pipeline([pp.decode(), resize, arithmetic, pp.tensor(multiple=32, pad_level=(0, 7, 255))])
    assert before.outputs["tensor"].spec.most == behind.outputs["tensor"].spec.most == (3, 96, 96)
    with Engine(before) as one, Engine(behind) as other:
        ours, theirs = one.run_batch(PHOTOS), other.run_batch(PHOTOS)
    for left, right in zip(ours["tensor"], theirs["tensor"], strict=True):
        np.testing.assert_array_equal(left, right)
    padded = ours.padded("tensor")
    np.testing.assert_array_equal(padded, theirs.padded("tensor"))
    black = [np.float32((level / 255 - mean) / 0.225) for level, mean in ((0, 0.485), (7, 0.456), (255, 0.406))]
    assert padded[1, :, -1, -1].tolist() == black
    assert "padded with -2.15556, -1.90466, 2.64 below" in explain(behind)


def test_each_box_of_a_photo_gives_a_tensor_of_its_own_size() -> None:
    ops = [pp.decode(), pp.crop(box="boxes"), pp.resize(height=16, max_size=96), pp.tensor(min_width=24)]
    boxes = [[(0, 0, 60, 20), (5, 5, 15, 15), (900, 0, 950, 9)], [(0, 0, 90, 9)]]
    with Engine(pp.Pipeline(ops)) as engine:
        batch = engine.run_batch([PHOTOS[0], PHOTOS[3]], inputs={"boxes": boxes})
    assert [tensor.shape for tensor in batch["tensor"]] == [(3, 16, 48), (3, 16, 24), (3, 16, 24), (3, 16, 96)]
    assert [error is None for error in batch.errors] == [True, True, False, True]
    assert batch.padded("tensor", batch.rows[0]).shape == (3, 3, 16, 48)


# limits on memory


def test_batches_and_pools_have_room_for_the_largest_tensors() -> None:
    pipeline = pp.Pipeline([pp.decode(), pp.resize(800, mode="scale", max_size=1333), pp.tensor(multiple=32)])
    n_bytes = 4 * 3 * 1344 * 1344
    assert pipeline.n_bytes == n_bytes
    full = config.complete({}, pipeline)
    assert full["output"] == [{"name": "tensor", "data_type": "TYPE_FP32", "dims": [3, -1, -1]}]
    assert full["max_batch_size"] == 64 < MAX_OUTPUT_BYTES // n_bytes == 99
    assert pool.needed(pipeline, images_in_flight=2) == n_bytes * 3
    with pytest.raises(pp.PipelineError, match="but the limit is"):
        config.complete({"max_batch_size": 100}, pipeline)


def test_an_operator_on_tensors_needs_a_fixed_shape() -> None:
    @pp.operator("acme.same", version=1, place="tensor")
    def same(tensor: Any) -> Any:
        return tensor

    with pytest.raises(pp.PipelineError, match=r"requires tensors of a fixed shape, not \[3, 48, -1\]"):
        pp.Pipeline([pp.decode(), pp.resize(height=48, max_size=320), pp.tensor(), same()])
    padded = [pp.decode(), pp.resize(height=48, max_size=320), pp.tensor(min_width=320), same()]
    with Engine(pp.Pipeline(padded)) as engine:
        assert [tensor.shape for tensor in engine.run(PHOTOS)] == [(3, 48, 320)] * 4


# consumers of tensors


def test_a_loader_returns_lists_and_other_consumers_get_padded_arrays() -> None:
    samples = [{"image": photo, "label": index} for index, photo in enumerate(PHOTOS)]
    with pp.Loader(samples, DETECTOR, batch_size=4) as loader:
        (batch,) = loader
        shapes = [tensor.shape for tensor in batch["tensor"]]
        assert shapes == [(3, 96, 128), (3, 32, 160), (3, 160, 32), (3, 96, 96)]
        assert value(batch, "tensor").shape == (4, 3, 160, 160)
        assert value(batch, "label").tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(loader.replay(0, 1)["tensor"][0], batch["tensor"][1])
    with pytest.raises(
        pp.PipelineError, match=r'Mix: all images must have the same size, but "tensor" is float32 \[3, -1'
    ):
        pp.Loader(samples, DETECTOR, batch_size=4, mix=pp.Mix(4, mixup=0.2))
    broken = [*samples[:2], {"image": b"junk", "label": 2}, samples[3]]
    with pp.Loader(broken, DETECTOR, batch_size=4, on_error="skip", max_errors=1.0) as loader:
        (batch,) = loader
        assert [tensor.shape for tensor in batch["tensor"]] == [shapes[0], shapes[1], shapes[3]]
    with pp.Loader(broken, DETECTOR, batch_size=4, on_error="replace", max_errors=1.0) as loader:
        (batch,) = loader
        other = int(batch["label"][2])
        np.testing.assert_array_equal(batch["tensor"][2], batch["tensor"][[0, 1, None, 2].index(other)])


def test_a_preview_shows_only_the_image_without_padding() -> None:
    (shown,) = preview(RECOGNIZER, PHOTOS[0]).tensors
    assert shown.shape == [3, 48, 320]
    assert shown.margin == pytest.approx(1 - 72 / 320)
    assert shown.of_photo(shown.tensor).shape == shown.of_photo(shown.levels).shape == (48, 72, 3)
    (turned,) = preview(
        pp.Pipeline([pp.decode(), pp.resize(40, side="longer"), pp.rotate(30), pp.tensor(min_width=80)]), PHOTOS[0]
    ).tensors
    assert turned.of_photo(turned.tensor).shape == turned.of_photo(turned.levels).shape


def test_explain_describes_open_dimensions_and_their_maximum() -> None:
    text = explain(RECOGNIZER)
    assert "resize to height 48, keeping the aspect ratio, at most 3200" in text
    assert "float32 [3, 48, -1] chw, values -1..1, at most [3, 48, 3200]" in text
    assert "padded with 0 below and on the right, and in a batch to its largest image" in text
    assert "the shorter side to 80, both sides by one scale, at most 133" in explain(DETECTOR)


# tensors in Triton


def recognizer(path: Any, width: int | str = "w") -> Any:
    """Return an ONNX file that accepts text lines of the given width, by default of any width."""
    return save_echo(path / "line.onnx", {"x": ("FLOAT", ["n", 3, 48, width])})


def test_a_model_with_open_dimensions_is_built_checked_and_run(tmp_path: Path) -> None:
    built = build(tmp_path / "models", pipeline=RECOGNIZER, onnx=recognizer(tmp_path))
    most = "float32 [3, 48, -1] chw, values -1..1, at most [3, 48, 3200]"
    assert f'the size of "tensor" depends on the image: {most}' in built.notes
    for model, count in (("preprocess", 1), ("classifier", 1), ("ensemble", 0)):
        text = (tmp_path / "models" / model / "config.pbtxt").read_text()
        assert text.count("dims: [ 3, 48, -1 ]") == count, model
    assert check(tmp_path / "models") == []
    assert any(most in note for note in side_notes(tmp_path / "models"))
    lines = list(try_out(tmp_path / "models", PHOTOS[1]))
    assert [line for line in lines if "boxes" in line], lines
    again = build(tmp_path / "trt", pipeline=RECOGNIZER, onnx=recognizer(tmp_path), classifier="tensorrt")
    for shapes in ("--minShapes=x:1x3x48x320 ", "--optShapes=x:32x3x48x3200 ", "--maxShapes=x:64x3x48x3200"):
        assert shapes in again.notes[-1]


@pytest.mark.parametrize(
    ("width", "most", "remedy"),
    [
        (320, 320, "set tensor min_width to 320"),
        (640, 320, "set tensor min_width to 640"),
        (320, 3200, "add letterbox with height 48, width 320"),
    ],
)
def test_a_model_with_fixed_dimensions_rejects_open_dimensions(
    tmp_path: Path, width: int, most: int, remedy: str
) -> None:
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=48, max_size=most), pp.tensor()])
    with pytest.raises(pp.PipelineError) as caught:
        build(tmp_path / "models", pipeline=pipeline, onnx=recognizer(tmp_path, width))
    assert str(caught.value) == (
        f'line.onnx: the pipeline returns [3, 48, -1], a size that depends on the image, but input "x" of the model is '
        f"[3, 48, {width}]: export the model with dynamic height and width, or {remedy}"
    )
    if "min_width" in remedy:
        closed = pp.Pipeline([*pipeline.ops[:-1], pp.tensor(min_width=width)])
        build(tmp_path / "models", pipeline=closed, onnx=recognizer(tmp_path, width))


def test_verify_compares_padded_tensors_with_their_padding() -> None:
    level = pp.Pipeline([*DETECTOR.ops[:-1], pp.tensor(multiple=32, pad_level=(1, 2, 3))])
    for pipeline in (RECOGNIZER, DETECTOR, level):
        ops = [op for op in pipeline.ops if not isinstance(op, type(pp.image_size()))]
        photos = [(str(index), photo) for index, photo in enumerate(PHOTOS)]
        certificate = verify(pp.Pipeline(ops), images=photos, generate=False)
        assert {row.stage for row in certificate.rows} == {"decode", "resize", "tensor", "end to end"}
        assert certificate.is_exact, certificate.rows
