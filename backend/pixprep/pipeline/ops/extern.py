"""The op that stands for a user's operator."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within
from pixprep.pipeline.ops.op import LevelsOp
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps import finding, operators
from pixprep.spec import ImageSpec


class Extern(LevelsOp, frozen=True, tag="extern", kw_only=True):
    """Call an operator of your own: a function that the file names, and that does not come from the file.

    Whoever loads the file brings the operator, or allows one that is installed: see docs/own-operators.md. Without it
    the file is refused. The operator says which of two places it has. One of ``levels`` takes the image after its
    geometry, uint8 (height, width, channels), and gives the same shape, or the height and width that it declares; then
    ``transform``, ``scale_factor``, ``boxes`` and ``points`` come before it, or it has a ``motion``. One of ``tensor``
    stands right behind ``tensor``, or behind another one, and changes that output, to the shape and dtype that it
    declares.

    Args:
        operator: its name, such as ``acme.denoise``; the ``name`` of every op is another thing.
        version: of the operator; another one is refused.
        fields: of the operator, by their names, of the types that it declares.
    """

    operator: str
    version: Annotated[int, Within(1, operators.MAX_VERSION)]
    fields: dict[str, Any] = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.operator, self.version, json.dumps(self.fields, sort_keys=True, default=repr)))

    def check(self) -> None:
        operators.check_name(self.operator)

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return str(finding.find(self.operator, self.version, before.operators).use(self.fields))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        call = finding.find(self.operator, self.version, before.operators).use(self.fields)
        if call.operator.place == "tensor":
            raise PipelineError(f"{call.operator} takes a tensor: it stands right behind tensor")
        return before.do(call.changed(key=key) if call.operator.generator is not None else call)
