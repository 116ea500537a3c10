"""Attack: The header of an ``.npy`` file declares terabytes, Python objects or an absurd number. The file is passed to
``pixprep send`` or uploaded to the page.

Defence: NumPy reads the file without pickles, and every error becomes an ``ImageError``.

Outcome: The file is rejected with a one-line message. Before the fix, a shape with a 20-digit number caused a
traceback.
"""

import numpy as np
import pytest

import pixprep as pp
from pixprep.serving.embedded.request import npy, pixels_of

HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}"
HEADERS = {
    "a shape of terabytes": HEADER.format("'|u1'", (1 << 40, 1, 3)),
    "a side of 20 digits": HEADER.format("'|u1'", (99999999999999999999, 1, 3)),
    "a negative side": HEADER.format("'|u1'", (-1, 4, 3)),
    "objects": HEADER.format("'|O'", (1,)),
    "a call": HEADER.format("__import__('os').abort()", (1,)),
    "brackets": "(" * 5000,
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_lying_array_is_an_error_of_its_image(case):
    header = HEADERS[case].encode()
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(100)
    with pytest.raises(pp.ImageError, match=r"\[CORRUPT\] an .npy file: ") as caught:
        pixels_of(content, "rgb")
    assert len(str(caught.value)) < 300


def test_a_valid_array_is_returned():
    array = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert np.array_equal(pixels_of(npy(array), "rgb"), array)
