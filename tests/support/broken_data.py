"""Creates a data set of two classes in which one file in a hundred is broken, in eight different ways."""

from functools import cache

from support.images import photo, read, save


def _scratched(encoded):
    """Replace the second half of the scan data with random bytes, so that it contains too much data or invalid Huffman
    codes.
    """
    middle = len(encoded) // 2
    rest = bytes((37 * index + index // 7) % 255 for index in range(len(encoded) - middle - 2))
    return encoded[:middle] + rest + encoded[-2:]


def _sized(encoded, height, width):
    """Return a JPEG whose header declares a different size."""
    at = encoded.index(b"\xff\xc0") + 5
    return encoded[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + encoded[at + 4 :]


def _deep(encoded):
    """Return a JPEG whose header declares 12 bits per sample."""
    at = encoded.index(b"\xff\xc0") + 4
    return encoded[:at] + b"\x0c" + encoded[at + 1 :]


WAYS = {
    "empty": ("EMPTY", lambda _: b""),
    "cut": ("TRUNCATED", lambda encoded: encoded[: len(encoded) // 2]),
    "page": ("UNKNOWN_FORMAT", lambda _: b"<!doctype html><title>404</title>" * 20),
    "scratched": ("CORRUPT", _scratched),
    "wide": ("BAD_DIMENSIONS", lambda encoded: _sized(encoded, 16, 65_000)),
    "deep": ("UNSUPPORTED", _deep),
    "huge": ("TOO_LARGE_BYTES", None),
    "link": ("UNREADABLE", None),
}
"""Kinds of broken files.

The key is part of the file's name; the value is the reason of the ImageError, and a function that breaks a valid JPEG.
"""


@cache
def _photo(name):
    return read(photo(name))


def small_jpeg(index, height=90, width=120):
    """Return a JPEG of a region of one of the two sample photos. ``index`` determines the photo and the region."""
    top, left = 7 * index % (427 - 2 * height), 13 * index % (640 - 2 * width)
    piece = (
        _photo(("china", "flower")[index % 2])
        .crop((left, top, left + 2 * width, top + 2 * height))
        .resize((width, height))
    )
    return save(piece, "JPEG", quality=85)


def make(folder, count=800):
    """Write ``count`` files as ``china/00000.jpg``, ``flower/00001.jpg`` and so on. Eight of them are broken.

    Args:
        folder: Folder in which one folder per class is created.
        count: Number of files. For 800 files, one in a hundred is broken.

    Returns:
        Reason of the ImageError for each broken file, by the path of the file inside the folder, such as
            ``flower/00101-cut.jpg``.
    """
    broken = {}
    at = {count * (2 * number + 1) // 16 + number % 2: way for number, way in enumerate(WAYS)}
    for index in range(count):
        name = ("china", "flower")[index % 2]
        path = folder / name / f"{index:05}{f'-{at[index]}' if index in at else ''}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded = small_jpeg(index)
        if index in at:
            reason, spoil = WAYS[at[index]]
            broken[f"{name}/{path.name}"] = reason
            if spoil is None:
                _special(path, at[index])
                continue
            encoded = spoil(encoded)
        path.write_bytes(encoded)
    return broken


def _special(path, way):
    """Create a sparse file of 20 MiB plus one byte, or a dangling symbolic link."""
    if way == "huge":
        with path.open("wb") as file:
            file.truncate((20 << 20) + 1)
    else:
        path.symlink_to("gone.jpg")
