"""Tests that the number of cores depends on the CPU affinity and on every cgroup quota, using files like those of
Linux.
"""

import os

import pytest

from pixprep.cores import cores
from pixprep.engine.devices import device_for
from pixprep.serving.triton.config import options

V2 = "30 23 0:27 {top} /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate"
V1 = "33 31 0:30 {top} /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct"
OTHERS = (
    "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)
CPU = "/sys/fs/cgroup/cpu,cpuacct"


def tree(folder, mount, group, files):
    """Create a folder with files like those of a Linux machine. For cgroups v1, the string "quota period" is split into
    two files.
    """
    for path, text in {
        "/proc/self/mountinfo": OTHERS + mount + "\n",
        "/proc/self/cgroup": group + "\n",
        **files,
    }.items():
        parts = {path: text}
        if path.endswith("/v1"):
            quota, period = text.split()
            parts = {path[:-2] + "cpu.cfs_quota_us": quota, path[:-2] + "cpu.cfs_period_us": period}
        for name, content in parts.items():
            (folder / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (folder / name[1:]).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "400000 100000\n"}), 4),
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "max 100000\n"}), 40),
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "150000 100000\n"}), 2),
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "5000 100000\n"}), 1),
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "9900000 100000\n"}), 40),
        ((V2.format(top="/"), "0::/", {}), 40),
        ((V2.format(top="/"), "0::/", {"/sys/fs/cgroup/cpu.max": "what\n"}), 40),
        (
            (
                V2.format(top="/"),
                "0::/pods/one/main",
                {
                    "/sys/fs/cgroup/pods/cpu.max": "800000 100000\n",
                    "/sys/fs/cgroup/pods/one/cpu.max": "150000 50000\n",
                    "/sys/fs/cgroup/pods/one/main/cpu.max": "max 100000\n",
                    "/sys/fs/cgroup/pods/two/cpu.max": "100000 100000\n",
                },
            ),
            3,
        ),
        # The container sees the paths of the host, but has mounted only its own cgroup and the cgroups below it.
        ((V2.format(top="/docker/ab"), "0::/docker/ab", {"/sys/fs/cgroup/cpu.max": "200000 100000\n"}), 2),
        (
            (
                V2.format(top="/docker/ab"),
                "0::/docker/ab/in",
                {"/sys/fs/cgroup/cpu.max": "500000 100000", "/sys/fs/cgroup/in/cpu.max": "300000 100000"},
            ),
            3,
        ),
        ((V2.format(top="/"), "0::/../other", {"/sys/fs/cgroup/cpu.max": "600000 100000\n"}), 6),
        ((V1.format(top="/"), "4:cpu,cpuacct:/\n3:memory:/x", {f"{CPU}/v1": "400000 100000"}), 4),
        ((V1.format(top="/"), "4:cpu,cpuacct:/\n3:memory:/x", {f"{CPU}/v1": "-1 100000"}), 40),
        (
            (
                V1.format(top="/"),
                "4:cpuacct,cpu:/pod/in\n0::/",
                {f"{CPU}/pod/v1": "250000 100000", f"{CPU}/pod/in/v1": "700000 100000"},
            ),
            3,
        ),
        ((V1.format(top="/docker/ab"), "4:cpu,cpuacct:/docker/ab", {f"{CPU}/v1": "700000 100000"}), 7),
    ],
)
def test_the_smallest_quota_of_a_cgroup_and_its_ancestors_limits_the_cores(monkeypatch, tmp_path, machine, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(40))
    assert cores(tree(tmp_path, *machine)) == expected


def test_without_proc_only_the_affinity_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    assert cores(tmp_path) == 7


def test_the_workers_of_an_engine_and_the_threads_of_instances_follow(monkeypatch):
    monkeypatch.setattr("pixprep.engine.cpu.cores", lambda: 4)
    assert device_for("cpu").lanes == 4
    monkeypatch.setattr("pixprep.serving.triton.config.cores", lambda: 40)
    assert options({"instance_group": [{"count": 8}]}).engine.threads == 5
