"""Fuzz pixprep with damaged images, base64 and pipeline files. Each must return a result or a documented error.

    PYTHONPATH=tests .venv/bin/python tools/fuzz.py --count 20000

Each input depends only on the seed and the number of the input, so ``--first N --count 1`` runs input N again. If an
input raises an undocumented error, gives a wrong result, takes too long or crashes the process, the program prints its
number and returns exit status 1.
"""

import argparse
import base64
import json
import os
import re
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

import pixprep as pp
from pixprep.engine.decoders import DAMAGES, USUAL, Damage
from pixprep.engine.decoders.text import described, from_base64
from pixprep.errors import REASONS
from support.canonical import CANONICAL
from support.clips import CODECS, clip
from support.decoding import decoded
from support.images import jpeg, jpegs, others, stills

LIMIT_S = 5
# Maximum growth of the process. Two images of 2 megapixels have 16 MB, and the libraries keep some freed memory.
MAX_GROWTH_MIB = 400
SPLICES = (
    b"\xff\xd8",
    b"\xff\xd9",
    b"\xff\xda",
    b"\xff\xc4\x00\x02",
    b"\xff\xdd\x00\x04\x00\x01",
    b"\xff\xd0",
    b"\x00" * 64,
)
BOXES = (b"moov", b"mdat", b"trak", b"\x1aE\xdf\xa3", b"\0\0\0\x01", b"\x18Sg\x80", b"LIST", b"\xff" * 8, b"\0" * 64)
WORDS = (b"null", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'""', b"99999999999999999999", b"true", b'"from"', b"[" * 200)
CHARACTERS = (
    b"=",
    b"==",
    b"\r\n",
    b" " * 80,
    b"-_+/",
    b"\0",
    b"%2B",
    b"\xc3\xa9",
    b"data:image/png;base64,",
    b'{"b64": "',
)
LETTERS = re.compile(rb"[A-Za-z0-9+/_-]+(={0,2})")
VALUE = re.compile(rb'"[^"]*"|-?[0-9.]+|true|false|null')
Numbers = np.random.Generator


def mutated(encoded: bytes, numbers: Numbers, words: tuple[bytes, ...]) -> bytes:
    """Apply one to five random changes. Half of them are in the first 700 bytes, which contain the headers."""
    changed = bytearray(encoded)
    for _ in range(numbers.integers(1, 6)):
        end = len(changed) if numbers.random() < 0.5 else min(700, len(changed))
        at = int(numbers.integers(end)) if end else 0
        length = int(numbers.integers(1, 64))
        match numbers.integers(8):
            case 0 | 1:
                changed[at : at + 1] = numbers.bytes(1)
            case 2:
                changed[at : at + 2] = int(numbers.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF])).to_bytes(2, "big")
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = numbers.bytes(length)
            case 5:
                changed[at:at] = changed[at // 2 : at // 2 + length]
            case 6:
                changed[at:at] = words[numbers.integers(len(words))]
            case _:
                del changed[at if numbers.random() < 0.3 else len(changed) :]
    return bytes(changed)


class Images:
    """Fuzzes the image decoders with every damage policy.

    Each input is decoded alone, and also between two valid images.
    """

    def __init__(self) -> None:
        self._seeds = [encoded for name, encoded in {**jpegs(), **others(), **stills()}.items() if name != "photo"]
        formats = (*USUAL, *sorted({name.split()[0] for name in stills()}))
        self._limits = pp.Limits(max_pixels=2_000_000, formats=formats)
        small = pp.Pipeline([pp.decode(), pp.resize(24), pp.center_crop(20), pp.tensor(dtype="uint8")])
        self._plan = small.plan
        self._plain = [jpeg(np.full((500, 500, 3), level, np.uint8)) for level in (0, 255)]
        self._engines = [
            (damage, pp.Engine(pipeline, damage=damage, threads=2, limits=self._limits))
            for damage in DAMAGES
            for pipeline in (small, pp.Pipeline([pp.decode(reduced=True), *small.ops[1:]]))
        ]
        self._good = jpegs()["baseline"]
        self._expected = self._engines[0][1].run([self._good])[0]

    def run(self, numbers: Numbers) -> str:
        """Decode one input. Return the reason if it was rejected, or else ``ok`` or ``recovered``."""
        encoded = mutated(self._seeds[numbers.integers(len(self._seeds))], numbers, SPLICES)
        damage, engine = self._engines[numbers.integers(len(self._engines))]
        batch = engine.run_batch([self._good, encoded, self._good])
        (tensor,) = batch.outputs.values()
        for index in (0, 2):
            assert np.array_equal(tensor[index], self._expected), "a neighbour changed"
        error = batch.errors[1]
        if error is not None:
            assert error.reason in REASONS
            assert str(error).isprintable()
            assert len(str(error)) < 300
            assert not tensor[1].any(), "the tensor of a rejected image is not zero"
            return error.reason
        self._decode(encoded, damage, numbers)
        return "recovered" if batch.recovered else "ok"

    def _decode(self, encoded: bytes, damage: Damage, numbers: Numbers) -> None:
        """Decode an image, and check that its pixels do not contain data of a previously decoded image."""
        plan = replace(self._plan, is_gray=bool(numbers.integers(2)))
        seen = []
        for plain in self._plain:
            result = decoded(encoded, plan, limits=self._limits, damage=damage, before=[plain])
            assert not isinstance(result, pp.ImageError), f"only one of gray and colour decoding fails: {result}"
            seen.append(result.pixels[:, :, :3])
        assert np.array_equal(*seen), "the pixels contain uninitialized memory"


class Clips:
    """Fuzzes the video decoders, with the input between two valid clips."""

    def __init__(self) -> None:
        self._seeds = [clip(name, 24) for name in CODECS]
        pipeline = pp.Pipeline(
            [
                pp.decode_video(frames=5, short="repeat"),
                pp.resize(24),
                pp.center_crop(20),
                pp.tensor(dtype="uint8", layout="tchw"),
            ]
        )
        limits = pp.Limits(max_clip_pixels=2_000_000, max_clip_frames=500, max_decode_s=int(LIMIT_S) - 1)
        self._engine = pp.Engine(pipeline, threads=2, limits=limits)
        self._good = self._seeds[0]
        self._expected = self._engine.run([self._good])[0]

    def run(self, numbers: Numbers) -> str:
        """Decode one input. Return the reason if it was rejected, or else ``ok``."""
        encoded = mutated(self._seeds[numbers.integers(len(self._seeds))], numbers, BOXES)
        batch = self._engine.run_batch([self._good, encoded, self._good])
        (tensor,) = batch.outputs.values()
        for index in (0, 2):
            assert np.array_equal(tensor[index], self._expected), "a neighbour changed"
        error = batch.errors[1]
        if error is None:
            return "ok"
        assert error.reason in REASONS
        assert str(error).isprintable()
        assert len(str(error)) < 300
        assert not tensor[1].any(), "the tensor of a rejected clip is not zero"
        return error.reason


class Base64:
    """Fuzzes the base64 decoder.

    It must return the same bytes as Python's decoder, or leave the input to Python's decoder.
    """

    def __init__(self) -> None:
        self._seeds = [*jpegs().values(), *others().values()]

    def run(self, numbers: Numbers) -> str:
        """Decode one input. Return ``ok``, or ``left`` if the input is left to Python's decoder."""
        ways = (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes)
        text = ways[numbers.integers(len(ways))](self._seeds[numbers.integers(len(self._seeds))])
        text = mutated(text.rstrip(b"=") if numbers.integers(2) else text, numbers, CHARACTERS)
        description = described(memoryview(text))
        assert description is None or (description.isprintable() and len(description) < 300)
        found = from_base64(text)
        digits = re.sub(rb"[ \t\r\n]", b"", text)
        letters = LETTERS.fullmatch(digits)
        if letters is None or len(digits) < 32 or len(digits) % 4 * len(letters[1]) or len(digits) % 4 == 1:
            assert found is None, "invalid base64 was decoded"
            return "left"
        assert found == base64.urlsafe_b64decode(digits.translate(bytes.maketrans(b"+/", b"-_")) + b"==")
        return "ok"


class Pipelines:
    """Fuzzes pipeline files.

    Each file must be rejected, or must compile and remain unchanged when it is written and read.
    """

    def __init__(self) -> None:
        self._seeds = [pipeline.to_json().encode() for pipeline in CANONICAL.values()]

    def run(self, numbers: Numbers) -> str:
        """Load one input. Return ``ok`` or ``refused``."""
        text = self._seeds[numbers.integers(len(self._seeds))]
        if numbers.integers(2):
            text = mutated(text, numbers, WORDS)
        else:  # replace one value with a different value of the file, or with an invalid one
            values = [found.span() for found in VALUE.finditer(text)]
            (start, stop), (first, last) = (values[numbers.integers(len(values))] for _ in range(2))
            other = text[first:last] if numbers.integers(2) else WORDS[numbers.integers(len(WORDS))]
            text = text[:start] + other + text[stop:]
        try:
            pipeline = pp.Pipeline.from_json(text)
        except pp.PipelineError:
            return "refused"
        assert pp.Pipeline.from_json(pipeline.to_json()) == pipeline
        return "ok"


def work(arguments: argparse.Namespace) -> None:
    """Run the inputs of every kind, and record the number of each input before it runs."""
    warnings.simplefilter("ignore")
    kinds = {"image": Images(), "pipeline file": Pipelines(), "base64": Base64(), "clip": Clips()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results: dict[str, Counter[str]] = {name: Counter() for name in kinds}
    slowest = 0.0
    for number in range(arguments.first, arguments.first + arguments.count):
        for kind, target in enumerate(kinds):
            os.pwrite(1, f"{number:9} {target}".ljust(30).encode(), 0)
            start = time.process_time()
            results[target][kinds[target].run(np.random.default_rng((arguments.seed, number, kind)))] += 1
            seconds = time.process_time() - start
            assert seconds < LIMIT_S, f"took {seconds:.1f} s"
            slowest = max(slowest, seconds)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < MAX_GROWTH_MIB, f"the memory of the process grew by {grown} MiB"
    report = {
        **{name: dict(found.most_common()) for name, found in results.items()},
        "mib": grown,
        "slowest_s": slowest,
    }
    os.pwrite(1, json.dumps(report).encode(), 30)


def main() -> int:
    """Run the inputs in a separate process, and report its results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--count", type=int, default=20_000, help="number of inputs of each kind (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return 0
    memory = os.memfd_create("fuzz")
    worker = [sys.executable, "-X", "faulthandler", Path(__file__), "--work", *sys.argv[1:]]
    done = subprocess.run(worker, stdout=memory, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    output = os.pread(memory, 1 << 20, 0).decode()
    if done.returncode:
        print(f"input {output[:30].strip()} of seed {arguments.seed}: {done.stderr[-3000:]}", file=sys.stderr)  # noqa: T201
        return 1
    print(output[30:])  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
