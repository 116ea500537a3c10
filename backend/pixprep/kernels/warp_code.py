"""Warps in machine code, as ``warp`` does them in NumPy: LLVM makes it for this processor.

Eight pixels of a row of the result are made together. Two pixels that stand side by side are in one word of 64 bits, so
that bilinear takes two loads. Each operation of a formula is one instruction: nothing is fused but what is to be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from llvmlite import binding, ir

from pixprep.kernels.lanes import BYTE, FLOAT, REAL, WORD, Lanes

COUNT = 8
"""Of the pixels that are made together."""
SPARE = 4 * COUNT
"""Bytes behind the result that are written, too."""
TOLD = (
    "image", "pitch", "last", "height", "width", "out", "rows", "columns", "left", "top", "fill", "is_masked",
    "a", "b", "c", "d", "e", "f", "half_width", "half_height", "middle_x", "middle_y",
)  # fmt: skip
"""What a function is told, numbers of 64 bits.

image: address of the first pixel; pitch: bytes from row to row; last: where the last 8 bytes begin; height, width: of
the image, behind whose column there is a second if it is the only one. out: address of the result; rows, columns: of
it, with no gap; left, top: x' and y' of its first pixel. fill: a level a byte. is_masked: torchvision's m is not 1. a
to f: whole numbers for ``fixed``, else float64. half_width, half_height: of the image, middle_x, middle_y: what x' and
y' lose, all float64, for torchvision.
"""
SIZE = ir.IntType(64)
Pixels = Callable[["_Code", Any, Any], Lanes]
"""Writes what makes eight pixels, a level a byte of int32, of the row and the first column of the result."""


class _Code:
    """A function while it is written."""

    def __init__(self, builder: Any, told: dict[str, Any], channels: int, apart: int) -> None:
        self.builder, self._told, self.channels, self._apart = builder, told, channels, apart

    def lanes(self, kind: Any, values: Sequence[float]) -> Lanes:
        """Numbers that are known now."""
        return Lanes(self.builder, ir.Constant(ir.VectorType(kind, COUNT), list(values)))

    def every(self, value: Any) -> Lanes:
        """A number in every lane."""
        one = self.builder.insert_element(ir.Constant(ir.VectorType(value.type, COUNT), ir.Undefined), value, WORD(0))
        return Lanes(self.builder, self.builder.shuffle_vector(one, one, self.lanes(WORD, [0] * COUNT).value))

    def told(self, name: str, kind: Any) -> Lanes:
        """What the function is told, as int32, int64, float32 or float64."""
        value = self._told[name]
        if kind is WORD:
            value = self.builder.trunc(value, WORD)
        elif kind is not SIZE:
            value = self.builder.bitcast(value, REAL)
            value = self.builder.fptrunc(value, FLOAT) if kind is FLOAT else value
        return self.every(value)

    def places(self, row: Any, column: Any, kind: Any) -> tuple[Lanes, Lanes]:
        """The x' and y'."""
        narrow = (
            self.builder.trunc(self.builder.add(value, self._told[name]), WORD)
            for value, name in ((column, "left"), (row, "top"))
        )
        x, y = (self.every(value) for value in narrow)
        x += self.lanes(WORD, range(COUNT))
        return (x, y) if kind is WORD else (self.real(x, kind), self.real(y, kind))

    def whole(self, values: Lanes) -> Lanes:
        """As int32, cut off."""
        return Lanes(self.builder, self.builder.fptosi(values.value, ir.VectorType(WORD, COUNT)))

    def real(self, values: Lanes, kind: Any) -> Lanes:
        """As float32 or float64, of int32."""
        return Lanes(self.builder, self.builder.sitofp(values.value, ir.VectorType(kind, COUNT)))

    def call(self, name: str, *values: Lanes) -> Lanes:
        """A function of LLVM's own, such as ``floor``."""
        kind = values[0].value.type
        whole = f"llvm.{name}.v{COUNT}{kind.element.intrinsic_name}"
        module = self.builder.module
        function = module.globals.get(whole) or ir.Function(module, ir.FunctionType(kind, [kind] * len(values)), whole)
        return Lanes(self.builder, self.builder.call(function, [value.value for value in values]))

    def where(self, condition: Lanes, one: Lanes, other: Any) -> Lanes:
        return Lanes(self.builder, self.builder.select(condition.value, one.value, one.same(other)))

    def least(self, values: Lanes, other: Any) -> Lanes:
        return self.where(values < other, values, other)

    def most(self, values: Lanes, other: Any) -> Lanes:
        return self.where(values > other, values, other)

    def is_inside(self, x: Lanes, y: Lanes) -> Lanes:
        """Whether whole numbers are a place of the image."""
        return (x > -1) & (x < self.told("width", WORD)) & (y > -1) & (y < self.told("height", WORD))

    def bits(self, x: Lanes, y: Lanes) -> Lanes:
        """The 64 bits that begin with the pixel at a place, which is in the image."""
        builder, wide = self.builder, ir.VectorType(SIZE, COUNT)
        column, row = (Lanes(builder, builder.sext(value.value, wide)) for value in (x * self._apart, y))
        offset = row * self.told("pitch", SIZE) + column
        begin = self.least(offset, self.told("last", SIZE))
        found = ir.Constant(wide, ir.Undefined)
        for lane in range(COUNT):
            address = builder.add(self._told["image"], builder.extract_element(begin.value, WORD(lane)))
            word = builder.load(builder.inttoptr(address, SIZE.as_pointer()), align=1)
            found = builder.insert_element(found, word, WORD(lane))
        return Lanes(builder, builder.lshr(found, (offset - begin << 3).value))

    def pixel(self, bits: Lanes, place: int) -> Lanes:
        """The first or the second pixel of 64 bits: int32, a level a byte."""
        shifted = self.builder.lshr(bits.value, bits.same(8 * self._apart * place)) if place else bits.value
        return Lanes(self.builder, self.builder.trunc(shifted, ir.VectorType(WORD, COUNT)))

    def level(self, pixel: Lanes, channel: int) -> Lanes:
        """One of its levels."""
        return (pixel >> 8 * channel) & 255

    def together(self, levels: Sequence[Lanes]) -> Lanes:
        """A pixel of its levels."""
        pixel = levels[0]
        for channel, level in enumerate(levels[1:], 1):
            pixel |= level << 8 * channel
        return pixel

    @contextmanager
    def loop(self, end: Any, by: int) -> Iterator[Any]:
        """From 0 to ``end``, at least once: the index."""
        builder = self.builder
        before, body = builder.block, builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        index = builder.phi(SIZE)
        index.add_incoming(SIZE(0), before)
        yield index
        following = builder.add(index, SIZE(by))
        index.add_incoming(following, builder.block)
        after = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(after)


def _pillow(code: _Code, row: Any, column: Any) -> Lanes:
    """Bilinear, in float64."""
    along, down = (place + 0.5 for place in code.places(row, column, REAL))
    x, y = (along * code.told(a, REAL) + down * code.told(b, REAL) + code.told(c, REAL) for a, b, c in ("abc", "def"))
    width, height = (code.told(name, WORD) for name in ("width", "height"))
    wide, high = code.real(width, REAL), code.real(height, REAL)
    is_inside = (code.most(x, 0) == x) & (x < wide) & (code.most(y, 0) == y) & (y < high)
    u, v = code.least(code.most(x, 0), wide) - 0.5, code.least(code.most(y, 0), high) - 0.5
    left, top = code.call("floor", u), code.call("floor", v)
    dx, dy = u - left, v - top
    first, above = code.whole(left), code.whole(top)
    # Of two columns that are one, the pair begins at the image's edge, and weighs 0 or 1: the same levels.
    most = code.most(width - 2, 0)
    dx = code.where(first < 0, code.lanes(REAL, [0] * COUNT), dx)
    dx = code.where(first > most, code.lanes(REAL, [1] * COUNT), dx)
    begin = code.least(code.most(first, 0), most)
    upper, lower = (code.bits(begin, code.least(code.most(above + more, 0), (height - 1))) for more in (0, 1))
    levels = []
    for channel in range(code.channels):
        sums = []
        for bits in (upper, lower):
            here, there = (code.level(code.pixel(bits, place), channel) for place in (0, 1))
            sums.append(code.real(here, REAL) + code.real(there - here, REAL) * dx)
        levels.append(code.whole(sums[0] + (sums[1] - sums[0]) * dy))
    return code.where(is_inside, code.together(levels), code.told("fill", WORD))


def _grid(code: _Code, row: Any, column: Any) -> tuple[Lanes, Lanes]:
    """The places of torchvision, in float32."""
    along, down = code.places(row, column, FLOAT)
    along, down = along - code.told("middle_x", FLOAT), down - code.told("middle_y", FLOAT)
    minus = code.lanes(FLOAT, [-0.5] * COUNT)
    x, y = (
        code.call(
            "fma",
            along * code.told(a, FLOAT) + down * code.told(b, FLOAT) + code.told(c, FLOAT) + 1.0,
            code.told(half, FLOAT),
            minus,
        )
        for a, b, c, half in (("a", "b", "c", "half_width"), ("d", "e", "f", "half_height"))
    )
    # Further away than this lies nothing either; whole numbers then suffice.
    return tuple(code.least(code.most(value, -3.0), 100_000.0) for value in (x, y))  # type: ignore[return-value]


def _torchvision(code: _Code, row: Any, column: Any) -> Lanes:
    """Bilinear, in float32."""
    x, y = _grid(code, row, column)
    left, top = code.call("floor", x), code.call("floor", y)
    right_share, lower_share = x - left, y - top
    left_share, upper_share = 1.0 - right_share, 1.0 - lower_share
    shares = [
        (upper_share * left_share, upper_share * right_share),
        (lower_share * left_share, lower_share * right_share),
    ]
    first, above = code.whole(left), code.whole(top)
    width, height = code.told("width", WORD), code.told("height", WORD)
    begin = code.least(code.most(first, 0), code.most(width - 2, 0))
    pixels, ones = [], []
    for down in (0, 1):
        line = above + down
        bits = code.bits(begin, code.least(code.most(line, 0), (height - 1)))
        one, other = code.pixel(bits, 0), code.pixel(bits, 1)
        for more in (0, 1):
            place = first + more
            is_inside = code.is_inside(place, line)
            pixel = code.where(place == begin, one, other)
            pixels.append(code.where(is_inside, pixel, 0))
            ones.append(code.where(is_inside, code.lanes(FLOAT, [1] * COUNT), 0.0))

    def total(values: Sequence[Lanes]) -> Lanes:
        flat = [share for pair in shares for share in pair]
        result = values[0] * flat[0]
        for value, share in zip(values[1:], flat[1:], strict=True):
            result = code.call("fma", value, share, result)
        return result

    mask = code.where(code.told("is_masked", WORD) == 0, code.lanes(FLOAT, [1] * COUNT), total(ones))
    levels = []
    for channel in range(code.channels):
        fill = code.real(code.level(code.told("fill", WORD), channel), FLOAT)
        values = total([code.real(code.level(pixel, channel), FLOAT) for pixel in pixels])
        levels.append(code.whole(code.call("rint", (values - fill) * mask + fill)))
    return code.together(levels)


def _picked(code: _Code, x: Lanes, y: Lanes) -> Lanes:
    """The level at a place, or the fill."""
    inner = [
        code.least(code.most(value, 0), (code.told(name, WORD) - 1)) for value, name in ((x, "width"), (y, "height"))
    ]
    pixel = code.pixel(code.bits(inner[0], inner[1]), 0)
    return code.where(code.is_inside(x, y), pixel, code.told("fill", WORD))


def _nearest(code: _Code, row: Any, column: Any) -> Lanes:
    """The nearest of torchvision."""
    x, y = (code.whole(code.call("rint", place)) for place in _grid(code, row, column))
    return _picked(code, x, y)


def _fixed(code: _Code, row: Any, column: Any) -> Lanes:
    """The nearest of Pillow, in 65,536ths."""
    along, down = code.places(row, column, WORD)
    x, y = (
        along * code.told(a, WORD) + down * code.told(b, WORD) + code.told(c, WORD) >> 16 for a, b, c in ("abc", "def")
    )
    return _picked(code, x, y)


def _generate(module: Any, name: str, pixels: Pixels, channels: int, apart: int) -> None:
    """A function that makes the result, row after row: bytes of gray, words of colours."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    told = {key: builder.load(builder.gep(function.args[0], [SIZE(place)])) for place, key in enumerate(TOLD)}
    code, size = _Code(builder, told, channels, apart), 1 if channels == 1 else 4
    with code.loop(told["rows"], 1) as row, code.loop(told["columns"], COUNT) as column:
        made = pixels(code, row, column).value
        if size == 1:
            made = builder.trunc(made, ir.VectorType(BYTE, COUNT))
        place = builder.add(builder.mul(row, told["columns"]), column)
        address = builder.add(told["out"], builder.mul(place, SIZE(size)))
        builder.store(made, builder.inttoptr(address, made.type.as_pointer()), align=1)
    builder.ret_void()


KINDS: dict[str, Pixels] = {"pillow": _pillow, "torchvision": _torchvision, "nearest": _nearest, "fixed": _fixed}


@cache
def function(kind: str, channels: int, apart: int) -> Callable[[bytes], None]:
    """The machine code of ``pillow``, ``torchvision`` (bilinear), ``nearest`` (torchvision's) or ``fixed`` (Pillow's).

    Its pixels lie so many bytes apart: 1 of gray, 3 or 4 of colours; it makes 1 or 4. It is made when it is first asked
    for, in 30 ms. ctypes lets other threads run while it works.
    """
    with suppress(RuntimeError):  # since 0.45 it happens by itself, and is an error
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module()
    module.triple = binding.get_process_triple()
    _generate(module, kind, KINDS[kind], channels, apart)
    target = binding.Target.from_triple(module.triple).create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    compiler = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), target)
    compiler.finalize_object()
    _OWNERS.append(compiler)
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p)(compiler.get_function_address(kind))


_OWNERS: list[Any] = []
"""Of the code."""
