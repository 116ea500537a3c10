"""Write tests/parity/frozen/dali: serialized DALI pipelines, and the results of DALI's CPU operators for the two
photos.

    .venv-frozen/bin/python tests/parity/freeze_dali.py

It needs nvidia-dali (2.4 wrote the committed files) and no GPU. The files contain everything except the paths and
source lines of this script, which DALI writes into each operator.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dmath
from nvidia.dali.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "parity" / "frozen" / "dali"
PHOTOS = sorted((ROOT / "client_examples" / "images").glob("*.jpg"))
MEAN, STD = ([255 * x for x in values] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def classic(encoded: Any, device: str = "cpu") -> Any:
    """Resize, crop and normalize, as almost every classifier in DALI does."""
    pixels = fn.decoders.image(encoded, device=device, output_type=types.RGB)
    pixels = fn.resize(pixels, resize_shorter=256, interp_type=types.INTERP_LINEAR)
    return fn.crop_mirror_normalize(
        pixels, dtype=types.FLOAT, output_layout="CHW", crop=(224, 224), mean=MEAN, std=STD, mirror=0
    )


def classic_gpu(encoded: Any) -> Any:
    """Do the same as ``classic``, on a GPU."""
    return classic(encoded, "mixed")


def mirrored(encoded: Any) -> Any:
    """Use a different filter, rounding, layout and dtype, and normalize with a scale and a shift."""
    pixels = fn.resize(fn.decoders.image(encoded), resize_longer=48, interp_type=types.INTERP_CUBIC)
    return fn.crop_mirror_normalize(
        pixels, dtype=types.FLOAT16, output_layout="HWC", crop_h=25, crop_w=33, rounding="truncate", mirror=1,
        mean=MEAN, std=STD, scale=0.5, shift=3,
    )  # fmt: skip


def cover(encoded: Any) -> Any:
    """Return BGR values, resized without antialiasing, so that the two filters are equal."""
    pixels = fn.decoders.image(encoded, output_type=types.BGR)
    pixels = fn.resize(
        pixels, size=[30, 40], mode="not_smaller", min_filter=types.INTERP_LANCZOS3, mag_filter=types.INTERP_LANCZOS3,
        antialias=False,
    )  # fmt: skip
    return fn.crop(pixels, crop=(27, 34))


def gray(encoded: Any) -> Any:
    """Decode one channel with a fast IDCT, and resize both axes. Separate operators cast and transpose the values."""
    pixels = fn.decoders.image(encoded, output_type=types.GRAY, use_fast_idct=True, adjust_orientation=False)
    pixels = fn.resize(pixels, resize_x=29, resize_y=33, subpixel_scale=False)
    return fn.transpose(fn.cast(pixels, dtype=types.FLOAT), perm=[2, 0, 1])


def cropped(encoded: Any) -> Any:
    """Crop during decoding, flip, and normalize in a separate operator."""
    pixels = fn.decoders.image_crop(encoded, crop=(300, 401))
    pixels = fn.flip(fn.resize(pixels, size=[24, 24], interp_type=types.INTERP_TRIANGULAR), vertical=1)
    return fn.normalize(fn.copy(pixels), mean=127.5, stddev=60, scale=2)


def corner(encoded: Any) -> Any:
    """Crop the upper left corner after a resize with nearest neighbour."""
    pixels = fn.resize(fn.decoders.image(encoded), resize_shorter=50, interp_type=types.INTERP_NN)
    return fn.crop_mirror_normalize(pixels, crop=(20, 30), crop_pos_x=0, crop_pos_y=0, std=255.0)


def padded(encoded: Any) -> Any:
    """Place the image on a canvas, and normalize it with expressions."""
    pixels = fn.pad(
        fn.resize(fn.decoders.image(encoded), resize_longer=40), axes=(0, 1), shape=(42, 44), fill_value=114
    )
    return fn.transpose((pixels / 255.0 - 0.5) / 0.25, perm=[2, 0, 1])


def turned(encoded: Any) -> Any:
    """Rotate the image by 180°, then by -90°, and write the normalization as a product and a sum."""
    pixels = fn.rotate(fn.resize(fn.decoders.image(encoded), size=[31, 40]), angle=180, keep_size=True)
    pixels = fn.rotate(pixels, angle=-90)
    return 0.5 * (fn.cast(pixels, dtype=types.FLOAT) / 255) + 3.0


def two_outputs(encoded: Any) -> Any:
    """Return two outputs that branch after the resize."""
    pixels = fn.resize(fn.decoders.image(encoded), resize_shorter=40)
    thumbnail = fn.crop(pixels, crop=(16, 16), name="thumbnail")
    return thumbnail, fn.crop_mirror_normalize(pixels, crop=(32, 32), mean=127, std=128.0)


def random_mirror(encoded: Any) -> Any:
    """Mirror the image at random as in training. Another operator computes the argument."""
    pixels = fn.resize(fn.decoders.image(encoded), size=32)
    return fn.crop_mirror_normalize(pixels, mirror=fn.random.coin_flip())


def stretched(encoded: Any) -> Any:
    """Resize the height and the width regardless of the aspect ratio, as the ResNet-50 classifier in dali_backend's
    examples does.
    """
    pixels = fn.resize(fn.decoders.image(encoded, device="cpu", output_type=types.RGB), resize_x=224, resize_y=224)
    return fn.crop_mirror_normalize(pixels, dtype=types.FLOAT, output_layout="CHW", crop=(224, 224), mean=MEAN, std=STD)


def letterboxed(encoded: Any) -> Any:
    """Make the letterbox of Ultralytics' guide to DALI: the image fits into 640 x 640 and is centred on a gray
    canvas.
    """
    pixels = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    pixels = fn.resize(
        pixels, resize_x=640, resize_y=640, mode="not_larger", interp_type=types.INTERP_LINEAR, antialias=False
    )
    pixels = fn.crop(pixels, crop=(640, 640), out_of_bounds_policy="pad", fill_values=114)
    return fn.crop_mirror_normalize(
        pixels, dtype=types.FLOAT, output_layout="CHW", mean=[0.0, 0.0, 0.0], std=[255.0, 255.0, 255.0]
    )


def small_letterbox(encoded: Any) -> Any:
    """Make a letterbox with a centred image on a gray canvas, as served detectors use it."""
    pixels = fn.resize(fn.decoders.image(encoded), size=[60, 64], mode="not_larger", antialias=False)
    pixels = fn.crop(pixels, crop=(60, 64), out_of_bounds_policy="pad", fill_values=114)
    return fn.crop_mirror_normalize(pixels, dtype=types.FLOAT, std=[255.0, 255.0, 255.0])


def exact_letterbox(encoded: Any) -> Any:
    """Make the same letterbox, with padding that is computed like Ultralytics' from the size in the header."""
    pixels = fn.resize(fn.decoders.image(encoded), resize_longer=64, antialias=False, subpixel_scale=False)
    height, width = sides(encoded)
    scale = 64 / dmath.max(height, width)
    places = []
    for side in (height, width):
        free = 64 - dmath.floor(side * scale + 0.5)
        places.append(dmath.floor(free * 0.5 - 0.1 + 0.5) / dmath.max(free, 1.0))
    return fn.crop(
        pixels, crop=(64, 64), crop_pos_y=places[0], crop_pos_x=places[1], out_of_bounds_policy="pad", fill_values=114
    )


def sliced_letterbox(encoded: Any) -> Any:
    """Compute the size and the corner of a letterbox in floats. Return the size together with the tensor."""
    height, width = sides(encoded)
    scale = dmath.min(64 / width, 60 / height)
    rows, columns = dmath.floor(height * scale + 0.5), dmath.floor(width * scale + 0.5)
    pixels = fn.resize(fn.decoders.image(encoded), resize_x=columns, resize_y=rows)
    start = fn.stack(-dmath.floor((60 - rows) / 2), -dmath.floor((64 - columns) / 2))
    pixels = fn.slice(
        pixels, start=fn.cast(start, dtype=types.INT32), shape=[60, 64], axes=[0, 1], out_of_bounds_policy="pad",
        fill_values=[1, 2, 3],
    )  # fmt: skip
    return pixels, fn.stack(width, height)


def whole_letterbox(encoded: Any) -> Any:
    """Compute the sizes of a letterbox in integers, and paste the image on a canvas."""
    shape = fn.peek_image_shape(encoded)
    height, width = shape[0:1], shape[1:2]
    most = fn.reductions.max(fn.cat(width, height), axes=[0])
    wide, high = (fn.cast(side * 64 // most, dtype=types.FLOAT) for side in (width, height))
    pixels = fn.resize(fn.decoders.image(encoded), resize_x=wide, resize_y=high, subpixel_scale=False)
    return fn.paste(pixels, ratio=1.0, min_canvas_size=64, fill_value=[0, 9, 0]), fn.cat(height, width)


def canvas(encoded: Any) -> Any:
    """Place the image on a canvas of its own size and crop a corner. Also return the size before the resize."""
    pixels, size = fn.resize(
        fn.decoders.image(encoded), resize_longer=40, interp_type=types.INTERP_CUBIC, save_attrs=True
    )
    pixels = fn.paste(pixels, ratio=1.1, min_canvas_size=40, paste_x=0, paste_y=0, fill_value=0)
    return fn.crop_mirror_normalize(pixels, crop=(40, 40), crop_pos_x=0, crop_pos_y=0, mean=MEAN, std=STD), size


def corner_padded(encoded: Any) -> Any:
    """Pad with 0 after normalization. The shorter side is resized, limited by the longer side."""
    pixels = fn.resize(fn.decoders.image(encoded), resize_shorter=40, max_size=50)
    return fn.crop_mirror_normalize(
        pixels, crop=(52, 51), crop_pos_x=0, crop_pos_y=0, out_of_bounds_policy="pad", mean=MEAN, std=STD
    )


def colours(encoded: Any) -> Any:
    """Apply colour operators to the pixels of BGR photos."""
    pixels = fn.decoders.image(encoded, output_type=types.BGR)
    pixels = fn.resize(pixels, size=[40, 44], interp_type=types.INTERP_NN)
    return (
        fn.hsv(pixels, hue=70.0, saturation=0.7, value=1.1),
        fn.color_twist(pixels, hue=-20.0, saturation=1.2, brightness=0.9, contrast=1.1),
        fn.saturation(fn.hue(pixels, hue=-100.0), saturation=0.5),
        fn.contrast(fn.brightness(pixels, brightness=1.1, brightness_shift=0.02), contrast=0.8),
        fn.brightness_contrast(pixels, brightness=0.9, contrast=1.2, contrast_center=100.0),
    )


def blurred(encoded: Any) -> Any:
    """Blur with a sigma and with a window size, and erase rectangles."""
    pixels = fn.gaussian_blur(fn.resize(fn.decoders.image(encoded), size=[40, 44]), sigma=1.2)
    pixels = fn.gaussian_blur(pixels, window_size=3)
    return fn.erase(pixels, anchor=[2, 3, 20, 30], shape=[9, 8, 50, 7], axis_names="HW", fill_value=[9, 200, 30])


def constants(encoded: Any) -> Any:
    """Compute with one number per channel, subtract values from a number, and swap channels."""
    pixels = fn.decoders.image_slice(encoded, rel_start=(0.1, 0.2), rel_shape=(0.7, 0.6), axes=(0, 1))
    pixels = fn.color_space_conversion(fn.resize(pixels, size=[40, 44]), image_type=types.RGB, output_type=types.BGR)[
        2:38, 3:-4
    ]
    mean, std = (types.Constant(np.float32(values)) for values in (MEAN, STD))
    pixels = 1 - (pixels - mean) / std
    return fn.reinterpret(fn.reshape(pixels, shape=[36, 37, 3], layout="HWC"), layout="HWC")


def shapes(encoded: Any) -> Any:
    """Resize to a given length of one side. Also return the shape of the photo and a ratio."""
    pixels = fn.decoders.image(encoded)
    height, width = sides(encoded)
    small = fn.crop(fn.resize(pixels, resize_x=40), crop=(40, 40), out_of_bounds_policy="pad", fill_values=7)
    return small, pixels.shape(), fn.stack(20 / height, 30 / width), fn.resize(pixels, size=[20, 30])


def sides(encoded: Any) -> tuple[Any, Any]:
    """Compute with the height and width from the header, in float32."""
    shape = fn.peek_image_shape(encoded, dtype=types.FLOAT)
    return shape[0], shape[1]


def slanted(encoded: Any) -> Any:
    """Rotate the image twice by angles that are not multiples of 90 degrees. One rotation expands the image, and the
    other keeps its size.
    """
    pixels = fn.rotate(fn.resize(fn.decoders.image(encoded), size=[31, 40]), angle=33.3, fill_value=114)
    return fn.rotate(pixels, angle=-8, keep_size=True, interp_type=types.INTERP_NN)


def mapped(encoded: Any) -> Any:
    """Apply two affine maps, one in each direction."""
    pixels = fn.warp_affine(
        fn.decoders.image(encoded), matrix=[8.1, 1.3, -20.0, -0.9, 8.7, 30.0], size=[41, 53], fill_value=9
    )
    return fn.warp_affine(pixels, matrix=[0.9, 0.2, 3.0, -0.3, 0.8, 9.5], size=[33, 47], inverse_map=False)


PIPELINES: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (
        classic, classic_gpu, mirrored, cover, gray, cropped, corner, padded, turned, two_outputs, random_mirror,
        stretched, letterboxed, small_letterbox, exact_letterbox, sliced_letterbox, whole_letterbox, canvas,
        corner_padded, colours, blurred, constants, shapes, slanted, mapped,
    )
}  # fmt: skip
_LARGE = ("classic", "classic_gpu", "random_mirror", "stretched", "letterboxed")
RUN = tuple(name for name in PIPELINES if name not in _LARGE)
"""Names of the pipelines that are run to freeze their results. They are small and deterministic."""


def make(build: Callable[[Any], Any], batch_size: int = 8) -> Pipeline:
    """Return a pipeline for the CPU. ``mixed`` operators can be serialized, but not run."""
    pipeline = Pipeline(batch_size=batch_size, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        outputs = build(fn.external_source(device="cpu", name="DALI_INPUT_0", dtype=types.UINT8, ndim=1))
        pipeline.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))
    return pipeline


def without_traces(serialized: bytes) -> bytes:
    """Return the message without the arguments that contain an operator's stack trace."""
    kept = b""
    for number, field, value in fields(serialized):
        if number != 5:  # an operator
            kept += field
            continue
        body = b"".join(
            part for key, part, inner in fields(value) if key != 4 or b"_origin_stack" not in inner[:20]
        )  # an argument begins with its name
        kept += b"\x2a" + varint(len(body)) + body
    return kept


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, all bytes, and the bytes of the value of each field in a message."""
    offset = 0
    while offset < len(message):
        start = offset
        tag, offset = unvarint(message, offset)
        if tag & 7 == 2:
            size, value = unvarint(message, offset)
            offset = value + size
        else:
            value = offset
            offset = unvarint(message, offset)[1] if tag & 7 == 0 else offset + 4
        yield tag >> 3, message[start:offset], message[value:offset]


def varint(value: int) -> bytes:
    """Encode a varint: seven bits per byte, the lowest first."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def unvarint(data: bytes, offset: int) -> tuple[int, int]:
    """Decode a varint. Return its value and the offset of the next field."""
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset


def run(pipeline: Pipeline, encoded: Sequence[bytes]) -> list[list[np.ndarray[Any, Any]]]:
    """Return the results for all images, as one list per output."""
    pipeline.build()
    pipeline.feed_input("DALI_INPUT_0", [np.frombuffer(image, np.uint8) for image in encoded])
    return [[np.array(array) for array in output] for output in pipeline.run()]


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, build in PIPELINES.items():
        (FOLDER / f"{name}.dali").write_bytes(without_traces(make(build).serialize()))
        if name in RUN:
            for index, output in enumerate(run(make(build), [photo.read_bytes() for photo in PHOTOS])):
                for photo, array in zip(PHOTOS, output, strict=True):
                    expected[f"{name}/{index}/{photo.stem}"] = array
    np.savez_compressed(FOLDER / "expected.npz", **expected)
