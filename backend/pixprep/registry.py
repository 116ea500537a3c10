"""Registry: by key, objects of rooms that the caller does not import. They are loaded when they are asked for.

A new device, picture of a notebook or receiver of batches is a module in its room and a row here. Most machines lack
CuPy and have no notebook, so a row costs nothing until it is used.
"""

from importlib import import_module
from typing import Any

DEVICES = {"cpu": "pixprep.engine.cpu:Cpu", "gpu": "pixprep.gpu.device:Gpu"}
"""Classes of devices, by the name before the colon."""
HTML = {
    "Batch": "pixprep.show.html:batch_html",
    "Certificate": "pixprep.show.html:certificate_html",
    "Pipeline": "pixprep.show.html:pipeline_html",
}
"""Functions that draw what a notebook shows, by the class of the object."""
BATCHES = {"on_gpu": "pixprep.gpu.kernel:stacked", "handed_over": "pixprep.training.frameworks:handed_over"}
"""Functions of other rooms that ``Batch`` calls."""


def load(place: str) -> Any:
    """Return the object at ``module:name``, or the module at ``module``, and import the module if necessary."""
    module, _, names = place.partition(":")
    found = import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found
