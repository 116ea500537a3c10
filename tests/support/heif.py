"""Builds AVIF and HEIC files that no encoder writes, out of boxes with arbitrary contents."""

import struct


def box(kind, *contents):
    return struct.pack(">I", 8 + sum(map(len, contents))) + kind + b"".join(contents)


def full(kind, *contents, version=0, flags=0):
    return box(kind, struct.pack(">I", version << 24 | flags), *contents)


def ispe(height, width):
    return full(b"ispe", struct.pack(">II", width, height))


def grid(rows, columns, height, width):
    return struct.pack(">BBBBII", 0, 1, rows - 1, columns - 1, width, height)


def file(items, *, brand=b"avif", references=(), iloc=None, iinf=None, ipma=None, iref=None, behind=b""):
    """Return an AVIF or HEIC file.

    Args:
        items: Items of the file, numbered from 1. Each is (type, data, property boxes). Instead of the data, it may
            have the number of the item whose data it shares.
        brand: ``avif`` or ``heic``.
        references: References between items, each as (type, from, to).
        iloc, iinf, ipma, iref: Box that replaces the valid one.
        behind: Data after the last box.
    """
    properties = [each for _, _, own in items for each in own]
    entries, place = b"", 1
    for number, (_, _, own) in enumerate(items, start=1):
        places = bytes(0x80 | place + index for index in range(len(own))) if len(properties) < 127 else b""
        entries += struct.pack(">HB", number, len(places)) + places
        place += len(own)
    infes = b"".join(
        full(b"infe", struct.pack(">HH", number, 0), kind, b"\0", version=2)
        for number, (kind, _, _) in enumerate(items, start=1)
    )
    links = b"".join(
        box(kind, struct.pack(">HH", origin, len(targets)), b"".join(struct.pack(">H", each) for each in targets))
        for kind, origin, targets in references
    )
    parts = [data for _, data, _ in items if isinstance(data, bytes)]
    head = box(b"ftyp", brand, bytes(4), brand, b"mif1")

    def meta(begin):
        places, at = {}, begin
        for number, (_, data, _) in enumerate(items, start=1):
            if isinstance(data, bytes):
                places[number] = struct.pack(">II", at, len(data))
                at += len(data)
        rows = b"".join(
            struct.pack(">HHH", number, 0, 1) + places[data if isinstance(data, int) else number]
            for number, (_, data, _) in enumerate(items, start=1)
        )
        return full(
            b"meta",
            full(b"hdlr", bytes(4), b"pict", bytes(13)),
            full(b"pitm", b"\0\1"),
            iinf or full(b"iinf", struct.pack(">H", len(items)), infes),
            iref or full(b"iref", links),
            box(b"iprp", box(b"ipco", *properties), ipma or full(b"ipma", struct.pack(">I", len(items)), entries)),
            iloc or full(b"iloc", struct.pack(">HH", 0x4400, len(items)), rows),
        )

    return head + meta(len(head) + len(meta(0)) + 8) + box(b"mdat", *parts) + behind


def bits(*fields):
    """Pack values, given as (value, number of bits), into bytes."""
    text = "".join(f"{value:0{count}b}" for value, count in fields)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def obu(kind, body):
    """Return one AV1 OBU, including its length field."""
    length, size = b"", len(body)
    while size >> 7:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([kind << 3 | 2]) + length + bytes([size]) + body


def sequence(height, width, *, own_size_bits=None):
    """Return an AV1 sequence header. ``own_size_bits`` is the number of bits of the size that each frame may declare
    itself.
    """
    if own_size_bits is None:
        head = ((0, 3), (1, 1), (1, 1), (0, 5))
    else:
        head = ((0, 3), (0, 1), (0, 1), (0, 1), (0, 1), (0, 5), (0, 12), (0, 5))
    count = own_size_bits or 16
    sizes = ((count - 1, 4), (count - 1, 4), (width - 1, count), (height - 1, count))
    return obu(1, bits(*head, *sizes, (0, 64)))


def timed_sequence(height, width):
    """Return an AV1 sequence header with all optional fields before its sizes: timing information, a decoder model and
    two operating points.
    """
    point = ((1, 12), (8, 5), (1, 1), (1, 1), (511, 10), (511, 10), (1, 1), (1, 1), (9, 4))
    head = ((0, 3), (0, 1), (0, 1), (1, 1), (1, 32), (25, 32), (1, 1), (0b00111, 5), (1, 1), (9, 5), (7, 32), (3, 5))
    sizes = ((15, 4), (15, 4), (width - 1, 16), (height - 1, 16))
    return obu(1, bits(*head, (3, 5), (1, 1), (1, 5), *point, *point, *sizes, (0, 64)))


AV1C = box(b"av1C", b"\x81\0\0\0")
