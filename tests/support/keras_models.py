"""Configurations of Keras 3 models in the format in which Keras saves them, created without Keras."""

POLICY = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None}
STRETCH = {"height": 64, "width": 48}


def layer(cls, *, module="keras.layers", registered_name=None, **config):
    """Return the configuration of one layer as Keras 3 saves it."""
    config = {"name": cls.lower(), "trainable": True, "dtype": POLICY} | config
    return {"module": module, "class_name": cls, "config": config, "registered_name": registered_name}


def inputs(*shape, dtype="float32"):
    return layer("InputLayer", batch_shape=[None, *shape], dtype=dtype, sparse=False, ragged=False, optional=False)


def resizing(**changes):
    """Return the configuration of a ``Resizing`` layer as Keras saves it."""
    unused = {"crop_to_aspect_ratio": False, "pad_to_aspect_ratio": False, "fill_mode": "constant", "fill_value": 0.0}
    how = {"data_format": "channels_last", "interpolation": "bilinear", "antialias": False}
    return layer("Resizing", **(STRETCH | unused | how | changes))


def sequential(*layers):
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "sequential", "layers": list(layers)}}


HEAD = (inputs(64, 48, 3), layer("RandomFlip", mode="horizontal"), layer("Rescaling", scale=1 / 255, offset=0.0))


def augmenting(*layers, size=64):
    """Return a model that resizes images to a square before these layers, and rescales the values after them."""
    return sequential(
        inputs(None, None, 3), resizing(height=size, width=size), *layers, layer("Rescaling", scale=1 / 255, offset=0.0)
    )
