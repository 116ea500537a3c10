"""All ops, as immutable classes with their fields, their checks, and their lowering to a plan.

Each class with a ``tag`` in a module of this package is an op. It is added automatically to ``OPS``, to the names of
``pixprep``, to the file format and to the docs. Type checkers read the names from ``__init__.pyi``, which ``make docs``
writes.
"""

from importlib import import_module
from pkgutil import iter_modules

from pixprep.pipeline.ops.entries import known as _known
from pixprep.pipeline.ops.limits import MAX_SIDE
from pixprep.pipeline.ops.op import (
    AnnotationOp,
    ColorOp,
    FirstOp,
    ImageOp,
    Op,
    OutputOp,
    SteadyOp,
    changed,
    is_on,
    op_name,
)
from pixprep.spec import Anchor, Arithmetic, Fill, Levels, Reals, TensorDType, as_tuple

_ORDER = (
    "decode geometry sizes rules crops canvas random random_sizes color random_color warp perspective alignment "
    "random_warp elastic distortions filters neighborhoods degradations erasing policies extern choices normalize "
    "outputs annotations patches tokens tiles slices"
)
"""Names of the modules in the order of the docs. All other modules follow."""

for _name in dict.fromkeys([*_ORDER.split(), *sorted(module.name for module in iter_modules(__path__))]):
    import_module(f"pixprep.pipeline.ops.{_name}")

OPS: dict[str, type[Op]] = _known()
"""Classes of the ops by their name in the file."""

globals().update({cls.__name__: cls for cls in OPS.values()})

__all__ = [  # noqa: PLE0604
    "MAX_SIDE",
    "OPS",
    "Anchor",
    "AnnotationOp",
    "Arithmetic",
    "ColorOp",
    "Fill",
    "FirstOp",
    "ImageOp",
    "Levels",
    "Op",
    "OutputOp",
    "Reals",
    "SteadyOp",
    "TensorDType",
    "as_tuple",
    "changed",
    "is_on",
    "op_name",
    *(cls.__name__ for cls in OPS.values()),
]
