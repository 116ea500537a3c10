"""Creates JPEGs with arbitrary sampling factors, which no installed encoder writes. Every block has random
coefficients.
"""

import struct

import numpy as np

from support.images import read

FACTORS = [(h, v) for h in range(1, 5) for v in range(1, 5)]
SAMPLINGS = [(luma, chroma, chroma) for luma in FACTORS for chroma in FACTORS]
"""Every sampling in which both chroma planes are equal. libjpeg decodes 144 of them."""
SAMPLINGS += [((2, 2), one, other) for one in FACTORS[:6] for other in FACTORS[:6] if one != other]
_FREQUENCIES = 5


def sampled(factors, height=37, width=53, *, only=None):
    """Return a baseline JPEG with one scan per component. ``factors`` are the (horizontal, vertical) sampling factors
    of each component.

    Args:
        factors: Sampling factors of each component.
        height, width: Size of the image.
        only: Index of a component. If given, return a grayscale JPEG with the same blocks as this component's plane.
    """
    most = [max(each[axis] for each in factors) for axis in (0, 1)]
    planes = [(-(-height * v // most[1]), -(-width * h // most[0])) for h, v in factors]
    numbers = range(len(factors)) if only is None else [only]
    shown = [(*factors[number], number + 1) if only is None else (1, 1, 1) for number in numbers]
    frame = struct.pack(">BHHB", 8, *((height, width) if only is None else planes[only]), len(shown))
    frame += b"".join(bytes([name, h << 4 | v, 0]) for h, v, name in shown)
    encoded = b"\xff\xd8" + _segment(0xDB, bytes([0]) + bytes([8] * 64)) + _segment(0xC0, frame)
    # Huffman codes of 4 bits: the DC table has one per bit length; the AC table has EOB and one per bit length.
    for kind in (0x00, 0x10):
        encoded += _segment(0xC4, bytes([kind, 0, 0, 0, 12, *[0] * 12, *range(12)]))
    for number, (_, _, name) in zip(numbers, shown, strict=True):
        rows, columns = (-(-side // 8) for side in planes[number])
        encoded += _segment(0xDA, bytes([1, name, 0, 0, 63, 0]))
        encoded += _scan(np.random.default_rng(number), rows * columns)
    return encoded + b"\xff\xd9"


def repeated(factors, height=37, width=53):
    """Return the RGB pixels of ``sampled``, uint8 (height, width, 3), with chroma upsampled by repeating values.

    Pillow decodes the planes. The colours follow libjpeg's fixed-point formula (jdcolor.c). Return None if libjpeg does
    not support the ratio of the factors.
    """
    most = [max(each[axis] for each in factors) for axis in (0, 1)]
    planes = []
    for number, (h, v) in enumerate(factors):
        if most[0] % h or most[1] % v:
            return None
        plane = np.asarray(read(sampled(factors, height, width, only=number)))
        plane = plane.repeat(most[1] // v, 0).repeat(most[0] // h, 1)
        planes.append(plane[:height, :width].astype(np.int64))
    y, cb, cr = planes[0], planes[1] - 128, planes[2] - 128
    half = 1 << 15
    red = y + (91881 * cr + half >> 16)
    green = y + (-22554 * cb - 46802 * cr + half >> 16)
    blue = y + (116130 * cb + half >> 16)
    return np.clip(np.stack([red, green, blue], axis=2), 0, 255).astype(np.uint8)


def _segment(marker, content):
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def _scan(numbers, blocks):
    means = numbers.integers(-90, 91, blocks)
    bits = []
    for difference in np.diff(means, prepend=0):
        values = numbers.integers(1, 16, _FREQUENCIES) * numbers.choice([-1, 1], _FREQUENCIES)
        bits += [_coded(int(difference)), *(_coded(int(value)) for value in values), "0000"]
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    packed = int(text, 2).to_bytes(len(text) // 8, "big")
    return packed.replace(b"\xff", b"\xff\0")


def _coded(value):
    """Return the Huffman code of a value's bit length, followed by the bits. If the first bit is 0, the value is
    negative.
    """
    size = abs(value).bit_length()
    low = value if value > 0 else value + (1 << size) - 1
    return f"{size:04b}" + (f"{low:0{size}b}" if size else "")
