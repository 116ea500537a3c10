"""Tests that the installed wheel has all functions without access to the sources."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from support.containers import copied, copy

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "backend" / "pixprep"
DRIVER = ROOT / "tests" / "shim" / "drive_kernels.c"
PHOTO = ROOT / "client_examples" / "images" / "china.jpg"

COMPILES = pytest.mark.slow(reason="a dozen seconds of compilation; make test builds and runs one wheel")
JOB = """
import sys, pixprep as pp
from pixprep.engine.kernels import native
assert sys.argv[1] in pp.__file__, pp.__file__
assert sys.argv[1] in native.library()._name, native.library()._name
pp.presets.imagenet().save("pipeline.json")
(tensor,) = pp.Engine(pp.load("pipeline.json")).run([open(sys.argv[2], "rb").read()])
print(tensor.shape, tensor.dtype)
from pixprep.cli import main
assert main(["explain", "pipeline.json", "--output", "stages.png"]) == 0
assert open("stages.png", "rb").read(4)[1:] == b"PNG"
"""


def built(folder, *options, source=ROOT, **environment):
    """Return the distributions, including the wheel, that ``build`` creates from the sources."""
    build = [sys.executable, "-m", "build", *options, "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return max(folder.iterdir(), key=lambda path: path.suffix == ".whl")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("dist"), "--wheel")


def libraries(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.endswith(".so")}


def test_the_wheel_contains_the_package_and_tritons_entry_point_and_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "pixprep/engine/engine.py" in names
    assert "pixprep/serving/triton/backend_model.py" in names
    assert {f"pixprep/serving/page/page.{kind}" for kind in ("html", "css", "js")} <= set(names)
    assert {"pixprep/photos/china.jpg", "pixprep/photos/flower.jpg", "pixprep/photos/CREDITS.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "backend", "tools"))]


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "Dockerfile.cpu"])
def test_the_files_that_a_dockerfile_copies_build_the_same_wheel(wheel, reader, tmp_path, dockerfile):
    """Docker can access only these files of the checkout."""
    for sources, target in copied(ROOT / "deploy" / dockerfile):
        copy([ROOT / each for each in sources], tmp_path / target.lstrip("/"))
    made = built(tmp_path / "dist", "--wheel", source=tmp_path / "source", PIXPREP_CC=reader)
    with zipfile.ZipFile(made) as ours, zipfile.ZipFile(wheel) as whole:
        assert sorted(ours.namelist()) == sorted(whole.namelist())


LEVELS = {f"pixprep/engine/kernels/pixprep-x86-64{level}.so" for level in ("", "-v2", "-v3", "-v4")}


def test_the_wheel_is_for_one_platform_and_every_python(wheel):
    assert wheel.name == "pixprep-0.1.0-py3-none-manylinux_2_17_x86_64.whl"
    assert libraries(wheel) == LEVELS


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return built(tmp_path_factory.mktemp("sdist"), "--sdist")


def test_the_source_distribution_contains_all_sources_and_nothing_compiled(sources):
    with tarfile.open(sources) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    code = [path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.[ch]")]
    assert {"hatch_build.py", "pyproject.toml", *code} <= names
    assert not [name for name in names if name.endswith(".so")]


@COMPILES
def test_the_source_distribution_compiles_with_a_different_compiler(sources, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("NO GCC: apt-get install gcc")
    (tmp_path / "source").mkdir()
    # tarfile in Debian's Python 3.11.2 does not support filters
    subprocess.run(["tar", "-xf", sources, "-C", tmp_path / "source"], check=True)
    (source,) = (tmp_path / "source").iterdir()
    made = built(tmp_path / "dist", "--wheel", source=source, PIXPREP_CC="gcc")
    assert made.name == "pixprep-0.1.0-py3-none-linux_x86_64.whl"
    assert libraries(made) == LEVELS
    shutil.unpack_archive(made, tmp_path / "unpacked", "zip")
    assert kernel_hash([], "x86_64", tmp_path / "unpacked", tmp_path) == kernel_hash(
        [], "x86_64", PACKAGE.parent, tmp_path
    )


@COMPILES
def test_the_library_for_aarch64_gives_the_same_results(tmp_path):
    made = built(tmp_path / "dist", "--wheel", PIXPREP_ARCHITECTURE="aarch64")
    assert made.name == "pixprep-0.1.0-py3-none-manylinux_2_17_aarch64.whl"
    assert libraries(made) == {"pixprep/engine/kernels/pixprep-aarch64.so"}
    libc = Path("/usr/aarch64-linux-gnu")
    if shutil.which("qemu-aarch64") is None or not libc.exists():
        pytest.skip("NO QEMU: the library for aarch64 does not run: apt-get install qemu-user libc6-arm64-cross")
    shutil.unpack_archive(made, tmp_path / "unpacked", "zip")
    found = kernel_hash(["qemu-aarch64", "-L", str(libc)], "aarch64", tmp_path / "unpacked", tmp_path)
    assert found == kernel_hash([], "x86_64", PACKAGE.parent, tmp_path)
    assert found != kernel_hash([], "x86_64", PACKAGE.parent, tmp_path, rounds=59)


def kernel_hash(words, architecture, folder, work, rounds=60):
    """Return the hash that shim/drive_kernels.c prints when it uses the package's library at the lowest CPU level."""
    program = work / f"drive-{architecture}"
    cache = {"ZIG_GLOBAL_CACHE_DIR": str(work / "cache"), "ZIG_LOCAL_CACHE_DIR": str(work / "cache")}
    if not program.exists():
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.2.17"]
        flags = [
            "-O1",
            "-fno-sanitize=undefined",
            f"-I{PACKAGE / 'engine' / 'kernels'}",
            str(DRIVER),
            "-ldl",
            "-o",
            str(program),
        ]
        subprocess.run([*compiler, *flags], check=True, env=os.environ | cache)
    library = min((folder / "pixprep" / "engine" / "kernels").glob("*.so"), key=lambda path: path.stem)
    run = [*words, str(program), str(library), str(rounds)]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_the_installed_wheel_works_without_the_sources(wheel, tmp_path):
    # The dependencies come from this environment, because the test is about the wheel itself.
    venv.create(tmp_path / "env", with_pip=False, system_site_packages=False)
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    shutil.unpack_archive(wheel, site, "zip")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    # .pth files are ignored, so the editable installation of the checkout is not used
    command = [str(tmp_path / "env" / "bin" / "python"), "-c", JOB, str(site), str(PHOTO)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(libraries), "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(3, 224, 224) float32\npipeline\n")
