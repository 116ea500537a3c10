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
from support.keras_models import HEAD, augmenting, layer, resizing, sequential


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


def nested(depth):
    model = sequential(*HEAD)
    for _ in range(depth):
        model = sequential(model)
    return model


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (functional((HEAD[0], []), (HEAD[0], ["inputlayer"])), '"layers" contains two layers with the'),
        (functional((HEAD[0], []), (NETWORK, [])), "is not a supported preprocessing layer"),
        (nested(5000), "config: the layers are nested too deeply"),
    ],
    ids=["two of a name", "a branch", "nested"],
)
def test_an_unsupported_graph_of_layers_is_rejected(source, message):
    assert message in refusal(from_keras, source)


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


def test_training_can_be_combined_with_a_model_whose_layers_run_here():
    assert "an application: pass a .keras or .json" in refusal(from_keras, "resnet50", training=augmenting())
    text = refusal(from_keras, augmenting(), training=augmenting(), layers="model")
    assert text.startswith('layers: "model" keeps the random layers in the model, so the')
