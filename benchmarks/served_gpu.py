"""What Triton serves of the engine on a GPU: images/s and latencies, with the engine's own images/s beside them.

python benchmarks/served_gpu.py                three minutes on an H200
python benchmarks/served_gpu.py --device cpu   a rehearsal without one
"""

from __future__ import annotations

import importlib
from typing import Any

import measure
import served
import workloads


def main() -> None:
    """Measure, and write one JSON file."""
    parser = measure.options(__doc__)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="of the engine beside it")
    parser.add_argument("--size", choices=workloads.SIZES, default="500x375")
    parser.add_argument("--photos", type=int, default=128, help="different ones")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round of the engine; a load lasts 4 times")
    arguments = parser.parse_args()

    gpu = importlib.import_module("gpu") if arguments.device == "gpu" else None
    machine = gpu.machine() if gpu else {"gpu": "none"}
    packages = ("pixprep", "numpy", "nvidia-pytriton", "tritonclient", "onnxruntime-gpu")
    workload = workloads.Workload(arguments.size, [workloads.SIZES[arguments.size]], arguments.photos, 1)
    images, facts = workloads.make(workload, workloads.real_photos())
    results: dict[str, Any] = {
        "benchmark": "served_gpu",
        "date": arguments.date,
        **measure.surroundings((*packages, *(gpu.PACKAGES if gpu else ()))),
        "machine": machine,
        "photos": {"size": arguments.size, **facts},
        **served.measure_all(images, {}, seconds=arguments.seconds, full=True, device=arguments.device),
    }
    measure.write(arguments, f"served-{arguments.date}-{machine['gpu']}", results)
    for line in served.summary(results):
        measure.say(line)


if __name__ == "__main__":
    main()
