"""Every operator, as frozen data: its fields, its checks, and its lowering to a plan.

An operator is its class, in any module of this room: with a ``tag`` it is in ``OPS``, in ``pixprep``, in the file and
in the docs. Type checkers read the names in ``__init__.pyi``, which ``make docs`` writes.
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
    "random_warp elastic filters erasing policies extern choices normalize outputs patches tiles"
)
"""The modules in the order of the docs; those that are not named come last."""

for _name in dict.fromkeys([*_ORDER.split(), *sorted(module.name for module in iter_modules(__path__))]):
    import_module(f"pixprep.pipeline.ops.{_name}")

OPS: dict[str, type[Op]] = _known()
"""The class of each operator, by its name in the file."""

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
