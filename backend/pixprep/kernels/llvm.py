"""The machine code of ``compiled``: each function is written here in LLVM's terms, and made for this processor.

That happens when this module is imported, in 0.1 s, so that nothing needs to be kept on a disk. A function is told one
array of numbers of 64 bits; its names stand below.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import product
from math import pi
from typing import Any, cast, get_args

import numpy as np
from llvmlite import binding, ir

from pixprep.kernels import colours
from pixprep.kernels.lanes import BYTE, FLOAT, REAL, WORD, Lanes, Vectors
from pixprep.kernels.structs import ALIGNMENT, DIGITS, IMAGE, PIXELS, TAPS
from pixprep.profiles.formula import MOST_BITS, NARROW_BITS, RADIUS, Curve
from pixprep.profiles.windows import IDENTITY_BITS
from pixprep.spec import ColorLike

LANES = 16
"""Of one vector; where registers are shorter, LLVM takes several."""
PLACES = 4
"""Whose windows share the weights."""
VECTOR = 16
"""Bytes that a look-up stores at once."""

PASS = (
    "levels", "out", "places", "levels_place", "out_place", "levels_last", "out_last",
    "windows", "first", "count", "weights", "levels_window", "out_window", "weights_window", "stride", "bits",
)  # fmt: skip
"""What a pass is told. Every place (a row, or 16 neighbours) has every window.

levels, out: addresses of the first place. places: how many. levels_place, out_place, levels_last, out_last: bytes from
place to place, and to the last one, which may lie nearer to the one before, and is what there is beyond it. windows:
how many. first, count, weights: addresses; count is in groups of positions. levels_window, out_window, weights_window:
bytes for each position of ``first``, and from window to window. stride: bytes from group to group of the levels. bits:
of the weights.
"""
LOOK_UP = (
    "levels", "out", "table", "planes", "rows", "columns",
    "levels_plane", "levels_row", "levels_column", "out_plane", "out_row", "out_column",
)  # fmt: skip
"""What a look-up is told: addresses, how many, and bytes from one to the next.

``line`` is told the same. Its table has two float64 for each plane, scale and offset.
"""
RESIZE = (
    "rows", "columns", "across", "down", "finish", "told", "is_down", "pixels", "pitch", "middle", "middle_pitch",
    "channels", "is_done",
)  # fmt: skip
"""What a whole resize is told.

rows, columns: addresses of ``WINDOWS``; where ``window`` is 0 they are made already. across, down: of the ``PASS`` from
column to column and from row to row, which lack the bits and what follows from the windows. finish, told: of the
function that makes values of the levels, and of what it is told. is_down: whether the pass from row to row is the
first. pixels, pitch, middle, middle_pitch: addresses and bytes of a row, before the passes and between them. channels:
of a pixel.

Afterwards is_done says whether it was done: it is not where fewer columns are read than a window has.
"""
WINDOWS = (
    "ratio", "offset", "support", "shrink",
    "window", "first", "count", "weights", "scratch", "taps", "group", "length", "out_length", "begin", "end", "bits",
)  # fmt: skip
"""What the maker of windows is told, the first four as float64.

ratio, offset: of the axis. support: half the width of a window. shrink: one over the stretch of the curve. window: the
address of the function that makes one. first, count, weights: addresses of the results. scratch: of room for ``taps``
float64, and at least 4. taps: the most positions of a window, a multiple of ``group``, which is a power of two. length,
out_length, begin, end: of the axis. bits: of the weights; 0: to be found.

Afterwards begin and end are the input positions that the windows read, and bits is that of the weights.
"""
PACK = (
    "first", "count", "weights", "weights_window", "windows", "length", "align", "flip", "mirror",
    "packed_first", "packed_count", "packed_weights", "begin", "end",
)  # fmt: skip
"""What packs windows: addresses, bytes from window to window, how many, and the arguments of ``launch.pack``.

begin and end are given as the length and 0. Afterwards they are the input positions that the windows read. A weight is
below 2^23, and has three digits.
"""
FILL = (
    "radius", "images", "structs", "capacity", "address", "scratch", "scratch_capacity", "channels",
    "curve", "is_widened", "bits", "windows", "pack",
    "used", "scratch_used", "middle", "wide", "high",
)  # fmt: skip
"""What fills the structs of a chunk, and makes and packs its windows behind them, is told; ``radius`` as float64.

images: the address of a ``PLACED`` for each image. structs: that of memory of ``capacity`` bytes, beginning with the
structs, which the kernels will find at ``address``. scratch: that of memory of ``scratch_capacity`` bytes. curve: that
of the function that makes a window; is_widened, bits: of the formula. windows, pack: of room for ``WINDOWS``, ``PACK``.
used: the number of images; middle, wide, high, scratch_used: 0.

Afterwards used and scratch_used are the bytes that were needed; where one is more than its capacity, the call was in
vain. middle is the bytes between the passes; wide, high: the largest extent of the first pass.
"""
PLACED = (
    "ratio_0", "ratio_1", "begin_0", "begin_1", "end_0", "end_1", "resized_0", "resized_1",
    "first_0", "first_1", "last_0", "last_1", "at_0", "at_1", "mirror_0", "mirror_1", "flip_0", "flip_1",
    "is_down", "like", "address", "height", "width", "pitch", "tensor",
)  # fmt: skip
"""An image and its placement: the ratios as float64; axis 0 is the rows, 1 the columns; ``box`` is begin and end, and
``region`` first and last. like: the number of the first image with the same placement."""

COLOUR = ("pixels", "groups", "gray", "factor", "rest", "turn", "total")
"""What a step on colours is told, of which each reads what it needs.

pixels: the address of words: red, green, blue and a byte of no meaning. groups: of ``LANES`` of them. gray, factor,
rest, turn: as in ``colours``, as float64. total: 0; afterwards the sum of the luma.
"""
CURVES = ("pixels", "count", "red", "green", "blue")
"""What a look-up in place, or a histogram, is told: as ``COLOUR``; how many words; of each channel the address of its
256 bytes, or of its 256 counts of 32 bits, which begin as 0."""

SIZE = ir.IntType(64)
WINDOW = ir.LiteralStructType([SIZE, SIZE, REAL])
"""A window: first position, count, largest weight."""


def _begun(module: Any, name: str, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """A function that is told an array of numbers: its builder, and each number by its name."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    return builder, _told(builder, names)


def _told(builder: Any, names: Sequence[str]) -> dict[str, Any]:
    told = builder.function.args[0]
    return {name: builder.load(builder.gep(told, [SIZE(index)])) for index, name in enumerate(names)}


def _answer(builder: Any, names: Sequence[str], **values: Any) -> None:
    """Replace numbers that the function was told."""
    for name, value in values.items():
        builder.store(value, builder.gep(builder.function.args[0], [SIZE(names.index(name))]))


def _generate_look_up(module: Any, bits: int) -> None:
    """``look_up`` for values of so many bits; a vector at a time where the columns of the result are neighbours."""
    builder, n = _begun(module, f"look_up_{bits}", LOOK_UP)
    size, lanes = bits // 8, VECTOR // (bits // 8)
    is_near = builder.icmp_signed("==", n["out_column"], SIZE(size))
    is_wide = builder.icmp_signed(">=", n["columns"], SIZE(lanes))
    with builder.if_else(builder.and_(is_near, is_wide)) as (then, otherwise):
        for case, count in ((then, lanes), (otherwise, 1)):
            with case, _loop(builder, n["planes"], 1) as (plane, _), _loop(builder, n["rows"], 1) as (row, _):
                _look_up(builder, n, plane, row, ir.IntType(bits), lanes=count)
    builder.ret_void()


def _look_up(builder: Any, n: dict[str, Any], plane: Any, row: Any, value: Any, *, lanes: int) -> None:
    """A row of a plane, ``lanes`` values at a time; the last ones may overlap those before."""
    size = value.width // 8
    table = builder.add(n["table"], builder.mul(plane, SIZE(256 * size)))
    levels, out = (
        builder.add(n[what], builder.add(builder.mul(plane, n[f"{what}_plane"]), builder.mul(row, n[f"{what}_row"])))
        for what in ("levels", "out")
    )
    last = builder.sub(n["columns"], SIZE(lanes))
    with _loop(builder, n["columns"], lanes) as (index, _):
        column = _least(builder, index, last)
        level = builder.add(levels, builder.mul(column, n["levels_column"]))
        found = ir.Constant(ir.VectorType(value, lanes), ir.Undefined)
        for lane in range(lanes):
            at = builder.zext(_load(builder, BYTE, level), SIZE)
            one = _load(builder, value, builder.add(table, builder.mul(at, SIZE(size))))
            found = builder.insert_element(found, one, WORD(lane))
            level = builder.add(level, n["levels_column"])
        _store(builder, found, builder.add(out, builder.mul(column, n["out_column"])))


def _generate_line(module: Any) -> None:
    """``level * scale + offset`` in float64, rounded to float32: of neighbouring pixels of 4 channels, 16 or more."""
    builder, n = _begun(module, "line", LOOK_UP)
    last = builder.sub(n["columns"], SIZE(LANES))
    levels, reals = ir.VectorType(WORD, LANES), ir.VectorType(REAL, LANES)
    with _loop(builder, n["planes"], 1) as (plane, _):
        at = builder.add(n["table"], builder.mul(plane, SIZE(16)))
        scale, offset = (_every(builder, LANES, _load(builder, REAL, builder.add(at, SIZE(8 * i)))) for i in (0, 1))
        begins = [builder.add(n[what], builder.mul(plane, n[f"{what}_plane"])) for what in ("levels", "out")]
        with _loop(builder, n["rows"], 1, begins) as (_, row):
            with _loop(builder, n["columns"], LANES) as (index, _):
                column = builder.mul(_least(builder, index, last), SIZE(4))  # the last ones overlap those before
                words = _load(builder, levels, builder.add(row[0], column))
                these = builder.uitofp(builder.and_(words, ir.Constant(levels, [255] * LANES)), reals)
                values = builder.fptrunc(builder.fadd(builder.fmul(these, scale), offset), ir.VectorType(FLOAT, LANES))
                _store(builder, values, builder.add(row[1], column))
            row[:] = (builder.add(row[i], n[f"{what}_row"]) for i, what in enumerate(("levels", "out")))
    builder.ret_void()


def _generate_resize(module: Any, channels: int) -> None:
    """The windows of both axes, both passes, and what makes values of the levels."""
    builder, n = _begun(module, f"resize_{channels}", RESIZE)

    def call(name: str, told: Any) -> None:
        builder.call(module.globals[name], [builder.inttoptr(told, SIZE.as_pointer())])

    def number(told: str, names: Sequence[str], name: str) -> Any:
        return _load(builder, SIZE, builder.add(n[told], SIZE(8 * names.index(name))))

    def tell(told: str, **values: Any) -> None:
        for name, value in values.items():
            _store(builder, value, builder.add(n[told], SIZE(8 * PASS.index(name))))

    for axis in ("rows", "columns"):
        with builder.if_then(_is_true(builder, number(axis, WINDOWS, "window"))):
            call("windows", n[axis])
    (top, bottom), (left, right) = (
        [number(axis, WINDOWS, edge) for edge in ("begin", "end")] for axis in ("rows", "columns")
    )
    width, height = builder.sub(right, left), builder.sub(bottom, top)
    before = builder.mul(left, SIZE(channels))
    tell("across", bits=number("columns", WINDOWS, "bits"))
    tell("down", bits=number("rows", WINDOWS, "bits"))
    fits = builder.icmp_signed(">=", width, number("columns", WINDOWS, "taps"))
    fits = builder.and_(fits, builder.icmp_signed(">=", builder.mul(width, SIZE(channels)), SIZE(LANES)))
    _answer(builder, RESIZE, is_done=builder.zext(fits, SIZE))
    with builder.if_then(fits):
        with builder.if_else(_is_true(builder, n["is_down"])) as (is_down, is_across):
            with is_down:
                length = builder.mul(width, SIZE(channels))
                last = builder.sub(length, SIZE(LANES))
                places = builder.udiv(builder.add(length, SIZE(LANES - 1)), SIZE(LANES))
                tell("down", levels=builder.add(n["pixels"], before), places=places, levels_last=last, out_last=last)
                tell("across", levels=builder.sub(n["middle"], before))
                call(f"pass_{LANES}", n["down"])
                call(f"pass_{channels}", n["across"])
            with is_across:
                last = builder.sub(height, SIZE(1))
                tell(
                    "across", levels=builder.add(n["pixels"], builder.mul(top, n["pitch"])), places=height,
                    levels_last=builder.mul(last, n["pitch"]), out_last=builder.mul(last, n["middle_pitch"]),
                )  # fmt: skip
                tell("down", levels=builder.sub(n["middle"], builder.mul(top, n["middle_pitch"])))
                call(f"pass_{channels}", n["across"])
                call(f"pass_{LANES}", n["down"])
        function = ir.FunctionType(ir.VoidType(), [SIZE.as_pointer()]).as_pointer()
        builder.call(builder.inttoptr(n["finish"], function), [builder.inttoptr(n["told"], SIZE.as_pointer())])
    builder.ret_void()


def _generate_pass(module: Any, sums: int) -> None:
    """A pass that makes so many sums of 16 products: of ``LANES // sums`` neighbours each."""
    builder, n = _begun(module, f"pass_{sums}", PASS)

    def load(what: Any, begin: Any, index: Any, size: Any) -> Any:
        return _load(builder, what, builder.add(begin, builder.mul(index, size)))

    def number(array: str, index: Any) -> Any:
        return builder.zext(load(WORD, n[array], index, SIZE(4)), SIZE)

    lanes, shares = ir.VectorType(WORD, LANES), ir.VectorType(WORD, LANES // sums)
    loops = [(n["windows"], 1), (n["places"], PLACES)]
    # The result is written row after row: a pass from row to row has a window for each.
    outer, inner = loops if sums == LANES else loops[::-1]
    with _loop(builder, *outer) as (i, _), _loop(builder, *inner) as (j, _):
        window, place = (i, j) if sums == LANES else (j, i)
        levels = builder.add(n["levels"], builder.mul(number("first", window), n["levels_window"]))
        out = builder.add(n["out"], builder.mul(window, n["out_window"]))
        weights = builder.add(n["weights"], builder.mul(window, n["weights_window"]))
        places = [builder.add(place, SIZE(index)) for index in range(PLACES)]
        begins, outs = (
            [
                builder.add(begin, _least(builder, builder.mul(at, n[f"{what}_place"]), n[f"{what}_last"]))
                for at in places
            ]
            for what, begin in (("levels", levels), ("out", out))
        )
        zeros = [ir.Constant(lanes, [0] * LANES)] * PLACES
        with _loop(builder, number("count", window), 1, zeros) as (group, totals):
            share = load(shares, weights, group, SIZE(4 * LANES // sums))
            share = _pick(builder, share, [lane // sums for lane in range(LANES)])
            for index, begin in enumerate(begins):
                these = builder.zext(load(ir.VectorType(BYTE, LANES), begin, group, n["stride"]), lanes)
                totals[index] = builder.add(totals[index], builder.mul(these, share))
        folded = _folded(builder, totals, sums)
        levels = [_level(builder, total, n["bits"]) for total in folded]
        each = PLACES // len(levels)
        for index, target in enumerate(outs):
            first = index % each * sums
            _store(builder, _pick(builder, levels[index // each], list(range(first, first + sums))), target)
    builder.ret_void()


def _folded(builder: Any, totals: Sequence[Any], sums: int) -> list[Any]:
    """Of each total its lanes folded to so many sums; the sums of several totals share a vector."""
    size, vectors = LANES, list(totals)
    while size > sums:
        size //= 2
        if len(vectors) > 1:
            pairs, lanes = list(zip(vectors[::2], vectors[1::2], strict=True)), 2 * LANES
        else:
            pairs, lanes = [(vectors[0], vectors[0])], vectors[0].type.count
        first = [lane for lane in range(lanes) if lane % (2 * size) < size]
        second = [lane + size for lane in first]
        vectors = [builder.add(_pick(builder, a, first, b), _pick(builder, a, second, b)) for a, b in pairs]
    return vectors


def _level(builder: Any, total: Any, bits: Any) -> Any:
    """``clip8((half + sum) >> bits)``."""
    size = total.type.count
    bits = builder.trunc(bits, WORD)
    half = _every(builder, size, builder.shl(WORD(1), builder.sub(bits, WORD(1))))
    bits = _every(builder, size, bits)
    value = builder.ashr(builder.add(total, half), bits)
    for relation, limit in (("<", 0), (">", 255)):
        bound = ir.Constant(ir.VectorType(WORD, size), [limit] * size)
        value = builder.select(builder.icmp_signed(relation, value, bound), bound, value)
    return builder.trunc(value, ir.VectorType(BYTE, size))


def _generate_windows(module: Any) -> None:
    """The windows of a region of an axis, by the function that makes one."""
    builder, n = _begun(module, "windows", WINDOWS)
    told = builder.function.args[0]
    function = ir.FunctionType(WINDOW, [SIZE.as_pointer(), SIZE]).as_pointer()

    def window(index: Any) -> list[Any]:
        made = builder.call(builder.inttoptr(n["window"], function), [told, index])
        return [builder.extract_value(made, part) for part in range(3)]

    with builder.if_then(builder.icmp_signed("==", n["bits"], SIZE(0))):
        with _loop(builder, n["out_length"], 1, [REAL(0)]) as (index, largest):
            largest[0] = _larger(builder, window(index)[2], largest[0])
        with _loop(builder, SIZE(MOST_BITS), 1, [SIZE(0), REAL(2)]) as (_, found):
            scaled = builder.fptosi(builder.fadd(REAL(0.5), builder.fmul(largest[0], found[1])), SIZE)
            fits = builder.icmp_signed("<", scaled, SIZE(1 << NARROW_BITS))
            found[:] = builder.add(found[0], builder.zext(fits, SIZE)), builder.fmul(found[1], REAL(2))
        _answer(builder, WINDOWS, bits=found[0])
    bits = _told(builder, WINDOWS)["bits"]
    one = builder.bitcast(builder.shl(builder.add(bits, SIZE(1023)), SIZE(52)), REAL)  # 2^bits
    begin, _, _ = window(n["begin"])
    last, count, _ = window(builder.sub(n["end"], SIZE(1)))
    end = builder.add(last, count)
    # No group leaves what is read, unless that is less than a group.
    limit = _most(builder, end, builder.add(begin, builder.select(_is_one(builder, n["group"]), SIZE(0), n["taps"])))
    less = builder.sub(n["group"], SIZE(1))
    with _loop(builder, builder.sub(n["end"], n["begin"]), 1) as (index, _):
        first, count, _ = window(builder.add(n["begin"], index))
        size = builder.and_(builder.add(count, less), builder.not_(less))
        at = builder.select(_is_below(builder, builder.sub(limit, size), first), builder.sub(limit, size), first)
        shift, word = builder.sub(first, at), builder.mul(index, SIZE(4))
        _store(builder, builder.trunc(at, WORD), builder.add(n["first"], word))
        _store(builder, builder.trunc(builder.udiv(size, n["group"]), WORD), builder.add(n["count"], word))
        weights = builder.add(n["weights"], builder.mul(word, n["taps"]))
        with _loop(builder, size, 1) as (tap, _):
            position = builder.sub(tap, shift)
            is_inside = builder.icmp_unsigned("<", position, count)
            place = builder.mul(SIZE(8), builder.select(is_inside, position, SIZE(0)))
            weight = builder.fmul(_load(builder, REAL, builder.add(n["scratch"], place)), one)
            half = builder.select(builder.fcmp_ordered("<", weight, REAL(0)), REAL(-0.5), REAL(0.5))
            fixed = builder.fptosi(builder.fadd(weight, half), WORD)
            _store(builder, builder.select(is_inside, fixed, WORD(0)), builder.add(weights, builder.mul(tap, SIZE(4))))
    _answer(builder, WINDOWS, begin=begin, end=end)
    builder.ret_void()


def _begun_window(module: Any, curve: Curve) -> tuple[Any, dict[str, Any], Any]:
    """A function that makes a window and writes its weights to the scratch: builder, numbers, and ``i + 0.5``."""
    function = ir.Function(module, ir.FunctionType(WINDOW, [SIZE.as_pointer(), SIZE]), f"window_{curve}")
    builder = ir.IRBuilder(function.append_basic_block())
    n = _told(builder, WINDOWS)
    n |= {name: builder.bitcast(n[name], REAL) for name in ("ratio", "offset", "support", "shrink")}
    return builder, n, builder.fadd(builder.sitofp(function.args[1], REAL), REAL(0.5))


def _window(builder: Any, *parts: Any) -> Any:
    made = ir.Constant(WINDOW, ir.Undefined)
    for index, part in enumerate(parts):
        made = builder.insert_value(made, part, index)
    builder.ret(made)


def _generate_cut(module: Any, curve: Curve) -> None:
    """As ``formula._cut``."""
    builder, n, middle = _begun_window(module, curve)
    middle = builder.fadd(n["offset"], builder.fmul(middle, n["ratio"]))

    def edge(side: Any) -> Any:
        return builder.fptosi(builder.fadd(side, REAL(0.5)), SIZE)

    first = _most(builder, edge(builder.fsub(middle, n["support"])), SIZE(0))
    count = builder.sub(_least(builder, edge(builder.fadd(middle, n["support"])), n["length"]), first)
    with _loop(builder, count, 1, [REAL(0)]) as (tap, total):
        distance = builder.fsub(builder.sitofp(builder.add(tap, first), REAL), middle)
        weight = _value(builder, curve, builder.fmul(builder.fadd(distance, REAL(0.5)), n["shrink"]))
        _store(builder, weight, builder.add(n["scratch"], builder.mul(tap, SIZE(8))))
        total[0] = builder.fadd(total[0], weight)
    with _loop(builder, count, 1, [REAL(0)]) as (tap, largest):
        place = builder.add(n["scratch"], builder.mul(tap, SIZE(8)))
        weight = builder.fdiv(_load(builder, REAL, place), total[0])
        _store(builder, weight, place)
        largest[0] = _larger(builder, weight, largest[0])
    _window(builder, first, count, largest[0])


def _value(builder: Any, curve: Curve, x: Any) -> Any:
    """As ``formula._value``."""
    a, one, zero = _call(builder, "llvm.fabs", x), REAL(1), REAL(0)

    def is_below(limit: float) -> Any:
        return builder.fcmp_ordered("<", a, REAL(limit))

    def sinc(x: Any) -> Any:
        y = builder.fmul(x, REAL(pi))
        values = builder.fdiv(_call(builder, "sin", y), y)
        return builder.select(builder.fcmp_ordered("==", x, zero), one, values)

    if curve == "box":
        is_right = builder.fcmp_ordered("<=", x, REAL(0.5))
        return builder.select(builder.and_(is_right, builder.fcmp_ordered(">", x, REAL(-0.5))), one, zero)
    if curve == "bilinear":
        return builder.select(is_below(1), builder.fsub(one, a), zero)
    if curve == "hamming":
        cosine = builder.fmul(REAL(float(np.float32(0.46))), _call(builder, "cos", builder.fmul(a, REAL(pi))))
        window = builder.fadd(REAL(float(np.float32(0.54))), cosine)
        return builder.select(is_below(1), builder.fmul(sinc(x), window), zero)
    if curve == "bicubic":
        near = _polynomial(builder, a, (1.5, -2.5, 0, 1))
        far = _polynomial(builder, a, (-0.5, 2.5, -4, 2))
        return builder.select(is_below(1), near, builder.select(is_below(2), far, zero))
    product = builder.fmul(sinc(x), sinc(builder.fdiv(x, REAL(3))))
    is_inside = builder.and_(builder.fcmp_ordered(">=", x, REAL(-3)), builder.fcmp_ordered("<", x, REAL(3)))
    return builder.select(is_inside, product, zero)


def _generate_nearest(module: Any, curve: Curve) -> None:
    """As ``formula._nearest``."""
    builder, n, middle = _begun_window(module, curve)
    middle = builder.fsub(builder.fmul(middle, n["ratio"]), REAL(0.5))
    if curve == "two":
        middle = _larger(builder, middle, REAL(0))
    floor = builder.fptosi(_call(builder, "llvm.floor", builder.fptrunc(middle, FLOAT)), SIZE)
    last = builder.sub(n["length"], SIZE(1))
    floor = _least(builder, floor, last)
    t = _larger(builder, builder.fsub(middle, builder.sitofp(floor, REAL)), REAL(0))
    t = builder.select(builder.fcmp_ordered(">", t, REAL(1)), REAL(1), t)
    rest = builder.fsub(REAL(1), t)
    if curve == "two":
        shares = [rest, t]
    else:
        near, far = (1.25, -2.25, 0, 1), (-0.75, 3.75, -6, 3)
        sides = [(builder.fadd(REAL(1), t), far), (t, near), (rest, near), (builder.fsub(REAL(2), t), far)]
        shares = [_polynomial(builder, x, numbers) for x, numbers in sides]
    begin = builder.sub(floor, SIZE(len(shares) // 2 - 1))
    first = _most(builder, begin, SIZE(0))
    count = builder.sub(_least(builder, builder.add(begin, SIZE(len(shares))), n["length"]), first)
    places = [builder.add(n["scratch"], SIZE(8 * tap)) for tap in range(len(shares))]
    for place in places:
        _store(builder, REAL(0), place)
    largest = REAL(0)
    for tap, share in enumerate(shares):
        slot = _most(builder, _least(builder, builder.add(begin, SIZE(tap)), last), SIZE(0))
        place = builder.add(n["scratch"], builder.mul(builder.sub(slot, first), SIZE(8)))
        weight = builder.fadd(_load(builder, REAL, place), share)
        _store(builder, weight, place)
        largest = _larger(builder, weight, largest)
    _window(builder, first, count, largest)


def _polynomial(builder: Any, x: Any, numbers: Sequence[float]) -> Any:
    """Of degree 3, by Horner's rule; a 0 is not added."""
    value = REAL(numbers[0])
    for number in numbers[1:]:
        value = builder.fmul(value, x)
        value = builder.fadd(value, REAL(number)) if number else value
    return value


def _generate_pack(module: Any) -> None:
    """``launch.pack`` of windows none of which leaves the axis."""
    builder, n = _begun(module, "pack", PACK)
    flip, mirror = (builder.icmp_signed("!=", n[name], SIZE(0)) for name in ("flip", "mirror"))
    one, four = SIZE(1), SIZE(4)
    found = [n["begin"], n["end"]]
    with _loop(builder, n["windows"], 1, found) as (index, found):
        backwards = builder.sub(builder.sub(n["windows"], one), index)
        window = builder.select(flip, backwards, index)
        word, place = builder.mul(window, four), builder.mul(index, four)
        first, count = (
            builder.zext(_load(builder, WORD, builder.add(n[name], word)), SIZE) for name in ("first", "count")
        )
        first = builder.select(mirror, builder.sub(builder.sub(n["length"], first), count), first)
        shift = builder.and_(first, builder.sub(n["align"], one))
        groups = builder.udiv(builder.add(builder.add(shift, count), SIZE(TAPS - 1)), SIZE(TAPS))
        _store(builder, builder.trunc(builder.sub(first, shift), WORD), builder.add(n["packed_first"], place))
        _store(builder, builder.trunc(groups, WORD), builder.add(n["packed_count"], place))
        weights = builder.add(n["weights"], builder.mul(window, n["weights_window"]))
        last = builder.sub(count, one)
        with _loop(builder, groups, 1) as (group, _):
            words = [WORD(0)] * DIGITS
            for tap in range(TAPS):
                position = builder.sub(builder.add(builder.mul(group, SIZE(TAPS)), SIZE(tap)), shift)
                is_inside = builder.icmp_unsigned("<", position, count)
                position = builder.select(mirror, builder.sub(last, position), position)
                at = builder.mul(builder.select(is_inside, position, SIZE(0)), four)
                weight = builder.select(is_inside, _load(builder, WORD, builder.add(weights, at)), WORD(0))
                for digit in range(DIGITS):
                    signed = builder.sext(builder.trunc(weight, BYTE), WORD)
                    shifted = builder.shl(builder.and_(weight, WORD(255)), WORD(8 * tap))
                    words[digit] = builder.or_(words[digit], shifted)
                    weight = builder.ashr(builder.sub(weight, signed), WORD(8))
            target = builder.add(builder.mul(group, n["windows"]), index)
            target = builder.add(n["packed_weights"], builder.mul(target, SIZE(16)))
            for digit, value in enumerate([*words, WORD(0)]):
                _store(builder, value, builder.add(target, SIZE(4 * digit)))
        found[:] = _least(builder, found[0], first), _most(builder, found[1], builder.add(first, count))
    _answer(builder, PACK, begin=found[0], end=found[1])
    builder.ret_void()


def _generate_fill(module: Any) -> None:
    """``launch._fill`` for fast.cu and a formula."""
    builder, n = _begun(module, "fill", FILL)
    structs_bytes = builder.mul(n["used"], SIZE(IMAGE.itemsize))
    count = n["used"]
    _answer(builder, FILL, used=structs_bytes)
    with _loop(builder, count, 1) as (index, _):
        record = builder.add(n["images"], builder.mul(index, SIZE(8 * len(PLACED))))
        p = {
            name: _load(builder, REAL if place < 2 else SIZE, builder.add(record, SIZE(8 * place)))
            for place, name in enumerate(PLACED)
        }
        struct = builder.add(n["structs"], builder.mul(index, SIZE(IMAGE.itemsize)))
        with builder.if_else(builder.icmp_signed("==", p["like"], index)) as (is_new, is_like):
            with is_new:
                _generate_placed(builder, n, p, struct)
            with is_like:
                like = builder.add(n["structs"], builder.mul(p["like"], SIZE(IMAGE.itemsize)))
                with _loop(builder, SIZE(IMAGE.itemsize // 8), 1) as (word, _):
                    place = builder.mul(word, SIZE(8))
                    _store(builder, _load(builder, SIZE, builder.add(like, place)), builder.add(struct, place))
        is_up = _is_true(builder, p["mirror_0"])
        row = builder.select(is_up, builder.sub(p["end_0"], SIZE(1)), p["begin_0"])
        corner = builder.add(builder.mul(row, p["pitch"]), builder.mul(p["begin_1"], n["channels"]))
        last_row = builder.mul(builder.sub(p["height"], SIZE(1)), p["pitch"])
        end = builder.add(last_row, builder.mul(p["width"], n["channels"]))
        now = _told(builder, FILL)
        _set(
            builder, struct,
            pixels=builder.add(p["address"], corner), middle=now["middle"], tensor=p["tensor"],
            begin=p["address"], end=builder.add(p["address"], end),
            pitch=builder.select(is_up, builder.neg(p["pitch"]), p["pitch"]),
        )  # fmt: skip
        high, wide = (
            builder.zext(_load(builder, WORD, builder.add(struct, SIZE(_field(name)[0]))), SIZE)
            for name in ("middle_height", "middle_width")
        )
        n_bytes = builder.mul(builder.mul(high, wide), builder.mul(n["channels"], SIZE(4)))
        rest = SIZE(ALIGNMENT - 1)
        n_bytes = builder.and_(builder.add(n_bytes, rest), builder.not_(rest))
        _answer(builder, FILL, middle=builder.add(now["middle"], n_bytes))
    builder.ret_void()


def _generate_placed(builder: Any, n: dict[str, Any], p: dict[str, Any], struct: Any) -> None:
    """What a placement decides of an image: its windows, and numbers that follow from them."""
    is_down = _is_true(builder, p["is_down"])
    begins, ends, sizes = [], [], []
    fields: dict[str, Any] = {}
    for axis, name in enumerate(("rows", "columns")):
        length = builder.sub(p[f"end_{axis}"], p[f"begin_{axis}"])
        out_length, ratio = p[f"resized_{axis}"], p[f"ratio_{axis}"]
        size = builder.sub(p[f"last_{axis}"], p[f"first_{axis}"])
        keeps = builder.icmp_signed("==", length, out_length)
        stretch = builder.select(_is_true(builder, n["is_widened"]), _larger(builder, ratio, REAL(1)), REAL(1))
        stretch = builder.select(keeps, REAL(1), stretch)
        radius = builder.select(keeps, REAL(RADIUS["box"]), builder.bitcast(n["radius"], REAL))
        support = builder.fmul(radius, stretch)
        taps = builder.fptosi(_call(builder, "llvm.ceil", support), SIZE)
        taps = _least(builder, builder.add(builder.mul(taps, SIZE(2)), SIZE(1)), length)
        align = builder.select(is_down, *((SIZE(1), SIZE(TAPS)) if axis == 0 else (SIZE(TAPS), SIZE(1))))
        groups = builder.udiv(builder.add(builder.add(taps, align), SIZE(TAPS - 2)), SIZE(TAPS))  # at most
        weights = builder.and_(builder.add(builder.mul(size, SIZE(8)), SIZE(15)), SIZE(-16))
        n_bytes = builder.add(weights, builder.mul(SIZE(16), builder.mul(groups, size)))
        now = _told(builder, FILL)
        place, used = now["used"], builder.add(now["used"], n_bytes)
        # The scratch holds the curve, and the windows before they are packed.
        numbers = builder.mul(SIZE(8), _most(builder, taps, SIZE(4)))
        need = builder.add(numbers, builder.mul(builder.mul(SIZE(4), size), builder.add(taps, SIZE(2))))
        need = _most(builder, need, now["scratch_used"])
        _answer(builder, FILL, used=used, scratch_used=need)
        first = builder.add(n["scratch"], numbers)
        counts = builder.add(first, builder.mul(SIZE(4), size))
        unpacked = builder.add(first, builder.mul(SIZE(8), size))
        to = builder.add(n["structs"], place)
        curve = builder.select(keeps, builder.ptrtoint(builder.module.globals["window_box"], SIZE), n["curve"])
        _tell(
            builder, n["windows"], WINDOWS, ratio, REAL(0), support, builder.fdiv(REAL(1), stretch),
            curve, first, counts, unpacked, n["scratch"], taps, SIZE(1), length, out_length,
            p[f"first_{axis}"], p[f"last_{axis}"], builder.select(keeps, SIZE(IDENTITY_BITS), n["bits"]),
        )  # fmt: skip
        _tell(
            builder, n["pack"], PACK, first, counts, unpacked, builder.mul(taps, SIZE(4)), size, length, align,
            p[f"flip_{axis}"], p["mirror_1"] if axis else SIZE(0),
            to, builder.add(to, builder.mul(SIZE(4), size)), builder.add(to, weights), length, SIZE(0),
        )  # fmt: skip
        fits = builder.and_(
            builder.icmp_signed("<=", used, n["capacity"]), builder.icmp_signed("<=", need, n["scratch_capacity"])
        )
        is_empty = builder.icmp_signed("==", size, SIZE(0))
        with builder.if_then(is_empty):
            _store(builder, SIZE(0), builder.add(n["pack"], SIZE(8 * PACK.index("begin"))))
        with builder.if_then(builder.and_(fits, builder.not_(is_empty))):
            for function in ("windows", "pack"):
                told = builder.inttoptr(n[function], SIZE.as_pointer())
                builder.call(builder.module.globals[function], [told])
        at = builder.add(n["address"], place)
        fields |= {
            f"{name}.first": at,
            f"{name}.count": builder.add(at, builder.mul(SIZE(4), size)),
            f"{name}.weights": builder.add(at, weights),
            f"{name}.size": size,
            f"{name}.bits": _load(builder, SIZE, builder.add(n["windows"], SIZE(8 * WINDOWS.index("bits")))),
            ("width" if axis else "height"): length,
        }
        begins.append(_load(builder, SIZE, builder.add(n["pack"], SIZE(8 * PACK.index("begin")))))
        ends.append(_load(builder, SIZE, builder.add(n["pack"], SIZE(8 * PACK.index("end")))))
        sizes.append(size)
    top = builder.and_(builder.select(is_down, begins[1], begins[0]), SIZE(-TAPS))

    def whole(value: Any) -> Any:
        return builder.and_(builder.add(value, SIZE(TAPS - 1)), SIZE(-TAPS))

    rows = whole(builder.sub(builder.select(is_down, ends[1], ends[0]), top))
    groups = builder.udiv(rows, SIZE(TAPS))
    words = whole(builder.add(sizes[1], builder.and_(p["at_1"], SIZE(PIXELS - 1))))
    now = _told(builder, FILL)
    _answer(
        builder, FILL,
        wide=_most(builder, now["wide"], builder.select(is_down, rows, sizes[1])),
        high=_most(builder, now["high"], builder.select(is_down, sizes[0], rows)),
    )  # fmt: skip
    _set(
        builder, struct, **fields, stride=n["channels"], vertical_first=p["is_down"], middle_top=top,
        middle_height=builder.select(is_down, sizes[0], groups), middle_width=builder.select(is_down, groups, words),
        top=p["at_0"], left=p["at_1"], passes=SIZE(0), factor=SIZE(0),
        margin_top=SIZE(0), margin_left=SIZE(0), margin_bottom=SIZE(0), margin_right=SIZE(0), fill=SIZE(0),
    )  # fmt: skip


def _is_true(builder: Any, value: Any) -> Any:
    return builder.icmp_signed("!=", value, SIZE(0))


def _tell(builder: Any, address: Any, names: Sequence[str], *values: Any) -> None:
    """Write numbers of 64 bits one after the other, whose names are ``names``."""
    for place, (_, value) in enumerate(zip(names, values, strict=True)):
        _store(builder, value, builder.add(address, SIZE(8 * place)))


def _set(builder: Any, struct: Any, **values: Any) -> None:
    """Write fields of an ``IMAGE``; ``rows.first`` is one of ``rows``."""
    for name, value in values.items():
        where, n_bytes = _field(name)
        short = builder.trunc(value, WORD) if n_bytes == 4 else value
        _store(builder, short, builder.add(struct, SIZE(where)))


def _field(name: str) -> tuple[int, int]:
    """Where a field of an ``IMAGE`` begins, and its bytes."""
    where, dtype = 0, cast("Any", IMAGE)
    for part in name.split("."):
        dtype, offset = dtype.fields[part][:2]
        where += offset
    return where, dtype.itemsize


def _generate_colours(module: Any, like: ColorLike) -> None:
    """The formulas of ``colours``, in place, for ``LANES`` pixels at a time."""
    maths = Vectors()

    def fade(n: dict[str, Lanes], pixel: colours.Pixel) -> colours.Pixel:
        return _blended(pixel, n["gray"], n)

    def blend(n: dict[str, Lanes], pixel: colours.Pixel) -> colours.Pixel:
        return _blended(pixel, colours.luma(maths, pixel, like), n)

    def turn(n: dict[str, Lanes], pixel: colours.Pixel) -> colours.Pixel:
        return colours.turned(maths, pixel, (maths.whole if like == "pillow" else maths.real)(n["turn"]), like)

    def _blended(pixel: colours.Pixel, gray: Lanes, n: dict[str, Lanes]) -> colours.Pixel:
        by = maths.real(n["factor"]), n["rest"]
        red, green, blue = (colours.blended(maths, level, gray, by, like) for level in pixel)
        return red, green, blue

    zeros = ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES)
    for name, formula in {"fade": fade, "blend": blend, "turn": turn, "sum": None}.items():
        builder, n = _begun(module, f"{name}_{like}", COLOUR)
        numbers = {
            x: Lanes(builder, _spread(builder, builder.bitcast(n[x], REAL))) for x in ("gray", "factor", "rest", "turn")
        }
        with _loop(builder, n["groups"], 1, [zeros]) as (group, totals):
            address = builder.add(n["pixels"], builder.mul(group, SIZE(4 * LANES)))
            words = Lanes(builder, _load(builder, zeros.type, address))
            pixel = words & 255, words >> 8 & 255, words >> 16 & 255
            if formula:
                red, green, blue = formula(numbers, pixel)
                _store(builder, (red | green << 8 | blue << 16).value, address)
            else:
                totals[0] = builder.add(totals[0], colours.luma(maths, pixel, like).value)
        if not formula:
            parts = [builder.zext(builder.extract_element(totals[0], WORD(lane)), SIZE) for lane in range(LANES)]
            _answer(builder, COLOUR, total=reduce(builder.add, parts))
        builder.ret_void()


def _generate_curves(module: Any) -> None:
    """Each channel looked up in place, and each channel's histogram."""
    for name in ("curves", "histograms"):
        builder, n = _begun(module, name, CURVES)
        with _loop(builder, n["count"], 1) as (index, _):
            address = builder.add(n["pixels"], builder.mul(index, SIZE(4)))
            word, made = _load(builder, WORD, address), WORD(0)
            for place, channel in enumerate(("red", "green", "blue")):
                level = builder.zext(builder.and_(builder.lshr(word, WORD(8 * place)), WORD(255)), SIZE)
                if name == "curves":
                    found = builder.zext(_load(builder, BYTE, builder.add(n[channel], level)), WORD)
                    made = builder.or_(made, builder.shl(found, WORD(8 * place)))
                else:
                    slot = builder.add(n[channel], builder.mul(level, SIZE(4)))
                    _store(builder, builder.add(_load(builder, WORD, slot), WORD(1)), slot)
            if name == "curves":
                _store(builder, made, address)
        builder.ret_void()


def _spread(builder: Any, value: Any) -> Any:
    """A number in every lane."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, WORD(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES))


def _load(builder: Any, what: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, what.as_pointer()), align=1)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _call(builder: Any, name: str, value: Any) -> Any:
    """A function of one number: LLVM's own, or the C library's."""
    if name.startswith("llvm."):
        return builder.call(builder.module.declare_intrinsic(name, [value.type]), [value])
    function = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(REAL, [REAL]), name)
    return builder.call(function, [value])


def _is_one(builder: Any, value: Any) -> Any:
    return builder.icmp_signed("==", value, SIZE(1))


def _is_below(builder: Any, a: Any, b: Any) -> Any:
    return builder.icmp_signed("<", a, b)


def _least(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(_is_below(builder, a, b), a, b)


def _most(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(_is_below(builder, a, b), b, a)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _pick(builder: Any, vector: Any, lanes: list[int], other: Any = None) -> Any:
    """Lanes of a vector, or of two one after the other."""
    return builder.shuffle_vector(vector, other or vector, ir.Constant(ir.VectorType(WORD, len(lanes)), lanes))


def _every(builder: Any, size: int, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, size), ir.Undefined), value, WORD(0))
    return _pick(builder, one, [0] * size)


@contextmanager
def _loop(builder: Any, end: Any, by: int, carried: list[Any] | None = None) -> Iterator[tuple[Any, list[Any]]]:
    """From 0 to ``end``, at least once: the index, and values that the body replaces for the next time, and for after.

    Written in the form that LLVM's passes would give it, so that none of them need run.
    """
    before, body = builder.block, builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    begin = [SIZE(0), *(carried or [])]
    now = [builder.phi(value.type) for value in begin]
    following = now[1:]
    yield now[0], following
    index = builder.add(now[0], SIZE(by))
    for phi, first, value in zip(now, begin, [index, *following], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(value, builder.block)
    after = builder.append_basic_block()
    builder.cbranch(builder.icmp_unsigned("<", index, end), body, after)
    builder.position_at_end(after)


def _module() -> Any:
    module = ir.Module()
    module.triple = binding.get_process_triple()
    for sums in (1, 4, LANES):
        _generate_pass(module, sums)
    for bits in (8, 16, 32):
        _generate_look_up(module, bits)
    for curve in get_args(Curve):
        (_generate_nearest if curve in ("two", "four") else _generate_cut)(module, curve)
    _generate_windows(module)
    _generate_line(module)
    for channels in (1, 4):
        _generate_resize(module, channels)
    _generate_pack(module)
    _generate_fill(module)
    for like in get_args(ColorLike):
        _generate_colours(module, like)
    _generate_curves(module)
    return module


def _compiler() -> Any:
    """An LLVM compiler that holds the functions, made for this processor."""
    with suppress(RuntimeError):  # since 0.45 it happens by itself, and is an error
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    try:
        library = ctypes.CDLL("libm.so.6")
    except OSError:  # not glibc
        library = ctypes.CDLL(None)
    for name in ("sin", "cos"):  # those that Pillow calls
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        binding.add_symbol(name, address)
    module = _module()
    target = binding.Target.from_triple(module.triple).create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    compiler = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), target)
    compiler.finalize_object()
    return compiler


_COMPILER = _compiler()
"""It owns the code."""
ADDRESSES = {
    name: _COMPILER.get_function_address(name)
    for name in ("look_up_8", "look_up_16", "look_up_32", "line", *(f"window_{curve}" for curve in get_args(Curve)))
}
"""Of functions that others call."""
FUNCTIONS = {
    name: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_COMPILER.get_function_address(name))
    for name in (
        "pass_1", "pass_4", f"pass_{LANES}", "look_up_8", "look_up_16", "look_up_32", "windows", "fill",
        "resize_1", "resize_4",
        "curves", "histograms", *map("_".join, product(("fade", "blend", "turn", "sum"), get_args(ColorLike))),
    )
}  # fmt: skip
"""By name; each takes a ctypes array or structure. ctypes lets other threads run while one works."""
