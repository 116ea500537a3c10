"""Tests that damaged JPEGs are rejected by default and decoded by libjpeg-turbo with ``damage="lenient"``, and how
damaged PNG chunks are handled.
"""

import re
import struct
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
import simplejpeg

import pixprep as pp
from pixprep.engine.decoders import DAMAGES
from pixprep.engine.decoders.header import read_jpeg_header
from pixprep.engine.decoders.images import is_whole
from support.compare import EQUAL, assert_close
from support.decoding import PLAN, decoded
from support.forged import chunk
from support.images import cmyk, expected_pixels, jpeg, jpegs, noise, others, photo, scene, with_exif, ycck

END = b"\xff\xd9"
HINT = " (parameter damage)"
SMALL = {name: encoded for name, encoded in jpegs().items() if name not in ("photo", "icc profile", "1x1")}
PIPELINE = [pp.resize(24), pp.center_crop(20), pp.tensor(dtype="uint8")]


def decode(encoded, damage="strict", **changes):
    """Return the pixels or the ImageError, and the number of damaged JPEGs that the engine counted."""
    result = decoded(encoded, replace(PLAN, **changes), damage=damage)
    return (result, 0) if isinstance(result, pp.ImageError) else (result.pixels[:, :, :3], int(result.is_recovered))


def first_part(encoded, share):
    """Return the first ``share`` of a JPEG's bytes, including its header."""
    start = read_jpeg_header(encoded).scan
    return encoded[: start + int((encoded.rindex(END) - start) * share)]


def flipped(encoded, seed, count=3):
    """Return a JPEG with some changed bytes in its scans."""
    numbers = np.random.default_rng(seed)
    changed = bytearray(encoded)
    start, end = read_jpeg_header(encoded).scan, encoded.rindex(END)
    for _ in range(count):
        changed[numbers.integers(start, end)] ^= 1 << int(numbers.integers(8))
    return bytes(changed)


def odd_sampling(encoded):
    """Return a JPEG whose chroma planes have different sampling factors, with as many blocks as 4:2:0.

    TurboJPEG has no name for this sampling.
    """
    changed = bytearray(encoded)
    frame = changed.index(b"\xff\xc0")
    changed[frame + 11], changed[frame + 14], changed[frame + 17] = 0x12, 0x21, 0x12
    return bytes(changed)


DAMAGED = {f"{name}, cut at {share}": first_part(SMALL[name], share) for name in SMALL for share in (0.0, 0.4, 0.99)}
# a progressive JPEG has headers between its scans; libjpeg-turbo stops if one of these headers is truncated
CUT_IN_TABLES = [DAMAGED.pop(f"{name}, cut at 0.4") for name in ("progressive", "gray progressive")]
DAMAGED |= {"odd sampling, cut": first_part(odd_sampling(jpeg(scene(48, 64))), 0.2)}
JUNK = b"\0\xff\0\1"
JUNK_BEHIND_A_TABLE = jpeg(scene(24, 33)).replace(b"\xff\xc0", JUNK + b"\xff\xc0", 1)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_truncated_jpeg_is_rejected_or_decoded_like_libjpeg_turbo(name):
    error, _ = decode(DAMAGED[name])
    assert error.reason == "TRUNCATED"
    pixels, recovered = decode(DAMAGED[name], "lenient")
    assert_close(pixels, expected_pixels(DAMAGED[name] + END), EQUAL)  # Pillow's libjpeg-turbo needs the end marker
    assert recovered == 1


@pytest.mark.parametrize("name", SMALL)
def test_flipped_bits_are_rejected_or_decoded_like_libjpeg_turbo(name):
    found = 0
    for seed in range(12):
        encoded = flipped(SMALL[name], seed)
        (strict, _), (lenient, recovered) = decode(encoded), decode(encoded, "lenient")
        if isinstance(lenient, pp.ImageError):
            assert isinstance(strict, pp.ImageError)
            continue
        assert recovered == isinstance(strict, pp.ImageError)
        # if the damage is after the last row, TurboJPEG returns all rows, but Pillow raises an error
        if "Unsupported marker" in str(strict):
            continue
        assert_close(lenient, expected_pixels(encoded + END), EQUAL)
        found += recovered
    assert found


@pytest.mark.parametrize("name", [*jpegs(), *others()])
def test_an_intact_image_is_equal_with_each_policy_and_not_counted(name):
    encoded = {**jpegs(), **others()}[name]
    pixels, recovered = decode(encoded, "lenient")
    assert_close(pixels, decode(encoded)[0], EQUAL)
    assert recovered == 0


def test_damage_of_other_formats_is_an_error_with_each_policy():
    for name in ("png", "webp", "tiff lzw", "gif"):
        encoded = others()[name]
        assert isinstance(decode(encoded[: len(encoded) * 2 // 3], "lenient")[0], pp.ImageError), name


TEXT, LARGE = b"Comment\0words", zlib.compress(bytes(2 << 20))
ROTATION_CHUNK = b"MM\0*\0\0\0\x08" + bytes.fromhex("0001 0112 0003 00000001 0006 0000 00000000")
UNUSED_CHUNKS = {
    "text": chunk(b"tEXt", TEXT, is_right=False),
    "time": chunk(b"tIME", bytes(7), is_right=False),
    "gamma": chunk(b"gAMA", struct.pack(">I", 45455), is_right=False),
    **{
        f"too short {name}": chunk(name.encode(), b"\0" * (name != "sRGB")) for name in ("gAMA", "cHRM", "sRGB", "pHYs")
    },
    "compressed text of 2 MB": chunk(b"zTXt", b"Comment\0\0" + LARGE),
    "international text of 2 MB": chunk(b"iTXt", b"Comment\0\1\0\0\0" + LARGE),
    "profile of 2 MB": chunk(b"iCCP", b"profile\0\0" + LARGE),
}
USED_CHUNKS = {
    "tRNS": (struct.pack(">3H", *scene(24, 33)[0, 0].tolist()), ", which specifies its transparency"),
    "eXIf": (ROTATION_CHUNK, ", which specifies its orientation"),
    "tEXt": (b"Raw profile type exif\0\nexif\n 9", ", which specifies its orientation"),
    "vRNS": (bytes(6), ""),
}


def with_chunk(more, *, behind=False):
    """Return a PNG with an additional chunk, which is inserted before or after the pixels."""
    plain = others()["png"]
    at = plain.index(b"IEND" if behind else b"IDAT") - 4
    return plain[:at] + more + plain[at:]


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", UNUSED_CHUNKS)
def test_damage_in_png_chunks_that_do_not_affect_pixels_is_accepted(name, damage, behind):
    pixels, recovered = decode(with_chunk(UNUSED_CHUNKS[name], behind=behind), damage, alpha="white")
    assert_close(pixels, scene(24, 33), EQUAL)
    assert recovered == 0
    turned = with_chunk(chunk(b"eXIf", ROTATION_CHUNK) + UNUSED_CHUNKS[name])
    assert_close(decode(turned, damage)[0], np.rot90(scene(24, 33), -1), EQUAL)


@pytest.mark.parametrize("name", USED_CHUNKS)
def test_damage_in_png_chunks_that_affect_pixels_is_rejected_or_ignored_like_libpng(name):
    body, use = USED_CHUNKS[name]
    encoded = with_chunk(chunk(name.encode(), body, is_right=False))
    error = f"[CORRUPT] wrong checksum of the PNG's {name} chunk{use}"
    assert [str(decode(encoded, damage)[0]) for damage in ("strict", "structural", "pillow")] == [error] * 3
    pixels, recovered = decode(encoded, "lenient", alpha="white")
    assert_close(pixels, scene(24, 33), EQUAL)
    assert recovered == 1


@pytest.mark.parametrize("name", ["tRNS", "acTL", "fcTL"])
@pytest.mark.parametrize("more", [b"", UNUSED_CHUNKS["text"]])
def test_a_png_chunk_that_is_too_short_is_rejected_by_name(name, more):
    encoded = with_chunk(more + chunk(name.encode(), b"\0"))
    for damage in DAMAGES:
        assert str(decode(encoded, damage)[0]) == f"[CORRUPT] the {name} chunk of the PNG is too short"


def test_damage_in_critical_png_chunks_is_rejected():
    palette = others()["png palette"]
    header = others()["png"].replace(b"IHDR", b"IHDr")
    for encoded in (palette.replace(b"PLTE", b"pLTE"), palette.replace(b"PLTE", b"PLTe"), header):
        assert decode(encoded, "lenient")[0].reason == "CORRUPT"


def test_a_recovered_image_has_the_requested_orientation_and_colours():
    encoded = first_part(with_exif(6), 0.7)
    for changes in ({}, {"apply_exif_orientation": False}, {"is_gray": True}):
        pixels, _ = decode(encoded, "lenient", **changes)
        assert pixels.shape[:2] == ((24, 40) if changes.get("apply_exif_orientation") is False else (40, 24))
    assert_close(decode(encoded, "lenient")[0], expected_pixels(encoded + END), EQUAL)


@pytest.mark.parametrize("fast", [{"idct": "fast"}, {"chroma": "fast"}])
def test_fast_decoding_options_also_recover(fast):
    encoded = first_part(jpegs()["sampling 420"], 0.6)
    expected = simplejpeg.decode_jpeg(encoded, fastdct="idct" in fast, fastupsample="chroma" in fast, strict=False)
    assert_close(decode(encoded, "lenient", **fast)[0], expected, EQUAL)
    assert not np.array_equal(decode(encoded, "lenient")[0], expected)


# flaws that do not affect pixels, and damage that does

DQT, DHT, DRI, SOS, COM, APP0, APP1, APP2, ADOBE = 0xDB, 0xC4, 0xDD, 0xDA, 0xFE, 0xE0, 0xE1, 0xE2, 0xEE


def with_segment(marker, content, encoded):
    """Return a JPEG with an additional segment, which is inserted after its JFIF segment or after its first segment."""
    at = 4 + int.from_bytes(encoded[4:6], "big")
    return encoded[:at] + bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content + encoded[at:]


def junk_before(marker, encoded, junk=JUNK):
    """Return a JPEG with junk bytes before its first segment of the given kind."""
    return encoded.replace(bytes([0xFF, marker]), junk + bytes([0xFF, marker]), 1)


def changed(encoded, segment, offset, new):
    """Return a JPEG with some bytes replaced in its first segment of the given kind.

    ``offset`` counts from the marker. If it is negative, it counts from the end of the segment.
    """
    at = encoded.index(bytes([0xFF, segment]))
    at += offset if offset >= 0 else 2 + int.from_bytes(encoded[at + 2 : at + 4], "big") + offset
    return encoded[:at] + new + encoded[at + len(new) :]


def without(marker, encoded):
    """Return a JPEG without its first segment of the given kind."""
    at = encoded.index(bytes([0xFF, marker]))
    return encoded[:at] + encoded[at + 2 + int.from_bytes(encoded[at + 2 : at + 4], "big") :]


def adobes(transform, encoded):
    """Return a JPEG whose colour space is declared by Adobe's segment, and which has no JFIF segment."""
    adobe = with_segment(ADOBE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]), encoded)
    return without(APP0, with_segment(COM, b"a comment", adobe))


CLEAN = jpeg(scene(24, 33))
GRAY, PROGRESSIVE = SMALL["gray"], SMALL["progressive"]
ICC = b"ICC_PROFILE\0\2\2part 2 of 2, and no part 1"
WITH_COMMENT = with_segment(COM, b"a comment", CLEAN)
ADOBE_THEN_XMP = adobes(1, with_segment(APP1, b"http://ns.adobe.com/xap/1.0/\0<x/>", CLEAN))
HARMLESS_FLAWS = {
    "extraneous bytes, behind JFIF": (junk_before(DQT, CLEAN), CLEAN),
    "extraneous bytes, behind a comment": (junk_before(DQT, WITH_COMMENT), CLEAN),
    "extraneous bytes, progressive": (junk_before(DQT, PROGRESSIVE), PROGRESSIVE),
    "extraneous bytes, gray, with no name of its colours": (
        junk_before(DQT, without(APP0, with_segment(COM, b"", GRAY))),
        GRAY,
    ),
    "extraneous bytes, behind XMP, in YCbCr by Adobe": (junk_before(DQT, ADOBE_THEN_XMP), CLEAN),
    "extraneous bytes, behind Adobe, in YCbCr by JFIF": (
        junk_before(DQT, with_segment(ADOBE, b"Adobe\0\x64\0\0\0\0", CLEAN), b"\0"),
        CLEAN,
    ),
    "extraneous bytes, 20": (junk_before(DQT, CLEAN, bytes(20)), CLEAN),
    "extraneous bytes, in two places": (junk_before(DQT, junk_before(COM, WITH_COMMENT)), CLEAN),
    "bad ICC marker": (with_segment(APP2, ICC, CLEAN), CLEAN),
    "extraneous bytes, and a bad ICC marker": (junk_before(DQT, with_segment(APP2, ICC, CLEAN)), CLEAN),
    "unknown JFIF revision": (changed(CLEAN, APP0, 9, b"\7\7"), CLEAN),
    "Invalid SOS parameters": (changed(CLEAN, SOS, -3, b"\0\0\0"), CLEAN),
}
"""Flaws about which libjpeg-turbo warns. Each entry has a JPEG with the flaw and the same JPEG without it."""


@pytest.mark.parametrize("name", HARMLESS_FLAWS)
@pytest.mark.parametrize("damage", ["strict", "lenient"])
def test_flaws_that_do_not_affect_pixels_are_not_damage(name, damage):
    encoded, clean = HARMLESS_FLAWS[name]
    with pytest.raises(ValueError, match=re.escape(name.partition(",")[0])):
        simplejpeg.decode_jpeg(encoded)
    assert not is_whole(encoded)  # so that the GPU decoder passes the file to the CPU
    pixels, recovered = decode(encoded, damage)
    assert_close(pixels, expected_pixels(clean), EQUAL)
    assert recovered == 0
    fast = {"idct": "fast", "chroma": "fast"}
    assert_close(decode(encoded, damage, **fast)[0], decode(clean, damage, **fast)[0], EQUAL)
    assert_close(decode(encoded, damage, is_gray=True)[0], decode(clean, damage, is_gray=True)[0], EQUAL)


@pytest.mark.parametrize("name", [*SMALL, "cmyk"])
@pytest.mark.parametrize("damage", ["strict", "pillow"])
def test_only_a_single_scan_jpeg_that_lacks_its_end_marker_is_complete(name, damage):
    """Each truncated file is rejected or yields all pixels. If a JPEG has several scans, the truncation may remove the
    last scan.
    """
    whole = cmyk() if name == "cmyk" else SMALL[name]
    expected, end = decode(whole)[0], whole.rindex(END)
    is_one_scan = "progressive" not in name
    for last in (end + 1, end):
        pixels, recovered = decode(whole[:last], damage)
        assert isinstance(pixels, pp.ImageError) == (not is_one_scan)
        if is_one_scan:
            assert_close(pixels, expected, EQUAL)
            assert_close(decode(whole[:last], damage, is_gray=True)[0], decode(whole, is_gray=True)[0], EQUAL)
            assert recovered == 0
    for last in range(end - 20, end - 1):
        pixels = decode(whole[:last], damage)[0]
        assert isinstance(pixels, pp.ImageError) or not (pixels != expected).any()


@pytest.mark.parametrize("name", [*SMALL, "cmyk", "odd sampling"])
def test_zeros_instead_of_the_last_bytes_and_the_end_marker_are_rejected(name):
    """Interrupted downloads can leave such files if the disk space was reserved in advance.

    Zeros are valid Huffman codes, so the data seem to be complete.
    """
    whole = {**SMALL, "cmyk": cmyk(), "odd sampling": odd_sampling(jpeg(scene(48, 64)))}[name]
    whole = whole[: whole.rindex(END) + 2]
    for zeros in (2, 3, 4, 5, 6, 8, 12):
        for encoded in (whole[:-zeros] + bytes(zeros), whole[:-zeros] + bytes(zeros) + b"\xff"):
            error, _ = decode(encoded)
            assert error.reason in ("TRUNCATED", "CORRUPT")
            assert isinstance(decode(encoded, is_gray=True)[0], pp.ImageError)
    assert str(decode(CLEAN[:-4] + bytes(4))[0]) == (
        f"[TRUNCATED] the JPEG has no end marker, and its last 4 bytes are zeros{HINT}"
    )


def test_bytes_that_no_block_uses_are_not_taken_for_a_missing_end_marker():
    for name in ("gray", "sampling 420", "restart markers"):
        end = SMALL[name].rindex(END)
        for count in (1, 2, 5):
            assert isinstance(decode(SMALL[name][:end] + b"\x55" * count)[0], pp.ImageError)


RGB = adobes(0, CLEAN)
RESTARTS = jpeg(scene(24, 33), restart_marker_blocks=2)
OPTIMIZED = jpeg(scene(24, 33), optimize=True)


def inserted(encoded, segment, offset):
    """Return a JPEG with an extra byte in its first segment of the given kind, which moves the segment's last byte
    outside the segment.
    """
    at = encoded.index(bytes([0xFF, segment])) + offset
    return encoded[:at] + b"\0" + encoded[at:]


def removed(encoded, segment, offset, count):
    """Return a JPEG whose first segment of the given kind lacks some bytes."""
    at = encoded.index(bytes([0xFF, segment])) + offset
    at += 2 + int.from_bytes(encoded[at - offset + 2 : at - offset + 4], "big")
    return encoded[:at] + encoded[at + count :]


def damaged(encoded, words):
    """Return a JPEG in which one flipped bit changes pixels and causes a warning of libjpeg-turbo that matches
    ``words``.
    """
    for seed in range(600):
        found = flipped(encoded, seed, count=1)
        if re.match(words, _warning(found)) and not np.array_equal(decode(found, "lenient")[0], decode(encoded)[0]):
            return found
    raise AssertionError(f"no flipped bit gives {words}")


def _warning(encoded):
    try:
        simplejpeg.decode_jpeg(encoded)
    except ValueError as error:
        return str(error)
    return ""


CORRUPT = "Corrupt JPEG data: "
COSTLY = {
    "Premature end of JPEG file": (CLEAN[:-60], CLEAN),
    f"{CORRUPT}premature end of data segment": (CLEAN[:-60] + CLEAN[-2:], CLEAN),
    **{
        words: (damaged(clean, words), clean)
        for words, clean in (
            (f"{CORRUPT}bad Huffman code", CLEAN),
            (f"{CORRUPT}found marker 0x", RESTARTS),
            ("Inconsistent progression sequence for component", PROGRESSIVE),
        )
    },
    **{
        words: (damaged(clean, words), clean)
        for words, clean in (
            (rf"{CORRUPT}\d+ extraneous bytes before marker 0xd9", CLEAN),
            (rf"{CORRUPT}\d+ extraneous bytes before marker 0xd[0-7]", RESTARTS),
            (rf"{CORRUPT}\d+ extraneous bytes before marker 0x(c4|da)", PROGRESSIVE),
        )
    },
    "Invalid SOS parameters for sequential JPEG": (
        changed(CLEAN, SOS, -3, bytes(9)),
        CLEAN,
    ),  # and the first 6 bytes of the scan
    "Invalid SOS parameters for": (removed(CLEAN, SOS, -2, 1), CLEAN),  # the last byte is read from the scan
    "Unknown Adobe color transform code 8": (changed(RGB, ADOBE, 15, b"\x08"), RGB),
    f"{CORRUPT}16 extraneous bytes": (changed(RGB, ADOBE, 0, b"\0"), RGB),
    f"{CORRUPT}1 extraneous bytes before marker 0xdb": (inserted(adobes(1, CLEAN), ADOBE, 15), CLEAN),
    f"{CORRUPT}1 extraneous bytes before marker 0xc0": (inserted(GRAY, DQT, 9), GRAY),
    rf"{CORRUPT}\d+ extraneous bytes before marker 0xc4": (changed(OPTIMIZED, DHT, 0, b"\0"), OPTIMIZED),
}
"""Maps the beginning of libjpeg-turbo's warning, as a pattern, to a damaged JPEG and the same JPEG without the
damage.
"""


@pytest.mark.parametrize("words", COSTLY)
def test_damage_that_changes_pixels_is_rejected(words):
    encoded, clean = COSTLY[words]
    assert re.match(words, _warning(encoded))
    assert isinstance(decode(encoded)[0], pp.ImageError)
    pixels, recovered = decode(encoded, "lenient")
    assert recovered == 1
    assert not np.array_equal(pixels, decode(clean)[0])


@pytest.mark.parametrize("name", ["sampling 420", "gray", "restart markers", "rgb without transform"])
@pytest.mark.parametrize(("marker", "length"), [(DQT, 0), (DHT, 0), (DHT, 3), (DRI, 0), (DRI, 3)])
def test_lenient_accepts_a_broken_segment_after_the_last_row(name, marker, length):
    """libjpeg-turbo fails at the segment without a warning. OpenCV and browsers have decoded all rows by then."""
    whole = SMALL[name]
    end = whole.rindex(END)
    broken = bytes([0xFF, marker]) + length.to_bytes(2, "big") + bytes(max(0, length - 2))
    encoded = whole[:end] + broken + whole[end:]
    for damage in ("strict", "pillow"):
        assert str(decode(encoded, damage)[0]) == f"[CORRUPT] libjpeg-turbo: Bogus marker length{HINT}"
    pixels, recovered = decode(encoded, "lenient")
    assert_close(pixels, decode(whole)[0], EQUAL)
    assert_close(decode(encoded, "lenient", is_gray=True)[0], decode(whole, is_gray=True)[0], EQUAL)
    assert recovered == 1


def pillow(encoded):
    """Return Pillow's pixels with the orientation applied, or None if Pillow raises an error."""
    try:
        return expected_pixels(encoded)
    except (OSError, SyntaxError, ValueError):
        return None


@pytest.mark.parametrize("name", [*SMALL, "cmyk", "ycck"])
def test_the_pillow_policy_accepts_exactly_the_files_that_pillow_loads(name):
    whole = {**SMALL, "cmyk": cmyk(), "ycck": ycck()}[name]
    cuts = [first_part(whole, share) for share in (0.0, 0.4, 0.99)]
    both = {True: 0, False: 0}
    for encoded in [whole, *cuts, *(each + END for each in cuts), *(flipped(whole, seed) for seed in range(12))]:
        expected, (strict, _), (pixels, recovered) = pillow(encoded), decode(encoded), decode(encoded, "pillow")
        both[expected is not None] += isinstance(strict, pp.ImageError)
        if expected is None:
            assert isinstance(pixels, pp.ImageError)
        else:
            assert_close(pixels, expected, EQUAL)
            assert recovered == isinstance(strict, pp.ImageError)
    assert all(both.values())


@pytest.mark.parametrize("name", HARMLESS_FLAWS)
def test_damage_after_a_harmless_flaw_is_found(name):
    """The flaw could hide the damage, because libjpeg-turbo reports only its first warning."""
    encoded, clean = HARMLESS_FLAWS[name]
    scan, start = read_jpeg_header(encoded).scan, read_jpeg_header(clean).scan
    found = 0
    for seed in range(40):
        worse = flipped(clean, seed)
        behind = encoded[:scan] + worse[start:]
        expected, pixels = decode(worse)[0], decode(behind)[0]
        if isinstance(expected, pp.ImageError):
            found += 1
            assert isinstance(pixels, pp.ImageError), seed
        else:
            assert_close(pixels, expected, EQUAL)
    assert 5 < found < 40


def test_possible_damage_is_rejected_with_a_message():
    error, _ = decode(JUNK_BEHIND_A_TABLE)
    assert str(error) == f"[CORRUPT] libjpeg-turbo: 4 extraneous bytes before marker 0xc0{HINT}"
    pixels, recovered = decode(JUNK_BEHIND_A_TABLE, "lenient")
    assert_close(pixels, expected_pixels(JUNK_BEHIND_A_TABLE), EQUAL)
    assert recovered == 1
    for fast in (
        {"idct": "fast"},
        {"chroma": "fast"},
    ):  # only Pillow decodes this file, and Pillow supports neither option
        assert str(decode(JUNK_BEHIND_A_TABLE, "lenient", **fast)[0]) == str(error).removesuffix(HINT)


@pytest.mark.parametrize("encoded", [cmyk(), ycck()], ids=["cmyk", "ycck"])
def test_damaged_cmyk_is_rejected_although_pillow_does_not_report_it(encoded):
    damaged = next(d for d in (flipped(encoded, seed) for seed in range(50)) if decode(d)[0].reason == "CORRUPT")
    assert_close(decode(damaged, "lenient")[0], expected_pixels(damaged), EQUAL)


def test_unrecoverable_damage_remains_an_error():
    no_tables = jpegs()["baseline"].replace(b"\xff\xc4", b"\xff\xc5")
    for encoded in (b"\xff\xd8\xff", jpeg(scene(24, 33))[:150], no_tables, *CUT_IN_TABLES):
        error, recovered = decode(encoded, "lenient")
        assert str(error) == str(decode(encoded)[0]).removesuffix(HINT)
        assert recovered == 0


def test_pixels_of_the_previous_image_never_remain():
    """Without ``strict``, simplejpeg returns the unchanged buffer if an error follows a warning."""
    plain = [jpeg(np.full((128, 128, 3), level, np.uint8)) for level in (0, 255)]
    for seed in range(200):
        encoded = flipped(jpegs()["progressive"], seed, count=12)
        last = encoded.rindex(b"\xff\xda")
        encoded = encoded[:last] + b"\xff\xc4\0\4\xff\xff" + encoded[last:]
        black, white = (decoded(encoded, damage="lenient", before=[before]) for before in plain)
        assert isinstance(black, pp.ImageError) == isinstance(white, pp.ImageError)
        if not isinstance(black, pp.ImageError):
            assert_close(black.pixels[:, :, :3], white.pixels[:, :, :3], EQUAL)


def test_the_check_before_gpu_decoding_finds_the_same_damage_as_the_decoder():
    """The check decodes a gray image at an eighth of the size, which causes the same warnings as a full decode."""
    words = []
    for name, encoded in SMALL.items():
        if name in ("cmyk", "ycck"):
            continue
        for seed in range(30):
            damaged = flipped(encoded, (seed, 1), count=1 + seed % 4)
            words.append(is_whole(damaged))
            assert words[-1] == (not isinstance(decode(damaged)[0], pp.ImageError)), (name, seed)
        assert is_whole(encoded)
    assert 0.1 < sum(words) / len(words) < 0.9


@pytest.mark.parametrize("damage", ["strict", "lenient"])
def test_results_are_equal_alone_and_in_a_batch(damage):
    images = [*DAMAGED.values(), photo(), *(flipped(encoded, 5) for encoded in SMALL.values()), JUNK_BEHIND_A_TABLE]
    with pp.Engine(pp.Pipeline([pp.decode(), *PIPELINE]), damage=damage, threads=3) as engine:
        batch = engine.run_batch(images)
        recovered = 0
        for index, encoded in enumerate(images):
            alone = engine.run_batch([encoded])
            assert str(alone.errors[0]) == str(batch.errors[index])
            assert np.array_equal(alone.outputs["tensor"][0], batch.outputs["tensor"][index])
            recovered += alone.recovered
        assert batch.recovered == recovered
        assert (recovered > len(DAMAGED)) == (damage == "lenient")
        assert engine.run_batch([photo()]).recovered == 0


def test_the_cpu_decoder_checks_more_than_the_structure():
    """Decoding on the CPU reports every warning without additional cost."""
    for encoded in (*DAMAGED.values(), *(flipped(encoded, 5) for encoded in SMALL.values()), JUNK_BEHIND_A_TABLE):
        (ours, _), (theirs, _) = decode(encoded, "structural"), decode(encoded, "strict")
        assert isinstance(ours, pp.ImageError) == isinstance(theirs, pp.ImageError)
        assert str(ours) == str(theirs) if isinstance(ours, pp.ImageError) else np.array_equal(ours, theirs)


def with_declared_size(height, width, **options):
    """Return a JPEG of 16 x 16 pixels whose header declares a larger size."""
    encoded = bytearray(jpeg(noise(16, 16), **options))
    frame = next(at for marker in (b"\xff\xc0", b"\xff\xc2") if (at := encoded.find(marker)) >= 0)
    encoded[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(encoded)


@pytest.mark.parametrize(
    ("options", "least"), [({}, 147_000), ({"subsampling": 0}, 293_000), ({"progressive": True}, 73_600)]
)
def test_a_header_that_declares_more_than_the_data_can_contain_is_rejected_early(options, least):
    """Each Huffman code has at least one bit, so a block needs at least two bits, or one bit in the first scan of a
    progressive JPEG.
    """
    encoded = with_declared_size(5000, 5000, **options)
    start = time.process_time()
    error, _ = decode(encoded)
    assert time.process_time() - start < 5
    begin = f"[TRUNCATED] the JPEG ends after {len(encoded):,} bytes: its 5000 x 5000 pixels require at least "
    assert str(error).startswith(begin)
    assert str(error).endswith(HINT)
    assert int(str(error).removeprefix(begin).removesuffix(HINT).replace(",", "")) == pytest.approx(least, rel=0.01)
    # files that satisfy the bound are passed to the decoder
    assert isinstance(decode(with_declared_size(17, 16, **options))[0], pp.ImageError)


def test_no_intact_jpeg_is_smaller_than_the_bound_for_its_header():
    """Images of a single colour with optimized Huffman codes are within a few bytes of the bound."""
    slack = []
    for height, width in ((1, 1), (8, 8), (9, 300), (1000, 1), (777, 1234)):
        for options in ({"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"restart_marker_rows": 1}):
            for channels in (1, 3):
                flat = np.full((height, width, channels), 77, np.uint8).squeeze(2 if channels == 1 else ())
                encoded = jpeg(flat, optimize=True, quality=1, **options)
                header = read_jpeg_header(encoded)
                slack.append(len(encoded) - header.scan - header.min_scan_bytes)
                assert slack[-1] >= 2, (height, width, options)
                assert isinstance(decode(encoded)[0], np.ndarray)
    assert min(slack) < 5
    for encoded in jpegs().values():
        header = read_jpeg_header(encoded)
        assert 0 < header.min_scan_bytes < len(encoded) - header.scan
