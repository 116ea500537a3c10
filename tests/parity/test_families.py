"""Tests that the files of docs/models produce the tensors of their models' packages: ``make models``.

Each row of ``CALLS`` calls a package's own code, without its weights. For most packages, only one module is imported,
without the enclosing packages and their imports. ``mtcnn`` and ``retinaface`` repeat lines of the packages' code,
because these lines cannot be called alone.
"""

import importlib
import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import pixprep as pp
from pixprep.importers.transformers import from_transformers
from pixprep.plan.sizes import max_detr_side
from support import images
from support.images import png, scene
from support.recipes import FAMILIES

cv2 = pytest.importorskip("cv2", reason="make models installs it")
torch = pytest.importorskip("torch", reason="make models installs it")
pytest.importorskip("torchvision", reason="make models installs it", exc_type=ImportError)
from PIL import Image  # noqa: E402

SITE = Path(np.__file__).parents[1]
SIZES = [(480, 640), (427, 641), (61, 331), (64, 200), (99, 101), (333, 500), (1080, 1919), (700, 197), (83, 400)]
DIM = png(scene(97, 140) // 3)
PHOTOS = [*(png(scene(*size)) for size in (*SIZES, (40, 2700))), DIM, images.photo("china"), images.photo("flower")]
LINES = [png(scene(*size)[:, :, :1]) for size in SIZES if size[1] >= size[0]]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
DOCTR = ((0.798, 0.785, 0.772), (0.264, 0.2749, 0.287)), ((0.694, 0.695, 0.693), (0.299, 0.296, 0.301))


def module(name, *around, **stands_in):
    """Import a module of a package. The packages in ``around``, which contain the module, are replaced by empty
    packages with the same folders and with the attributes in ``stands_in``.
    """
    if not SITE.joinpath(name.split(".")[0]).exists():
        pytest.skip(f"make models installs {name.split('.')[0]}")
    for package in around:
        if package not in sys.modules:
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = [str(SITE.joinpath(*package.split(".")))]
        vars(sys.modules[package]).update(stands_in)
    return importlib.import_module(name)


def bgr_of(encoded):
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)


def rgb_of(encoded):
    return cv2.cvtColor(bgr_of(encoded), cv2.COLOR_BGR2RGB)


def pil_of(encoded):
    return Image.fromarray(rgb_of(encoded))


def rembg(mean, std, side):
    session = module("rembg.sessions.base", "rembg", "rembg.sessions").BaseSession
    fake = SimpleNamespace(inner_session=SimpleNamespace(get_inputs=lambda: [SimpleNamespace(name="x")]))
    return lambda encoded: session.normalize(fake, pil_of(encoded), mean, std, (side, side))["x"][0]


def segment_anything():
    resize = module("segment_anything.utils.transforms").ResizeLongestSide(1024)
    model = module("segment_anything.modeling.sam").Sam
    mean, std = (torch.tensor(x).view(-1, 1, 1) for x in ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]))
    fake = SimpleNamespace(pixel_mean=mean, pixel_std=std, image_encoder=SimpleNamespace(img_size=1024))

    def prepare(encoded):
        resized = torch.as_tensor(resize.apply_image(rgb_of(encoded))).permute(2, 0, 1)
        return model.preprocess(fake, resized).numpy()

    return prepare


def easyocr(name):
    module("skimage").io = None  # reads files
    return module(f"easyocr.{name}", "easyocr")


def craft():
    process = easyocr("imgproc")

    def prepare(encoded):
        resized, *_ = process.resize_aspect_ratio(rgb_of(encoded), 2560, cv2.INTER_LINEAR, mag_ratio=1.0)
        return process.normalizeMeanVariance(resized).transpose(2, 0, 1)

    return prepare


def easyocr_recognizer():
    cut, collate = easyocr("utils").get_image_list, easyocr("recognition").AlignCollate

    def prepare(encoded):
        gray = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_GRAYSCALE)
        ((_, line),), width = cut([[0, gray.shape[1], 0, gray.shape[0]]], [], gray, model_height=64)
        return collate(imgH=64, imgW=int(width), keep_ratio_with_pad=True)([Image.fromarray(line)])[0].numpy()

    return prepare


def doctr(height, width, mean_std, **how):
    utils = module("doctr.utils.common_types", "doctr", "doctr.models", "doctr.models.preprocessor", "doctr.utils")
    module("doctr.utils.common_types", "doctr.utils", Sample=utils.Sample)
    packages = ("doctr.transforms", "doctr.transforms.modules", "doctr.transforms.functional")
    resize = module("doctr.transforms.modules.pytorch", *packages, random_shadow=None).Resize
    sys.modules["doctr.transforms"].Resize = resize
    kind = module("doctr.models.preprocessor.pytorch").PreProcessor
    prepare = kind((height, width), 1, *mean_std, preserve_aspect_ratio=True, **how)
    return lambda encoded: prepare([rgb_of(encoded)])[0][0].numpy()


def ultralytics(*, rect):
    """Return the preprocessing for all tasks except classification: detection, segmentation, pose and rotated boxes."""
    predictor = module("ultralytics.engine.predictor").BasePredictor
    model = SimpleNamespace(format="pt", stride=32, fp16=False)
    fake = SimpleNamespace(args=SimpleNamespace(rect=rect), imgsz=(640, 640), scale_fill=False, model=model)
    fake.device, fake.pre_transform = "cpu", lambda batch: predictor.pre_transform(fake, batch)
    return lambda encoded: predictor.preprocess(fake, [rgb_of(encoded)[:, :, ::-1]])[0].numpy()


def open_clip():
    transform = module("open_clip.transform", "open_clip").image_transform(224, is_train=False)
    return lambda encoded: transform(pil_of(encoded)).numpy()


def grounding_dino():
    """Return the preprocessing of GroundingDINO, with a Paddle whose resize returns the requested size."""
    for name in ("paddle", "paddle.vision", "paddle.vision.transforms"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["paddle.vision.transforms"].resize = lambda _, size: size
    root = "paddlex.inference"
    folders = [root, f"{root}.utils", *(f"{root}.models{name}" for name in ("", ".common", ".common.tokenizer"))]
    folders += [f"{root}.models.open_vocabulary_detection{name}" for name in ("", ".processors")]
    sys.modules[f"{root}.models.common.tokenizer.bert_tokenizer"] = ModuleType("bert_tokenizer")
    sys.modules[f"{root}.models.common.tokenizer.bert_tokenizer"].BertTokenizer = object
    kind = module(f"{folders[-1]}.groundingdino_processors", "paddlex", *folders).GroundingDinoImageProcessor
    return lambda height, width: kind().resize(SimpleNamespace(size=(width, height)), 800, 1333)


def parseq():
    sys.modules.setdefault("pytorch_lightning", ModuleType("pytorch_lightning")).LightningDataModule = object
    sys.modules["strhub.data.dataset"] = ModuleType("strhub.data.dataset")
    vars(sys.modules["strhub.data.dataset"]).update(build_tree_dataset=None, LmdbDataset=None)
    transform = module("strhub.data.module", "strhub", "strhub.data").SceneTextDataModule.get_transform((32, 128))
    return lambda encoded: transform(pil_of(encoded)).numpy()


def anomalib():
    """Return the image reader of anomalib's inferencers. Its exported models contain the resize and the
    normalization.
    """
    for name in ("tifffile", "matplotlib", "matplotlib.figure"):
        vars(sys.modules.setdefault(name, ModuleType(name))).setdefault("Figure", object)
    read = module("anomalib.data.utils.image", "anomalib", "anomalib.data", "anomalib.data.utils").read_image
    return lambda encoded: read(io.BytesIO(encoded), as_tensor=True).numpy()


def rtmdet():
    package = "rtmlib.tools.object_detection"
    model = SimpleNamespace(model_input_size=(640, 640), mean=(103.53, 116.28, 123.675), std=(57.375, 57.12, 58.395))
    prepare = module(f"{package}.rtmdet", "rtmlib", "rtmlib.tools", package).RTMDet.preprocess
    return lambda encoded: np.float32(prepare(model, rgb_of(encoded)[:, :, ::-1])[0]).transpose(2, 0, 1)


def hsemotion():
    recognizer = module("hsemotion_onnx.facial_emotions", "hsemotion_onnx").HSEmotionRecognizer
    return lambda encoded: recognizer.preprocess(SimpleNamespace(img_size=224), rgb_of(encoded))[0]


def deepface():
    resize = module("deepface.modules.preprocessing", "deepface", "deepface.modules").resize_image
    return lambda encoded: resize(rgb_of(encoded)[:, :, ::-1], (224, 224))[0]


def efficientdet():
    """Return ``ResizePad`` of effdet, followed by the normalization, which in effdet's loader requires a GPU."""
    resize = module("effdet.data.transforms", "effdet", "effdet.data").ResizePad(512, fill_color=(124, 116, 104))
    mean, std = (torch.tensor([255 * x for x in numbers]).view(-1, 1, 1) for numbers in IMAGENET)

    def prepare(encoded):
        resized = torch.from_numpy(np.array(resize(pil_of(encoded), {})[0])).permute(2, 0, 1)
        return resized.float().sub_(mean).div_(std).numpy()

    return prepare


def segmentation_models():
    package = "segmentation_models_pytorch"
    prepare = module(f"{package}.encoders._preprocessing", package, f"{package}.encoders").preprocess_input
    how = {"input_range": [0, 1], "mean": IMAGENET[0], "std": IMAGENET[1]}
    resized = lambda encoded: cv2.resize(rgb_of(encoded), (512, 512))  # noqa: E731 - the user's code does this
    return lambda encoded: np.float32(prepare(resized(encoded), **how)).transpose(2, 0, 1)


def mtcnn():
    """Return the first stage at one scale, with the lines of ``MTCNN`` of mtcnn 0.1."""
    scaled = lambda encoded: cv2.resize(rgb_of(encoded), (384, 288), interpolation=cv2.INTER_AREA)  # noqa: E731
    return lambda encoded: np.float32((scaled(encoded) - 127.5) * 0.0078125).transpose(1, 0, 2)


def retinaface():
    """Return ``resize_image`` and ``preprocess_image`` of retina-face, which pass one scale for both sides to
    OpenCV.
    """

    def prepare(encoded):
        rgb = rgb_of(encoded)
        scale = 1024 / min(rgb.shape[:2])
        if np.round(scale * max(rgb.shape[:2])) > 1980:
            scale = 1980 / max(rgb.shape[:2])
        return np.float32(cv2.resize(rgb, None, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR))

    return prepare


def open_image_models():
    around = "open_image_models.detection.core.yolo_v9"
    packages = [around.rsplit(".", number)[0] for number in range(3, -1, -1)]
    preprocess = module(f"{around}.preprocess", *packages).preprocess
    return lambda encoded: preprocess(bgr_of(encoded), 384)[0][0]


def fast_plate_ocr():
    resize = module("fast_plate_ocr.core.process", "fast_plate_ocr", "fast_plate_ocr.core").resize_image
    return lambda encoded: resize(cv2.cvtColor(bgr_of(encoded), cv2.COLOR_BGR2GRAY), 64, 128)


def openmmlab(*transforms, **preprocessor):
    """Return a function that applies transforms of OpenMMLab and the normalization of its models."""
    package = "mmengine.model.base_model"
    packages = [package.rsplit(".", number)[0] for number in range(2, -1, -1)]
    preprocessors = module(f"{package}.data_preprocessor", *packages[1:])
    numbers = [[123.675, 116.28, 103.53], [58.395, 57.12, 57.375]]
    model = preprocessors.ImgDataPreprocessor(*numbers, bgr_to_rgb=True, **preprocessor)

    def prepare(encoded):
        results = {"img": bgr_of(encoded)}
        for transform in transforms:
            results = transform.transform(results)
        image = torch.from_numpy(np.ascontiguousarray(results["img"].transpose(2, 0, 1)))
        return model({"inputs": [image]})["inputs"][0].numpy()

    return prepare


def mmdetection():
    resize = module("mmcv.transforms").Resize((1333, 800), keep_ratio=True)
    return openmmlab(resize, pad_size_divisor=32)


def mmpretrain():
    around = "mmpretrain.datasets.transforms"
    resize = module(f"{around}.processing", "mmpretrain", "mmpretrain.datasets", around).ResizeEdge(256)
    return openmmlab(resize, module("mmcv.transforms").CenterCrop(224))


def uniface():
    common = module("uniface.common", "uniface")
    scrfd = module("uniface.detection.scrfd", "uniface", "uniface.detection").SCRFD
    return lambda encoded: scrfd.preprocess(None, common.resize_image(bgr_of(encoded), (640, 640))[0])[0]


CALLS = {  # file, the package's code, and a part of the file that changes the result if it is removed
    "anomalib": (anomalib, ', "arithmetic": "multiply"'),
    "deepface": (deepface, ', "like": "opencv"'),
    "doctr-detector": (lambda: doctr(1024, 1024, DOCTR[0], symmetric_pad=True), '{"op": "flip"},'),
    "doctr-recognizer": (lambda: doctr(32, 128, DOCTR[1]), ', "anchor": "top_left"'),
    "easyocr-craft": (craft, ', "anchor": "top_left"'),
    "easyocr-recognizer": (easyocr_recognizer, ', "padding_mode": "edge"'),
    "mmdetection": (mmdetection, ', "rounding": "half_away"'),
    "mmpretrain": (mmpretrain, ', "like": "opencv"'),
    "mtcnn-pnet": (mtcnn, ', "layout": "whc"'),
    "efficientdet": (efficientdet, ', "rounding": "down"'),
    "fast-plate-ocr": (fast_plate_ocr, ', "like": "opencv"'),
    "hsemotion": (hsemotion, ', "like": "opencv"'),
    "open-image-models": (open_image_models, ', "like": "opencv"'),
    "open-clip": (open_clip, ', "filter": "bicubic"'),
    "parseq": (parseq, ', "arithmetic": "divide"'),
    "rembg-isnet": (lambda: rembg((0.5,) * 3, (1.0,) * 3, 1024), ', "scale": "max"'),
    "rembg-u2net": (lambda: rembg(*IMAGENET, 320), ', "scale": "max"'),
    "retinaface": (retinaface, ', "subpixel": true'),
    "rtmdet": (rtmdet, ', "like": "opencv"'),
    "segmentation-models": (segmentation_models, ', "like": "opencv"'),
    "segment-anything": (segment_anything, ', "arithmetic": "divide"'),
    "uniface": (uniface, ', "rounding": "down"'),
    "yolo": (lambda: ultralytics(rect=False), ', "like": "opencv"'),
    "yolo-rect": (lambda: ultralytics(rect=True), ', "fill": 114'),
}
IMPORTED = {
    "CLIPImageProcessor": {},
    "SiglipImageProcessor": {},
    "BitImageProcessor": {
        "size": {"shortest_edge": 256},
        "image_mean": IMAGENET[0],
        "image_std": IMAGENET[1],
    },  # DINOv2
    "SegformerImageProcessor": {},
    "DPTImageProcessor": {"size": 518, "keep_aspect_ratio": True, "ensure_multiple_of": 14},  # Depth Anything
    "SamImageProcessor": {},
}


def max_difference(pipeline, theirs, photos):
    """Return the maximum difference of the tensors for each photo, or 1e9 if their shapes or dtypes differ."""
    (name,) = (name for name, output in pipeline.outputs.items() if output.spec.layout)
    found = []
    with pp.Engine(pipeline, threads=1) as engine:
        for photo in photos:
            ours, expected = np.asarray(engine.run_batch([photo])[name][0]), theirs(photo)
            is_alike = ours.shape == expected.shape and ours.dtype == expected.dtype
            found.append(float(np.abs(ours - expected).max()) if is_alike else 1e9)
    return found


def test_every_file_is_compared():
    assert FAMILIES.keys() == {*CALLS, "sahi"}


@pytest.mark.parametrize("name", CALLS)
def test_a_file_gives_the_tensors_of_its_package_and_a_wrong_file_does_not(name):
    original, part = CALLS[name]
    theirs, photos = original(), LINES if name == "easyocr-recognizer" else PHOTOS
    found = max_difference(FAMILIES[name], theirs, photos)
    assert max(found) == 0
    text = FAMILIES[name].to_json()
    assert part in text, text
    wrong = pp.Pipeline.from_json(text.replace(part, "", 1))
    assert max(max_difference(wrong, theirs, photos)) > 0


def test_the_slices_of_sahi_give_the_tensors_of_a_detector():
    slicing = module("sahi.slicing")
    photo = images.photo("china")
    sliced = slicing.slice_image(pil_of(photo), slice_height=256, slice_width=320)
    boxes = slicing.get_slice_bboxes(*rgb_of(photo).shape[:2], slice_height=256, slice_width=320)
    with pp.Engine(FAMILIES["sahi"]) as engine, pp.Engine(FAMILIES["yolo"]) as detector:
        ours = engine.run_batch([photo], inputs={"boxes": [np.float32(boxes)]})
        theirs = detector.run_batch([png(image) for image in sliced.images])
    assert len(ours["images"]) == len(boxes) == 6
    assert np.array_equal(ours["images"], theirs["images"])


@pytest.mark.parametrize("name", IMPORTED)
def test_an_imported_processor_gives_the_tensors_of_its_class(name):
    processor = getattr(pytest.importorskip("transformers"), name)(**IMPORTED[name])
    pipeline = from_transformers({"image_processor_type": name} | IMPORTED[name])
    theirs = lambda encoded: processor(pil_of(encoded), return_tensors="np")["pixel_values"][0]  # noqa: E731
    assert max(max_difference(pipeline, theirs, PHOTOS)) == 0


def test_detrs_rounding_of_sizes_is_equal_for_2000_images():
    theirs, others = grounding_dino(), 0
    original, hf = (pp.resize(800, max_size=1333, rounding=name)._step for name in ("detr_original", "detr"))
    for sides in np.random.default_rng(0).integers(64, 4000, (2000, 2)).tolist():
        try:
            assert original.size(*sides) == theirs(*sides)
        except pp.ImageError:
            assert max(theirs(*sides)) > max_detr_side(1333)
        others += hf.size(*sides) != theirs(*sides)
    assert others > 700, "docs/models.md says four of ten"
