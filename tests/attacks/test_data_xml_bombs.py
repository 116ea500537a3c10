"""Attack: A Pascal VOC XML file expands to gigabytes through entities, reads other files, or never ends.

Defence: A file that defines a document type is rejected before it is parsed. The parser decodes the bytes as UTF-8
whatever encoding the file declares, and rejects null bytes, so that no encoding can hide a definition. A file may have
at most 4 MiB.

Outcome: Only the sample of this file is rejected, with a one-line message, at little cost of time and memory.
"""

import os
import tracemalloc

import pytest

import pixprep as pp
from attacks.repositories import patience
from pixprep import read
from support.records import voc_xml, write_voc

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(12))
XML = {
    "billion laughs": f"<!DOCTYPE a [{LAUGHS}]><annotation>&l11;</annotation>",
    "quadratic": f'<!DOCTYPE a [<!ENTITY x "{"x" * 50_000}">]><annotation>{"&x;" * 50_000}</annotation>',
    "another file": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>',
    "a network": '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><annotation/>',
    "parameter entities": '<!DOCTYPE a [<!ENTITY % x SYSTEM "file:///dev/zero"> %x;]><annotation/>',
    "an entity that nobody defined": "<annotation>&l11;</annotation>",
    "UTF-16": f"<?xml version='1.0' encoding='UTF-16'?><!DOCTYPE a [{LAUGHS}]><annotation/>".encode("utf-16"),
    "UTF-7": b"<?xml version='1.0' encoding='UTF-7'?>+ADwAIQ-DOCTYPE a +AFsAPAAh-ENTITY x 'y'>]><a>&x;</a>",
    "UTF-16 without a mark": f"<!DOCTYPE a [{LAUGHS}]><annotation/>".encode("utf-16-be"),
    "UTF-32": f"<!DOCTYPE a [{LAUGHS}]><annotation/>".encode("utf-32"),
    "5 MiB": "<annotation>" + " " * (5 << 20) + "</annotation>",
    "a name of 3 MiB": f"<annotation><object><name>{'x' * (3 << 20)}</name></object></annotation>",
    "attributes": "<annotation " + " ".join(f"a{n}='1'" for n in range(200_000)),
    "a size of 3 million digits": voc_xml(0).replace("<height>90<", f"<height>{'9' * (3 << 20)}<") * 2,
}


def put(folder, xml):
    write_voc(folder, 3)
    (folder / "Annotations" / "1.xml").write_bytes(xml if isinstance(xml, bytes) else xml.encode())
    return read.voc(folder)


@pytest.mark.parametrize("name", XML)
def test_an_xml_bomb_breaks_only_its_sample(tmp_path, name):
    source = put(tmp_path, XML[name])
    tracemalloc.start()
    with patience(), pytest.raises(pp.ImageError) as caught:
        source[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.reason == "BAD_RECORD"
    assert len(str(caught.value)) < 300
    assert peak < 32 << 20
    assert len(source[0]["boxes"]) == 1
    assert len(source[2]["boxes"]) == 1


@pytest.mark.parametrize("inside", ["<object>", "<a>"])
def test_half_a_million_nested_elements_do_not_hang(tmp_path, inside):
    close = inside.replace("<", "</")
    source = put(tmp_path, f"<annotation>{inside * 230_000}{close * 230_000}</annotation>")
    with patience(20):
        assert "boxes" in result(source)


def result(source):
    """Return the sample, or the error message."""
    try:
        return source[1]
    except pp.ImageError as error:
        return f"no boxes: {error}"


def test_endless_digits_are_not_a_size(tmp_path):
    source = put(tmp_path, voc_xml(1).replace("<height>90<", f"<height>{'9' * 5000}<"))
    assert "size" not in source[1]


def test_a_fifo_is_not_an_annotation(tmp_path):
    source = put(tmp_path, "")
    (tmp_path / "Annotations" / "1.xml").unlink()
    os.mkfifo(tmp_path / "Annotations" / "1.xml")
    with patience(), pytest.raises(pp.ImageError, match=r"\[UNREADABLE\] .*1.xml: cannot be read: Not a regular file"):
        source[1]
