#!/bin/sh
# On a machine with an NVIDIA GPU: install pixprep beside what the machine has, run the GPU tests and the benchmark.
#
#   tools/gpu_run.sh               both
#   tools/gpu_run.sh tests         only the tests; more words go to pytest, -k NAME say
#   tools/gpu_run.sh benchmark     only the benchmark; more words go to benchmarks/gpu.py
#
# JSON comes to $OUT, or benchmarks/results. With wheels in wheels/ (tools/gpu_wheels.sh) no network is used.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=build/venv-gpu
results=${OUT:-benchmarks/results}
what=${1:-all}
[ $# -eq 0 ] || shift

say() { echo "gpu_run: $*"; }
fail() {
    echo "gpu_run: $*" >&2
    exit 1
}

case $what in
all | tests | benchmark) ;;
*) fail "\"$what\" is none of: tests, benchmark" ;;
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
wheels=$(find wheels -name '*.whl' 2>/dev/null | sort)
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "${wheels:-registry}" ]; then
    pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location"
    if [ -n "$wheels" ]; then
        say "installing $(echo "$wheels" | wc -l) wheels of wheels/, no network"
        $pip --no-index --no-deps $wheels
        $pip --no-index --no-deps --no-build-isolation --editable .
    else
        say "wheels/ is empty: installing pixprep[$extra] and pytest from the registry"
        $pip --editable ".[$extra]" "pytest>=9"
    fi
    echo "${wheels:-registry}" >"$venv/.installed"
fi

# CuPy looks for NVRTC in its own environment's packages, in LD_LIBRARY_PATH and in CUDA_PATH: name the machine's.
for folder in $("$python" -c 'import site; print(*site.getsitepackages())'); do
    for libraries in "$folder"/nvidia/*/lib; do
        [ ! -d "$libraries" ] || LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
    done
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# Its own kernels need CUDA's headers too: the toolkit's, or those of the machine's packages.
for root in "${CUDA_PATH:-}" /usr/local/cuda "$("$python" -c 'import site; print(site.getsitepackages()[0])')"/nvidia/cu*; do
    [ ! -f "$root/include/cuda_runtime.h" ] || { export CUDA_PATH="$root" && break; }
done

"$venv/bin/python" -c 'import pixprep.devices.gpu as g, pytest; print("gpu_run: CuPy", g.cupy.__version__, "and nvImageCodec",
    g.nvimgcodec.__version__)' || fail "an import failed: is a wheel missing in wheels/?"
mkdir -p "$results"
status=0
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
if [ "$what" != benchmark ]; then
    say "tests"
    # Plugins that happen to be installed have warnings of their own, which pyproject.toml makes errors. A file is a
    # process: what a crash takes with it is the rest of that file. Where a test hangs is printed after two minutes.
    for name in kernel engine decode; do
        PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PIXPREP_REQUIRE_GPU=1 PIXPREP_GPU_RESULTS="$results/gpu-$name.json" \
            "$venv/bin/python" -m pytest -m gpu -o faulthandler_timeout=120 "tests/gpu/test_$name.py" "$@" ||
            [ $? -eq 5 ] || status=1 # 5: no test of that file was asked for
    done
fi
if [ "$what" != tests ]; then
    [ "$what" = benchmark ] || set --
    say "benchmark"
    "$venv/bin/python" benchmarks/gpu.py --out "$results" "$@" || status=1
fi
say "results in $results; status $status"
exit $status
