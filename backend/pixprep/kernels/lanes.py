"""Numbers of LLVM's with Python's operators, so that a formula of ``colours`` compiles to machine code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

BYTE, WORD, FLOAT, REAL = ir.IntType(8), ir.IntType(32), ir.FloatType(), ir.DoubleType()


class Lanes:
    """A vector of LLVM's, of int32, float32, float64, or of truths; an operator writes an instruction.

    Whole numbers are signed. The other operand may be a Python number.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _with(self, value: Any) -> Lanes:
        return Lanes(self.builder, value)

    def same(self, other: Any) -> Any:
        """LLVM's value of another operand: a number in every lane."""
        if isinstance(other, Lanes):
            return other.value
        kind = self.value.type
        number = float(other) if kind.element in (FLOAT, REAL) else int(other)
        return ir.Constant(kind, [number] * kind.count)

    @property
    def _is_whole(self) -> bool:
        return isinstance(self.value.type.element, ir.IntType)

    def _do(self, name: str, other: Any, *, backwards: bool = False) -> Lanes:
        operation = getattr(self.builder, name if self._is_whole else f"f{name}")
        pair = self.value, self.same(other)
        return self._with(operation(*pair[::-1] if backwards else pair))

    def _compare(self, relation: str, other: Any) -> Lanes:
        compare = self.builder.icmp_signed if self._is_whole else self.builder.fcmp_ordered
        return self._with(compare(relation, self.value, self.same(other)))

    def __add__(self, other: Any) -> Lanes:
        return self._do("add", other)

    def __sub__(self, other: Any) -> Lanes:
        return self._do("sub", other)

    def __mul__(self, other: Any) -> Lanes:
        return self._do("mul", other)

    def __truediv__(self, other: Any) -> Lanes:
        return self._do("div", other)

    def __rsub__(self, other: Any) -> Lanes:
        return self._do("sub", other, backwards=True)

    def __and__(self, other: Any) -> Lanes:
        return self._with(self.builder.and_(self.value, self.same(other)))

    def __or__(self, other: Any) -> Lanes:
        return self._with(self.builder.or_(self.value, self.same(other)))

    def __lshift__(self, bits: int) -> Lanes:
        return self._with(self.builder.shl(self.value, self.same(bits)))

    def __rshift__(self, bits: int) -> Lanes:
        return self._with(self.builder.ashr(self.value, self.same(bits)))

    def __lt__(self, other: Any) -> Lanes:
        return self._compare("<", other)

    def __gt__(self, other: Any) -> Lanes:
        return self._compare(">", other)

    def __eq__(self, other: object) -> Lanes:  # type: ignore[override]
        return self._compare("==", other)

    __radd__, __rmul__ = __add__, __mul__


class Vectors:
    """The maths of ``colours`` on ``Lanes``."""

    def whole(self, values: Lanes) -> Lanes:
        """See ``Maths.whole``."""
        return self._as(values, WORD, "fptosi")

    def real(self, values: Lanes) -> Lanes:
        """See ``Maths.real``."""
        return self._as(values, FLOAT, "fptrunc" if values.value.type.element == REAL else "sitofp")

    def double(self, values: Lanes) -> Lanes:
        """See ``Maths.double``."""
        return self._as(values, REAL, "fpext" if values.value.type.element == FLOAT else "sitofp")

    def where(self, condition: Lanes, one: Lanes | float, other: Lanes | float) -> Lanes:
        """See ``Maths.where``."""
        like = one if isinstance(one, Lanes) else other
        assert isinstance(like, Lanes)
        return Lanes(like.builder, like.builder.select(condition.value, like.same(one), like.same(other)))

    @staticmethod
    def _as(values: Lanes, kind: Any, name: str) -> Lanes:
        if values.value.type.element == kind:
            return values
        return Lanes(
            values.builder, getattr(values.builder, name)(values.value, ir.VectorType(kind, values.value.type.count))
        )
