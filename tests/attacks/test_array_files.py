"""Attack: the header of an ``.npy`` file for ``pixprep send`` or the page declares terabytes, objects, or an absurd
number.

Defence: NumPy reads it without pickles, and every error becomes an ``ImageError``. Outcome: one line. Before the fix, a
shape of 20 digits caused a traceback.
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
