"""Imitations of torchvision's transform objects. They have the attributes that the importer reads, and do not need
torchvision.
"""

from pixprep.importers.torchvision import from_torchvision


def transform(name, *, module="torchvision.transforms.v2._x", **fields):
    """Return an imitation of a transform with these attributes."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(fields)
    return made


CROPPED = {"size": (8, 8), "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3), "interpolation": "bilinear"}
CROPPED |= {"antialias": True}
TO_IMAGE, TO_FLOAT = transform("ToImage"), transform("ToDtype", dtype="torch.float32", scale=True)


def compose(*parts):
    return transform("Compose", transforms=list(parts))


NAMES = {
    "v2": transform,
    "served": lambda *parts: list(from_torchvision(compose(*parts)).ops[1:]),
    "trained": lambda *parts, **options: list(from_torchvision(training=compose(*parts), **options).ops[1:]),
    "WINDOW": CROPPED,
    "IMAGE": TO_IMAGE,
    "FLOAT": TO_FLOAT,
}
"""Names that a line in the tables of `tests/importers` may use."""
