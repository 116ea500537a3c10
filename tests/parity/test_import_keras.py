"""Tests that imported Keras models equal Keras bit for bit: the table of applications, the image loaders and the
preprocessing layers.
"""

import inspect
import io
import json
import os
import re
from importlib.util import find_spec

import numpy as np
import pytest

from pixprep import Engine
from pixprep.importers.keras import APPLICATIONS, AUGMENTATIONS, from_keras
from support.compare import assert_close
from support.images import photo, scene
from support.importing import awkward, ours

if find_spec("keras") is None or find_spec("tensorflow") is None:
    pytest.skip("NO KERAS: its importer was not compared", allow_module_level=True)

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import tensorflow as tf

LAYERS = keras.layers
SIZES = [(224, 224), (427, 640), (640, 427), (333, 501), (37, 61), (5, 3), (1, 1), (1, 90), (501, 31), (448, 448)]
IMAGES = awkward(SIZES)
TARGETS = [64, (96, 40), (150, 299)]


def preprocess_input(application):
    """Return ``preprocess_input`` from the Keras module that contains the application."""
    if application.startswith("MobileNetV3"):  # this module does not export all of its applications
        return keras.applications.mobilenet_v3.preprocess_input
    return next(
        module.preprocess_input
        for module in vars(keras.applications).values()
        if hasattr(module, "preprocess_input") and hasattr(module, application)
    )


def loaded(encoded, size, **options):
    """Return the result of ``load_img`` and ``img_to_array``: float32 (height, width, 3)."""
    return keras.utils.img_to_array(keras.utils.load_img(io.BytesIO(encoded), target_size=size, **options))


def decoded(encoded):
    return tf.io.decode_image(encoded, channels=3, expand_animations=False)


def config(model):
    return json.loads(model.to_json())


def test_the_table_has_every_application():
    assert set(APPLICATIONS) == {name for name in vars(keras.applications) if name[0].isupper()}


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_pixel_value_equals_preprocess_input(application):
    levels = np.tile(np.arange(256, dtype=np.float32)[:, None, None], (1, 1, 3))
    (plan,) = from_keras(application).plan.outputs.values()
    expected = preprocess_input(application)(levels.copy())
    assert_close(plan.table.T[:, None], expected)
    assert_close(plan.table.T[:, None], preprocess_input(application)(tf.constant(levels)))


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_default_size_is_that_of_the_applications_weights(application):
    make = getattr(keras.applications, application)
    shape = from_keras(application).outputs["tensor"].spec.shape
    if application.startswith("MobileNetV3"):  # this application accepts any shape, and its weights are for 224
        assert make(weights=None).input_shape == (None, None, None, 3)
        assert shape == (224, 224, 3)
        return
    with pytest.raises(ValueError, match=re.escape(f"`input_shape` should be {shape}")):
        make(weights="imagenet", input_shape=(999, 777, 3))


@pytest.mark.parametrize("size", TARGETS, ids=str)
@pytest.mark.parametrize("application", ["ResNet50", "MobileNetV2", "DenseNet121", "EfficientNetB0"])
def test_load_img_and_preprocess_input_are_equal_bit_for_bit(application, size):
    target = (size, size) if isinstance(size, int) else size
    with Engine(from_keras(application, size=size)) as engine:
        for encoded in IMAGES.values():
            expected = preprocess_input(application)(loaded(encoded, target))
            assert_close(engine.run([encoded])[0], expected)


@pytest.mark.parametrize("size", TARGETS, ids=str)
@pytest.mark.parametrize("application", ["ResNet50", "EfficientNetB0"])
def test_image_dataset_from_directory_and_preprocess_input_are_equal_bit_for_bit(tmp_path, application, size):
    target = (size, size) if isinstance(size, int) else size
    for index, encoded in enumerate(IMAGES.values()):
        (tmp_path / f"{index:02}.jpg").write_bytes(encoded)  # the format depends on the contents, not on the name
    dataset = keras.utils.image_dataset_from_directory(
        tmp_path, labels=None, image_size=target, shuffle=False, batch_size=1, verbose=False
    )
    with Engine(from_keras(application, loader="image_dataset", size=size)) as engine:
        for batch, encoded in zip(dataset, IMAGES.values(), strict=True):
            assert_close(engine.run([encoded])[0], preprocess_input(application)(batch[0].numpy()))


HEADS = {
    "stretched": [LAYERS.Resizing(64, 48)],
    "antialiased": [LAYERS.Resizing(40, 50, antialias=True), LAYERS.Rescaling(1 / 255)],
    "nearest": [LAYERS.Resizing(64, 48, interpolation="nearest")],
    "cut to a square": [LAYERS.Resizing(64, 64, crop_to_aspect_ratio=True), LAYERS.Rescaling(1 / 127.5, offset=-1)],
    "cropped": [LAYERS.Resizing(65, 48), LAYERS.CenterCrop(40, 48), LAYERS.Rescaling(0.017, offset=[-2.1, 0.3, 7])],
    "normalized": [
        LAYERS.Resizing(33, 47),
        LAYERS.RandomFlip(),
        LAYERS.Rescaling(1 / 255),
        LAYERS.Normalization(mean=[0.485, 0.456, 0.406], variance=[0.229**2, 0.224**2, 0.225**2]),
    ],
    "flat": [LAYERS.Resizing(33, 47), LAYERS.Normalization(axis=None, mean=120, variance=0)],
    "inside": [
        keras.Sequential([LAYERS.RandomRotation(0.1), LAYERS.Resizing(30, 20)]),
        LAYERS.Rescaling(np.float32(0.1), offset=np.array([1.0, 2.0, 3.0])),
    ],
}


@pytest.mark.parametrize("loader", ["decode_image", "load_img"])
@pytest.mark.parametrize("head", HEADS)
def test_preprocessing_layers_are_equal_bit_for_bit(head, loader):
    model = keras.Sequential([keras.Input((None, None, 3)), *HEADS[head]])
    with Engine(from_keras(config(model), loader=loader)) as engine:
        for encoded in IMAGES.values():
            pixels = loaded(encoded, None) if loader == "load_img" else decoded(encoded)
            assert_close(engine.run([encoded])[0], np.asarray(model(pixels[None], training=False))[0])


# Keras emits this when saving with NumPy 2.4
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
def test_a_saved_model_runs_its_layers_in_pixprep_or_in_keras(tmp_path):
    inputs = keras.Input((64, 48, 3))
    head = LAYERS.Rescaling(1 / 255, name="head")(LAYERS.RandomZoom(0.2)(inputs))
    model = keras.Model(inputs, LAYERS.Conv2D(2, 3)(head))
    model.save(tmp_path / "model.keras")
    expected = keras.Model(inputs, head)(loaded(photo(), (64, 48))[None], training=False)[0]
    pipeline = from_keras(tmp_path / "model.keras", layers="pipeline")
    assert pipeline.origin.version == keras.__version__
    assert_close(ours(pipeline, [photo()])[0], expected)
    assert_close(ours(from_keras(tmp_path / "model.keras", layers="model"), [photo()])[0], loaded(photo(), (64, 48)))


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_an_augmentation_has_no_effect_at_inference(name):
    cls = getattr(LAYERS, name)
    needed = {"factor": 1, "height_factor": 0.1, "width_factor": 0.1}
    layer = cls(**{key: value for key, value in needed.items() if key in inspect.signature(cls).parameters})
    pixels = scene(37, 61)[None].astype(np.float32)
    assert_close(np.asarray(layer(pixels, training=False)), pixels)


def test_a_compiled_division_differs_in_the_last_bit():
    """The docs say "eagerly" because TensorFlow multiplies by the reciprocal inside a compiled graph."""
    levels = np.tile(np.arange(256, dtype=np.float32)[:, None, None], (1, 1, 3))
    compiled = tf.function(preprocess_input("DenseNet121"))(tf.constant(levels)).numpy()
    (plan,) = from_keras("DenseNet121").plan.outputs.values()
    assert 0 < np.abs(plan.table.T[:, None] - compiled).max() < 1e-6


# --------------------------------------------------------------------------------------------- training


def augmented(*layers, height=72, width=96):
    return keras.Sequential(
        [keras.Input((None, None, 3)), LAYERS.Resizing(height, width), *layers, LAYERS.Rescaling(1 / 255)]
    )


def training_results(pipeline, images, epoch=0):
    """Return the tensors and the random parameters of each image in training."""
    side = pipeline.for_training()
    drawn = side.plan.draw(seed=4, epoch=epoch, indices=range(len(images)))
    with Engine(side) as engine:
        batch = engine.run_batch(images, places=[side.plan.placing(each) for each in drawn])
    return batch["tensor"], [placed.draws for placed in batch.placed]


@pytest.mark.parametrize("mode", ["horizontal", "vertical"])
def test_a_random_flip_equals_one_of_the_layers_two_results(mode):
    """The layer is called several times, so that it returns both the flipped and the unchanged image."""
    layer = LAYERS.RandomFlip(mode)
    pipeline = from_keras(config(augmented()), training=config(augmented(layer)), loader="decode_image")
    images = [photo(), photo("flower")] * 10
    tensors, draws = training_results(pipeline, images)
    seen = set()
    for image, tensor, draw in zip(images, tensors, draws, strict=True):
        is_flipped = draw["random_flip#0"]["flip"]
        flips = {"flips": tf.fill((1, 1, 1), is_flipped), "input_shape": (72, 96, 3)}
        resized = tf.image.resize(decoded(image), (72, 96))
        expected = LAYERS.Rescaling(1 / 255)(layer.transform_images(resized, flips, training=True))
        assert_close(tensor, np.asarray(expected))
        seen.add(is_flipped)
    assert seen == {True, False}
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(tensor, np.asarray(expected)[::-1, ::-1])


def test_a_random_crop_equals_the_layers_with_the_same_parameters():
    layer = LAYERS.RandomCrop(48, 40)
    pipeline = from_keras(
        config(augmented(height=48, width=40)), training=config(augmented(layer)), loader="decode_image"
    )
    images = [photo(), photo("flower")] * 10
    tensors, draws = training_results(pipeline, images)
    for image, tensor, draw in zip(images, tensors, draws, strict=True):
        words = draw["random_crop#0"]
        resized = tf.image.resize(decoded(image), (72, 96))
        cropped = layer.transform_images(resized, (words["top"], words["left"]), training=True)
        assert_close(tensor, np.asarray(LAYERS.Rescaling(1 / 255)(cropped)))
    tops = [draw["random_crop#0"]["top"] for draw in draws]
    assert max(tops) <= 72 - 48
    assert len(set(tops)) > 5


def test_one_sample_of_the_layer_flips_both_axes():
    """The layer either rotates the image by 180 degrees or does not change it. Two separate flips could also flip only
    one axis.
    """
    image = tf.constant(scene(9, 7), tf.float32)
    layer = LAYERS.RandomFlip("horizontal_and_vertical", seed=3)
    made = {np.asarray(layer(image, training=True)).tobytes() for _ in range(40)}
    assert made == {np.asarray(image).tobytes(), np.ascontiguousarray(np.asarray(image)[::-1, ::-1]).tobytes()}


def test_a_model_with_random_layers_gives_one_file_for_both_modes():
    model = config(augmented(LAYERS.RandomFlip("horizontal")))
    pipeline = from_keras(model, training=model, loader="decode_image")
    assert [op.only for op in pipeline.ops] == [None] * 5
    keras_serves = keras.Sequential([LAYERS.Resizing(72, 96), LAYERS.Rescaling(1 / 255)])
    for image, tensor in zip([photo()], ours(pipeline.for_serving(), [photo()]), strict=True):
        assert_close(tensor, np.asarray(keras_serves(tf.cast(decoded(image), tf.float32)[None]))[0])
