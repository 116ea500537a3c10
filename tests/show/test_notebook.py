"""Tests of the notebook views of a pipeline, a batch and a certificate: the tables and pictures match the data."""

import io
import re
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.importers.verify import verify
from pixprep.show.html import ERRORS, THUMBNAILS
from support.images import NO_IMAGE, jpeg, noise, photo, png


class Tables(HTMLParser):
    """Parser that collects the text of all tables by row, and the other elements."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self._cell = [], [], None
        self.feed(html)

    def handle_starttag(self, tag, _):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self._cell = "" if tag in ("td", "th") else self._cell

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self._cell)
            self._cell = None


def pictures(html):
    data = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(b64decode(text)))) for text in data]


def test_a_pipeline_is_a_table_of_ops_and_shapes():
    pipeline = pp.Pipeline(
        [
            pp.decode(color="bgr", apply_exif_orientation=False), pp.letterbox(64, 96, name="canvas"),
            pp.normalize(mean=(0, 0.5, 0.5), std=0.5), pp.tensor(dtype="float16"), pp.transform(from_="canvas"),
            pp.original_size(), pp.flip("vertical", from_="canvas"),
            pp.tensor(name="levels", dtype="uint8", layout="hwc"),
        ],
        origin=pp.Origin(library="timm", version="1.0", name="resnet", profile="pillow"),
    )  # fmt: skip
    html = pipeline._repr_html_()
    assert html.startswith("<p>Pipeline of resnet, timm 1.0</p>")
    resized = "resize to fit into 64 x 96 (bilinear, antialiased; exactly Pillow's values)"
    assert Tables(html).rows == [
        ["op", "description", "result"],
        ["decode", "decode to BGR, ignore the EXIF orientation", "? x ? bgr, uint8 0..255"],
        ['letterbox "canvas"', f"{resized}, pad to 64 x 96, with the image in the center", "64 x 96 bgr, uint8 0..255"],
        ["normalize", "value * 0.00784314; value * 0.00784314 - 1", "64 x 96 bgr, real -1..2"],
        ["tensor", "output the image as float16 chw", "float16 [3, 64, 96] chw, values -1..2"],
        [
            "transform",
            "output scale_y, scale_x, offset_y, offset_x: image at this op = decoded image * scale + offset, "
            'from "canvas"',
            "float32 [4]",
        ],
        ["original_size", "output height, width: size of the decoded image", "int32 [2]"],
        ["flip", 'flip vertically, from "canvas"', "64 x 96 bgr, uint8 0..255"],
        ['tensor "levels"', "output the image as uint8 hwc", "uint8 [64, 96, 3] hwc, values 0..255"],
    ]


@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_a_batch_shows_its_outputs_its_first_tensors_as_pictures_and_its_errors(layout):
    pipeline = pp.Pipeline(
        [pp.decode(), pp.resize(height=128, width=128), pp.tensor(layout=layout, dtype="uint8"), pp.transform()]
    )
    black_and_white = np.zeros((128, 128, 3), np.uint8)
    black_and_white[:64, :, 0], black_and_white[64:, :, 1] = 255, 51
    with pp.Engine(pipeline, threads=2) as engine:
        batch = engine.run_batch([png(black_and_white), b"no image", jpeg(noise(9, 9))])
    html = batch._repr_html_()
    assert html.startswith("<p>Batch of 3 images, 1 failed</p>")
    shape = [3, 3, 128, 128] if layout == "chw" else [3, 128, 128, 3]
    ends = [batch.outputs["transform"][index] for index in (0, 2)]
    assert Tables(html).rows == [
        ["output", "dtype", "shape", "range"],
        ["tensor", "uint8", str(shape), "0 to 255"],
        ["transform", "float32", "[3, 4]", f"{np.min(ends):.4g} to {np.max(ends):.4g}"],
        ["image", "error"],
        ["1", f"[UNKNOWN_FORMAT] {NO_IMAGE}"],
    ]
    first, _ = pictures(html)
    assert np.array_equal(first, black_and_white)


def test_for_a_large_batch_the_first_pictures_and_errors_are_shown():
    pipeline = pp.Pipeline([pp.decode(), pp.resize(height=300, width=300), pp.tensor()])
    with pp.Engine(pipeline) as engine:
        html = engine.run_batch([photo()] * 20 + [b""] * 50)._repr_html_()
    assert len(pictures(html)) == THUMBNAILS
    assert all(max(picture.shape[:2]) <= 128 for picture in pictures(html))
    assert len(Tables(html).rows) == 2 + 1 + ERRORS
    assert "<p>and 30 more</p>" in html


def test_a_batch_without_results_has_no_range_and_no_picture():
    with pp.Engine(pp.presets.imagenet()) as engine:
        for images in ([], [b"x"]):
            html = engine.run_batch(images)._repr_html_()
            assert pictures(html) == []
            assert Tables(html).rows[1][-1] == "-"


def test_a_certificate_is_its_table_and_without_a_difference_has_no_picture():
    certificate = verify(pp.presets.imagenet(), images=[("china.jpg", photo())], generate=False)
    html = certificate._repr_html_()
    assert html.startswith(f"<p>{certificate.summary}</p>")
    assert [row[1] for row in Tables(html).rows] == ["stage", "decode", "resize", "tensor", "end to end"]
    assert pictures(html) == []
