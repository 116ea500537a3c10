"""Tests that outputs of an engine on a GPU equal the CPU's: fixed and open sizes, per-request inputs and random ops."""

import sys

import numpy as np
import pytest

import pixprep as pp
from gpu.played import AFTER_DECODE, PIPELINE, TENSOR, damaged, jpeg, mixed, on_gpu, same
from pixprep.cli import parser as cli
from pixprep.engine.decoders import structure
from support.images import bare, cmyk, noise, photo, png, renamed, scene, stills, with_exif
from support.images import jpeg as encode

pytestmark = pytest.mark.usefixtures("gpu")
STRICT = {"damage": "strict"}
CASES = {
    "plain": ({}, STRICT),
    "gray": ({"color": "gray"}, STRICT),
    "bgr": ({"color": "bgr"}, STRICT),
    "as stored": ({"apply_exif_orientation": False}, STRICT),
    "fast chroma, by libjpeg-turbo": ({"chroma": "fast"}, STRICT | {"decoder": "cpu"}),
    "on white": ({"alpha": "white"}, STRICT),
    "pillow": ({}, {"damage": "pillow"}),
    "lenient": ({}, {"damage": "lenient"}),
    "limits": ({}, STRICT | {"limits": pp.Limits(max_pixels=4000, formats=("jpeg", "png"))}),
    "by libjpeg-turbo": ({}, STRICT | {"decoder": "cpu"}),
    "CUDA": ({}, STRICT | {"decoder": "cuda"}),
    "fast IDCT": ({"idct": "fast"}, STRICT),
    "fast IDCT, by libjpeg-turbo": ({"idct": "fast"}, STRICT | {"decoder": "cpu"}),
    "structure": ({}, {}),
    "structure, gray": ({"color": "gray"}, {"limits": pp.Limits(max_pixels=4000, formats=("png",))}),
    "AVIF and HEIC": ({}, {"limits": pp.Limits(formats=("jpeg", *sorted({name.split()[0] for name in stills()})))}),
}
REQUEST_INPUTS = {
    "boxes": (
        [pp.crop(box="boxes"), pp.resize(height=30, width=40), pp.transform(), pp.tensor(dtype="uint8")],
        {"boxes": [[(0, 0, 60, 50), (9, 9, 5, 5), (3.6, 4.5, 30, 20), (900, 9, 950, 20)], [], [(1, 2, 50, 40)]]},
    ),
    "mirrors and colours": (
        [
            pp.pad(square=True, fill="paint"), pp.flip(when="turn"), pp.resize(height=30, width=40),
            pp.pad(44, 44, fill="paint"), pp.normalize(), pp.tensor(),
        ],
        {"turn": [True, False, True], "paint": [(9, 200, 7), (0, 0, 0), (255, 1, 2)]},
    ),
    "colours of a letterbox": (
        [pp.letterbox(44, 60, fill="paint"), pp.tensor(dtype="float16", layout="hwc")],
        {"paint": [(9, 200, 7), (0, 0, 0), (255, 1, 2)]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("case", REQUEST_INPUTS)
def test_per_request_inputs_give_the_cpu_engines_values_and_errors(case, color):
    ops, inputs = REQUEST_INPUTS[case]
    pipeline = pp.Pipeline([pp.decode(color=color), *ops])
    images = [jpeg(80, 60), jpeg(64, 64, 1), jpeg(50, 90, 2)]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images, inputs=inputs), theirs.run_batch(images, inputs=inputs)
    same(batch, expected)
    assert [*batch.rows] == [*expected.rows]
    assert any(error is None for error in expected.errors)
    assert len({array.tobytes() for array in expected["tensor"] if array.any()}) >= 3


@pytest.mark.parametrize("case", CASES)
def test_every_output_error_and_count_equals_the_cpu_engine_alone_and_in_a_batch(case):
    decode, options = CASES[case]
    pipeline, images = pp.Pipeline([pp.decode(**decode), *AFTER_DECODE]), mixed()
    if "damage" in options:
        images += damaged()
    on_cpu = {name: value for name, value in options.items() if name != "decoder"}
    with on_gpu(pipeline, **options) as ours, pp.Engine(pipeline, **on_cpu) as theirs:
        batch, expected = ours.run_batch(images), theirs.run_batch(images)
        same(batch, expected)
        assert (batch.recovered > 20) == (case in ("pillow", "lenient"))
        for index in range(0, len(images), 7):
            same(ours.run_batch([images[index]]), theirs.run_batch([images[index]]))


OPEN = {
    "as they are": [pp.resize(height=24, max_size=70), pp.tensor(dtype="uint8")],
    "plain kernels": [
        pp.resize(40, mode="scale", max_size=60, like="opencv"),
        pp.normalize(mean=0.5, std=0.5),
        pp.tensor(min_width=48, multiple=16, pad_level=(9, 0, 255)),
    ],
    "real values": [pp.resize(height=24, max_size=70, like="tensorflow"), pp.tensor(layout="hwc", multiple=8)],
    "levels": [
        pp.resize(40, side="longer"),
        pp.brightness(0.5),
        pp.rotate(20),
        pp.normalize(),
        pp.tensor(dtype="float16", layout="hwc", min_height=41, pad_value=(0.5, -2, 7)),
    ],
    "of one size": [pp.resize(height=24, max_size=70), pp.flip(), pp.tensor(min_width=70)],
    "resized behind a warp": [
        pp.resize(40, max_size=90),
        pp.rotate(20),
        pp.resize(24, max_size=70),
        pp.tensor(dtype="uint8"),
    ],
    "width first": [pp.resize(height=24, max_size=72), pp.tensor(layout="c1wh", multiple=4, pad_value=(1, 2, 3))],
    "a fourth channel": [
        pp.resize(height=24, max_size=70),
        pp.normalize(),
        pp.tensor(layout="hwc", multiple=8, pad_level=(9, 0, 255), channels=4),
    ],
    "one channel": [pp.resize(height=24, max_size=70), pp.grayscale(), pp.tensor(dtype="uint8", channels=1)],
    "one channel of the whole photo": [
        pp.grayscale(),
        pp.resize(height=24, max_size=70),
        pp.tensor(channels=1, pad_value=7),
    ],
}


@pytest.mark.parametrize("case", OPEN)
def test_open_sizes_and_their_padding_equal_the_cpu_engine(case):
    pipeline = pp.Pipeline([pp.decode(), *OPEN[case]])
    images = [jpeg(50, 60), jpeg(30, 200, 1), b"junk", jpeg(90, 31, 2), jpeg(50, 60, 3), jpeg(31, 31)]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images), theirs.run_batch(images)
        alone = [ours.run([image])[0] for image in images]
    assert isinstance(batch["tensor"], list) == (case != "of one size")
    assert len({type(tensor) for tensor in batch["tensor"]}) == 1  # the zeros for failed images must also be on the GPU
    for index, tensor in enumerate(expected["tensor"]):
        assert np.array_equal(batch["tensor"][index], tensor), index
        assert index == 2 or np.array_equal(alone[index], tensor), index
    for rows in (slice(None), slice(0, 1), slice(2, 3), slice(2, 5)):
        assert np.array_equal(batch.padded("tensor", rows), expected.padded("tensor", rows)), rows


@pytest.mark.parametrize("like", ["pillow", "opencv"])
@pytest.mark.parametrize("channels", [1, 4])
def test_stacked_tensors_with_other_channels_equal_the_cpu_engine(channels, like):
    """Rows of 37 pixels end in the middle of four values. With one channel, the noise equals that of the first of three
    channels.
    """
    gray, value = [pp.grayscale()] * (channels == 1), None if channels == 1 else 5
    for ops in (
        [],
        [pp.rotate(9)],
        [pp.normalize(scale="max")],
        [pp.normalize(), pp.random_erasing(1.0, value="random")],
    ):
        chain = [pp.resize(height=31, width=37, like=like), *gray, *ops]
        pipeline = pp.Pipeline([pp.pixels(), *chain, pp.tensor(channels=channels, pad_value=value)]).for_training()
        frames = [scene(50, 60), scene(70, 64, 1), scene(90, 51, 2)]
        places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=1, epoch=0, indices=range(3))]
        with on_gpu(pipeline) as ours, pp.Engine(pipeline, odd_range=True) as theirs:
            batch, expected = ours.run_batch(frames, places=places), theirs.run_batch(frames, places=places)
        assert batch.errors == [None] * 3
        assert np.array_equal(batch["tensor"], expected["tensor"])
        assert channels == 1 or (expected["tensor"][:, 3] == value).all()


@pytest.mark.parametrize("padding", [{}, {"multiple": 8}, {"min_width": 66}], ids=str)
@pytest.mark.parametrize("between", [[], [pp.elastic(40, 1)]], ids=["", "elastic"])
def test_erasing_in_tensors_of_open_size_equals_the_cpu(padding, between):
    ops = [pp.resize(32, max_size=64), *between, pp.normalize(), pp.random_erasing(1.0, value="random")]
    pipeline = pp.Pipeline([pp.pixels(), *ops, pp.tensor(**padding)]).for_training()
    images = [scene(50, 60), scene(70, 64, 1), scene(90, 51, 2)]
    places = [pipeline.plan.placing(each) for each in pipeline.plan.draw(seed=1, epoch=0, indices=range(3))]
    with on_gpu(pipeline) as ours, pp.Engine(pipeline) as theirs:
        batch, expected = ours.run_batch(images, places=places), theirs.run_batch(images, places=places)
    assert batch.errors == [None] * 3
    for index, tensor in enumerate(expected["tensor"]):
        assert np.array_equal(batch["tensor"][index], tensor), index


def test_every_image_is_decoded_at_full_size_even_if_a_fraction_would_suffice():
    """This includes images that the CPU decodes instead, so that the pixels do not depend on the decoder."""
    images = [jpeg(200, 300, 5), jpeg(300, 200, progressive=True), cmyk(), photo(), png(noise(200, 300))]
    reduced = pp.Pipeline([pp.decode(reduced=True), *AFTER_DECODE])
    with on_gpu(reduced) as ours, pp.Engine(PIPELINE) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


def test_without_strict_a_gpu_rejects_only_structural_damage():
    """nvImageCodec does not report damage in a JPEG. Files that it cannot decode at all are passed to the CPU, which
    rejects them.
    """
    images = damaged()
    with on_gpu() as ours, pp.Engine(PIPELINE) as theirs:
        found, all_of_it = ours.run_batch(images), theirs.run_batch(images)
    refused = [sum(error is not None for error in each.errors) for each in (found, all_of_it)]
    assert 20 < refused[0] < refused[1] - 20
    for encoded, error, expected in zip(images, found.errors, all_of_it.errors, strict=True):
        if error is not None:
            assert str(error) == str(expected)
        elif expected is not None:
            assert structure.structures([np.frombuffer(encoded, np.uint8)]) != [None]


def test_an_rgb_jpeg_has_the_cpu_decoders_pixels():
    """nvImageCodec would interpret the RGB data as YCbCr, while the CPU follows libjpeg's rule."""
    rgb = encode(scene(61, 83), keep_rgb=True)
    ycc = encode(scene(61, 83), subsampling=0)
    with on_gpu() as ours, pp.Engine(PIPELINE) as theirs:
        for encoded, fallbacks in (
            (rgb, 1),
            (renamed(ycc, b"RGB"), 0),
            (renamed(bare(ycc), b"RGB"), 1),
            (bare(ycc), 0),
        ):
            batch = ours.run_batch([encoded])
            same(batch, theirs.run_batch([encoded]))
            assert batch.fallbacks == fallbacks


@pytest.mark.parametrize("like", ["pillow", "pillow12", "torchvision", "torch", "opencv"])
def test_the_passes_of_every_library_have_the_cpu_engines_order(like):
    images = [jpeg(200, 60), jpeg(60, 200), jpeg(200, 40), jpeg(60, 40)]
    resize = pp.resize(height=40, width=40, like=like)
    pipeline = pp.Pipeline([pp.decode(), resize, pp.tensor(dtype="uint8")])
    with on_gpu(pipeline) as ours, pp.Engine(pipeline) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


def test_the_command_run_accepts_a_gpu(tmp_path, capsys):
    PIPELINE.save(tmp_path / "pipeline.json")
    (tmp_path / "photo.jpg").write_bytes(photo())
    (tmp_path / "broken.jpg").write_bytes(photo()[:999])
    files = [str(tmp_path / name) for name in ("pipeline.json", "photo.jpg", "broken.jpg")]
    lines = []
    for device in ("cpu", "gpu"):
        out = tmp_path / device
        assert cli.main(["run", *files, "--device", device, "--output", str(out), "--json"]) == 1
        lines.append(capsys.readouterr().out.replace(str(out), ""))
    assert lines[0] == lines[1]
    for name in PIPELINE.outputs:
        assert np.array_equal(*(np.load(tmp_path / device / f"photo.{name}.npy") for device in ("cpu", "gpu")))


@pp.operator("acme.host", version=1)
def host(pixels):
    """Limit pixel values to 99, as a user's operator for host arrays."""
    return np.minimum(pixels, 99)


JITTER = pp.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.2)
ZOOMED = [
    pp.random_zoom_out(fill=(9, 120, 250)), pp.random_iou_crop(), pp.resize(height=40, width=36), pp.random_flip(),
]  # fmt: skip
ELASTIC = [pp.resize(56), JITTER, pp.elastic(90, 2, fill=(9, 80, 200), p=0.7), pp.random_crop(40, padding=3)]
MARGINS = {"boxes": np.array([[5, 5, 30, 40], [20, 10, 60, 50]], np.float32)}
DRAWN = {
    "jitter, mirrored and cropped": ({}, [pp.random_resized_crop(48, 40), pp.random_flip(), JITTER]),
    "the whole image, then a window": ({"color": "bgr"}, [pp.resize(60), JITTER, pp.random_crop(50)]),
    "rotated to other sizes": (
        {},
        [pp.random_zoom_out(fill=9), pp.resize(48), pp.random_rotate(40, expand=True, fill=(9, 3, 77)),
         pp.random_autocontrast(), pp.random_equalize(), pp.random_gray(), pp.center_crop(44, 50),
         pp.tensor(only="training", dtype="float16", layout="hwc")],
    ),
    "affine, by torchvision": (
        {},
        [pp.resize(height=40, width=44), pp.random_affine(30, translate=(0.1, 0.2), scale=(0.8, 1.3), shear=9,
         filter="bilinear", like="torchvision"), pp.random_gaussian_blur(5), pp.random_sharpness(2), JITTER],
    ),
    "gray": ({"color": "gray"}, [pp.resize(50), JITTER, pp.random_rotate(20), pp.center_crop(40)]),
    "erased, of levels and of values": (
        {},
        [pp.resize(height=40, width=44), pp.random_erasing(value=(1, 2, 3)), pp.normalize(mean=0.5, std=0.25),
         pp.random_erasing(p=0.9, value=-1.5), pp.random_erasing(value="random", count=(1, 3))],
    ),
    "erased, values without levels": (
        {}, [pp.resize(height=40, width=44, like="tensorflow"), pp.random_erasing(), pp.random_erasing(p=1)]
    ),
    "erased patches": (
        {},
        [pp.random_resized_crop(56, 56), pp.normalize(), pp.random_erasing(value="random"), pp.random_erasing(p=0.9),
         pp.patches(14, merge_size=2, temporal_patch_size=2)],
    ),
    "by the plain kernels": ({}, [pp.resize(height=40, width=36, like="opencv"), JITTER]),
    "summed, between other steps": (
        {"color": "bgr"},
        [JITTER, pp.resize(height=40, width=44), pp.aug_mix(fill=(9, 3, 77)), pp.random_rotate(20),
         pp.center_crop(36), pp.random_erasing(value=(1, 2, 3)), pp.normalize(mean=0.5, std=0.25),
         pp.random_erasing(value="random")],
    ),
    "displaced, beside an operator": ({}, [*ELASTIC, host(), pp.elastic(20, 1), pp.random_erasing(1.0)]),
    "warped like DALI, blurred like OpenCV, and curves": (
        {},
        [pp.resize(50), pp.rotate(13, like="dali", filter="bilinear", padding_mode="edge"), pp.center_crop(44),
         pp.gaussian_blur(5, 1.3, like="opencv", only="training"), pp.gamma((0.6, 1.5)), pp.tone_curve()],
    ),
    "zoom out": ({}, ZOOMED),
    "zoom out, turned and mirrored": ({"color": "bgr"}, [pp.random_flip(p=0.7), pp.random_flip("vertical"), *ZOOMED]),
    "zoom out, gray": ({"color": "gray"}, [pp.random_zoom_out(fill=7), *ZOOMED[1:]]),
    "zoom out, by the plain kernels": ({}, [*ZOOMED[:2], pp.resize(height=40, width=36, like="opencv")]),
    "a drawn size, cropped": ({}, [pp.random_shortest_size((40, 56, 71), 80), pp.random_crop(36), pp.random_flip()]),
    "a drawn scale, in a margin": ({}, [pp.scale_jitter(60), pp.random_crop(48, pad_if_needed=True, fill=5)]),
    "crop with a margin": ({}, [pp.random_crop(60, padding=8, pad_if_needed=True, fill=5)]),
    "reduced on the CPU alone": ({"reduced": True}, [pp.random_resized_crop(16, scale=(0.9, 1.0))]),
}  # fmt: skip
"""(Fields of ``decode``, the ops). ``TENSOR`` is appended unless the ops contain a tensor."""


@pytest.mark.parametrize(
    ("name", "most"), [*((name, None) for name in DRAWN), *((name, 60_000) for name in [*DRAWN][:3])]
)
def test_random_ops_equal_the_cpu(name, most, monkeypatch):
    decode, ops = DRAWN[name]
    tail = [] if isinstance(ops[-1], type(TENSOR)) else [TENSOR]
    pipeline, whole = (pp.Pipeline([pp.decode(**decode | more), *ops, *tail]) for more in ({}, {"reduced": False}))
    images = [jpeg(60 + index % 13, 64 + index % 5, index, subsampling=0) for index in range(24)] + [b"no image"]
    images += [with_exif(6), png(noise(70, 66)), jpeg(200, 64, 1), jpeg(70, 300, 2)]
    assert bool(pipeline.plan.unsupported_by_cuda) == name.startswith(("displaced", "summed"))
    numbers = pipeline.plan.draw(seed=2, epoch=0, indices=range(len(images)))
    ours_at, theirs_at = ([each.plan.placing(one, MARGINS) for one in numbers] for each in (pipeline, whole))
    with on_gpu(pipeline) as engine, pp.Engine(whole) as cpu:
        if most:
            monkeypatch.setattr(sys.modules["pixprep.gpu.kernel"], "MIDDLE_BYTES", most)
        ours = engine.run_batch(images, places=ours_at)
        same(ours, cpu.run_batch(images, places=theirs_at))
        assert sum(error is None for error in ours.errors) >= 26  # long images may exceed a limit
        assert len(np.unique(ours["tensor"][:24].reshape(24, -1), axis=0)) == 24


def test_a_pipeline_with_alpha_runs_on_the_cpu():
    pipeline = pp.Pipeline([pp.decode(alpha="keep"), pp.resize(height=30, width=40), pp.normalize(), pp.tensor()])
    assert pipeline.plan.unsupported_by_cuda == ("alpha",)
    images = [png(noise(70, 66, 4)), jpeg(80, 60), png(noise(50, 40))]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        same(ours.run_batch(images), theirs.run_batch(images))


SERVED = {
    "a tensor without levels beside them": [
        pp.resize(48, name="small"), pp.gamma(0.8), pp.rotate(90, expand=True), pp.contrast(1.3),
        pp.center_crop(40), pp.tensor(name="changed"), pp.center_crop(40, from_="small"),
        pp.tensor(name="unchanged"),
    ],
    "colours before margins": [
        pp.contrast(1.5), pp.hue(0.1), pp.pad(square=True, fill=(9, 120, 250)), pp.resize(height=20, width=30),
        pp.normalize(), pp.tensor(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SERVED)
def test_served_pixel_values_equal_the_cpu(name):
    pipeline, images = pp.Pipeline([pp.decode(), *SERVED[name]]), mixed()
    with on_gpu(pipeline, damage="strict") as engine, pp.Engine(pipeline) as cpu:
        same(engine.run_batch(images), cpu.run_batch(images))


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_a_loader_has_the_batches_of_the_cpu_even_with_broken_samples(on_error):
    pipeline = pp.Pipeline([*PIPELINE.ops[:2], pp.random_flip(), *PIPELINE.ops[2:]]).for_training()
    source = [
        {"image": b"no image" if index in (3, 9) else jpeg(60 + index, 80, index), "label": index}
        for index in range(16)
    ]
    options = {"batch_size": 8, "shuffle": True, "on_error": on_error, "max_errors": 2}
    with pp.Loader(source, pipeline, **options) as cpu, pp.Loader(source, pipeline, device="gpu", **options) as ours:
        for _ in range(2):
            for batch, expected in zip(ours, cpu, strict=True):
                assert batch.draws == expected.draws
                for name in ("label", "index", "attempt"):
                    assert np.array_equal(batch[name], expected[name])
                for name in ("original_size", "transform"):
                    assert np.array_equal(batch[name], expected[name])
                # the two decoders round differently
                assert np.abs(batch["tensor"].astype(int) - expected["tensor"].astype(int)).mean() < 3
        assert [each.index for each in ours.errors] == [each.index for each in cpu.errors]
        assert len(ours.errors) == 2


def test_a_chain_runs_on_the_cpu_before_a_pipeline_on_the_gpu():
    ops = [pp.decode(), pp.random_flip(), pp.letterbox(40, 48), pp.boxes(), pp.normalize(), pp.tensor()]
    pipeline, box = pp.Pipeline(ops).for_training(), np.array([[5, 9, 40, 30]], np.float32)
    source = [{"image": jpeg(60 + index, 80, index), "boxes": box, "labels": [index]} for index in range(8)]
    options = {"batch_size": 4, "mix": [pp.Mosaic(height=64), pp.random_warp(9), pp.MixUp(p=0.5)]}
    with pp.Loader(source, pipeline, **options) as cpu, pp.Loader(source, pipeline, device="gpu", **options) as ours:
        for batch, expected in zip(ours, cpu, strict=True):
            assert batch["mix"] == expected["mix"]
            assert np.array_equal(batch["tensor"], expected["tensor"])
            assert all(map(np.array_equal, batch["boxes"], expected["boxes"]))


def test_a_plan_without_cuda_kernels_has_the_pixels_of_the_cpu_engine(gpu):  # noqa: ARG001
    """The CPU decodes such images, at reduced size if the pipeline allows it, and the tensors are copied to the GPU."""
    tensors = [pp.tensor(name="photo"), pp.clahe(from_="small", only="serving"), pp.tensor(name="levels")]
    pipeline = pp.Pipeline([pp.decode(reduced=True), pp.resize(height=30, width=40, name="small"), *tensors])
    images = [*mixed(), jpeg(300, 200, progressive=True), jpeg(640, 480, 3)]
    with on_gpu(pipeline, damage="strict") as ours, pp.Engine(pipeline) as theirs:
        same(batch := ours.run_batch(images), theirs.run_batch(images))
        assert all(type(tensor).__name__ == "Array" for tensor in batch.outputs.values())
        assert ours.lanes == theirs.lanes
        assert ours.decoders == theirs.decoders
