"""``pixprep.read``: functions that open sources of samples.

``pixprep.training.sources`` defines the interface of sources and samples.
"""

from pixprep.names import SOURCES, hint, meant
from pixprep.training.sources import draw
from pixprep.training.sources.coco import coco
from pixprep.training.sources.files import files, table, videos
from pixprep.training.sources.joined import concat, subset
from pixprep.training.sources.lmdb import lmdb
from pixprep.training.sources.parquet import parquet
from pixprep.training.sources.rows import iterable, rows
from pixprep.training.sources.tar import tar
from pixprep.training.sources.tfrecord import tfrecord
from pixprep.training.sources.voc import voc

__all__ = [
    "coco",
    "concat",
    "draw",
    "files",
    "iterable",
    "lmdb",
    "parquet",
    "rows",
    "subset",
    "table",
    "tar",
    "tfrecord",
    "videos",
    "voc",
]


def __getattr__(name: str) -> object:
    near = "" if name.startswith("_") else hint(meant(name, __all__, SOURCES), "'")
    raise AttributeError(f"module 'pixprep.read' has no attribute {name!r}{near}")
