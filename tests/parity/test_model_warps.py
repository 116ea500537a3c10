"""Tests the recipes of docs/models.md that warp a region of a photo, against the code of the packages. ``make models``
runs these tests.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pixprep as pp
from support import images
from support.images import png, scene
from support.recipes import RECIPES

cv2 = pytest.importorskip("cv2", reason="pip install opencv-python-headless, or run make models")
if not cv2.__version__.startswith("4."):
    pytest.skip("NO OPENCV 4: the warps of OpenCV 5 have another arithmetic", allow_module_level=True)

ENDS = ("photo", "SCRFD", "ArcFace", "corners", "tables")
LINE, SCRFD, ARCFACE, FOUR_POINTS, TABLES = (heading for heading in RECIPES if heading.endswith(ENDS))
PHOTOS = [png(scene(480, 640)), images.photo("china"), images.photo("flower")]
FACE = np.array([[38.3, 51.7], [73.5, 51.5], [56.0, 71.7], [41.5, 92.4], [70.7, 92.2]])
COUNT = 60


def alone(package, *path):
    """Import a module of a package without running the ``__init__`` modules of the packages that contain it."""
    found = PathFinder.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"make models installs {package}")
    for depth in range(len(path)):
        name = ".".join([package, *path[:depth]])
        empty = sys.modules[name] = ModuleType(name)
        empty.__path__ = [str(Path(found.origin).parent.joinpath(*path[:depth]))]
    try:
        return importlib.import_module(".".join([package, *path]))
    finally:
        for depth in range(len(path)):
            del sys.modules[".".join([package, *path[:depth]])]


def bgr_of(encoded):
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)


def quads(seed, height=427, width=640):
    """Return float32 (COUNT, 4, 2): the corners of text lines, rotated and slightly tilted. Some lines are tall, and
    some cross the edge.
    """
    rng = np.random.default_rng(seed)
    made = []
    for index in range(COUNT):
        long, short, angle = rng.uniform(30, 300), rng.uniform(12, 60), rng.uniform(-40, 40)
        sides = (short, long) if index % 5 == 0 else (long, short)
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * np.divide(sides, 2) + rng.uniform(-4, 4, (4, 2))
        turn = np.deg2rad(angle)
        corners = corners @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        made.append(corners + rng.uniform(0, 1, 2) * (width, height))
    return np.array(made, np.float32)


def rows(recipe, encoded, values, **changes):
    """Return a separate tensor for each row, as a recognizer expects."""
    text = recipe.to_json()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    pipeline = pp.Pipeline.from_json(text)
    (name,) = pipeline.inputs
    with pp.Engine(pipeline, threads=1) as engine:
        return [engine.run([encoded], inputs={name: [[row]]})[0] for row in values]


def rapidocr():
    pytest.importorskip("omegaconf", reason="make models installs it")
    model = pytest.importorskip("rapidocr", reason="make models installs it").RapidOCR()._load_rec_model()
    crop = importlib.import_module("rapidocr.utils.process_img").get_rotate_crop_image

    def prepared(encoded, quad):
        line = crop(bgr_of(encoded), quad)
        return model.resize_norm_img(line, max(320 / 48, line.shape[1] * 1.0 / line.shape[0]))

    return prepared


def paddlex():
    module = alone("paddlex", "inference", "pipelines", "components", "common", "crop_image_regions")
    module.cv2 = cv2  # the module imports cv2 only if its own list of installed modules contains it
    return module.CropByPolys.get_rotate_crop_image


def insightface(dtype=np.float64):
    """Return ArcFace's input, computed in float64, so that scikit-image's singular values are not rounded to
    float32.
    """
    align = alone("insightface", "utils", "face_align")
    align.arcface_dst = np.array(RECIPES[ARCFACE].ops[1].template, dtype)

    def prepared(encoded, points):
        points = points.astype(dtype)
        face = align.norm_crop(bgr_of(encoded), points)
        return cv2.dnn.blobFromImages([face], 1.0 / 127.5, (112, 112), (127.5, 127.5, 127.5), swapRB=True)[0]

    return prepared


def easyocr():
    crop = alone("easyocr", "utils").four_point_transform
    return lambda encoded, quad: crop(bgr_of(encoded)[:, :, ::-1].copy(), quad)


def imutils():
    crop = alone("imutils", "perspective").four_point_transform
    return lambda encoded, quad: crop(bgr_of(encoded)[:, :, ::-1].copy(), quad)


def faces(seed):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(COUNT):
        a, b = rng.uniform(0.4, 3) * np.array([np.cos(angle := rng.uniform(-0.6, 0.6)), np.sin(angle)])
        points = (FACE - 56) @ np.array([[a, b], [-b, a]]) + rng.uniform(80, 400, 2) + rng.normal(0, 2, (5, 2))
        made.append(points)
    return np.array(made, np.float32)


BGR = ('"decode"', '"decode", "color": "bgr"')
EDGES = [('"edge"', '"constant"'), ("1.5", "9.5"), ('"bicubic"', '"bilinear"'), ('"bgr"', '"rgb"')]
CASES = {
    LINE: (rapidocr, quads, EDGES),
    ARCFACE: (insightface, faces, [BGR, ("38.2946", "39.2946")]),
    FOUR_POINTS: (easyocr, quads, [BGR, ('"align_corners": true', '"align_corners": false')]),
}


@pytest.mark.filterwarnings("ignore:.estimate. is deprecated:FutureWarning")  # scikit-image emits this in InsightFace
@pytest.mark.parametrize("heading", CASES)
def test_a_region_of_a_photo_equals_its_package_and_a_wrong_one_does_not(heading):
    make, values_of, wrongs = CASES[heading]
    theirs = make()
    for seed, encoded in enumerate(PHOTOS):
        values = values_of(seed)
        ours = rows(RECIPES[heading], encoded, values)
        outside = [isinstance(each, pp.ImageError) and "outside" in str(each) for each in ours]
        assert sum(outside) < COUNT / 4
        seen = [place for place, is_out in enumerate(outside) if not is_out]
        expected = {place: theirs(encoded, values[place]) for place in seen}
        for place in seen:
            assert np.array_equal(ours[place], expected[place]), (heading, seed, place)
    for wrong in wrongs:
        other = rows(RECIPES[heading], encoded, values, wrong=wrong)
        assert any(not np.array_equal(other[place], expected[place]) for place in seen), wrong


@pytest.mark.filterwarnings("ignore:.estimate. is deprecated:FutureWarning")
def test_a_face_differs_from_insightface_by_the_rounding_of_its_matrix():
    """The reference is unmodified InsightFace, which computes the matrix from float32 points."""
    theirs, max_difference = insightface(np.float32), []
    for seed, encoded in enumerate(PHOTOS):
        values = faces(seed)
        for points, ours in zip(values, rows(RECIPES[ARCFACE], encoded, values), strict=True):
            if not isinstance(ours, pp.ImageError):
                max_difference.append(np.abs(ours - theirs(encoded, points)) * 127.5)
    assert np.mean(np.array(max_difference) > 0.5) < 5e-4
    assert np.max(max_difference) < 9


def test_a_document_is_rectified_like_imutils():
    """imutils first sorts the corners. It selects the two left corners by x, and uses the corner farthest from the
    upper left corner as the lower right corner.
    """
    theirs, encoded = imutils(), PHOTOS[1]
    order = alone("imutils", "perspective").order_points
    values = [quad for quad in quads(4) if np.array_equal(order(quad), quad)]
    ours = rows(RECIPES[FOUR_POINTS], encoded, values)
    compared = [np.array_equal(one, theirs(encoded, quad)) for one, quad in zip(ours, values, strict=True)
                if not isinstance(one, pp.ImageError)]  # fmt: skip
    assert len(compared) > COUNT / 2
    assert all(compared)


def test_rtmpose_crops_a_person_by_its_matrix():
    steps = alone("rtmlib", "tools", "pose_estimation", "pre_processings")
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    warp = pp.warp(matrix="person", height=256, width=192)
    normalize = pp.normalize(mean=mean, std=std, scale=1)
    pipeline, rng = pp.Pipeline([pp.decode(color="bgr"), warp, normalize, pp.tensor()]), np.random.default_rng(7)
    for encoded in PHOTOS:
        boxes = np.sort(rng.uniform((0, 0), (640, 427), (COUNT, 2, 2)), axis=1).reshape(-1, 4)
        boxes[:, 2:] += 9
        matrices, theirs = [], []
        for box in boxes:
            center, scale = steps.bbox_xyxy2cs(box, padding=1.25)
            person, scale = steps.top_down_affine((192, 256), scale, center, bgr_of(encoded))
            matrices.append(steps.get_warp_matrix(center, scale, 0, output_size=(192, 256)))
            theirs.append(np.float32((person - np.array(mean)) / np.array(std)).transpose(2, 0, 1))
        assert np.array_equal(rows(pipeline, encoded, matrices), theirs)
    assert not np.array_equal(rows(pipeline, encoded, matrices, wrong=("bgr", "rgb")), theirs)


def test_paddlex_crops_lines_like_rapidocr():
    theirs, encoded = paddlex(), PHOTOS[1]
    crop = pp.Pipeline([*RECIPES[LINE].ops[:2], pp.tensor(dtype="uint8", layout="hwc")])
    for quad, ours in zip(quads(9), rows(crop, encoded, quads(9)), strict=True):
        if not isinstance(ours, pp.ImageError):
            assert np.array_equal(ours, theirs(None, bgr_of(encoded), quad))


class Seen(Exception):  # noqa: N818 - the exception carries the input out of the package's own code
    pass


def scrfd():
    """Return the input that SCRFD's own code prepares, captured in place of the network."""
    detector = object.__new__(alone("insightface", "model_zoo", "scrfd").SCRFD)
    detector.input_mean, detector.input_std, detector.input_dtype = 127.5, 128.0, np.float32

    def forward(image, _):
        raise Seen(detector._prepare_input_blob(image, image.shape[1::-1])[0])

    detector.forward = forward

    def prepared(encoded):
        with pytest.raises(Seen) as seen:
            detector._detect_candidates(bgr_of(encoded), (640, 640), 0.5)
        return seen.value.args[0]

    return prepared


def lore():
    model = object.__new__(alone("lineless_table_rec", "table_structure_lore").TSRLore)
    model.inp_h = model.inp_w = 768
    model.mean, model.std = (
        np.array(values, np.float32).reshape(1, 1, 3) for values in ((0.408, 0.447, 0.470), (0.289, 0.274, 0.278))
    )
    return lambda encoded: model.preprocess(bgr_of(encoded))["img"][0]


def max_difference(pipeline, encoded, theirs):
    """Return the maximum difference. For a table, docs/models.md contains the matrix."""
    scale = 768 / max(bgr_of(encoded).shape[:2])
    inputs = {name: [[[[scale, 0, 0], [0, scale, 0]]]] for name in pipeline.inputs}
    (name,) = (name for name, output in pipeline.outputs.items() if len(output.spec.shape) == 3)
    with pp.Engine(pipeline, threads=1) as engine:
        ours = engine.run_batch([encoded], inputs=inputs)[name][0]
    return np.abs(ours - theirs(encoded)).max()


SIZES = [(61, 331), (640, 640), (333, 500), (1080, 1919), (700, 197), (427, 641)]
WHOLE = {
    SCRFD: (scrfd, 0, [('"down"', '"half_even"'), (', "like": "opencv"', ""), ('"top_left"', '"center"')]),
    TABLES: (lore, 3e-7, [('"color": "bgr"', '"color": "rgb"'), ('"scale",', '"scale", "filter": "bicubic",')]),
}


@pytest.mark.parametrize("heading", WHOLE)
def test_a_whole_photo_equals_its_package_and_a_wrong_one_does_not(heading):
    make, most, wrongs = WHOLE[heading]
    theirs, encoded = make(), [*PHOTOS, *(png(scene(*size)) for size in SIZES)]
    assert max(max_difference(RECIPES[heading], photo, theirs) for photo in encoded) <= most
    for old, new in wrongs:
        text = RECIPES[heading].to_json()
        assert old in text
        assert any(
            max_difference(pp.Pipeline.from_json(text.replace(old, new)), photo, theirs) > 1e-3 for photo in encoded
        ), new
