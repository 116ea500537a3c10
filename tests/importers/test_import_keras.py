"""Tests that Keras applications and preprocessing layers are imported as pipelines without Keras."""

import json
import zipfile

import numpy as np
import pytest

import pixprep as pp
from pixprep import Engine
from pixprep.importers.keras import from_keras
from pixprep.pipeline.ops import Decode, Normalize, Resize, Tensor
from support.compare import assert_close
from support.images import photo, read
from support.importing import assert_imported_or_refused, damaged, refusal
from support.keras_models import HEAD, STRETCH, inputs, layer, resizing, sequential


def functional(*wired):
    """Return a functional model. Each argument is (layer, names of the layers whose results it receives)."""
    entries = []
    for entry, names in wired:
        tensors = [
            {"class_name": "__keras_tensor__", "config": {"shape": [], "keras_history": [n, 0, 0]}} for n in names
        ]
        nodes = [{"args": tensors, "kwargs": {}}] if names else []
        entries.append(entry | {"name": entry["config"]["name"], "inbound_nodes": nodes})
    return {"module": "keras.src.models.functional", "class_name": "Functional", "config": {"layers": entries}}


NETWORK = layer("Conv2D", filters=3)
RESCALED = Normalize(scale=1 / 255, mean=0.0, arithmetic="multiply")
LOADED = (Decode(apply_exif_orientation=False), Resize(height=64, width=48, filter="nearest"))


def test_values_equal_load_img_with_the_mode_caffe():
    with Engine(from_keras("vgg16")) as engine:
        tensor = engine.run([photo()])[0]
    image = read(photo()).resize((224, 224), 0)
    expected = np.asarray(image).astype(np.float32)[..., ::-1] - np.float32([103.939, 116.779, 123.68])
    assert_close(tensor, expected)


def test_a_dataset_is_decoded_and_resized_by_tensorflow():
    pipeline = from_keras("MobileNetV2", loader="image_dataset")
    assert pipeline.ops[:2] == (
        Decode(apply_exif_orientation=False, idct="fast"),
        Resize(height=224, width=224, like="tensorflow", antialias=False),
    )
    assert pipeline.origin.profile == "tensorflow"


@pytest.mark.parametrize(
    "model",
    [
        sequential(*HEAD, NETWORK),
        sequential(HEAD[0], sequential(*HEAD), NETWORK),
        functional((HEAD[0], []), (HEAD[1], ["inputlayer"]), (HEAD[2], ["randomflip"]), (NETWORK, ["rescaling"])),
        functional(  # the model has two branches after the last preprocessing layer
            (HEAD[0], []), (HEAD[2], ["inputlayer"]), (NETWORK, ["rescaling"]), (layer("Add"), ["rescaling", "conv2d"])
        ),
    ],
    ids=["sequential", "nested", "functional", "forked"],
)
def test_layers_before_a_network_run_where_the_user_specifies(model):
    assert from_keras(model, layers="pipeline").ops == (*LOADED, RESCALED, Tensor(layout="hwc"))
    assert from_keras(model, layers="model").ops == (*LOADED, Tensor(layout="hwc"))
    assert "choose where the layers before it run" in refusal(from_keras, model)


def old(cls, *taken, **config):
    """Return the configuration of one layer in the format of Keras 2."""
    name = cls.lower()
    return {
        "class_name": cls,
        "config": {"name": name, "trainable": True, "dtype": "float32"} | config,
        "name": name,
        "inbound_nodes": [[[name, 0, 0, {}] for name in taken]] if taken else [],
    }


@pytest.mark.parametrize("cls", ["Sequential", "Functional"])
def test_a_model_of_keras_2_is_read_equally(cls):
    entries = [
        old("InputLayer", batch_input_shape=[None, 64, 48, 3], sparse=False, ragged=False),
        old("Rescaling", "inputlayer", scale=1 / 255, offset=0.0),
        old("Conv2D", "rescaling", filters=3),
    ]
    model = {"class_name": cls, "config": {"name": "model", "layers": entries}, "keras_version": "2.15.0"}
    pipeline = from_keras(model, layers="pipeline")
    assert pipeline.ops == from_keras(sequential(*HEAD)).ops
    assert pipeline.origin.version == "2.15.0"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (resizing(interpolation="bicubic"), "\"interpolation\": 'bicubic' must be bilinear or nearest"),
        (resizing(pad_to_aspect_ratio=True), '"pad_to_aspect_ratio": True is not supported'),
        (
            resizing(crop_to_aspect_ratio=True),
            '"crop_to_aspect_ratio": True is supported only for a square target, not',
        ),
        (resizing(data_format="channels_first"), "\"data_format\": 'channels_first' must be 'channels_last'"),
        (resizing(dtype="uint8"), "\"dtype\": 'uint8' must be float32"),
        (resizing(warp=1), '"warp": 1 is not supported'),
        (resizing(height=None), '"height": None must be an integer from 1 to 16384, in pixels'),
        (layer("CenterCrop", height=65, width=2), '"height": 65 must not exceed the image, because Keras resizes'),
        (
            layer("Rescaling", scale=[1, 2, 3]),
            '"scale": [1, 2, 3] must be one number: a different scale for each channel is not supported',
        ),
        (layer("Rescaling", scale=1, dtype="float16"), "\"dtype\": 'float16' must be float32"),
        (layer("Rescaling"), '"scale" is missing: it must be a finite number'),
        (
            layer("Normalization", mean=None, variance=None),
            '"mean": None must be set: the importer does not read weights from adapt(),',
        ),
        (layer("Normalization", mean=1, variance=1, axis=[1]), '"axis": [1] must be the channel axis, -1 or 3'),
        (layer("Normalization", mean=1, variance=1, invert=True), '"invert": True is not supported'),
        (layer("Normalization", mean=1, variance=-1), '"variance": -1 must not be negative'),
        (layer("Normalization", mean=[1, 2], variance=1), '"mean": [1, 2] must be a finite number, or one for each'),
        (layer("Normalization", mean=1, variance=[1, 2]), '"variance": [1, 2] must be a finite number, or one for'),
        (layer("RandomCrop", height=8, width=8), "is not a supported preprocessing layer"),
        (layer("AutoContrast"), "is not a supported preprocessing layer"),
        (layer("Resizing", module="my_layers", **STRETCH), "(my_layers.Resizing) is not a supported preprocessing"),
        (layer("Resizing", registered_name="mine>Resizing", **STRETCH), "is not a supported preprocessing layer"),
    ],
)
def test_unsupported_layers_are_rejected_by_layer_and_field(bad, message):
    before = [] if bad["class_name"] in ("Resizing", "RandomCrop") else [resizing()]
    text = refusal(from_keras, sequential(*before, bad))
    assert text.startswith(f'config: layer "{bad["class_name"].lower()}" (')
    assert message in text


def nested(depth):
    model = sequential(*HEAD)
    for _ in range(depth):
        model = sequential(model)
    return model


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            "resnet51",
            {},
            '"resnet51" is neither a Keras application nor a .keras or .json file; supported applications: VGG16',
        ),
        ("vgg16", {"loader": "cv2"}, "options: \"loader\": 'cv2' must be one of load_img, image_dataset, decode_image"),
        ("vgg16", {"loader": "decode_image"}, 'loader: "decode_image" does not resize, and the model'),
        ("vgg16", {"layers": "model"}, "layers: is not supported for an application:"),
        ("vgg16", {"layers": "here"}, "options: \"layers\": 'here' must be one of pipeline, model"),
        ("vgg16", {"size": (1, 2, 3)}, 'options: "size": (1, 2, 3) must be one side'),
        ("gone.keras", {}, "gone.keras: cannot be read"),
        (sequential(resizing()), {"loader": "image_dataset"}, 'loader: "image_dataset" would resize each image before'),
        (
            sequential(resizing()),
            {"size": 64},
            "size: (64, 64) would resize each image before the model's Resizing layer",
        ),
        (sequential(resizing(), resizing()), {}, "the image is already resized"),
        (sequential(*HEAD[1:]), {}, "size: set the option size"),
        (
            sequential(inputs(64, 48, 1), *HEAD[1:]),
            {},
            '"batch_shape": [None, 64, 48, 1] must be (batch, height, width,',
        ),
        (sequential(inputs(64, 48, 3, dtype="uint8"), *HEAD[1:]), {}, "\"dtype\": 'uint8' must be float32"),
        (sequential(*HEAD), {"loader": "decode_image"}, '"decode_image" does not resize'),
        ({"class_name": "MyModel", "config": {}}, {}, '"class_name": "MyModel" must be "Sequential" or "Functional"'),
        ({"class_name": "Sequential", "config": {"layers": [1]}}, {}, '"layers" must be a list of layers'),
        (functional((HEAD[0], []), (HEAD[0], ["inputlayer"])), {}, '"layers" contains two layers with the'),
        (functional((HEAD[0], []), (NETWORK, [])), {}, "is not a supported preprocessing layer"),
        (nested(5000), {}, "config: the layers are nested too deeply"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_an_unsupported_source_or_option_is_rejected(source, options, message):
    assert message in refusal(from_keras, source, **options)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, contents in members.items():
            file.writestr(f"{name}.json", contents if isinstance(contents, str) else json.dumps(contents))
    return path


METADATA = {"keras_version": "3.15.1", "date_saved": "2026-11-21@13:41:14"}


def test_a_saved_model_is_read_with_the_version_that_wrote_it(tmp_path):
    path = archive(tmp_path / "head.keras", config=sequential(*HEAD), metadata=METADATA)
    assert from_keras(path) == from_keras(str(path))
    assert from_keras(path).ops == from_keras(sequential(*HEAD)).ops
    assert (from_keras(path).origin.version, from_keras(path).origin.name) == ("3.15.1", "head.keras")


def test_the_text_of_to_json_is_read_from_a_file(tmp_path):
    (tmp_path / "head.json").write_text(json.dumps(sequential(*HEAD)))
    assert from_keras(tmp_path / "head.json").ops == from_keras(sequential(*HEAD)).ops


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"metadata": METADATA}, "not a .keras file"),
        ({"config": sequential(*HEAD)}, "not a .keras file"),
        ({"config": "{", "metadata": METADATA}, "is not JSON"),
        ({"config": "[]", "metadata": METADATA}, "must be a JSON object"),
    ],
    ids=["no config", "no metadata", "cut off", "a list"],
)
def test_a_different_archive_is_rejected(tmp_path, members, message):
    path = archive(tmp_path / "a.keras", **members)
    assert refusal(from_keras, path).startswith(f"a.keras: {message}")


def test_random_bytes_give_a_pipeline_or_an_error(tmp_path):
    whole = archive(tmp_path / "a.keras", config=sequential(*HEAD), metadata=METADATA).read_bytes()

    def read_back(data):
        (tmp_path / "b.keras").write_bytes(data)
        return from_keras(tmp_path / "b.keras")

    assert_imported_or_refused(read_back, damaged(whole))


def test_any_json_gives_a_pipeline_or_an_error():
    """One value of a model at a time is replaced by a value of a different type."""
    text = json.dumps(
        functional(
            (HEAD[0], []),
            (resizing(), ["inputlayer"]),
            (layer("Rescaling", scale=1, offset=0), ["resizing"]),
            (layer("Normalization", axis=[-1], mean=[1, 2, 3], variance=1, invert=False), ["rescaling"]),
        )
    )
    models = []
    for path in _paths(json.loads(text)):
        for value in (None, 3, -1.5, "x", [], {}, [None], [[]], {"config": 3}, True):
            inner = model = json.loads(text)
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            models.append(model)
    assert_imported_or_refused(lambda model: from_keras(model, loader="decode_image"), models)


def _paths(value, path=()):
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _paths(inner, (*path, key))


def augmenting(*layers, size=64):
    return sequential(
        inputs(None, None, 3), resizing(height=size, width=size), *layers, layer("Rescaling", scale=1 / 255, offset=0.0)
    )


CROP_LAYER = layer("RandomCrop", height=48, width=40, seed=None, data_format="channels_last")


def test_random_layers_become_training_ops():
    model = augmenting(layer("RandomFlip", mode="horizontal", seed=None), layer("RandomFlip", mode="vertical", seed=3))
    pipeline = from_keras(model, training=model, loader="decode_image")
    assert pipeline.for_serving().side_ops == from_keras(model, loader="decode_image").ops
    assert pipeline.for_training().side_ops[2:4] == (pp.random_flip(), pp.random_flip("vertical"))
    cropped = from_keras(augmenting(size=48), training=augmenting(CROP_LAYER), loader="decode_image")
    assert cropped.for_training().side_ops[2] == pp.random_crop(48, 40)
    assert from_keras(model, training=augmenting(layer("RandomCrop", height=64, width=64)), loader="decode_image") == (
        from_keras(augmenting(), training=augmenting(), loader="decode_image")
    )


@pytest.mark.parametrize(
    ("random", "message"),
    [
        (layer("RandomFlip"), '"mode" is missing: it flips both axes of the same images, which is not'),
        (
            layer("RandomFlip", mode="horizontal_and_vertical"),
            "flips both axes of the same images, which is not supported: use",
        ),
        (layer("RandomCrop", height=64, width=40), '"height": 64 must be smaller than the image, because Keras'),
        (
            layer("RandomRotation", factor=0.1),
            'layer "randomrotation" (RandomRotation) is not supported: it returns',
        ),
        (layer("RandomZoom", height_factor=0.1), "is not supported: it returns float32 values without rounding and"),
        (layer("RandomBrightness", factor=0.1), "is not supported: it returns float32 values without rounding and"),
        (layer("RandomContrast", factor=0.1), "is not supported: it returns float32 values without rounding and"),
    ],
)
def test_a_layer_that_is_not_exact_is_rejected_by_name(random, message):
    text = refusal(from_keras, augmenting(), training=augmenting(random), loader="decode_image")
    assert text.startswith("training: layer ")
    assert message in text


def test_training_can_be_combined_with_a_model_whose_layers_run_here():
    assert "an application: pass a .keras or .json" in refusal(from_keras, "resnet50", training=augmenting())
    text = refusal(from_keras, augmenting(), training=augmenting(), layers="model")
    assert text.startswith('layers: "model" keeps the random layers in the model, so the')
