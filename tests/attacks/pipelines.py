"""Text of pipeline files that tests corrupt."""

HEAD = '{"format": "pixprep/1", "ops": [{"op": "decode"}, '
TAIL = '{"op": "center_crop", "height": 8}, {"op": "tensor"}]}'
VALID = HEAD + TAIL


def with_op(fields):
    """Return a pipeline whose second op has these fields, as JSON."""
    return HEAD + "{" + fields + "}, " + TAIL
