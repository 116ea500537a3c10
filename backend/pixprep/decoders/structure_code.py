"""``structure.structure`` in machine code: LLVM makes it for this processor when this module is imported.

It goes from byte FF to byte FF by the C library's ``memchr``. Variables are memory that the function has of its own:
the time is that of ``memchr``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir

from pixprep.decoders.structure import (
    END_OF_IMAGE,
    FRAMES,
    KEPT,
    MOST_KEPT,
    MOST_SEGMENTS,
    PLAIN,
    RESTART_INTERVAL,
    START_OF_SCAN,
)

ROW = ("address", "size", "whole", "kept", "scans", "interval", "restarts")
"""What the function is told of an image, and after ``size`` what it answers; the segments that are kept follow."""

_BYTE, _WORD, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)


class _Code:
    """The function while it is written: its variables by their names, its places by theirs."""

    def __init__(self, function: Any) -> None:
        self.builder = ir.IRBuilder(function.append_basic_block())
        self._function = function
        self._variables: dict[str, Any] = {}
        self._places: dict[str, Any] = {}

    def declare(self, **values: Any) -> None:
        """Variables, with their first values."""
        for name, value in values.items():
            self._variables[name] = self.builder.alloca(_SIZE)
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self.builder.load(self._variables[name])

    def __setitem__(self, name: str, value: Any) -> None:
        self.builder.store(_number(value), self._variables[name])

    def go(self, place: str) -> None:
        """Jump."""
        if not self.builder.block.is_terminated:
            self.builder.branch(self._place(place))

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """What is written within is done where one jumps to this place."""
        self.builder.position_at_end(self._place(place))
        yield

    @contextmanager
    def when(self, condition: Any) -> Iterator[None]:
        """What is written within is done if it holds."""
        with self.builder.if_then(condition):
            yield

    def compare(self, one: Any, relation: str, other: Any) -> Any:
        """Of numbers without a sign."""
        return self.builder.icmp_unsigned(relation, one, _number(other))

    def is_one_of(self, value: Any, numbers: frozenset[int]) -> Any:
        """Whether a byte is one of these."""
        bits = ir.Constant(ir.IntType(256), sum(1 << number for number in numbers))
        return self.builder.trunc(self.builder.lshr(bits, self.builder.zext(value, bits.type)), ir.IntType(1))

    def byte(self, at: Any) -> Any:
        """The image's byte."""
        pointer = self.builder.inttoptr(self.builder.add(self["address"], at), _BYTE.as_pointer())
        return self.builder.zext(self.builder.load(pointer), _SIZE)

    def two_bytes(self, at: Any) -> Any:
        """As a number, the larger first."""
        high = self.builder.shl(self.byte(at), _SIZE(8))
        return self.builder.or_(high, self.byte(self.builder.add(at, _SIZE(1))))

    def keep(self, row: Any, index: Any, value: Any) -> None:
        """Answer a number."""
        self.builder.store(value, self.builder.gep(row, [_number(index)]))

    def _place(self, name: str) -> Any:
        if name not in self._places:
            self._places[name] = self._function.append_basic_block(name)
        return self._places[name]


def _number(value: Any) -> Any:
    return _SIZE(value) if isinstance(value, int) else value


def _generate(module: Any) -> None:
    """The function: the first row, and how many."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_SIZE.as_pointer(), _SIZE]), "walk")
    find = ir.Function(module, ir.FunctionType(_SIZE, [_SIZE, _WORD, _SIZE]), "memchr")
    c = _Code(function)
    b = c.builder
    names = "image address size at marker kept frames scans total interval first_interval restarts turn"
    c.declare(**dict.fromkeys(names.split(), 0))
    c.go("image")

    with c.at("image"):
        done = b.append_basic_block()
        begin = b.append_basic_block()
        b.cbranch(c.compare(c["image"], "<", function.args[1]), begin, done)
        b.position_at_end(done)
        b.ret_void()
        b.position_at_end(begin)
        row = b.gep(function.args[0], [b.mul(c["image"], _SIZE(len(ROW) + MOST_KEPT))])
        c["image"] = b.add(c["image"], _SIZE(1))
        c["address"], c["size"] = b.load(row), b.load(b.gep(row, [_SIZE(1)]))
        c.keep(row, ROW.index("whole"), _SIZE(0))
        for name in ("kept", "frames", "scans", "total", "interval", "first_interval", "restarts"):
            c[name] = 0
        c["at"] = 2
        c.go("segment")

    with c.at("segment"):
        with c.when(c.compare(b.add(c["at"], _SIZE(2)), ">", c["size"])):
            c.go("image")
        with c.when(c.compare(c.byte(c["at"]), "!=", 0xFF)):
            c.go("image")
        c["marker"] = c.byte(b.add(c["at"], _SIZE(1)))
        with c.when(c.compare(c["marker"], "==", 0xFF)):
            c["at"] = b.add(c["at"], _SIZE(1))
            c.go("segment")
        with c.when(c.compare(c["marker"], "==", END_OF_IMAGE)):
            c.go("end")
        with c.when(b.not_(c.is_one_of(c["marker"], PLAIN))):
            c.go("image")
        with c.when(c.compare(b.add(c["at"], _SIZE(4)), ">", c["size"])):
            c.go("image")
        length = c.two_bytes(b.add(c["at"], _SIZE(2)))
        c["total"] = b.add(c["total"], _SIZE(1))
        after = b.add(b.add(c["at"], _SIZE(2)), length)
        for is_odd in (
            c.compare(length, "<", 2),
            c.compare(after, ">", c["size"]),
            c.compare(c["total"], ">", MOST_SEGMENTS),
        ):
            with c.when(is_odd):
                c.go("image")
        is_asked_for = b.and_(c.is_one_of(c["marker"], KEPT), c.compare(c["scans"], "==", 0))
        with c.when(is_asked_for):
            with c.when(c.compare(c["kept"], "==", MOST_KEPT)):
                c.go("image")
            place = b.shl(b.add(c["at"], _SIZE(2)), _SIZE(8))
            c.keep(row, b.add(c["kept"], _SIZE(len(ROW))), b.or_(c["marker"], place))
            c["kept"] = b.add(c["kept"], _SIZE(1))
        c["frames"] = b.add(c["frames"], b.zext(c.is_one_of(c["marker"], FRAMES), _SIZE))
        with c.when(c.compare(c["marker"], "==", RESTART_INTERVAL)):
            with c.when(c.compare(length, "!=", 4)):
                c.go("image")
            c["interval"] = c.two_bytes(b.add(c["at"], _SIZE(4)))
        c["at"] = after
        with c.when(c.compare(c["marker"], "!=", START_OF_SCAN)):
            c.go("segment")
        with c.when(c.compare(c["scans"], "==", 0)):
            c["first_interval"] = c["interval"]
        c["scans"] = b.add(c["scans"], _SIZE(1))
        c["turn"] = 0xD0
        c.go("data")

    with c.at("data"):
        here = b.add(c["address"], c["at"])
        found = b.call(find, [here, _WORD(0xFF), b.sub(c["size"], c["at"])])
        with c.when(c.compare(found, "==", 0)):
            c.go("image")
        c["at"] = b.sub(found, c["address"])
        with c.when(c.compare(b.add(c["at"], _SIZE(2)), ">", c["size"])):
            c.go("image")
        c["marker"] = c.byte(b.add(c["at"], _SIZE(1)))
        with c.when(c.compare(c["marker"], "==", 0)):
            c["at"] = b.add(c["at"], _SIZE(2))
            c.go("data")
        with c.when(c.compare(c["marker"], "==", 0xFF)):
            c["at"] = b.add(c["at"], _SIZE(1))
            c.go("data")
        is_in_turn = b.and_(c.compare(c["marker"], "==", c["turn"]), c.compare(c["interval"], "!=", 0))
        with c.when(is_in_turn):
            c["at"] = b.add(c["at"], _SIZE(2))
            c["turn"] = b.or_(b.and_(b.add(c["turn"], _SIZE(1)), _SIZE(7)), _SIZE(0xD0))
            c["restarts"] = b.add(c["restarts"], b.zext(c.compare(c["scans"], "==", 1), _SIZE))
            c.go("data")
        c.go("segment")

    with c.at("end"):
        is_whole = b.and_(c.compare(c["scans"], "!=", 0), c.compare(c["frames"], "==", 1))
        c.keep(row, ROW.index("whole"), b.zext(is_whole, _SIZE))
        for name, variable in (("kept", "kept"), ("scans", "scans"), ("interval", "first_interval")):
            c.keep(row, ROW.index(name), c[variable])
        c.keep(row, ROW.index("restarts"), c["restarts"])
        c.go("image")


def _compiler() -> Any:
    """An LLVM compiler that holds the function, made for this processor."""
    with suppress(RuntimeError):  # since 0.45 it happens by itself, and is an error
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    address = ctypes.cast(ctypes.CDLL(None).memchr, ctypes.c_void_p).value
    binding.add_symbol("memchr", address)
    module = ir.Module()
    module.triple = binding.get_process_triple()
    _generate(module)
    target = binding.Target.from_triple(module.triple).create_target_machine(opt=3)
    compiler = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), target)
    compiler.finalize_object()
    return compiler


_COMPILER = _compiler()
"""It owns the code."""
_WALK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(_COMPILER.get_function_address("walk"))


def walk(rows: npt.NDArray[np.int64]) -> None:
    """Fill rows of ``ROW`` and ``MOST_KEPT`` segments; other threads run meanwhile."""
    _WALK(rows.ctypes.data, len(rows))
