"""Tests that the recipes of docs/models.md produce the tensors of their models' packages. ``make models`` runs these
tests.

rapidocr, ddddocr, transformers, PaddleX and torchvision are called directly. Two formulas are copied from code that no
wheel contains: ``yolox`` (YOLOX's ``preproc``, of which ddddocr has a copy that is also called) and ``deployed``
(``Resize`` and ``NormalizeImage`` of PaddleDetection's deploy/python/preprocess.py).
"""

import importlib
import io
import math
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.serving.repository import build
from pixprep.serving.repository.trial import try_out
from support import images
from support.images import png, scene
from support.recipes import PAGE, RECIPES

cv2 = pytest.importorskip("cv2", reason="pip install opencv-python-headless, or run make models")

SIZES = [(480, 640), (427, 641), (61, 331), (64, 200), (99, 101), (333, 500), (1080, 1919), (700, 197), (83, 400)]
LONG = png(scene(39, 300))  # wider than 320 at a height of 48, and than 4000 if the shorter side is 736
PADDLEX = find_spec("paddlex")
DETECTOR, LINES, RECOGNIZER, _, _, _, _, _, CAPTCHA, YOLOX, RTDETR, PADDLE, TORCHVISION, SAR, SURYA = RECIPES


@cache
def all_photos():
    """Return the photos. They are read only if a package is installed."""
    return [*(png(scene(*size)) for size in SIZES), images.photo("china"), images.photo("flower")]


def library(name):
    return pytest.importorskip(name, reason="make models installs it", exc_type=ImportError)


def bgr_of(encoded):
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)


def rgb_of(encoded):
    return cv2.cvtColor(bgr_of(encoded), cv2.COLOR_BGR2RGB)


def rapidocr(part):
    """Return one model of rapidocr with the settings and files from rapidocr's wheel."""
    library("omegaconf")
    return getattr(library("rapidocr").RapidOCR(), f"_load_{part}_model")()


def rapidocr_detector():
    prepare = rapidocr("det").get_preprocess()
    return lambda encoded: prepare(bgr_of(encoded))[0]


def rapidocr_classifier():
    model = rapidocr("cls")
    return lambda encoded: model.resize_norm_img(bgr_of(encoded))


def line_tensor(model, bgr):
    """Return a text line's tensor in a batch of one, from ``TextRecognizer.__call__``."""
    return model.resize_norm_img(bgr, max(320 / 48, bgr.shape[1] * 1.0 / bgr.shape[0]))


def rapidocr_recognizer():
    model = rapidocr("rec")
    return lambda encoded: line_tensor(model, bgr_of(encoded))


def ddddocr_recognizer():
    engine = library("ddddocr.core.ocr_engine").OCREngine()
    return lambda encoded: engine._preprocess_image(Image.open(io.BytesIO(encoded)), png_fix=False)[0]


def ddddocr_detector():
    engine = library("ddddocr.core.detection_engine").DetectionEngine()
    return lambda encoded: engine.preproc(bgr_of(encoded), (416, 416))[0]


def yolox(encoded, side=416):
    bgr = bgr_of(encoded)
    canvas = np.ones((side, side, 3), dtype=np.uint8) * 114
    r = min(side / bgr.shape[0], side / bgr.shape[1])
    size = int(bgr.shape[1] * r), int(bgr.shape[0] * r)
    canvas[: size[1], : size[0]] = cv2.resize(bgr, size, interpolation=cv2.INTER_LINEAR)
    return canvas.transpose(2, 0, 1).astype(np.float32)


def rtdetr():
    library("torchvision")
    processor = library("transformers").RTDetrImageProcessor()
    return lambda encoded: processor(Image.fromarray(rgb_of(encoded)), return_tensors="pt")["pixel_values"][0].numpy()


def rtdetr_of_pillow():
    module = library("transformers.models.rt_detr.image_processing_pil_rt_detr")
    processor = module.RTDetrImageProcessorPil()
    return lambda encoded: processor(Image.fromarray(rgb_of(encoded)), return_tensors="np")["pixel_values"][0]


def paddlex(model):
    """Return the processors of one kind of PaddleX model, without importing the packages that contain them."""
    if PADDLEX is None or PADDLEX.origin is None:
        pytest.skip("make models installs paddlex")
    root = Path(PADDLEX.origin).parents[1]
    around = ["paddlex", *(f"paddlex.inference{name}" for name in ("", ".utils", ".common", ".common.reader"))]
    around += [f"paddlex.inference.models{name}" for name in ("", ".common", f".{model}")]
    for name in around:
        empty = sys.modules[name] = ModuleType(name)
        empty.__path__ = [str(root.joinpath(*name.split(".")))]
    importlib.import_module("paddlex.utils.deps").is_dep_available = lambda *_, **__: True
    shared = importlib.import_module("paddlex.inference.models.common.vision.processors")
    vars(sys.modules["paddlex.inference.models.common"]).update(Normalize=shared.Normalize, Resize=shared.Resize)
    sys.modules["paddlex.inference.common.reader"].ReadImage = object
    return importlib.import_module(f"paddlex.inference.models.{model}.processors")


def paddle_detection(size=(640, 640), **resize):
    """Return (im_shape, image, scale_factor) from PaddleX, which runs PaddleDetection's exported models."""
    module = paddlex("object_detection")
    steps = [module.Resize(list(size), **resize), module.Normalize(1 / 255, [0.0] * 3, [1.0] * 3)]
    steps += [module.ToCHWImage(), module.ToBatch(["img_size", "img", "scale_factors"])]

    def prepared(encoded):
        data = [{"img": rgb_of(encoded)}]
        for step in steps:
            data = step(data)
        return data

    return prepared


def deployed(rgb, scale_y, scale_x):
    resized = cv2.resize(rgb, None, None, fx=scale_x, fy=scale_y, interpolation=cv2.INTER_LINEAR)
    return (resized.astype(np.float32) / 255.0).transpose(2, 0, 1)


def normalized(levels, mean, std):
    """Return the result of PaddleDetection's ``NormalizeImage`` for float32 pixel values: constants are float64, and
    results are float32.
    """
    real = levels / np.float32(255.0)
    real -= np.array([mean])
    real /= np.array([std])
    return real


def torchvision_detector():
    torch = library("torch")
    module = library("torchvision.models.detection.transform")
    theirs = module.GeneralizedRCNNTransform(800, 1333, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).eval()
    return lambda encoded: theirs([torch.from_numpy(rgb_of(encoded)).permute(2, 0, 1) / 255])[0].tensors[0].numpy()


def changed(heading, *changes):
    """Return a recipe after replacing a string in it."""
    text = RECIPES[heading].to_json()
    for old, new in changes:
        assert old in text, (old, text)
        text = text.replace(old, new)
    return pp.Pipeline.from_json(text)


def tensors(pipeline, photos=None):
    """Return the image tensor of each photo."""
    (name,) = (name for name, output in pipeline.outputs.items() if len(output.spec.shape) == 3)
    with pp.Engine(pipeline, threads=1) as engine:
        return [np.asarray(engine.run_batch([photo])[name][0]) for photo in photos or all_photos()]


def equal_count(pipeline, theirs, photos=None):
    """Return how many of the tensors are equal bit for bit."""
    photos = photos or all_photos()
    pairs = zip(tensors(pipeline, photos), map(theirs, photos), strict=True)
    return sum(ours.dtype == its.dtype and np.array_equal(ours, its) for ours, its in pairs)


BGR = ('"decode", "color": "bgr"', '"decode"')
OPENCV = (', "like": "opencv"', "")
EXACT = {
    DETECTOR: (rapidocr_detector, [BGR, OPENCV, (', "rounding": "half_even"', ""), ('"multiply"', '"fused"')]),
    LINES: (rapidocr_classifier, [BGR, OPENCV, (', "rounding": "up"', ""), ('"divide"', '"fused"')]),
    RECOGNIZER: (rapidocr_recognizer, [BGR, OPENCV, (', "up_to": 320', ""), ("320", "336")]),
    CAPTCHA: (ddddocr_recognizer, [(', "filter": "lanczos"', ""), ("64", "48")]),
    YOLOX: (ddddocr_detector, [BGR, OPENCV, (', "rounding": "down"', ""), (', "anchor": "top_left"', "")]),
    RTDETR: (rtdetr, [(', "like": "torchvision"', ""), (', "arithmetic": "multiply"', ""), ("640", "639")]),
}


@pytest.mark.parametrize("heading", EXACT)
def test_a_recipe_gives_the_tensors_of_its_package_and_a_wrong_one_does_not(heading):
    original, wrong = EXACT[heading]
    theirs, photos = original(), all_photos() if heading == DETECTOR else [*all_photos(), LONG]
    assert equal_count(RECIPES[heading], theirs, photos) == len(photos)
    for change in wrong:  # negative controls
        assert equal_count(changed(heading, change), theirs, photos) < len(photos), change


def sar(encoded):
    """Compute a tensor as ``RescaleToHeight``, ``PadToWidth`` and the normalization of MMOCR's SAR do."""
    bgr = bgr_of(encoded)
    height, width = bgr.shape[:2]
    columns = min(max(48, math.ceil(48.0 / height * width)), 160)
    columns = columns if columns % 4 == 0 else round(columns / 4) * 4
    padded = np.zeros((48, 160, 3), np.uint8)
    padded[:, :columns] = cv2.resize(bgr, (columns, 48), interpolation=cv2.INTER_LINEAR)
    return ((padded.astype(np.float64) - 127) / 127).transpose(2, 0, 1)


def surya(encoded):
    """Compute a tensor as Surya's ``prepare_image`` does, with ImageNet's normalization."""
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    image.thumbnail((1200, 1200), Image.Resampling.LANCZOS)
    levels = np.asarray(image.resize((1200, 1200), Image.Resampling.LANCZOS), np.float64)
    return ((levels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("heading", "original", "wrong"),
    [
        (SAR, sar, [BGR, OPENCV, ('"multiple": 4, ', ""), ('"size": 48', '"size": 47')]),
        (SURYA, surya, [(', "reducing_gap": 2.0', ""), ('"lanczos"', '"bicubic"')]),
    ],
    ids=["SAR", "Surya"],
)
def test_a_recipe_has_the_pixel_values_of_the_calls_in_its_package(heading, original, wrong):
    huge = png(scene(400, 250).repeat(8, 0).repeat(20, 1))  # 3200 x 5000: thumbnail reduces it by 2
    photos = [*all_photos(), LONG, *[huge] * (heading == SURYA)]
    theirs = [original(photo) for photo in photos]

    def furthest(pipeline):
        found = zip(tensors(pipeline, photos), theirs, strict=True)
        return max(np.abs(ours - its).max() if ours.shape == its.shape else 1 for ours, its in found)

    assert furthest(RECIPES[heading]) < 1e-6
    for change in wrong:  # negative controls
        try:
            assert furthest(changed(heading, change)) > 1 / 300, change
        except pp.PipelineError:
            assert change[0] == '"size": 48'  # this size does not fit the padding to 48 rows


def test_yoloxs_own_formula_equals_that_of_ddddocr():
    assert equal_count(RECIPES[YOLOX], yolox) == len(all_photos())
    assert equal_count(changed(YOLOX, ("416", "640")), lambda encoded: yolox(encoded, 640)) == len(all_photos())


def test_without_torchvision_rtdetr_is_resized_with_pillow():
    without = changed(RTDETR, (', "like": "torchvision"', ""), (', "arithmetic": "multiply"', ""))
    assert equal_count(without, rtdetr_of_pillow()) == len(all_photos())


@pytest.mark.parametrize("limit", ["min", "max"])
def test_paddleocr_detects_the_same_as_rapidocr_with_either_limit(limit):
    side = {"min": 736, "max": 960}[limit]
    resize = paddlex("text_detection").DetResizeForTest(limit_side_len=side, limit_type=limit)
    scale = np.float32(1 / 255)

    def theirs(encoded):
        resized = resize([bgr_of(encoded)])[0][0]
        return ((resized.astype(np.float32) * scale - 0.5) / np.float32(0.5)).transpose(2, 0, 1)

    longer = [
        ('"size": 736', '"size": 960, "side": "longer"'),
        (', "max_size": 4000', ""),
        ('"shrink": false', '"enlarge": false'),
    ]
    pipeline = RECIPES[DETECTOR] if limit == "min" else changed(DETECTOR, *longer)
    assert equal_count(pipeline, theirs, [*all_photos(), LONG]) == len(all_photos()) + 1


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize(("mean", "std", "is_equal"), [((0.5,) * 3, (0.5,) * 3, True), (*IMAGENET, False)])
def test_paddlex_normalizes_with_one_product_and_one_sum(mean, std, is_equal):
    """ "What does not fit" on the page mentions this: PaddleX computes ``value * alpha + beta``, rounding each step to
    float32.
    """
    normalize = paddlex("object_detection").Normalize(1 / 255, list(mean), list(std))
    levels = np.arange(256, dtype=np.uint8)
    theirs = normalize.norm(np.repeat(levels[None, :, None], 3, axis=2)).transpose(2, 0, 1)
    ours = changed(DETECTOR, ('"mean": 0.5, "std": 0.5', f'"mean": {list(mean)}, "std": {list(std)}')).ops[-2]
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(1, 256), ours, pp.tensor()])
    (tensor,) = tensors(pipeline, [png(np.repeat(levels[None, :, None], 3, axis=2))])
    most = np.abs(tensor - theirs).max()
    print(f"one product and one sum: {most:.1e} apart")
    assert most == 0 if is_equal else 0 < most < 1e-6


def test_paddleocr_recognizes_the_same_as_rapidocr():
    recognizer = paddlex("text_recognition").OCRReisizeNormImg()
    wide = png(scene(20, 2000))  # wider than 3200 in rapidocr
    theirs = lambda encoded: recognizer([bgr_of(encoded)])[0]  # noqa: E731
    assert equal_count(RECIPES[RECOGNIZER], theirs, [*all_photos(), wide]) == len(all_photos()) + 1


def test_a_captcha_is_converted_to_gray_after_its_resize():
    theirs = ddddocr_recognizer()
    before = changed(CAPTCHA, ('"decode", ', '"decode", "color": "gray", '), ('    {"op": "grayscale"},\n', ""))
    levels = [255 * abs(ours - theirs(photo)).max() for ours, photo in zip(tensors(before), all_photos(), strict=True)]
    print(f"grayed first: up to {max(levels):.1f} levels apart")
    assert 5 < max(levels) < 8, "docs/models.md says 7 levels"


@pytest.mark.parametrize(("interp", "most", "share"), [("LINEAR", 0.0, 0.0), ("BICUBIC", 1.01, 0.05)])
def test_paddledetection_gets_its_three_inputs(interp, most, share):
    theirs = paddle_detection(interp=interp)
    pipeline = RECIPES[PADDLE] if interp == "BICUBIC" else changed(PADDLE, (', "filter": "bicubic"', ""))
    shares = []
    with pp.Engine(pipeline, threads=1) as engine:
        for photo in all_photos():
            found, (shape, image, scale) = engine.run_batch([photo]), theirs(photo)
            assert np.array_equal(found["im_shape"], shape)
            assert np.array_equal(found["scale_factor"], scale)
            levels = np.abs(found["tensor"] - image) * 255
            assert levels.max() <= most
            shares.append(np.mean(levels > 0))
    print(f"{interp}: {max(shares):.1%} of the values differ, of the photos {max(shares[-2:]):.1%}")
    assert max(shares) <= share


def test_paddledetections_own_code_divides():
    def theirs(encoded):
        rgb = rgb_of(encoded)
        height, width = rgb.shape[:2]
        return deployed(rgb, 640 / float(height), 640 / float(width))

    divided = changed(PADDLE, (', "filter": "bicubic"', ""), ('"multiply"', '"divide"'))
    assert equal_count(divided, theirs) == len(all_photos())
    levels = np.arange(256, dtype=np.uint8)
    # this is the last bit that "What does not fit" mentions
    for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225)):
        normalize = pp.normalize(mean=mean, std=std, arithmetic="divide")
        pipeline = pp.Pipeline([pp.decode(color="gray"), pp.center_crop(1, 256), normalize, pp.tensor()])
        (ours,) = tensors(pipeline, [png(levels[None, :, None])])
        difference = np.abs(ours.ravel() - normalized(levels.astype(np.float32), mean, std))
        assert 0 < difference.max() < 5e-7


def test_an_aspect_ratio_is_kept_like_in_paddlex_or_like_in_paddledetections_own_code():
    """OpenCV samples at intervals of ``1 / fx`` pixels. This interval differs from the ratio of the sizes."""
    theirs = paddle_detection((800, 1333), keep_ratio=True)
    resize = pp.resize(800, mode="scale", max_size=1333, like="opencv", rounding="half_even")
    pipeline = pp.Pipeline([pp.decode(), resize, pp.normalize(arithmetic="multiply"), pp.scale_factor(), pp.tensor()])
    by_scale = pp.resize(800, mode="scale", max_size=1333, like="opencv", subpixel=True)
    own = pp.Pipeline([pp.decode(), by_scale, pp.normalize(arithmetic="divide"), pp.scale_factor(), pp.tensor()])
    most, share, factor = 0.0, 0.0, 0.0
    with pp.Engine(pipeline, threads=1) as engine, pp.Engine(own, threads=1) as deploying:
        for photo in all_photos():
            rgb, found, (_, image, scales) = rgb_of(photo), engine.run_batch([photo]), theirs(photo)
            assert np.array_equal(found["tensor"][0], image[0])
            assert np.array_equal(found["scale_factor"], scales)
            scale = 800 / min(rgb.shape[:2])
            scale = scale if np.round(scale * max(rgb.shape[:2])) <= 1333 else 1333 / max(rgb.shape[:2])
            found = deploying.run_batch([photo])
            assert np.array_equal(found["tensor"][0], deployed(rgb, scale, scale))
            assert np.array_equal(found["scale_factor"][0], np.float32([scale, scale]))
            levels = 255 * np.abs(image[0] - deployed(rgb, scale, scale))
            most, share = max(most, levels.max()), max(share, np.mean(levels > 0.5))
            factor = max(factor, np.abs(scales / scale - 1).max())
    print(f"aspect kept: up to {most:.1f} levels, {share:.0%} of the values; scale_factor {factor:.1e} apart")
    assert most > 5
    assert share > 0.3
    assert 1e-4 < factor < 5e-3


def test_torchvisions_detectors_differ_by_a_sixtieth_of_a_pixel_value():
    theirs, most = torchvision_detector(), []
    for photos in ([*all_photos()[:3], *all_photos()[-2:]], [png(images.noise(1200, 1600))]):
        pairs = zip(tensors(RECIPES[TORCHVISION], photos), map(theirs, photos), strict=True)
        most.append(max(np.abs(ours - its).max() for ours, its in pairs))
    print(f"torchvision: photos up to {most[0]:.1e} apart, noise {most[1]:.1e}")
    assert 0 < most[0] < 6e-5
    assert 1e-4 < most[1] < 2.8e-4


def test_a_line_of_text_is_one_column_wider_in_a_batch_with_a_wider_one():
    """ "What does not fit" on the page mentions this: rapidocr pads to the widest of six lines, which also determines
    its rounding.
    """
    model = rapidocr("rec")
    lines = [png(scene(*size)) for size in ((40, 300), (40, 61), (30, 1000))]
    pixels = [bgr_of(line) for line in lines]
    widest = max(line.shape[1] * 1.0 / line.shape[0] for line in pixels)
    theirs = np.stack([model.resize_norm_img(line, widest) for line in pixels])
    with pp.Engine(RECIPES[RECOGNIZER], threads=1) as engine:
        assert np.array_equal(engine.run_batch(lines).padded("x"), theirs)
    odd = bgr_of(png(scene(41, 301)))  # this line is 352.4 pixels wide
    filled = [
        np.nonzero(tensor.any(axis=(0, 1)))[0].size
        for tensor in (line_tensor(model, odd), model.resize_norm_img(odd, 40))
    ]
    assert filled == [352, 353]


def onnx_file(heading):
    """Return the path of the recipe's ONNX model in the installed package."""
    folder = Path(library(re.findall(r"rapidocr|ddddocr", heading)[-1]).__file__).parent
    name = {DETECTOR: "*_det_small", LINES: "*_cls_mobile", RECOGNIZER: "*_rec_small", CAPTCHA: "common"}
    return next(folder.rglob(f"{name.get(heading, 'common_det')}.onnx"))


@pytest.mark.parametrize("heading", [DETECTOR, LINES, RECOGNIZER, CAPTCHA, YOLOX])
def test_the_packages_own_model_is_built_after_its_recipe_and_runs(tmp_path, monkeypatch, heading):
    library("onnx")
    model = onnx_file(heading)
    if heading == CAPTCHA:
        monkeypatch.chdir(tmp_path)
        Path("common.onnx").symlink_to(model)
        (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        exec(program, {})  # noqa: S102 - this is code of our own page
        model = tmp_path / "by_image.onnx"
    batch = 1 if heading in (CAPTCHA, YOLOX) else None
    build(tmp_path / "models", pipeline=RECIPES[heading], onnx=model, max_batch_size=batch)
    said = "\n".join(try_out(tmp_path / "models", png(scene(64, 200))))
    print(said)
    assert not re.search("could not run|wrongly", said)
