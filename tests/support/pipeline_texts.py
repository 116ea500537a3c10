"""Texts of valid pipeline files, which the tests then corrupt."""

HEAD = '{"format": "pixprep/1", "ops": [{"op": "decode"}, '
TAIL = '{"op": "center_crop", "height": 8}, {"op": "tensor"}]}'
VALID = HEAD + TAIL


def with_op(fields):
    """Return a pipeline as JSON whose second op has these fields."""
    return HEAD + "{" + fields + "}, " + TAIL
