"""The op that calls a custom operator."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within
from pixprep.pipeline.ops.op import LevelsOp
from pixprep.plan.lowered import Lowered
from pixprep.plan.steps import operators
from pixprep.spec import ImageSpec


class Extern(LevelsOp, frozen=True, tag="extern", kw_only=True):
    """Calls a custom operator: a function that the file refers to by name but does not contain.

    The code that loads the file must provide the operator, or allow an installed operator: see docs/own-operators.md.
    Otherwise, the file is rejected. The operator declares whether its ``place`` is ``levels`` or ``tensor``.

    An operator with the place ``levels`` receives the cropped and resized image, uint8 (height, width, channels). It
    returns an array of the same shape, or with the height and width that it declares. If the operator declares a size
    but no ``motion``, the ops ``transform``, ``scale_factor``, ``boxes`` and ``points`` must come before it.

    An operator with the place ``tensor`` directly follows ``tensor`` or another such operator. It converts that output
    to the shape and dtype that it declares.

    Args:
        operator: Name of the operator, such as ``acme.denoise``. It is unrelated to the ``name`` that every op may
            have.
        version: Required version of the operator. An operator with a different version is rejected.
        fields: Values of the operator's fields by name. They must have the types that the operator declares.

    Example:
        {"op": "extern", "operator": "acme.denoise", "version": 1}
    """

    operator: str
    version: Annotated[int, Within(1, operators.MAX_VERSION)]
    fields: dict[str, Any] = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.operator, self.version, json.dumps(self.fields, sort_keys=True, default=repr)))

    def check(self) -> None:
        operators.check_name(self.operator)

    def described(self, image: ImageSpec, before: Lowered) -> str:
        return str(operators.find(self.operator, self.version, before.operators).use(self.fields))

    def lower(self, before: Lowered, image: ImageSpec, key: str) -> Lowered:
        call = operators.find(self.operator, self.version, before.operators).use(self.fields)
        if call.operator.place == "tensor":
            raise PipelineError(f"{call.operator} operates on a tensor: it must directly follow tensor")
        is_random = call.operator.generator is not None or call.operator.epoch is not None
        return before.do(call.changed(key=key) if is_random else call)
