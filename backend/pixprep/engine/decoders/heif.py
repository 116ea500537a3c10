"""AVIF and HEIC: what their container says, and the plainest container around the same picture (ISO/IEC 23008-12).

libavif and libheif read everything that a file says: thumbnails, depth maps, films, a thousand items. So the primary
picture is looked up here, its sizes are compared with those of its bitstreams and with the limits, and the library gets
a file of that picture alone. What was checked is then what is decoded.
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

MOST = 4096
"""Items, extents; a photo of 48 megapixels has 200 items."""
MAX_TILES = 1000
MAX_UNITS = 16384
"""Units of all bitstreams: a photo of 192 tiles has 1,200."""
_CODED = {"avif": (b"av01", b"av1C"), "heic": (b"hvc1", b"hvcC")}
_BOTH = {b"ispe", b"pixi", b"colr", b"irot", b"imir", b"auxC"}
_KEPT = {"avif": _BOTH | {b"av1C"}, "heic": _BOTH | {b"hvcC", b"clap"}}
_LEFT_OUT = {b"colr", b"clap"}
"""Essential or not: profiles of colours convert nothing here, and Pillow's AVIF shows the whole of a picture."""
_BRANDS = {"avif": b"avif\0\0\0\0avifmif1miaf", "heic": b"heic\0\0\0\0heicmif1"}
_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0", b"urn:mpeg:hevc:2015:auxid:1\0")


class Still(NamedTuple):
    """A picture.

    Attributes:
        encoded: a file of it alone, of the same format.
        height, width: before any turn.
        pixels: that are decoded for it: of all tiles, as they are coded, and of its alpha.
    """

    encoded: bytes
    height: int
    width: int
    pixels: int


class Property(NamedTuple):
    """One property of an item.

    Attributes:
        place: in the file; items may share it.
        kind, contents: its box.
        is_essential: who does not know it must refuse the item.
    """

    place: int
    kind: bytes
    contents: memoryview
    is_essential: bool


@dataclass
class Item:
    """One item of a file: a picture, or the grid of several."""

    kind: bytes
    data: bytes
    properties: list[Property] = field(default_factory=list)

    def find(self, kind: bytes) -> memoryview:
        """Return the contents of a property; raises KeyError if there is no property of this type."""
        return {each.kind: each.contents for each in self.properties}[kind]

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) by the property ``ispe``."""
        numbers = _Numbers(self.find(b"ispe"))
        _, width, height = (numbers.take(4) for _ in range(3))
        return height, width


def read(encoded: memoryview, name: Name, limits: Limits) -> Still:
    """The primary picture of a file, with its alpha.

    Args:
        encoded: the file.
        name: what its first bytes announce.
        limits: of the whole picture, and of what is decoded for it.

    Raises:
        ImageError: TRUNCATED, CORRUPT, UNSUPPORTED, BAD_DIMENSIONS, TOO_MANY_PIXELS or TOO_LARGE_BYTES.
    """
    try:
        return _File(encoded, name, limits).still()
    except (ValueError, IndexError, KeyError):
        with suppress(ValueError):
            if any(end > len(encoded) for _, _, end in boxes(encoded, 0, len(encoded))):
                raise _cut_off(encoded, name) from None
        raise ImageError("CORRUPT", f"a damaged {NAMES[name]}: its boxes contradict each other") from None


class _File:
    """A file, and the contents of its box ``meta``.

    Raises:
        ImageError: see ``read``.
        ValueError, IndexError, KeyError: something is missing, or contradicts itself.
    """

    def __init__(self, encoded: memoryview, name: Name, limits: Limits) -> None:
        self._encoded = encoded
        self._name = name
        self._limits = limits
        self._n_bytes = self._units = self._pixels = 0
        top = dict(_boxes(encoded))
        if b"moov" in top and b"meta" not in top:
            raise self._refused("that is a film", "still pictures")
        if b"meta" not in top:
            raise _cut_off(encoded, name)
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
                raise ValueError("the alpha has another size")
        return Still(_written(self._name, items, references), *picture.size, self._pixels)

    def _picture(self, number: int) -> tuple[Item, list[Item]]:
        """Return an item and its tiles, after checking the pictures to decode against the limits."""
        picture = self._item(number)
        self._limits.check_size(*picture.size, len(self._encoded))
        tiles = self._tiles(number, picture) if picture.kind == b"grid" else []
        most = sum(self._coded(each).most for each in tiles or [picture])
        if most > self._limits.max_pixels:
            raise ImageError(
                "TOO_MANY_PIXELS",
                f"data of up to {most:,} pixels; the limit is {self._limits.max_pixels:,} (parameter max_pixels)",
            )
        self._pixels += most
        return picture, tiles

    def _item(self, number: int) -> Item:
        kind = self._kinds[number]
        if kind not in (_CODED[self._name][0], b"grid"):
            raise self._refused(f'with an item of the type "{_words(kind)}"', "one picture, or a grid of them")
        parts = []
        for is_inside, offset, length in self._extents[number]:
            part = (self._idat if is_inside else self._encoded)[offset : offset + length]
            if len(part) < length:
                raise _cut_off(self._encoded, self._name)
            if not length:
                raise ValueError("an item without data")
            self._n_bytes += length
            self._limits.check_bytes(self._n_bytes)  # several items may have the same bytes
            parts.append(part)
        item = Item(kind, b"".join(parts))
        for each in self._properties.get(number, ()):
            if each.kind in _KEPT[self._name] and (each.kind != b"colr" or bytes(each.contents[:4]) == b"nclx"):
                item.properties.append(each)
            elif each.is_essential and each.kind not in _LEFT_OUT:
                raise self._refused(f'with the property "{_words(each.kind)}"', "one picture, or a grid of them")
        return item

    def _tiles(self, number: int, grid: Item) -> list[Item]:
        """The items that a grid is made of (ISO/IEC 23008-12, 6.6.2.3)."""
        numbers = _Numbers(memoryview(grid.data))
        side_bytes = 4 if numbers.take(2) & 1 else 2
        rows, columns = numbers.take(1) + 1, numbers.take(1) + 1
        width, height = numbers.take(side_bytes), numbers.take(side_bytes)
        if rows * columns > MAX_TILES:
            raise self._refused(f"of {rows} x {columns} tiles", f"{MAX_TILES:,} of them at most")
        (targets,) = (targets for kind, origin, targets in self._references if (kind, origin) == (b"dimg", number))
        if len(targets) != rows * columns or (height, width) != grid.size:
            raise ValueError("the tiles do not fill the grid")
        if self._alphas(targets):
            raise self._refused("whose tiles have alpha", "alpha of the whole picture")
        tiles = [self._item(each) for each in targets]
        if any(tile.kind == b"grid" for tile in tiles):
            raise self._refused("of grids of tiles", "a grid of pictures")
        if len({tile.size for tile in tiles}) > 1:
            raise ValueError("tiles of several sizes")
        self._limits.check_size(rows * tiles[0].size[0], columns * tiles[0].size[1])
        return tiles

    def _coded(self, item: Item) -> Coded:
        """The size of an item's bitstream, which has to be the item's."""
        data, configuration = memoryview(item.data), item.find(_CODED[self._name][1])
        coded = av1(data) if self._name == "avif" else hevc(configuration, data)
        self._units += coded.units
        if self._units > MAX_UNITS:
            raise ValueError(f"over {MAX_UNITS} units")
        height, width = item.size
        if (coded.height, coded.width) != (height, width):
            says = f"its container says {height} x {width} pixels, and its data {coded.height} x {coded.width}"
            raise ImageError("CORRUPT", f"a damaged {NAMES[self._name]}: {says}")
        return coded

    def _alphas(self, numbers: Sequence[int]) -> list[int]:
        """The items that are the alpha of some of these."""
        wanted = set(numbers)
        return [
            origin
            for kind, origin, targets in self._references
            if kind == b"auxl" and wanted.intersection(targets) and self._auxiliary(origin) in _ALPHA
        ]

    def _auxiliary(self, number: int) -> bytes:
        """Kind of an auxiliary picture, by its property ``auxC``."""
        found = (each.contents[4:100] for each in self._properties.get(number, ()) if each.kind == b"auxC")
        return bytes(next(found, b""))

    def _refused(self, what: str, instead: str) -> ImageError:
        return ImageError("UNSUPPORTED", f"{called(self._name)} {what}; pixprep reads {instead}")


class _Numbers:
    """Whole numbers, one after the other.

    Raises:
        ValueError: there is none any more, or a count is over what may be.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, n_bytes: int) -> int:
        """The next one."""
        end = self._position + n_bytes
        if end > len(self._data):
            raise ValueError("a box ends early")
        number = int.from_bytes(self._data[self._position : end], "big")
        self._position = end
        return number

    def count(self, n_bytes: int) -> range:
        """The next one, to count by."""
        count = self.take(n_bytes)
        if count > MOST:
            raise ValueError(f"over {MOST} entries")
        return range(count)


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Boxes one after the other, each by its type; the last one may be cut off."""
    for kind, begin, end in boxes(data, 0, len(data)):
        if end < begin:
            raise ValueError("a box smaller than its header")
        yield kind, data[begin:end]


def _cut_off(encoded: memoryview, name: Name) -> ImageError:
    return ImageError("TRUNCATED", f"the {NAMES[name]} ends after {len(encoded):,} bytes")


def _kinds(iinf: memoryview) -> Iterator[tuple[int, bytes]]:
    """The type of each item."""
    for kind, infe in _boxes(iinf[6 if iinf[0] == 0 else 8 :]):
        if kind == b"infe" and infe[0] in (2, 3):
            n_bytes = 2 if infe[0] == 2 else 4
            yield int.from_bytes(infe[4 : 4 + n_bytes], "big"), bytes(infe[6 + n_bytes : 10 + n_bytes])


def _extents(iloc: memoryview) -> Iterator[tuple[int, list[tuple[bool, int, int]]]]:
    """Extents of each item: whether in ``idat``, the first byte, and the number of bytes."""
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
        if total > MOST:
            raise ValueError(f"over {MOST} extents")
        if method < 2:
            yield number, extents


def _properties(iprp: memoryview) -> dict[int, list[Property]]:
    """The properties of each item."""
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
            if total > 8 * MOST:
                raise ValueError(f"over {8 * MOST} properties of items")
            for entry in [numbers.take(index_bytes) for _ in entries]:
                index = entry % top
                if index:
                    found.setdefault(number, []).append(Property(index, *known[index - 1], is_essential=entry >= top))
    return found


def _references(iref: memoryview) -> Iterator[tuple[bytes, int, list[int]]]:
    """References: the type of each, the item that it is from, and those that it is to."""
    id_bytes = 2 if iref[0] == 0 else 4
    total = 0
    for kind, contents in _boxes(iref[4:]):
        numbers = _Numbers(contents)
        origin, targets = numbers.take(id_bytes), numbers.count(2)
        total += len(targets)
        if total > 2 * MOST:
            raise ValueError(f"over {2 * MOST} references")
        yield kind, origin, [numbers.take(id_bytes) for _ in targets]


def _words(kind: bytes) -> str:
    """A type of four bytes as a message may show it."""
    return printable(kind.decode("ascii", "backslashreplace"))


def _written(name: Name, items: Sequence[Item], references: Sequence[tuple[bytes, int, Sequence[int]]]) -> bytes:
    """A file of these items, which are numbered from 1; the first one is the primary one."""
    used = {each.place: each for item in items for each in item.properties}
    places = {before: after for after, before in enumerate(used, start=1)}
    kinds, associations, lengths = [], [_number(1, 4), _number(len(items), 4)], [len(item.data) for item in items]
    for number, item in enumerate(items, start=1):
        kinds.append(_box(b"infe", _number(2 << 24, 4), _number(number, 2), bytes(2), item.kind, b"\0"))
        associations += [_number(number, 2), _number(len(item.properties), 1)]
        associations += [_number(places[each.place] | each.is_essential << 15, 2) for each in item.properties]
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
