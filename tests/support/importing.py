"""Helpers for the tests of importers: photos, error messages and damaged files."""

import random
from functools import cache

import msgspec
import numpy as np
import pytest

from pixprep import Engine, Pipeline, PipelineError
from support.images import jpeg, noise, photo, png, read, scene, with_exif
from support.processors import inputs_for


@cache
def photos():
    """Return two large photos, which most pipelines shrink, and a portrait photo with an odd height and an odd width,
    which most pipelines enlarge.
    """
    portrait = np.ascontiguousarray(np.asarray(read(photo("flower")))[40:371, 200:417])
    return [photo("china"), photo("flower"), png(portrait)]


def awkward(sizes):
    """Return photos, scenes and noise of each size, and files in unusual formats."""
    return {f"{make.__name__} {size}": png(make(*size)) for make in (scene, noise) for size in sizes} | {
        "photo": photo(),
        "flower": photo("flower"),
        "odd jpeg": jpeg(scene(333, 501)),
        "turned": with_exif(6, size=(240, 400)),
        "mirrored": with_exif(7, size=(101, 77)),
        "gray": png(scene(99, 140)[:, :, :1]),
    }


def ours(pipeline, images):
    """Return the pipeline's tensor for each image."""
    with Engine(pipeline) as engine:
        return engine.run(images, inputs=inputs_for(pipeline, len(images)))


def refusal(importer, *arguments, **options):
    """Return the message of the PipelineError that an importer raises."""
    with pytest.raises(PipelineError) as caught:
        importer(*arguments, **options)
    return str(caught.value)


def only(op, side):
    """Return a copy of an op that runs only in the given mode, ``serving`` or ``training``. None means that it runs in
    both modes.
    """
    return msgspec.structs.replace(op, only=side)


def damaged(whole, count=300):
    """Return ``count`` copies of a file with a few changed bytes each. Every other copy is truncated."""
    rng = random.Random(4)
    for index in range(count):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data[: rng.randrange(len(data))] if index % 2 else data)


def assert_imported_or_refused(importer, sources):
    """Import damaged files.

    Assert that some of them are imported, and that the others raise a PipelineError with a one-line message.

    Returns:
        The pipelines of the files that were imported.
    """
    pipelines, messages = [], []
    for source in sources:
        try:
            pipelines.append(importer(source))
        except PipelineError as error:
            messages.append(str(error))
    assert pipelines
    assert messages
    assert all(isinstance(pipeline, Pipeline) for pipeline in pipelines)
    assert [message for message in messages if not message.isprintable() or len(message) > 1500] == []
    return pipelines
