"""Builds the CUDA kernels with NVRTC for every GPU, as pixprep does, and reads the resources that each build uses."""

import itertools
import re
from typing import NamedTuple

import pytest

import pixprep as pp
from gpu.cuda_cases import patch_cases, plan_of, resizes, special_tensors, value_plans
from pixprep.gpu import launch, nvrtc
from pixprep.plan.profiles import PROFILES

CAPABILITIES = (75, 80, 86, 89, 90, 100, 120)
SLOW = pytest.mark.slow(reason="3 s per GPU; a build for the oldest GPU usually works for newer ones")
EACH = [CAPABILITIES[0], *(pytest.param(newer, marks=SLOW) for newer in CAPABILITIES[1:])]
"""``CAPABILITIES`` as parameters of tests."""
REPORT = "--ptxas-options=-v"
USAGE_PATTERN = re.compile(
    r"Function properties for (?P<kernel>\w+)\n"
    r"\D+(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r"\D+(?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?"
)


class Usage(NamedTuple):
    """Resources of one kernel: registers per thread, and bytes of memory per block or thread."""

    registers: int
    shared: int
    spilled: int
    stack: int


def cuda():
    """Return the major version of the CUDA release whose NVRTC is installed, or None."""
    for version in (13, 12):
        try:
            nvrtc.library(version)
        except RuntimeError:
            continue
        return version
    return None


def builds():
    """Return (code, options) for every set of options that a plan can request, for the fast and for the plain kernels.

    Plans whose number of channels differs from the image's are built for three dtypes, with only one resize.
    """
    made = {}
    for plan in special_tensors():
        for plain in (False, True):
            made[tuple(launch.options(plan, plain=plain))] = launch.code(plan, plain=plain)
        made[tuple(launch.levels_options(plan))] = launch.levels_code()
    for plan in value_plans():
        made[tuple(launch.options(plan))] = launch.code(plan)
    for plan, _ in patch_cases():
        for plain in (False, True):
            made[tuple(launch.options(plan, plain=plain))] = launch.code(plan, plain=plain)
        made[tuple(launch.levels_options(plan))] = launch.levels_code()
    for color, layout, dtype in itertools.product(("rgb", "gray"), ("chw", "hwc"), ("uint8", "float16", "float32")):
        tensor = pp.tensor(dtype=dtype, layout=layout)
        for resize in resizes():
            if dtype == "uint8" and resize["filter"] in PROFILES[resize["like"]].real:
                continue
            is_real = resize["filter"] in PROFILES[resize["like"]].real
            for changes in ([], [] if is_real else [pp.contrast(1.2)]):
                plan = plan_of(pp.resize(height=30, width=30, **resize), *changes, tensor, color=color)
                for plain in (False, True):
                    made[tuple(launch.options(plan, plain=plain))] = launch.code(plan, plain=plain)
                made[tuple(launch.levels_options(plan))] = launch.levels_code()
    return [(code, options) for options, code in made.items()]


def usage(code, options, capability):
    """Return the resources of each kernel by name, as NVIDIA's assembler reports them for the machine code."""
    built = nvrtc.compiled(code, [*options, REPORT], capability=capability, cuda=cuda())
    assert "warning" not in built.remarks, built.remarks
    found = {}
    for said in USAGE_PATTERN.finditer(f"{built.remarks}\n"):
        numbers = {name: int(text or 0) for name, text in said.groupdict().items() if name != "kernel"}
        spilled = numbers.pop("stores") + numbers.pop("loads")
        found[said["kernel"]] = Usage(spilled=spilled, **numbers)
    return found
