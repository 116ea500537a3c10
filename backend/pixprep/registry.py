"""Registry of objects that are imported when they are first used.

Some objects are in packages that the caller must not import. Others require a library that may not be installed. To add
a device, a notebook view, a batch conversion or an optional reader, add a module to its package and an entry here.
"""

from importlib import import_module
from typing import Any

DEVICES = {"cpu": "pixprep.engine.cpu:Cpu", "gpu": "pixprep.gpu.device:Gpu"}
"""Classes of devices, by the part of the device name before the colon."""
HTML = {
    "Batch": "pixprep.show.html:batch_html",
    "Certificate": "pixprep.show.html:certificate_html",
    "Pipeline": "pixprep.show.html:pipeline_html",
}
"""Functions that return the HTML of an object in a notebook, by the class of the object."""
BATCHES = {
    "on_gpu": "pixprep.gpu.kernel:stacked",
    "joined": "pixprep.gpu.kernel:joined",
    "handed_over": "pixprep.training.frameworks:handed_over",
}
"""Functions of the packages ``gpu`` and ``training`` that ``Batch`` calls."""
OPTIONAL = {
    "clips": ("pixprep.engine.decoders.clips.decoder:ClipDecoder", 'decode_video needs PyAV: pip install "av>=17"'),
    "frames": ("pixprep.engine.decoders.clips.ffmpeg:decode", 'decode_video needs PyAV: pip install "av>=17"'),
    "optical_flow": (
        "pixprep.engine.kernels.flow:flow",
        'optical_flow needs OpenCV: pip install ".[flow]" in a checkout of pixprep',
    ),
    "heic": (
        "pixprep.engine.decoders.heic:opened",
        "the image format heic needs pillow-heif: pip install pillow-heif",
    ),
    "objects": (
        "pixprep.training.sources.remote",
        'reading objects by URL needs {error.name}: pip install "fsspec[http]" gcsfs s3fs',
    ),
    "web": (
        "pixprep.training.sources.web",
        'reading objects from a web server needs {error.name}: pip install "fsspec[http]"',
    ),
    "parquet": (
        "pixprep.training.sources.row_groups",
        "reading Parquet files needs pyarrow ({error}): pip install pyarrow",
    ),
    "table": (
        "pixprep.serving.embedded.parquet:write",
        "a .parquet table needs pyarrow ({error}): pip install pyarrow",
    ),
    "lmdb": ("lmdb", "reading LMDB databases needs lmdb ({error}): pip install lmdb"),
    "checksums": (
        "pixprep.training.sources.checksum:masked",
        "checksums of TFRecord files need google-crc32c: pip install google-crc32c, or pass checksums=False",
    ),
}
"""Objects that require an optional library, with the message if it is missing; see ``errors.needed``."""


def load(place: str) -> Any:
    """Return the object at ``module:name``, or the module at ``module``, and import the module if necessary."""
    module, _, names = place.partition(":")
    found = import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found
