"""Tests that the parts of CuPy and nvImageCodec that pixprep uses exist in their wheels and in the mocks. No GPU is
needed.

The used API is read from pixprep's sources: attribute chains on the two modules and on the results of their functions,
and the arguments of each call. For attributes of other objects, the mocks are the reference, because every GPU test
runs on them. CuPy is not installed by default: ``make gpu-installs`` runs this file with each of its versions.
"""

import ast
import contextlib
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

nvimgcodec = pytest.importorskip("nvidia.nvimgcodec", reason="NO NVIMGCODEC: pip install nvidia-nvimgcodec-cu12")
from gpu import fake_cupy  # noqa: E402  (needs nvImageCodec)
from pixprep.engine.devices import device_for  # noqa: E402
from pixprep.errors import SetupError  # noqa: E402

ROOT = Path(__file__).parents[2]
OURS = sorted((ROOT / "backend" / "pixprep" / "gpu").glob("*.py"))
SOURCES = [
    *OURS,
    *(each for name in ("tools/gpu_hour", "tests/gpu/hardware") for each in sorted((ROOT / name).glob("*.py"))),
]
MODULES = {"cupy": "cupy", "nvimgcodec": "nvimgcodec", "codec": "nvimgcodec"}
"""Names of the two modules in pixprep's sources."""
RETURNS = {
    "cuda.get_current_stream": "cuda.Stream",
    "get_default_memory_pool": "cuda.MemoryPool",
    "get_default_pinned_memory_pool": "cuda.PinnedMemoryPool",
}
OPTION = re.compile(r":(\w+)=")


class Call(NamedTuple):
    """Number of positional arguments of a call, and the names of its keyword arguments."""

    count: int
    names: frozenset[str]


def used(module):
    """Yield (chain, call or None) for each use of a module in pixprep's sources."""
    found = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not (chain := _chain(node, module)):
                continue
            call = functions.get(id(node))
            is_open = call is None or any(isinstance(each, ast.Starred) for each in call.args)
            names = () if is_open else (each.arg for each in call.keywords if each.arg)
            found.add((chain, None if is_open else Call(len(call.args), frozenset(names))))
    return sorted(found, key=str)


def _chain(node, module):
    """Return ``cuda.Stream.synchronize`` for ``cupy.cuda.get_current_stream().synchronize``, or None for other
    modules.
    """
    if isinstance(node, ast.Name):
        return "" if MODULES.get(node.id) == module else None
    if isinstance(node, ast.Call):
        called = _chain(node.func, module)
        return RETURNS.get(called, called) if called else None
    if not isinstance(node, ast.Attribute) or (base := _chain(node.value, module)) is None:
        return None
    return f"{base}.{node.attr}".lstrip(".")


def resolve(module, chain):
    """Return the object that a chain names. If it does not exist, an AttributeError names the missing part."""
    for part in chain.split("."):
        module = getattr(_example(module), part)
    return module


def _example(thing):
    """Return a stream for CuPy's Stream, because only an instance has ``ptr``. Return other classes unchanged."""
    return getattr(thing, "null", thing)


def signatures(function):
    """Return (positional names, keyword names, required names) for each overload. The list is empty without
    documentation.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        pass
    else:
        parameters = [each for each in signature.parameters.values() if each.name != "self"]
        if not any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            others = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
            positional = [each.name for each in parameters if each.name not in others]
            required = {each.name for each in parameters if each.default is each.empty}
            return [(positional, others, required)]
    texts = [function.__doc__ or "", getattr(function.__init__, "__doc__", "") if inspect.isclass(function) else ""]
    lines = [line for text in texts for line in text.splitlines() if re.match(r"(\d+\. )?[\w.]+\(.*\)", line.strip())]
    return [_written(line.strip()) for line in lines if "*args" not in line]


def _written(line):
    """Yield the parameters of a signature that Cython or pybind11 has written, such as ``bytes cubin`` or ``src:
    CodeStream = None``.
    """
    inside, depth, parts = line[line.index("(") + 1 :], 1, [""]
    for character in inside:
        depth += (character in "([{<") - (character in ")]}>")
        if depth == 0:
            break
        if character == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += character
    positional, others, required = [], [], set()
    where = positional
    for part in map(str.strip, parts):
        name = part.partition(":")[0].partition("=")[0].split()[-1] if part else ""
        if name == "*":
            where = others
        elif name and name != "self":
            where.append(name)
            required |= set() if "=" in part else {name}
    return positional, others, required


def takes(function, call):
    """Return whether a function accepts such a call, as far as its signature is documented."""
    said = signatures(function)
    return not said or any(
        call.count <= len(positional)
        and call.names <= {*positional[call.count :], *others}
        and required <= {*positional[: call.count], *call.names}
        for positional, others, required in said
    )


def missing(module, name):
    """Return the used parts of a module that do not exist, or that do not accept a call in pixprep's sources."""
    found, uses = [], used(name)
    assert len(uses) > 10
    for chain, call in uses:
        try:
            function = resolve(module, chain)
        except AttributeError as error:
            found.append(f"{chain}: {error}")
            continue
        if call is not None and not takes(function, call):
            found.append(f"{chain}{call}: it takes {signatures(function)}")
    return found


@pytest.fixture(scope="module")
def cupy():
    with contextlib.suppress(SetupError):  # this call makes CuPy importable without a home folder
        device_for("gpu")
    return pytest.importorskip("cupy", reason="NO CUPY: make gpu-installs runs this with each of its versions")


@pytest.fixture
def fake(tmp_path):
    return fake_cupy.modules(tmp_path)


def test_the_used_parts_of_nvimagecodec_are_in_its_wheel():
    assert missing(nvimgcodec, "nvimgcodec") == []


def test_the_used_parts_of_cupy_are_in_its_wheel(cupy):
    assert missing(cupy, "cupy") == []


def test_the_used_parts_of_cupy_are_in_the_mock(fake):
    assert missing(fake, "cupy") == []


def test_the_decoder_options_are_those_of_nvimagecodec():
    """The names must be checked here, because nvImageCodec does not reject unknown options."""
    words = [each.value for path in OURS for each in ast.walk(ast.parse(path.read_text())) if _is_text(each)]
    options = {option for word in words for option in OPTION.findall(word)}
    assert {"fancy_upsampling", "fast_idct"} <= options
    libraries = [path.read_bytes() for path in Path(nvimgcodec.__file__).parent.rglob("*.so*")]
    assert libraries
    for option in (*options, "no_such_option"):
        assert any(option.encode() in library for library in libraries) == (option != "no_such_option"), option


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_mocks_have_only_what_the_real_libraries_have(cupy, fake):
    """Every name in the mocks' classes, and every parameter of their methods, must exist in the real libraries."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    attributes = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    pairs = {
        fake_cupy.Stream: cupy.cuda.Stream,
        fake_cupy.Device: cupy.cuda.Device,
        fake_cupy.Event: cupy.cuda.Event,
        fake_cupy.Pointer: cupy.cuda.MemoryPointer,
        fake_cupy.Array: cupy.ndarray,
        fake_cupy.MemoryPool: cupy.cuda.PinnedMemoryPool,
        fake.cuda.Module: cupy.cuda.Module,
        fake_cupy.CUDARuntimeError: cupy.cuda.runtime.CUDARuntimeError,
    }
    checked = []
    for played, real in pairs.items():
        assert not issubclass(played, Exception) or issubclass(real, RuntimeError)
        for name in attributes & vars(played).keys():
            checked.append(f"{played.__name__}.{name}")
            assert hasattr(_example(real), name), checked[-1]
            for positional, others, _ in (
                signatures(vars(played)[name]) if inspect.isfunction(vars(played)[name]) else ()
            ):
                assert takes(getattr(real, name), Call(len(positional), frozenset(others))), checked[-1]
    assert len(checked) > 8, checked


def test_driver_errors_are_those_that_an_engine_explains(cupy):
    """The engine catches errors of the decoder and the kernels as RuntimeError."""
    assert issubclass(cupy.cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
