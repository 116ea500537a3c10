"""``pixprep.read``: every source, by a function. See ``pixprep.data.sources`` for what a source and a sample are."""

from pixprep.data.sources.coco import coco
from pixprep.data.sources.files import files, table, videos
from pixprep.data.sources.joined import concat, subset
from pixprep.data.sources.parquet import parquet
from pixprep.data.sources.rows import rows
from pixprep.data.sources.tar import tar
from pixprep.data.sources.tfrecord import tfrecord
from pixprep.data.sources.voc import voc
from pixprep.names import SOURCES, hint, meant

__all__ = ["coco", "concat", "files", "parquet", "rows", "subset", "table", "tar", "tfrecord", "videos", "voc"]


def __getattr__(name: str) -> object:
    near = "" if name.startswith("_") else hint(meant(name, __all__, SOURCES), "'")
    raise AttributeError(f"module 'pixprep.read' has no attribute {name!r}{near}")
