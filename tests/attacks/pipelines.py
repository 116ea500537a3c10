"""The text of pipeline files, part of which a test corrupts."""

HEAD = '{"format": "pixprep/1", "ops": [{"op": "decode"}, '
TAIL = '{"op": "center_crop", "height": 8}, {"op": "tensor"}]}'
VALID = HEAD + TAIL


def with_op(fields):
    """A pipeline whose second op has these fields, as JSON."""
    return HEAD + "{" + fields + "}, " + TAIL
