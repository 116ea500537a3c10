"""Remove damaged ancillary chunks of a PNG, because of which Pillow rejects it, unlike libpng, OpenCV and browsers."""

from __future__ import annotations

import zlib

from pixprep.errors import ImageError

_SIGNATURE, _END = 8, b"IEND"
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
_USES = {b"tRNS": ", which specifies its transparency", b"eXIf": ", which specifies its orientation"}
_UNUSED = set(b"bKGD cHRM cICP cLLI gAMA hIST iCCP iTXt mDCV pHYs sBIT sPLT sRGB tEXt tIME zTXt iDOT caBX".split())
"""Names of the chunks that do not affect pixels: those of PNG's third edition, of Apple and of C2PA. If a chunk with a
different name has a wrong checksum, the name itself may be damaged."""
_FRAMES = {b"acTL", b"fcTL", b"fdAT"}
_EXIF_TEXT = b"Raw profile type exif\0"
_IS_ANCILLARY = 0x20  # bit of the first character of a chunk's name


def repaired(png: memoryview, *, is_lenient: bool) -> tuple[bytes, bool] | None:
    """Return a PNG without the ancillary chunks that do not affect its pixels or their orientation.

    Thus text, times, color profiles and similar chunks may have any size and any checksum.

    Args:
        png: A PNG that Pillow rejects.
        is_lenient: Whether to remove every ancillary chunk with a wrong checksum, as libpng does.

    Returns:
        The PNG, and whether a removed chunk may have affected the pixels or their orientation. None if no chunk was
        removed.

    Raises:
        ImageError: CORRUPT: A chunk that may affect the pixels or their orientation has a wrong checksum.
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
                raise ImageError("CORRUPT", f"wrong checksum of the PNG's {found} chunk{use}")
            if is_damage or not use:
                is_changed, is_damaged = True, is_damaged or is_damage
                continue
        parts.append(chunk)
        if name == _END:
            break
    return (b"".join(parts), is_damaged) if is_changed else None
