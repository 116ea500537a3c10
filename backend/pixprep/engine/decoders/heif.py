"""Read the container of an AVIF or HEIC file, and write a minimal container for its primary image (ISO/IEC 23008-12).

libavif and libheif parse everything in a file: thumbnails, depth maps, image sequences, a thousand items. Therefore the
primary image is located here, and its size is compared with the size in its bitstreams and with the limits. The library
then receives a file that contains only this image, so that nothing is decoded that was not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pixprep.engine.decoders import NAMES, Limits, called
from pixprep.engine.decoders.clips.bitstreams import Coded, av1, hevc
from pixprep.engine.decoders.clips.containers import boxes
from pixprep.errors import ImageError, printable

Name = Literal["avif", "heic"]

MAX_ITEMS = 4096
"""Maximum number of items and of extents. A photo with 48 megapixels has 200 items."""
MAX_TILES = 1000
MAX_UNITS = 16384
"""Maximum number of OBUs or NAL units in all bitstreams. A photo with 192 tiles has 1,200."""
_CODED = {"avif": (b"av01", b"av1C"), "heic": (b"hvc1", b"hvcC")}
_BOTH = {b"ispe", b"pixi", b"colr", b"irot", b"imir", b"auxC"}
_KEPT = {"avif": _BOTH | {b"av1C"}, "heic": _BOTH | {b"hvcC", b"clap"}}
_LEFT_OUT = {b"colr", b"clap"}
"""Properties that are removed even if they are essential. Color profiles are not applied, and Pillow ignores the clean
aperture of an AVIF."""
_BRANDS = {"avif": b"avif\0\0\0\0avifmif1miaf", "heic": b"heic\0\0\0\0heicmif1"}
_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0", b"urn:mpeg:hevc:2015:auxid:1\0")


class Still(NamedTuple):
    """The primary image of a file.

    Attributes:
        encoded: File in the same format that contains only this image.
        height, width: Size in pixels before any rotation.
        pixels: Number of pixels to decode: those of all tiles at their coded size, and those of the alpha image.
    """

    encoded: bytes
    height: int
    width: int
    pixels: int


class Property(NamedTuple):
    """One property of an item.

    Attributes:
        number: Number of the property in the file. Several items may share a property.
        kind, contents: Type and contents of its box.
        is_essential: Whether a reader that does not support the property must reject the item.
    """

    number: int
    kind: bytes
    contents: memoryview
    is_essential: bool


@dataclass
class Item:
    """One item of a file: an image, or a grid of images."""

    kind: bytes
    data: bytes
    properties: list[Property] = field(default_factory=list)

    def find(self, kind: bytes) -> memoryview:
        """Return the contents of the property of a type. Raise KeyError if the item does not have such a property."""
        return {each.kind: each.contents for each in self.properties}[kind]

    @property
    def size(self) -> tuple[int, int]:
        """Size (height, width) according to the property ``ispe``."""
        numbers = _Numbers(self.find(b"ispe"))
        _, width, height = (numbers.take(4) for _ in range(3))
        return height, width


def read(encoded: memoryview, name: Name, limits: Limits) -> Still:
    """Return the primary image of a file, with its alpha image if any.

    Args:
        encoded: Bytes of the file.
        name: Format of the file according to its first bytes.
        limits: Limits on the size of the image, and on the number of pixels to decode.

    Raises:
        ImageError: TRUNCATED, CORRUPT, UNSUPPORTED, BAD_DIMENSIONS, TOO_MANY_PIXELS or TOO_LARGE_BYTES.
    """
    try:
        return _File(encoded, name, limits).still()
    except (ValueError, IndexError, KeyError):
        with suppress(ValueError):
            if any(end > len(encoded) for _, _, end in boxes(encoded, 0, len(encoded))):
                raise _truncated(encoded, name) from None
        raise ImageError("CORRUPT", f"the {NAMES[name]} is damaged: its boxes are inconsistent") from None


class _File:
    """A file, with the parsed contents of its ``meta`` box.

    Raises:
        ImageError: See ``read``.
        ValueError, IndexError, KeyError: A box is missing or inconsistent.
    """

    def __init__(self, encoded: memoryview, name: Name, limits: Limits) -> None:
        self._encoded = encoded
        self._name = name
        self._limits = limits
        self._n_bytes = self._units = self._pixels = 0
        top = dict(_boxes(encoded))
        if b"moov" in top and b"meta" not in top:
            raise self._unsupported("an image sequence", "still images")
        if b"meta" not in top:
            raise _truncated(encoded, name)
        meta = dict(_boxes(top[b"meta"][4:]))
        pitm = meta[b"pitm"]
        self._primary = int.from_bytes(pitm[4 : 6 if pitm[0] == 0 else 8], "big")
        self._idat = meta.get(b"idat", memoryview(b""))
        self._kinds = dict(_kinds(meta[b"iinf"]))
        self._extents = dict(_extents(meta[b"iloc"]))
        self._properties = _properties(meta[b"iprp"])
        self._references = list(_references(meta[b"iref"])) if b"iref" in meta else []

    def still(self) -> Still:
        """See ``read``."""
        items: list[Item] = []
        references: list[tuple[bytes, int, Sequence[int]]] = []

        def add(number: int) -> Item:
            picture, tiles = self._picture(number)
            items.append(picture)
            if tiles:
                references.append((b"dimg", len(items), range(len(items) + 1, len(items) + 1 + len(tiles))))
            items.extend(tiles)
            return picture

        picture = add(self._primary)
        for alpha in self._alphas([self._primary])[:1]:
            references.append((b"auxl", len(items) + 1, [1]))
            if (b"prem", self._primary, [alpha]) in self._references:
                references.append((b"prem", 1, [len(items) + 1]))
            if add(alpha).size != picture.size:
                raise ValueError("the alpha image has a different size")
        return Still(_written(self._name, items, references), *picture.size, self._pixels)

    def _picture(self, number: int) -> tuple[Item, list[Item]]:
        """Return an item and its tiles, after checking the images to decode against the limits."""
        picture = self._item(number)
        self._limits.check_size(*picture.size, len(self._encoded))
        tiles = self._tiles(number, picture) if picture.kind == b"grid" else []
        pixels = sum(self._coded(each).max_pixels for each in tiles or [picture])
        if pixels > self._limits.max_pixels:
            raise ImageError(
                "TOO_MANY_PIXELS",
                f"up to {pixels:,} pixels to decode; the limit is {self._limits.max_pixels:,} (parameter max_pixels)",
            )
        self._pixels += pixels
        return picture, tiles

    def _item(self, number: int) -> Item:
        kind = self._kinds[number]
        if kind not in (_CODED[self._name][0], b"grid"):
            raise self._unsupported(f'an item of the type "{_printable(kind)}"', "a single image or a grid of images")
        parts = []
        for is_inside, offset, length in self._extents[number]:
            part = (self._idat if is_inside else self._encoded)[offset : offset + length]
            if len(part) < length:
                raise _truncated(self._encoded, self._name)
            if not length:
                raise ValueError("an item without data")
            self._n_bytes += length
            self._limits.check_bytes(self._n_bytes)  # several items may refer to the same bytes
            parts.append(part)
        item = Item(kind, b"".join(parts))
        for each in self._properties.get(number, ()):
            if each.kind in _KEPT[self._name] and (each.kind != b"colr" or bytes(each.contents[:4]) == b"nclx"):
                item.properties.append(each)
            elif each.is_essential and each.kind not in _LEFT_OUT:
                raise self._unsupported(f'the property "{_printable(each.kind)}"', "a single image or a grid of images")
        return item

    def _tiles(self, number: int, grid: Item) -> list[Item]:
        """Return the tiles of a grid (ISO/IEC 23008-12, 6.6.2.3)."""
        numbers = _Numbers(memoryview(grid.data))
        size_bytes = 4 if numbers.take(2) & 1 else 2
        rows, columns = numbers.take(1) + 1, numbers.take(1) + 1
        width, height = numbers.take(size_bytes), numbers.take(size_bytes)
        if rows * columns > MAX_TILES:
            raise self._unsupported(f"{rows} x {columns} tiles", f"at most {MAX_TILES:,} tiles")
        (targets,) = (targets for kind, origin, targets in self._references if (kind, origin) == (b"dimg", number))
        if len(targets) != rows * columns or (height, width) != grid.size:
            raise ValueError("the tiles do not fill the grid")
        if self._alphas(targets):
            raise self._unsupported("alpha images of its tiles", "one alpha image for the whole grid")
        tiles = [self._item(each) for each in targets]
        if any(tile.kind == b"grid" for tile in tiles):
            raise self._unsupported("nested grids", "grids of images")
        if len({tile.size for tile in tiles}) > 1:
            raise ValueError("the tiles differ in size")
        self._limits.check_size(rows * tiles[0].size[0], columns * tiles[0].size[1])
        return tiles

    def _coded(self, item: Item) -> Coded:
        """Parse the bitstream of an item, and check that its size equals the size that the container declares."""
        data, configuration = memoryview(item.data), item.find(_CODED[self._name][1])
        coded = av1(data) if self._name == "avif" else hevc(configuration, data)
        self._units += coded.units
        if self._units > MAX_UNITS:
            raise ValueError(f"more than {MAX_UNITS} units")
        height, width = item.size
        if (coded.height, coded.width) != (height, width):
            sizes = f"{height} x {width} pixels in its container, and {coded.height} x {coded.width} in its bitstream"
            raise ImageError("CORRUPT", f"the {NAMES[self._name]} is damaged: {sizes}")
        return coded

    def _alphas(self, numbers: Sequence[int]) -> list[int]:
        """Return the items that are alpha images of the given items."""
        wanted = set(numbers)
        return [
            origin
            for kind, origin, targets in self._references
            if kind == b"auxl" and wanted.intersection(targets) and self._auxiliary(origin) in _ALPHA
        ]

    def _auxiliary(self, number: int) -> bytes:
        """Return the type of an auxiliary image according to its property ``auxC``."""
        found = (each.contents[4:100] for each in self._properties.get(number, ()) if each.kind == b"auxC")
        return bytes(next(found, b""))

    def _unsupported(self, what: str, supported: str) -> ImageError:
        return ImageError("UNSUPPORTED", f"{called(self._name)} with {what}; only {supported} can be decoded")


class _Numbers:
    """Reader of consecutive unsigned integers.

    Raises:
        ValueError: The data have ended, or a count exceeds its limit.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, n_bytes: int) -> int:
        """Return the next integer, which has ``n_bytes`` bytes."""
        end = self._position + n_bytes
        if end > len(self._data):
            raise ValueError("a box ends early")
        number = int.from_bytes(self._data[self._position : end], "big")
        self._position = end
        return number

    def count(self, n_bytes: int) -> range:
        """Read the next integer as a number of entries, and return a range of this length."""
        count = self.take(n_bytes)
        if count > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} entries")
        return range(count)


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Iterate over consecutive boxes as (type, contents). The last box may be truncated."""
    for kind, begin, end in boxes(data, 0, len(data)):
        if end < begin:
            raise ValueError("a box is smaller than its header")
        yield kind, data[begin:end]


def _truncated(encoded: memoryview, name: Name) -> ImageError:
    return ImageError("TRUNCATED", f"the {NAMES[name]} ends after {len(encoded):,} bytes")


def _kinds(iinf: memoryview) -> Iterator[tuple[int, bytes]]:
    """Iterate over the items as (number, type)."""
    for kind, infe in _boxes(iinf[6 if iinf[0] == 0 else 8 :]):
        if kind == b"infe" and infe[0] in (2, 3):
            n_bytes = 2 if infe[0] == 2 else 4
            yield int.from_bytes(infe[4 : 4 + n_bytes], "big"), bytes(infe[6 + n_bytes : 10 + n_bytes])


def _extents(iloc: memoryview) -> Iterator[tuple[int, list[tuple[bool, int, int]]]]:
    """Iterate over the items as (number, extents). An extent is (whether it is in ``idat``, offset, size in bytes)."""
    numbers = _Numbers(iloc)
    version, sizes = numbers.take(4) >> 24, numbers.take(2)
    offset_bytes, length_bytes, base_bytes = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_bytes = sizes & 15 if version else 0
    id_bytes = 2 if version < 2 else 4
    total = 0
    for _ in numbers.count(id_bytes):
        number = numbers.take(id_bytes)
        method = numbers.take(2) & 15 if version else 0
        numbers.take(2)
        base = numbers.take(base_bytes)
        extents = []
        for _ in numbers.count(2):
            numbers.take(index_bytes)
            extents.append((method == 1, base + numbers.take(offset_bytes), numbers.take(length_bytes)))
        total += len(extents)
        if total > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} extents")
        if method < 2:
            yield number, extents


def _properties(iprp: memoryview) -> dict[int, list[Property]]:
    """Return the properties of each item by its number."""
    found: dict[int, list[Property]] = {}
    boxes = list(_boxes(iprp))
    known = list(_boxes(dict(boxes)[b"ipco"]))
    total = 0
    for numbers in (_Numbers(contents) for kind, contents in boxes if kind == b"ipma"):
        head = numbers.take(4)
        index_bytes, id_bytes = 1 + (head & 1), 2 if head >> 24 == 0 else 4
        top = 1 << 8 * index_bytes - 1
        for _ in numbers.count(4):
            number, entries = numbers.take(id_bytes), numbers.count(1)
            total += len(entries)
            if total > 8 * MAX_ITEMS:
                raise ValueError(f"more than {8 * MAX_ITEMS} properties of items")
            for entry in [numbers.take(index_bytes) for _ in entries]:
                index = entry % top
                if index:
                    found.setdefault(number, []).append(Property(index, *known[index - 1], is_essential=entry >= top))
    return found


def _references(iref: memoryview) -> Iterator[tuple[bytes, int, list[int]]]:
    """Iterate over the references between items as (type, referring item, referenced items)."""
    id_bytes = 2 if iref[0] == 0 else 4
    total = 0
    for kind, contents in _boxes(iref[4:]):
        numbers = _Numbers(contents)
        origin, targets = numbers.take(id_bytes), numbers.count(2)
        total += len(targets)
        if total > 2 * MAX_ITEMS:
            raise ValueError(f"more than {2 * MAX_ITEMS} references")
        yield kind, origin, [numbers.take(id_bytes) for _ in targets]


def _printable(kind: bytes) -> str:
    """Return a four-byte type code as printable text for a message."""
    return printable(kind.decode("ascii", "backslashreplace"))


def _written(name: Name, items: Sequence[Item], references: Sequence[tuple[bytes, int, Sequence[int]]]) -> bytes:
    """Write a file with these items, which are numbered from 1. The first item is the primary image."""
    used = {each.number: each for item in items for each in item.properties}
    indices = {before: after for after, before in enumerate(used, start=1)}
    kinds, associations, lengths = [], [_number(1, 4), _number(len(items), 4)], [len(item.data) for item in items]
    for number, item in enumerate(items, start=1):
        kinds.append(_box(b"infe", _number(2 << 24, 4), _number(number, 2), bytes(2), item.kind, b"\0"))
        associations += [_number(number, 2), _number(len(item.properties), 1)]
        associations += [_number(indices[each.number] | each.is_essential << 15, 2) for each in item.properties]
    links = [
        _box(kind, _number(origin, 2), _number(len(targets), 2), *(_number(each, 2) for each in targets))
        for kind, origin, targets in references
    ]
    head = _box(b"ftyp", _BRANDS[name])
    boxes = [
        _box(b"hdlr", bytes(8), b"pict", bytes(13)),
        _box(b"pitm", bytes(4), _number(1, 2)),
        _box(b"iinf", bytes(4), _number(len(items), 2), *kinds),
        *([_box(b"iref", bytes(4), *links)] if links else []),
        _box(
            b"iprp", _box(b"ipco", *(_box(each.kind, each.contents) for each in used.values())),
            _box(b"ipma", *associations),
        ),
    ]  # fmt: skip

    def iloc(begin: int) -> bytes:
        rows = []
        for number, length in enumerate(lengths, start=1):
            rows += [_number(number, 2), bytes(2), _number(1, 2), _number(begin, 4), _number(length, 4)]
            begin += length
        return _box(b"iloc", bytes(4), _number(0x4400, 2), _number(len(items), 2), *rows)

    begin = len(head) + len(_box(b"meta", bytes(4), *boxes, iloc(0))) + 8
    return b"".join([
        head, _box(b"meta", bytes(4), *boxes, iloc(begin)), _box(b"mdat", *(item.data for item in items))
    ])  # fmt: skip


def _number(value: int, n_bytes: int) -> bytes:
    return value.to_bytes(n_bytes, "big")


def _box(kind: bytes, *contents: bytes | memoryview) -> bytes:
    return b"".join([_number(8 + sum(map(len, contents)), 4), kind, *contents])
