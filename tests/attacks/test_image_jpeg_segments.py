"""Attack: a JPEG made of what a parser walks over: thousands of scans, segments, markers, fill bytes, restart markers.

Defence: at most 4,096 segments before the first scan, at most 100 scans in all, and markers are searched for in C.
Outcome: refused or decoded, in the time that reading so many bytes takes.
"""

import pytest

from attacks.forged import frame, parts, segment
from support.images import jpeg, noise

SMALL = jpeg(noise(16, 16), subsampling=0)
BEFORE, FRAME, AFTER = parts(SMALL)
TABLES, _, REST = parts(jpeg(noise(16, 16), progressive=True))
SCANS = REST[: REST.index(b"\xff\xda")] + segment(0xDA, b"\3\1\0\2\0\3\0\0\0\1") + bytes(10)
REFINEMENT = segment(0xDA, b"\1\1\0\1\x3f\1") + b"\0"
PROGRESSIVE = TABLES + frame(7071, 7071, marker=0xC2) + SCANS

FLOODS = {
    "101 scans": PROGRESSIVE + REFINEMENT * 101,
    "2,000 scans": PROGRESSIVE + REFINEMENT * 2_000,
    "200,000 scans": PROGRESSIVE + REFINEMENT * 200_000,
    "5,000 segments": b"\xff\xd8" + segment(0xE2, b"x") * 5_000 + SMALL[2:],
    "20 MB of empty segments": b"\xff\xd8" + segment(0xFE, b"") * 5_000_000 + SMALL[2:],
    **{
        f"20 MB of {filler.hex(' ')}": b"\xff\xd8\xff\xe0\0\2" + filler * (20_000_000 // len(filler))
        for filler in (b"\0", b"\xff", b"\xff\xd0", b"\xff\x00", b"\xff\xe0\0\2", b"\xff\xd8")
    },
}
HARMLESS = {
    "20 MB of fill bytes": b"\xff\xd8" + b"\xff" * 20_000_000 + SMALL[2:],
    "18 MB of restart markers": BEFORE + FRAME + AFTER[:-2] + b"\xff\xd0" * 9_000_000 + b"\xff\xd9",
    "16 MB of comments": b"\xff\xd8" + segment(0xFE, bytes(65_000)) * 250 + SMALL[2:],
    "an honest progressive one": jpeg(noise(16, 16), progressive=True),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_refused_at_once(measure, flood):
    measure(FLOODS[flood]).within("TOO_MANY_SCANS", "UNSUPPORTED", "CORRUPT", "TRUNCATED", mib=8, seconds=0.5)


@pytest.mark.parametrize("flood", HARMLESS)
def test_what_libjpeg_skips_costs_the_time_of_reading_it(measure, flood):
    measure(HARMLESS[flood]).within("ok", mib=16, seconds=1)
