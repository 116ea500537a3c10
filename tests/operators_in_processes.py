"""Operators that run in processes, which import this module."""

import os
import signal
import time

import numpy as np

import pixprep as pp


@pp.operator("acme.grain", version=1, processes=2)
def grain(pixels, *, most: int = 9, rng: np.random.Generator):
    """Levels with something added."""
    pixels //= 2
    return (pixels + rng.integers(0, most, pixels.shape)).astype(np.uint8)


@pp.operator("acme.means", version=1, place="tensor", shape=(3,), dtype="float32", processes=1)
def means(tensor):
    """The mean of each channel."""
    return tensor.mean(axis=(1, 2), dtype=np.float32)


@pp.operator("acme.who", version=1, place="tensor", shape=(1,), dtype="int32", processes=1)
def who(_):
    """The number of the process."""
    return np.array([os.getpid()], np.int32)


class Odd(Exception):  # noqa: N818
    """An exception that no pickle brings back."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def refuse(_):
    raise pp.ImageError("OPERATOR", "too dark")


def fail(_):
    raise Odd(1, "/etc/shadow")


FAILURES = {
    "an exception": (fail, "failed on this image (Odd); the log says more"),
    "an exit": (lambda _: (_ for _ in ()).throw(SystemExit(3)), "failed on this image (SystemExit); the log says more"),
    "words for the client": (refuse, "too dark"),
    "another shape": (lambda p: p[1:], "gave uint8 (7, 8, 3), not ndarray of uint8 (8, 8, 3)"),
    "another dtype": (lambda p: p / 2, "gave float64 (8, 8, 3), not ndarray of uint8 (8, 8, 3)"),
    "nothing": (lambda _: None, "gave NoneType, not ndarray of uint8 (8, 8, 3)"),
    "a result that no pickle holds": (
        lambda _: lambda: None,
        "failed on this image (",
    ),
    "a result that no pickle brings back": (
        lambda _: fail.__get__(open),
        "failed on this image (AttributeError)",
    ),
    "its end": (lambda _: os._exit(3), "its process ended on this image, with exit status 3"),
    "a kill": (lambda _: os.kill(os.getpid(), signal.SIGKILL), "ended on this image, by SIGKILL, which the kernel"),
}


@pp.operator("acme.failing", version=1, processes=2)
def failing(pixels, *, how: str):
    """Fail on a dark image."""
    time.sleep(0.01)
    return FAILURES[how][0](pixels) if pixels[0, 0, 0] < 128 else pixels


def plain(pixels):
    """A function that stands under its own name, and its operator under another."""
    return pixels


renamed = pp.operator("acme.renamed", version=1, processes=1)(plain)


@pp.operator("acme.twofold", version=1, processes=1)
def twofold(pixels):
    """The first of two versions of the same name."""
    return pixels


first = twofold


@pp.operator("acme.twofold", version=2, processes=1)
def twofold(pixels):
    """The second."""
    return 255 - pixels
