"""Writes small data sets in every format that ``pixprep.read`` supports, without the libraries of the formats where
possible.
"""

import io
import json
import struct
import tarfile
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

import pixprep as pp
from pixprep import read
from support.broken_data import small_jpeg

CLASSES = ("china", "flower")


def refusals(source):
    """Return the error message of each unreadable sample, by its index."""
    found = {}
    for index in range(len(source)):
        try:
            source[index]
        except pp.ImageError as error:
            found[index] = str(error)
    return found


@cache
def _crc_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


def masked_crc(data):
    """Return the CRC-32C, computed from its definition and masked as in TensorFlow."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _crc_table()[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    """Return the bytes of one record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def message(number, value):
    """Encode one field of a Protocol Buffers message. The value is either bytes, or an integer that is encoded as a
    varint.
    """
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value % (1 << 64))
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def example(**features):
    """Return a tf.train.Example with lists of bytes, integers or floats. In the names, __ is replaced with a slash."""
    entries = b""
    for name, values in features.items():
        if values and isinstance(values[0], bytes):
            feature = message(1, b"".join(message(1, value) for value in values))
        elif values and isinstance(values[0], float):
            feature = message(2, message(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            feature = message(3, message(1, b"".join(_varint(value % (1 << 64)) for value in values)))
        entries += message(1, message(1, name.replace("__", "/").encode()) + message(2, feature))
    return message(1, entries)


def flower(index, **more):
    """Return a tf.train.Example of one of the sample photos."""
    encoded = small_jpeg(index)
    return example(image__encoded=[encoded], image__class__label=[index % 2], name=[b"n%d" % index], **more)


def write_tfrecord(path, count=6, start=0):
    """Write a file of flower photos. Return the offset and the size of each record."""
    records = [record(flower(index)) for index in range(start, start + count)]
    path.write_bytes(b"".join(records))
    ends = np.cumsum([0, *map(len, records)]).tolist()
    return [(start, end - start) for start, end in pairwise(ends)]


def write_folder(folder, count=6):
    """Write images into one folder per class."""
    for index in range(count):
        path = folder / CLASSES[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(small_jpeg(index))


def write_table(path, count=6):
    """Write a table, and its images in the same folder."""
    write_folder(path.parent, count)
    rows = [f"{CLASSES[index % 2]}/{index}.jpg,{CLASSES[index % 2]},someone {index}" for index in range(count)]
    path.write_text("\n".join(["image,label,who", *rows]) + "\n")


def coco_annotations(count=6):
    """Return annotations of images with the ids 100, 110, ... Image number n has n boxes. The ids of the two categories
    have a gap.
    """
    images = [{"id": 100 + 10 * n, "file_name": f"{n}.jpg", "height": 90, "width": 120} for n in range(count)]
    boxes = [
        {
            "id": 1000 * n + m,
            "image_id": 100 + 10 * n,
            "category_id": (3, 7)[m % 2],
            "bbox": [m + 0.5, 2.25, 10 + m, 20.125],
            "iscrowd": int(m == 2),
            "area": 200.5,
            "segmentation": [[0.5, 1, 2, 3]],
        }
        for n in range(count)
        for m in range(n)
    ]
    categories = [{"id": 7, "name": "flower", "supercategory": "x"}, {"id": 3, "name": "china"}]
    return {"info": {"year": 2026}, "images": images, "annotations": boxes, "categories": categories}


def write_coco(folder, count=6, content=None):
    """Write ``images`` and ``instances.json``."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / "images" / f"{index}.jpg").write_bytes(small_jpeg(index))
    (folder / "instances.json").write_text(json.dumps(content or coco_annotations(count)))


def voc_xml(index, objects=None, size=(90, 120)):
    """Return an XML file in the format of the Pascal VOC development kit."""
    objects = [("cat", (1, 1, 120, 90)), ("dog", (8, 12, 52.5, 60))][: 1 + index % 2] if objects is None else objects
    text = "".join(
        f"<object><name>{name}</name><pose>Left</pose><truncated>1</truncated><difficult>{number % 2}</difficult>"
        f"<bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox>"
        "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>"
        for number, (name, (x1, y1, x2, y2)) in enumerate(objects)
    )
    sides = f"<size><width>{size[1]}</width><height>{size[0]}</height><depth>3</depth></size>"
    return f"<annotation><filename>../../{index}.jpg</filename>{sides}{text}</annotation>"


def write_parquet(path, count=6, start=0, *, group=2, rows=None, **options):
    """Write rows in the format of Hugging Face's datasets: a struct for the image, a label, and lists."""
    import pyarrow as pa  # noqa: PLC0415  (where it is)
    import pyarrow.parquet as pq  # noqa: PLC0415

    made = [
        {"image": {"bytes": small_jpeg(n), "path": f"{n}.jpg"}, "label": n % 2, "area": [1.5 * n] * (n % 3)}
        for n in range(start, start + count)
    ]
    pq.write_table(pa.Table.from_pylist(rows or made), path, row_group_size=group, **options)


def write_lmdb(path, count=6, **others):
    """Write images and texts with keys that start at 1, as in text recognition data sets.

    If ``count`` is not given, write the given values instead.
    """
    import lmdb  # noqa: PLC0415  (where it is)

    values = {f"image-{n:09d}": small_jpeg(n - 1) for n in range(1, count + 1)}
    values |= {f"label-{n:09d}": f"word {n} é".encode() for n in range(1, count + 1)}
    values |= {"num-samples": str(count).encode()} if count else {}
    with lmdb.open(str(path), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for key, value in {**values, **others}.items():
            transaction.put(key.encode(), value)


def write_voc(folder, count=6):
    """Write JPEGImages, Annotations and the image set ``train``, which does not contain the first image."""
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / "JPEGImages" / f"{index}.jpg").write_bytes(small_jpeg(index))
        (folder / "Annotations" / f"{index}.xml").write_text(voc_xml(index))
    (folder / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{index}\n" for index in range(1, count)))


def tar_bytes(members, **options):
    """Return a tar file with these members. Each member is (name, content) or (name, fields of TarInfo)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", **options) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                for field, value in content.items():
                    setattr(info, field, value)
                archive.addfile(info)
    return file.getvalue()


def tar_members(count=6, start=0):
    """Return the members of WebDataset samples: an image, a label, JSON and text."""
    for index in range(start, start + count):
        yield f"some/{index:04}.jpg", small_jpeg(index)
        yield f"some/{index:04}.cls", b"%d" % (index % 2)
        yield f"some/{index:04}.json", json.dumps({"index": index}).encode()
        yield f"some/{index:04}.txt", f"photo {index} é".encode()


# Functions that write a data set and return its source, one per format.

CHECKSUMS = find_spec("google_crc32c") is not None


def _folder(path, count):
    write_folder(path, count)
    return read.files(path)


def _list(path, count):
    write_folder(path, count)
    return read.files([path / ("china", "flower")[n % 2] / f"{n}.jpg" for n in range(count)], labels=range(count))


def _table(path, count):
    write_table(path / "t.csv", count)
    return read.table(path / "t.csv")


def _tfrecord(path, count):
    write_tfrecord(path / "0.tfrecord", 2)
    write_tfrecord(path / "1.tfrecord", count - 2, 2)
    return read.tfrecord(path / "*.tfrecord", label="image/class/label", checksums=CHECKSUMS)


def _coco(path, count):
    write_coco(path, count)
    return read.coco(path / "images", path / "instances.json")


def _voc(path, count):
    write_voc(path, count)
    return read.voc(path)


def _tar(path, count):
    (path / "0.tar").write_bytes(tar_bytes(tar_members(2)))
    (path / "1.tar").write_bytes(tar_bytes(tar_members(count - 2, 2)))
    return read.tar([path / "0.tar", path / "1.tar"], about="json")


def _parquet(path, count):
    pytest.importorskip("pyarrow", reason="NO PYARROW: pip install pyarrow", exc_type=ImportError)
    write_parquet(path / "0.parquet", 3)
    write_parquet(path / "1.parquet", count - 3, 3)
    return read.parquet(path / "*.parquet", label="label")


def _rows(_, count):
    return read.rows([{"image": small_jpeg(n), "label": n} for n in range(count)], label="label")


def _columns(_, count):
    return read.rows({"image": [small_jpeg(n) for n in range(count)], "label": list(range(count))}, label="label")


def _lmdb(path, count):
    pytest.importorskip("lmdb", reason="NO LMDB: pip install lmdb", exc_type=ImportError)
    if not (path / "words").exists():  # the data set may be open, so it is not written again
        write_lmdb(path / "words", count)
    return read.lmdb(path / "words", image="image-%09d", text="label-%09d")


MAKERS = {
    "folder": _folder,
    "list": _list,
    "table": _table,
    "tfrecord": _tfrecord,
    "coco": _coco,
    "voc": _voc,
    "tar": _tar,
    "parquet": _parquet,
    "rows": _rows,
    "columns": _columns,
    "lmdb": _lmdb,
}
"""Functions that write a data set with a given number of samples into a folder, and return its source."""
