"""Encodes the outputs of a model that are pictures as PNG or JPEG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pixprep.engine.decoders.turbo import jpeg_of
from pixprep.errors import ImageError, PixprepError
from pixprep.files import named, npy_stems, write
from pixprep.postprocessing.pictures import Picture, draw
from pixprep.serving.embedded.client import Answer
from pixprep.serving.embedded.request import pixels_of
from pixprep.show.drawing import to_png

Encoding = Literal["png", "jpeg"]
SIGNATURES = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg"}
"""File suffix of an encoded picture, by the first bytes of the picture."""


def encode(
    outputs: Mapping[str, npt.NDArray[Any]], name: str, picture: Picture, photo: bytes, *, encoding: Encoding = "png"
) -> bytes:
    """Draw an output for one photo and encode it.

    Args:
        outputs: Outputs for the photo, see ``draw``.
        name: Name of the output.
        picture: Declaration of the output.
        photo: The encoded photo. It is decoded, and its EXIF orientation is applied, only if the picture shows the
            photo.
        encoding: Format of the result. JPEG has quality 90, and does not support an alpha channel.

    Raises:
        PixprepError: See ``draw``; or JPEG was requested for a picture with an alpha channel.
        ImageError: The photo cannot be decoded.
    """
    if encoding == "jpeg" and picture.draw == "alpha":
        raise PixprepError("JPEG does not support an alpha channel: choose PNG")
    pixels = draw(outputs, name, picture, None if picture.draw == "plain" else pixels_of(photo, "rgb"))
    if encoding == "png":
        return to_png(pixels, compress_level=1)
    return jpeg_of(np.ascontiguousarray(np.broadcast_to(np.atleast_3d(pixels), (*pixels.shape[:2], 3))))


def encoded_picture(array: npt.NDArray[Any]) -> tuple[bytes, str] | None:
    """Return the picture in a BYTES output for one photo and its file suffix, or None for other outputs."""
    if array.dtype != object or array.size != 1 or not isinstance(content := array.reshape(-1)[0], bytes):
        return None
    return next(((content, suffix) for first, suffix in SIGNATURES.items() if content.startswith(first)), None)


def saving(folder: Path, pictures: Mapping[str, Picture], photos: Sequence[Path]) -> Callable[[Answer], Answer]:
    """Return a function that saves the pictures of a response, for the argument ``finish`` of ``client.send``.

    The declared pictures become ``STEM.OUTPUT.png``. Outputs that a model has encoded as PNG or JPEG are saved without
    a declaration. If a picture cannot be drawn, the function returns the response with an error.

    Args:
        folder: Folder of the pictures, which is created. It must not contain a photo.
        pictures: Declarations by output.
        photos: All photos that are sent.

    Raises:
        PixprepError: A photo is in the folder. The returned function raises PixprepError if the model does not have the
            declared outputs, if none of its outputs is a picture, or if a file cannot be written.
    """
    with named(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        where = folder.resolve()
        if inside := [photo for photo in photos if photo.resolve().parent == where]:
            raise PixprepError(f"{folder} contains the photo {inside[0].name}: choose a different folder for pictures")
    stems = dict(zip(photos, npy_stems(photos), strict=True))

    def finish(answer: Answer) -> Answer:
        if answer.error:
            return answer
        check_outputs(pictures, answer.outputs)
        found = {name: each for name, array in answer.outputs.items() if (each := encoded_picture(array))}
        try:
            photo = answer.path.read_bytes() if any(each.draw != "plain" for each in pictures.values()) else b""
            found |= {name: (encode(answer.outputs, name, each, photo), ".png") for name, each in pictures.items()}
        except (PixprepError, ImageError, OSError) as error:
            return replace(answer, outputs={}, error=str(error))
        if not found:
            raise PixprepError(
                f"none of the outputs {', '.join(answer.outputs)} is an encoded picture: declare one, such as "
                f"--picture {next(iter(answer.outputs))}=map,range=0..1"
            )
        saved = {name: folder / f"{stems[answer.path]}.{name}{suffix}" for name, (_, suffix) in found.items()}
        for name, path in saved.items():
            with named(path, "cannot be written"):
                write(path, found[name][0])
        return replace(
            answer, outputs={name: each for name, each in answer.outputs.items() if name not in saved}, saved=saved
        )

    return finish


def check_outputs(pictures: Mapping[str, Picture], outputs: Collection[str]) -> None:
    """Check that a model has all outputs that the declared pictures require.

    Raises:
        PixprepError: An output is missing.
    """
    for name, picture in pictures.items():
        if name not in outputs:
            raise PixprepError(f'--picture {name}: the model has no output "{name}", but {", ".join(outputs)}')
        if missing := [each for each in picture.needs if each not in outputs]:
            raise PixprepError(
                f"--picture {name}: a picture with the size of the photo needs the output {' and '.join(missing)}: add "
                f"{'these ops' if len(missing) > 1 else 'this op'} before tensor, or declare size=output"
            )
