"""How images/s would grow with cores, lanes and batch on a GPU: a simulation, with no GPU and no clock.

    python benchmarks/simulation.py            writes docs/gpu-simulation.svg; the page is benchmarks/report.py's

The engine's lanes, its chunks and its locks are played event by event: one thread at a time is in the interpreter, one
chunk at a time in nvImageCodec. What each takes is in ``Machine``, with its source.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from textwrap import fill
from typing import TYPE_CHECKING

import measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "gpu-simulation.svg"
CORES = (1, 2, 4, 8, 16, 32)
BATCHES = (1, 8, 64, 256)
BATCH_COUNT = 40
LEAST, MOST = 8, 128
"""Images of a chunk: those of ``pixprep.decoders.gpu``."""
MOST_THREADS = 16
"""Of nvImageCodec: that of ``pixprep.decoders.gpu``."""
Step = tuple[str, float]
"""What a lane does next: what it needs alone, and for how many us."""


@dataclass(frozen=True)
class Machine:
    """What a photo of 500 x 375 costs, in us. Assumed is what says so.

    Attributes:
        cores: of the host.
        is_hardware: the JPEG engine of the GPU decodes, and not CUDA.
        read_us, queue_us: the interpreter's time before nvImageCodec's call and after it, an image; together the goal
            of the host's part.
        batch_us: the interpreter's time for a batch, however few images it has: 40 us to hand it to another thread and
            to wait, measured, and 60 us of Triton's Python (assumed).
        call_us: of a call of nvImageCodec, however few images it has (assumed).
        huffman_us: the CUDA decoder's part on a core of the host. nvJPEG reads the Huffman codes of images of less than
            a megapixel there; libjpeg-turbo takes this long for it (docs/decisions.md).
        engines: images that the hardware decodes at once; A100's has five (nvImageCodec's source).
        engine_us: of one of them. Five of 3840 x 2160 take 5 ms on an A100 (NVIDIA's developer forum, thread 228533);
            in proportion to the pixels.
        parse_us: what the hardware's decoder does on a core, an image (assumed).
        kernels_us: ours on the GPU, an image: counted instructions (docs/decisions.md).
    """

    cores: int = 16
    is_hardware: bool = False
    read_us: float = 25
    queue_us: float = 15
    batch_us: float = 100
    call_us: float = 100
    huffman_us: float = 400
    engines: int = 5
    engine_us: float = 5000 * 500 * 375 / (3840 * 2160)
    parse_us: float = 10
    kernels_us: float = 0.4

    def decode_us(self, images: int) -> float:
        """One call of nvImageCodec; one core is left to the interpreter."""
        threads = max(1, min(self.cores - 1, MOST_THREADS))
        host_us = self.parse_us if self.is_hardware else self.huffman_us
        host = -(-images // threads) * host_us
        return self.call_us + host + (-(-images // self.engines) * self.engine_us if self.is_hardware else 0)


def chunks(batch: int) -> list[int]:
    """How many images each chunk has, as the engine cuts a batch."""
    most = min(-(-batch // max(1, min(2, batch // LEAST))), MOST)
    return [min(most, batch - begin) for begin in range(0, batch, most)]


def images_per_s(machine: Machine, *, lanes: int, batch: int) -> float:
    """Of batches that follow each other at once."""
    now = 0.0
    for _ in range(BATCH_COUNT):
        now = _run(machine, lanes, batch, now)
    return 1e6 * BATCH_COUNT * batch / now


def _run(machine: Machine, lanes: int, batch: int, begin: float) -> float:
    """When a batch that begins at a time is done."""
    waiting = deque(chunks(batch))
    # With one core, nvImageCodec's threads and the interpreter take turns.
    decoder = "decoder" if machine.cores > 1 else "interpreter"

    def lane() -> Iterator[Step]:
        while waiting:
            images = waiting.popleft()
            yield "interpreter", images * machine.read_us
            yield decoder, machine.decode_us(images)
            yield "interpreter", images * machine.queue_us
            yield "GPU", images * machine.kernels_us

    free: defaultdict[str, float] = defaultdict(float)
    order = count()
    events = [(begin + machine.batch_us, next(order), lane()) for _ in range(lanes)]
    end = begin
    while events:
        now, _, steps = heapq.heappop(events)
        step = next(steps, None)
        if step is None:
            end = max(end, now)
            continue
        what, us = step
        free[what] = max(now, free[what]) + us
        heapq.heappush(events, (free[what], next(order), steps))
    return end


def lines() -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Thousands of images/s, for each panel and line."""

    def over_cores(*, is_hardware: bool) -> dict[str, list[tuple[str, float]]]:
        machines = [Machine(cores=cores, is_hardware=is_hardware) for cores in CORES]
        return {
            f"batch {batch}": [(str(each.cores), images_per_s(each, lanes=2, batch=batch) / 1e3) for each in machines]
            for batch in BATCHES
        }

    return {
        "CUDA decoder, by cores": over_cores(is_hardware=False),
        "hardware decoder, by cores": over_cores(is_hardware=True),
        "16 cores, by batch (HW: hardware)": {
            f"{'HW' if is_hardware else 'CUDA'}, {lanes} lane{'s' * (lanes > 1)}": [
                (str(batch), images_per_s(Machine(is_hardware=is_hardware), lanes=lanes, batch=batch) / 1e3)
                for batch in BATCHES
            ]
            for is_hardware in (False, True)
            for lanes in (1, 2)
        },
    }


def text() -> str:
    """The paragraph of docs/performance.md."""
    few, many, hardware = (
        images_per_s(machine, lanes=2, batch=256)
        for machine in (Machine(cores=4), Machine(cores=16), Machine(cores=16, is_hardware=True))
    )
    one, two = (images_per_s(Machine(is_hardware=True), lanes=lanes, batch=256) for lanes in (1, 2))
    return fill(
        "`benchmarks/simulation.py` plays the engine's lanes, chunks and "
        "locks, with photos of 500 x 375. It takes published and counted times for the GPU, our own for the host, and "
        f"40 us of the interpreter's time an image. The CUDA decoder needs cores, for it reads Huffman codes on them: "
        f"{few / 1e3:.0f},000 images/s with 4 cores and {many / 1e3:.0f},000 with 16 (batches of 256, two lanes). The "
        f"hardware decoder of an A100 does not: {hardware / 1e3:.0f},000, which is the interpreter's bound. A second "
        f"lane then gives {two / one:.1f} times as much.",
        120,
    )


def figure() -> Figure:
    """The chart."""
    import plots  # noqa: PLC0415  (it needs matplotlib)

    drawn, panels = plots.small_multiples("A SIMULATION: thousands of images/s on a GPU that no one has measured", 3)
    colours = (plots.GREY, plots.ORANGE, plots.PURPLE, plots.BLUE)
    for axes, (title, series) in zip(panels, lines().items(), strict=True):
        plots.plot(axes, title, series, dict(zip(series, colours, strict=True)), {}, top=30)
    return drawn


def main() -> None:
    """Draw the chart."""
    import plots  # noqa: PLC0415  (it needs matplotlib)

    with plots.mpl.rc_context(plots.STYLE):
        (measure.ROOT / "docs" / NAME).write_text(plots.svg(figure(), "a simulation"), encoding="utf-8")


if __name__ == "__main__":
    main()
