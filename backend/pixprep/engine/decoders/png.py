"""Faults in the ancillary chunks of a PNG: Pillow refuses the file for them, and libpng, OpenCV and browsers do not."""

from __future__ import annotations

import zlib

from pixprep.errors import ImageError

_SIGNATURE, _END = 8, b"IEND"
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
_USES = {b"tRNS": ", which has its transparency", b"eXIf": ", which has its orientation"}
_UNUSED = set(b"bKGD cHRM cICP cLLI gAMA hIST iCCP iTXt mDCV pHYs sBIT sPLT sRGB tEXt tIME zTXt iDOT caBX".split())
"""Chunks of PNG's third edition, of Apple's and of C2PA. Another name with a wrong checksum may be a damaged name."""
_FRAMES = {b"acTL", b"fcTL", b"fdAT"}
_EXIF_TEXT = b"Raw profile type exif\0"
_IS_ANCILLARY = 0x20  # bit of the first letter of a chunk's name


def mended(png: memoryview, *, is_lenient: bool) -> tuple[bytes, bool] | None:
    """The same PNG with only those ancillary chunks that pixels or their orientation depend on.

    Text, times, colour profiles and the like may then be of any size, and have any checksum.

    Args:
        png: a PNG that Pillow refuses.
        is_lenient: Every ancillary chunk with a wrong checksum is left out, as by libpng.

    Returns:
        The PNG, and whether pixels or their orientation may depend on what was left out; None: nothing was.

    Raises:
        ImageError: CORRUPT: pixels or their orientation may depend on a chunk with a wrong checksum.
    """
    parts, position, is_changed, is_damaged = [png[:_SIGNATURE]], _SIGNATURE, False, False
    while position + 12 <= len(png):
        body, end = position + 8, position + 12 + int.from_bytes(png[position : position + 4], "big")
        name, chunk = bytes(png[position + 4 : body]), png[position:end]
        position = end
        if name[0] & _IS_ANCILLARY and name not in _FRAMES and name.upper() not in _CRITICAL:
            use = _USES.get(name) or _USES[b"eXIf"] * (chunk[8 : 8 + len(_EXIF_TEXT)] == _EXIF_TEXT)
            is_right = zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")
            is_damage = not is_right and (use != "" or name not in _UNUSED)
            if is_damage and not is_lenient:
                found = name.decode("ascii", "replace")
                raise ImageError("CORRUPT", f"a wrong checksum in the chunk {found} of the PNG{use}")
            if is_damage or not use:
                is_changed, is_damaged = True, is_damaged or is_damage
                continue
        parts.append(chunk)
        if name == _END:
            break
    return (b"".join(parts), is_damaged) if is_changed else None
