"""Number of cores that this process may use. All default numbers of threads are derived from it.

``build`` copies this file into the model that runs ONNX files. The file therefore does not import pixprep.
"""

import math
import os
from contextlib import suppress
from pathlib import Path


def cores(root: Path = Path("/")) -> int:
    """Count the cores in the CPU affinity, or fewer if a cgroup limits the CPU time.

    The CPU limit of a container is a cgroup quota, which the affinity does not show. The smallest quota of the
    process's cgroup and its ancestors applies, rounded up to full cores.

    Args:
        root: Folder that contains ``proc`` and the mounted cgroups. Tests pass a temporary folder.
    """
    count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            for mount in mounts:
                fields, _, kind = mount.partition(" - ")
                top, point = fields.split()[3:5]
                name, _, options = kind.split()[:3]
                if controllers and name == "cgroup" and "cpu" in options.split(","):
                    files = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]  # a quota of -1 means unlimited
                elif not controllers and name == "cgroup2":
                    files = ["cpu.max"]  # a quota of "max" means unlimited
                else:
                    continue
                inside = Path(path).relative_to(top) if Path(path).is_relative_to(top) else Path()
                for each in (inside, *inside.parents):
                    with suppress(OSError, ValueError):  # the root cgroup does not have a quota
                        texts = [(root / point[1:] / each / file).read_text(encoding="utf-8") for file in files]
                        quota, period = map(int, " ".join(texts).split())
                        if quota > 0 and period > 0:
                            count = min(count, math.ceil(quota / period))
    return count
