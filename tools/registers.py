"""Print the resources that the CUDA kernels use on each GPU: registers, shared memory, and spilled registers.

    PYTHONPATH=tests python tools/registers.py           every GPU (7 minutes of CPU time)
    PYTHONPATH=tests python tools/registers.py 75 90     GPUs with the compute capabilities 7.5 and 9.0

The table shows the minimum and maximum per GPU and kernel over all sets of options, as NVRTC's assembler reports them.
The exit status is 1 if a kernel spills registers.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from gpu import cuda_builds


def main() -> None:
    """Print the table."""
    builds = cuda_builds.builds()
    spilling = []
    sys.stdout.write(f"{len(builds)} sets of options, NVRTC of CUDA {cuda_builds.cuda()}\n")
    sys.stdout.write("| GPU | kernel | registers | shared bytes | spilled bytes |\n|---|---|---|---|---|\n")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for capability in map(int, sys.argv[1:] or cuda_builds.CAPABILITIES):
            found = pool.map(lambda build, gpu=capability: cuda_builds.usage(*build, gpu), builds)
            rows: dict[str, list[cuda_builds.Usage]] = {}
            for (_, options), kernels in zip(builds, found, strict=True):
                file = "plain" if any("REAL_VALUES" in option for option in options) else "fast"
                for kernel, usage in kernels.items():
                    file = "levels" if kernel == "change_levels" else file
                    rows.setdefault(f"{file}.cu {kernel}", []).append(usage)
                    if usage.spilled or usage.stack:
                        spilling.append(f"sm_{capability} {kernel} {' '.join(options)}: {usage}")
            for name, usages in sorted(rows.items()):
                columns = [f"{min(each)} to {max(each)}" for each in list(zip(*usages, strict=True))[:3]]
                sys.stdout.write(f"| sm_{capability} | {name} | {' | '.join(columns)} |\n")
                sys.stdout.flush()
    sys.exit("\n".join(["registers are spilled:", *spilling]) if spilling else 0)


if __name__ == "__main__":
    main()
