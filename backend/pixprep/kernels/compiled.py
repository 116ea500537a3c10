"""The two passes of ``fixed`` in machine code, by LLVM: what ``resample`` does in NumPy tap by tap.

The code is made when this module is imported, for this processor: 60 ms, so that nothing needs to be kept on a disk.
A window is a dot product of levels and weights, and 16 of its products are one vector: of a row of four channels those
of 4 pixels, whose sums are folded at the end; of a column those of 16 neighbours, whose sums stay apart. Four windows
at a time share the weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir

from pixprep.profiles.taps import Taps

U8 = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]

LANES = 16
"""Of one vector; where registers are shorter, LLVM takes several."""
PLACES = 4
"""Whose windows share the weights."""
BYTE, WORD, SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)

_PASS = (
    "source", "out", "places", "source_place", "out_place", "source_last", "out_last",
    "windows", "first", "count", "weights", "source_window", "out_window", "weights_window", "step", "bits",
)  # fmt: skip
"""What a pass is told. Every place (a row, or 16 neighbours) has every window.

source, out: addresses of the first place. places: how many. source_place, out_place, source_last, out_last: bytes from
place to place, and to the last one, which may lie nearer to the one before, and is what there is beyond it. windows:
how many. first, count, weights: addresses of what ``Taps`` has, but that count is in steps. source_window, out_window,
weights_window: bytes for each position of ``first``, and from window to window. step: bytes from step to step of the
levels. bits: of the weights.
"""
_LOOK_UP = (
    "source", "out", "table", "planes", "rows", "columns",
    "source_plane", "source_row", "source_column", "out_plane", "out_row", "out_column",
)  # fmt: skip
"""What a look-up is told: addresses, how many, and bytes from one to the next."""


def along(axis: int, values: U8, taps: Taps) -> U8:
    """One pass along an axis: 0 from row to row, 1 from column to column. Other threads run meanwhile.

    Args:
        axis: which.
        values: uint8 (height, width, channels), any strides, 1 to 4 channels; at least one pixel.
        taps: windows of ``fixed``, at least one, none of which leaves the axis.

    Returns:
        (out, width, channels) or (height, out, channels).
    """
    return _from_row_to_row(values, taps) if axis == 0 else _from_column_to_column(values, taps)


def _from_row_to_row(values: U8, taps: Taps) -> U8:
    height, width, channels = values.shape
    length = width * channels
    if length < LANES:
        wide = _widened(values.reshape(height, length, 1), LANES, 1)
        return _from_row_to_row(wide, taps)[:, :length].reshape(-1, width, channels)
    values, weights = _mapped(values), np.ascontiguousarray(taps.weights)
    out = np.empty((len(taps.first), width, channels), np.uint8)
    _run(
        LANES,
        taps.first, taps.count, weights, taps.bits, source=values, out=out,
        places=-(-length // LANES), source_place=LANES, out_place=LANES, source_last=length - LANES,
        out_last=length - LANES, source_window=values.strides[0], out_window=length, step=values.strides[0],
    )  # fmt: skip
    return out


def _from_column_to_column(values: U8, taps: Taps) -> U8:
    height, width, channels = values.shape
    if channels not in (1, 4):
        return _from_column_to_column(_widened(values, width, 4), taps)[:, :, :channels]
    neighbours = LANES // channels
    if width < _whole(taps.weights.shape[1], neighbours):
        return _from_column_to_column(_widened(values, width + taps.weights.shape[1] + LANES, channels), taps)
    values = _mapped(values)
    first, count, weights = _in_steps(taps, width, neighbours)
    out = np.empty((height, len(first), channels), np.uint8)
    pitch, out_pitch = values.strides[0], out.strides[0]
    _run(
        channels,
        first, count, weights, taps.bits, source=values, out=out,
        places=height, source_place=pitch, out_place=out_pitch, source_last=(height - 1) * pitch,
        out_last=(height - 1) * out_pitch, source_window=channels, out_window=channels, step=LANES,
    )  # fmt: skip
    return out


def look_up(levels: U8, table: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """``out[c, y, x] = table[c, levels[y, x, c]]``. Other threads run meanwhile.

    Args:
        levels: uint8 (rows, columns, planes), any strides; at least one of each.
        table: (planes, 256), C-contiguous.
        out: (planes, rows, columns) of the same dtype, any strides.
    """
    (rows, columns, planes), (row, column, plane) = levels.shape, levels.strides
    numbers = (planes, rows, columns, plane, row, column, *out.strides)
    _call(f"look_up_{8 * table.itemsize}", levels.ctypes.data, out.ctypes.data, table.ctypes.data, *numbers)


def _run(
    sums: int, first: Int32, count: Int32, weights: Int32, bits: int, *, source: U8, out: U8, **numbers: int
) -> None:
    assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in (first, count, weights))
    arrays: dict[str, npt.NDArray[Any]] = {
        "source": source, "out": out, "first": first, "count": count, "weights": weights
    }  # fmt: skip
    numbers |= {name: array.ctypes.data for name, array in arrays.items()}
    numbers |= {"windows": len(first), "weights_window": weights.strides[0], "bits": bits}
    _call(f"pass_{sums}", *(numbers[name] for name in _PASS))


def _call(name: str, *numbers: int) -> None:
    _FUNCTIONS[name]((ctypes.c_int64 * len(numbers))(*numbers))


def _mapped(values: U8) -> U8:
    """With no gap between the pixels of a row; rows may lie any number of bytes apart."""
    is_mapped = values.strides[1:] == (values.shape[2], 1) and values.strides[0] >= 0
    return values if is_mapped else np.ascontiguousarray(values)


def _widened(values: U8, width: int, channels: int) -> U8:
    wide = np.zeros((len(values), width, channels), np.uint8)
    wide[:, : values.shape[1], : values.shape[2]] = values
    return wide


def _whole(length: int, neighbours: int) -> int:
    return -(-length // neighbours) * neighbours


@lru_cache(maxsize=512)
def _in_steps(taps: Taps, length: int, neighbours: int) -> tuple[Int32, Int32, Int32]:
    """The windows in steps of so many positions: first, how many steps, and weights, 0 for positions that are new.

    One that would so leave the axis begins earlier.
    """
    out, longest = taps.weights.shape
    size = _whole(longest, neighbours)
    weights = np.zeros((out, size), np.int32)
    weights[:, :longest] = taps.weights
    first = np.minimum(taps.first, np.int32(length - size))
    shift = taps.first - first
    for index in np.flatnonzero(shift):
        weights[index] = np.roll(weights[index], shift[index])
    return first, -(-(taps.count + shift) // np.int32(neighbours)), weights


def _begun(module: Any, name: str, numbers: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """A function that is told an array of numbers: its builder, and each number by its name."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    (told,) = function.args
    return builder, {name: builder.load(builder.gep(told, [SIZE(index)])) for index, name in enumerate(numbers)}


def _generate_look_up(module: Any, bits: int) -> None:
    """``look_up`` for values of so many bits."""
    builder, n = _begun(module, f"look_up_{bits}", _LOOK_UP)
    value, size = ir.IntType(bits), SIZE(bits // 8)
    with _loop(builder, n["planes"], 1) as (plane, _), _loop(builder, n["rows"], 1) as (row, _):
        begins = []
        for what in ("source", "out"):
            offset = builder.add(builder.mul(plane, n[f"{what}_plane"]), builder.mul(row, n[f"{what}_row"]))
            begins.append(builder.add(n[what], offset))
        table = builder.add(n["table"], builder.mul(plane, builder.mul(SIZE(256), size)))
        with _loop(builder, n["columns"], 1, begins) as (_, at):
            level = builder.zext(_load(builder, BYTE, at[0]), SIZE)
            found = _load(builder, value, builder.add(table, builder.mul(level, size)))
            builder.store(found, builder.inttoptr(at[1], value.as_pointer()), align=1)
            at[:] = builder.add(at[0], n["source_column"]), builder.add(at[1], n["out_column"])
    builder.ret_void()


def _generate_pass(module: Any, sums: int) -> None:
    """A pass that makes so many sums of 16 products: of ``LANES // sums`` neighbours each."""
    builder, n = _begun(module, f"pass_{sums}", _PASS)

    def load(kind: Any, begin: Any, index: Any, size: Any) -> Any:
        return _load(builder, kind, builder.add(begin, builder.mul(index, size)))

    def number(array: str, index: Any) -> Any:
        return builder.zext(load(WORD, n[array], index, SIZE(4)), SIZE)

    def least(a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_unsigned("<", a, b), a, b)

    bits = builder.trunc(n["bits"], WORD)
    half = _every(builder, sums, builder.shl(WORD(1), builder.sub(bits, WORD(1))))
    bits = _every(builder, sums, bits)
    lanes, shares = ir.VectorType(WORD, LANES), ir.VectorType(WORD, LANES // sums)
    loops = [(n["windows"], 1), (n["places"], PLACES)]
    # The result is written row after row: a pass from row to row has a window for each.
    outer, inner = loops if sums == LANES else loops[::-1]
    with _loop(builder, *outer) as (i, _), _loop(builder, *inner) as (j, _):
        window, place = (i, j) if sums == LANES else (j, i)
        source = builder.add(n["source"], builder.mul(number("first", window), n["source_window"]))
        out = builder.add(n["out"], builder.mul(window, n["out_window"]))
        weights = builder.add(n["weights"], builder.mul(window, n["weights_window"]))
        places = [builder.add(place, SIZE(index)) for index in range(PLACES)]
        sources, outs = (
            [builder.add(begin, least(builder.mul(at, n[f"{what}_place"]), n[f"{what}_last"])) for at in places]
            for what, begin in (("source", source), ("out", out))
        )
        zeros = [ir.Constant(lanes, [0] * LANES)] * PLACES
        with _loop(builder, number("count", window), 1, zeros) as (step, totals):
            share = load(shares, weights, step, SIZE(4 * LANES // sums))
            share = _pick(builder, share, [lane // sums for lane in range(LANES)])
            for index, begin in enumerate(sources):
                levels = builder.zext(load(ir.VectorType(BYTE, LANES), begin, step, n["step"]), lanes)
                totals[index] = builder.add(totals[index], builder.mul(levels, share))
        for total, target in zip(totals, outs, strict=True):
            level = _level(builder, total, sums, half, bits)
            builder.store(level, builder.inttoptr(target, level.type.as_pointer()), align=1)
    builder.ret_void()


def _level(builder: Any, total: Any, sums: int, half: Any, bits: Any) -> Any:
    """``clip8((half + sum) >> bits)``."""
    size = LANES
    while size > sums:
        size //= 2
        total = builder.add(
            _pick(builder, total, list(range(size))), _pick(builder, total, list(range(size, 2 * size)))
        )
    value = builder.ashr(builder.add(total, half), bits)
    for relation, limit in (("<", 0), (">", 255)):
        bound = ir.Constant(ir.VectorType(WORD, sums), [limit] * sums)
        value = builder.select(builder.icmp_signed(relation, value, bound), bound, value)
    return builder.trunc(value, ir.VectorType(BYTE, sums))


def _load(builder: Any, kind: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _pick(builder: Any, vector: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(WORD, len(lanes)), lanes))


def _every(builder: Any, size: int, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(ir.VectorType(WORD, size), ir.Undefined), value, WORD(0))
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


def _compiler() -> Any:
    """An LLVM compiler that holds the passes, made for this processor."""
    with suppress(RuntimeError):  # since 0.45 it happens by itself, and is an error
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module()
    module.triple = binding.get_process_triple()
    for sums in (1, 4, LANES):
        _generate_pass(module, sums)
    for bits in (8, 16, 32):
        _generate_look_up(module, bits)
    target = binding.Target.from_triple(module.triple).create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    compiler = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), target)
    compiler.finalize_object()
    return compiler


_COMPILER = _compiler()
_FUNCTIONS = {
    name: ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64))(_COMPILER.get_function_address(name))
    for name in ("pass_1", "pass_4", f"pass_{LANES}", "look_up_8", "look_up_16", "look_up_32")
}
"""ctypes lets other threads run while one works; the compiler owns the code."""
