"""Attack: A pipeline file's origin, an output name of a batch or a photo's name contains HTML, and is shown in a
notebook.

Defence: All text is escaped, and control characters are made visible. Pictures are embedded as data.

Outcome: The names are shown as text, and do not create any tag, attribute or URL.
"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import pixprep as pp
from pixprep.engine.batch import Batch
from pixprep.importers.verify.report import Certificate, Omission, Row, Tolerance

NAMES = (
    "<script>alert(1)</script>", "</td></table><img src=x onerror=alert(1)>", '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)", "<!--", "\x00<\x00script>", "&lt;script&gt;",
)  # fmt: skip


class Tags(HTMLParser):
    """Parser that collects every tag with its attributes, and all text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            assert name in ("style", "src", "title")
            assert name != "src" or re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", value)

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        raise AssertionError(data)


def pipeline(name):
    origin = pp.Origin(library=name, version=name, name=name, profile="pillow")
    return pp.Pipeline([pp.decode(), pp.resize(height=8, width=8), pp.tensor()], origin=origin)


def batch(name):
    errors = [None, pp.ImageError("CORRUPT", name)]
    return Batch({name: np.zeros((2, 3, 4, 4), np.float32)}, errors, [0.0] * 2, [0.0] * 2)


def certificate(name):
    row = Row(output=name, stage="resize", original=name, tolerance=Tolerance(0, 0, name))
    row.add(name, np.zeros((4, 4, 3), np.uint8), np.ones((4, 4, 3), np.uint8))
    return Certificate([row], [Omission(name, name, name, name)], [Omission(name, name, name)])


CASES = [(shown, name) for shown in (pipeline, batch, certificate) for name in NAMES]


# an origin with control characters is rejected earlier
@pytest.mark.parametrize(
    ("shown", "name"), [case for case in CASES if case[0] is not pipeline or case[1].isprintable()]
)
def test_a_name_is_shown_as_text_everywhere(shown, name):
    found = Tags(shown(name)._repr_html_())
    assert found.tags <= {"p", "table", "tr", "th", "td", "img"}
    assert name.replace("\x00", "\\x00") in found.text
