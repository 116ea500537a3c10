"""Tests that ``warp`` computes the tensor that MediaPipe's tasks compute for a photo. ``make models`` runs these tests.

MediaPipe's calculator is part of a C++ graph. Therefore, the test runs a task whose model is the identity, which
returns the calculator's tensor.
"""

import importlib
import io
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from support import images
from support.images import noise, png, scene

if find_spec("mediapipe") is None:
    pytest.skip("make models installs mediapipe", allow_module_level=True)
for name in ("matplotlib", "matplotlib.pyplot"):  # only drawing results needs these modules
    sys.modules.setdefault(name, ModuleType(name))

import flatbuffers  # noqa: E402

SIDE = 64
PHOTOS = [images.photo("china"), images.photo("flower"), png(noise(97, 140)), png(scene(641, 333)), png(noise(64, 300))]


def packed(thing, identifier):
    builder = flatbuffers.Builder()
    builder.Finish(thing.Pack(builder), file_identifier=identifier)
    return bytes(builder.Output())


def mirror():
    """Write a TFLite model that returns its input (1, SIDE, SIDE, 3) as one vector. Input values are divided by 255."""
    tf = importlib.import_module("mediapipe.tasks.metadata.schema_py_generated")
    meta = importlib.import_module("mediapipe.tasks.metadata.metadata_schema_py_generated")

    def made(kind, **fields):
        thing = kind()
        vars(thing).update(fields)
        return thing

    levels = made(meta.NormalizationOptionsT, mean=[0.0], std=[255.0])
    unit = made(meta.ProcessUnitT, optionsType=meta.ProcessUnitOptions.NormalizationOptions, options=levels)
    rgb = made(meta.ImagePropertiesT, colorSpace=meta.ColorSpaceType.RGB)
    content = made(meta.ContentT, contentPropertiesType=meta.ContentProperties.ImageProperties, contentProperties=rgb)
    image = made(meta.TensorMetadataT, content=content, processUnits=[unit])
    both = made(meta.SubGraphMetadataT, inputTensorMetadata=[image], outputTensorMetadata=[meta.TensorMetadataT()])
    metadata = packed(made(meta.ModelMetadataT, subgraphMetadata=[both]), b"M001")
    length = SIDE * SIDE * 3
    tensors = [made(tf.TensorT, shape=shape, type=tf.TensorType.FLOAT32, buffer=0, name=name)
               for shape, name in (([1, SIDE, SIDE, 3], b"image"), ([1, length], b"vector"))]  # fmt: skip
    tensors.append(made(tf.TensorT, shape=[2], type=tf.TensorType.INT32, buffer=1, name=b"shape"))
    options = made(tf.ReshapeOptionsT, newShape=[1, length])
    reshape = made(tf.OperatorT, opcodeIndex=0, inputs=[0, 2], outputs=[1], builtinOptions=options)
    reshape.builtinOptionsType = tf.BuiltinOptions.ReshapeOptions
    code = made(tf.OperatorCodeT, deprecatedBuiltinCode=tf.BuiltinOperator.RESHAPE, version=1)
    code.builtinCode = tf.BuiltinOperator.RESHAPE
    graph = made(tf.SubGraphT, tensors=tensors, inputs=[0], outputs=[1], operators=[reshape])
    shape, said = np.array([1, length], np.int32).tobytes(), made(tf.MetadataT, name=b"TFLITE_METADATA", buffer=2)
    buffers = [made(tf.BufferT, data=[*data]) for data in (b"", shape, metadata)]
    model = made(tf.ModelT, version=3, operatorCodes=[code], subgraphs=[graph], buffers=buffers, metadata=[said])
    return packed(model, b"TFL3")


@pytest.fixture(scope="module")
def model_input():
    """Return a function that maps a photo and an optional region to the tensor (SIDE, SIDE, 3) that a task's model
    receives.
    """
    vision = importlib.import_module("mediapipe.tasks.python.vision")
    tasks, mediapipe = importlib.import_module("mediapipe.tasks.python"), importlib.import_module("mediapipe")
    region_of = importlib.import_module("mediapipe.tasks.python.components.containers.rect").RectF
    options = vision.ImageEmbedderOptions(base_options=tasks.BaseOptions(model_asset_buffer=mirror()))
    with vision.ImageEmbedder.create_from_options(options) as task:

        def run(encoded, *region):
            rgb = np.array(Image.open(io.BytesIO(encoded)).convert("RGB"))
            sides = dict(zip(("left", "top", "right", "bottom"), region, strict=True)) if region else None
            part = vision.ImageProcessingOptions(sides and region_of(**sides))
            result = task.embed(mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=rgb), part)
            return result.embeddings[0].embedding.reshape(SIDE, SIDE, 3), rgb.shape[:2]

        yield run


@pytest.mark.parametrize("region", [(), (0.25, 0.125, 0.75, 0.5)])
def test_a_photo_is_warped_like_mediapipes_tasks(model_input, region):
    warp = pp.warp(quad="region", height=SIDE, width=SIDE, padding_mode="edge")
    normalize = pp.normalize(arithmetic="multiply")
    pipeline = pp.Pipeline([pp.decode(), warp, normalize, pp.tensor(layout="hwc")])
    resize = pp.resize(height=SIDE, width=SIDE, like="opencv")
    other = pp.Pipeline([pp.decode(), resize, normalize, pp.tensor(layout="hwc")])
    with pp.Engine(pipeline, threads=1) as engine, pp.Engine(other, threads=1) as resizing:
        for encoded in PHOTOS:
            theirs, (height, width) = model_input(encoded, *region)
            left, top, right, bottom = np.array(region or (0, 0, 1, 1)) * (width, height, width, height)
            quad = [[left, top], [right, top], [right, bottom], [left, bottom]]
            assert np.array_equal(engine.run([encoded], inputs={"region": [[quad]]})[0], theirs)
            assert not np.array_equal(resizing.run([encoded])[0], theirs)
