"""Builds the shim around a plan's kernels with the system's compiler, and launches the kernels on NumPy memory.

If this module is run as a program, it runs the cases under AddressSanitizer, which must be loaded before Python.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import as_strided

from pixprep.engine.kernels.kernel import CpuKernel
from pixprep.gpu import launch, structs
from pixprep.gpu.canvases import canvas_plan, needs_canvases
from pixprep.gpu.fill import PixelBuffer
from pixprep.gpu.targets import split

COMPILER = shutil.which("g++") or shutil.which("clang++")
SHIM = Path(__file__).parents[1] / "shim" / "shim.cpp"


def build(plan, folder, *, sanitize=False, plain=False):
    """Return the shim for the types of a plan, as a loaded library."""
    code, options = launch.code(plan, plain=plain), launch.options(plan, plain=plain)
    return build_code(code, options, folder, sanitize=sanitize)


def build_levels(plan, folder, *, sanitize=False):
    """Return the shim of the kernels for steps on pixel values, for the types of a plan."""
    return build_code(launch.levels_code(), launch.levels_options(plan), folder, sanitize=sanitize)


def build_code(code, options, folder, *, sanitize=False):
    """Return the shim around kernels that are compiled with these options, as a loaded library."""
    name = "".join(c if c.isalnum() else "_" for c in "".join(options)) + "_asan" * sanitize
    name += f"_{zlib.crc32(SHIM.read_bytes() + code.encode()):08x}"
    path = Path(folder, f"{name}.so")
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:  # concurrent runs must see only complete libraries
            written, made = Path(own, "shim.cu"), Path(own, "shim.so")
            written.write_text(code, encoding="utf-8")
            flags = "-std=c++17 -O1 -ffp-contract=off -U_FORTIFY_SOURCE -shared -fPIC" + " -g" * sanitize
            command = [COMPILER, *flags.split(), *options]
            sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
            if COMPILER.endswith("g++") and not COMPILER.endswith("clang++"):
                # without this option, variables in a named section have no guards
                sanitizers.append("-fsanitize-sections=shared_memory")
            command += [f'-DSOURCE="{written}"', *sanitizers * sanitize, "-o", str(made), str(SHIM)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            made.replace(path)
    return ctypes.CDLL(str(path))


def build_all(plans, folder, *, sanitize=False, plain=False):
    """Build the shims for all plans in advance, two at a time."""
    makers = {}
    for plan in plans:
        makers[tuple(launch.options(plan, plain=plain))] = partial(build, plain=plain), plan
        if needs_canvases(plan):
            makers[("levels", *launch.levels_options(plan))] = build_levels, plan
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one[0](one[1], folder, sanitize=sanitize), makers.values()))


def odd(image, index):
    """Return a copy with unaligned rows and gaps between the rows. Also return the bytes before the copy, which must
    not be read.
    """
    height, width, channels = image.shape
    pitch = width * channels + 5 * index % 7
    guard = np.full(8 + index % 8 + (height - 1) * pitch + width * channels, 55, np.uint8)
    copy = as_strided(guard[8 + index % 8 :], image.shape, (pitch, channels, 1))
    copy[:] = image
    return copy, guard[:8]


def poison(guards, *, undo=False):
    """If AddressSanitizer is loaded, make it reject accesses to the guards. Accesses beyond an array are rejected in
    any case.
    """
    function = getattr(ctypes.CDLL(None), f"__asan_{'un' * undo}poison_memory_region", None)
    if function is not None:
        for guard in guards:
            function(ctypes.c_void_p(guard.ctypes.data), ctypes.c_size_t(guard.nbytes))


class Room:
    """Replacement for ``launch.Room``: poisoned host memory, which the kernels read without a copy."""

    def upload(self, n_bytes):
        self.memory = np.full(n_bytes, 99, np.uint8)
        return self.memory, self.memory.ctypes.data

    def middle(self, n_bytes):
        self.between = np.empty(max(1, n_bytes), np.uint8)
        return self.between.ctypes.data


def placed(plan, images):
    """Return a placement for each image. Images of equal size share a placement, as in a batch."""
    placements = {image.shape[:2]: plan.geometry.place(*image.shape[:2]) for image in images}
    return [placements[image.shape[:2]] for image in images]


def prepare(plan, images, outs, *, room, placements=None, **options):
    """Return the prepared launch of a plan."""
    pixels = [PixelBuffer(image.ctypes.data, *image.shape[:2], image.strides[0]) for image in images]
    tensors, placements = [out.ctypes.data for out in outs], placements or placed(plan, images)
    if plan.spec.patches is None:
        layouts = np.array([structs.layout(plan.spec.view(out, "chw")) for out in outs], structs.LAYOUT)
    else:
        (pixels, placements, tensors, layouts), is_padded = split(plan.spec, pixels, placements, tensors)
        for out, is_one in zip(outs, is_padded, strict=True):
            out[...] = 0 if is_one else out
    return launch.prepare(plan, pixels, placements, tensors, layouts, room=room, **options)


def empty(plan, placements, value):
    """Return one tensor per placement, filled with ``value``."""
    return [np.full(plan.spec.shape_of(*each.views), value, plan.spec.array_dtype) for each in placements]


def run(library, plan, images, *, placements=None, levels=None, plain=False, middle_bytes=1 << 62, corrupt=None):
    """Return the tensors that the real kernels compute for uint8 (height, width, channels) images.

    Args:
        library: Library that ``build`` returned.
        plan: Plan to run.
        images: Images on the host.
        placements: Placements of the images that replace the plan's own.
        levels: Library that ``build_levels`` returned, if the plan needs it.
        plain: Whether the library contains the plain kernels.
        middle_bytes: See ``launch.prepare``.
        corrupt: Function that may change the launch.
    """
    images, guards = zip(*(odd(image, index) for index, image in enumerate(images)), strict=True)
    outs = empty(plan, placements or placed(plan, images), 77)
    room = Room()  # the memory must live until the end
    prepared = prepare(plan, images, outs, room=room, placements=placements, plain=plain, middle_bytes=middle_bytes)
    if corrupt:
        corrupt(prepared)
    passes = canvas_plan(plan)
    constants = [structs.constants(each) for each in (passes, plan)]
    passes_struct, struct = (
        structs.plan_struct(each, one.ctypes.data) for each, one in zip((passes, plan), constants, strict=True)
    )
    poison(guards)
    for part in prepared.parts:
        grids = [(ctypes.c_uint * 3)(*grid) for grid in (part.first_grid, part.second_grid, part.levels_grid)]
        address = ctypes.c_void_p(prepared.images.ctypes.data + part.first * structs.IMAGE.itemsize)
        library.run_first_pass(grids[0], address)
        canvases = prepared.memory.ctypes.data + (part.canvases or 0)
        library.run_second_pass(grids[1], address, ctypes.c_void_p(passes_struct.ctypes.data))
        if part.canvases is not None:
            levels.run_change_levels(grids[2], ctypes.c_void_p(canvases), ctypes.c_void_p(struct.ctypes.data))
    poison(guards, undo=True)
    return outs


def expected(plan, images, placements=None):
    """Return the tensors that the CPU kernel computes. Other tests check that these tensors equal Pillow's."""
    kernel = CpuKernel(plan)
    outs = empty(plan, placements or placed(plan, images), 78)
    padded = [np.ascontiguousarray(np.dstack([i, i[:, :, :1]])) if i.shape[2] == 3 else i for i in images]
    kernel.run(padded, placements or placed(plan, images), outs, range(len(outs)))
    return outs


def sanitized(folder):
    """Run every seventh resize, all patches, and all lists of steps on pixel values under sanitizers.

    The stride of seven selects different geometries. An access outside the arrays ends the process with a report.
    """
    from gpu.cuda_cases import cases, patch_cases, synthetic_library  # noqa: PLC0415  (only this program runs them)
    from gpu.level_cases import cases as level_cases  # noqa: PLC0415

    count = 0
    with synthetic_library():
        found = [*cases(every=7), *patch_cases()]
        made = [*((plan, images, None) for plan, images in found), *level_cases()]
        build_all((plan for plan, *_ in made), folder, sanitize=True)
        for plan, images, placements in made:
            levels = build_levels(plan, folder, sanitize=True) if needs_canvases(plan) else None
            found = run(build(plan, folder, sanitize=True), plan, images, placements=placements, levels=levels)
            for ours, theirs in zip(found, expected(plan, images, placements), strict=True):
                assert np.array_equal(ours, theirs)
                count += 1
    sys.stdout.write(f"{count} images\n")


if __name__ == "__main__":
    sanitized(sys.argv[1])
