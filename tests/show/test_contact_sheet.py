"""Tests of ``pixprep preview``: it shows tensors in their true colours, boxes at their positions, and random parameters
as text.
"""

import numpy as np
import pytest
from PIL import Image

import pixprep as pp
from pixprep.cli.parser import main
from pixprep.show.contact_sheet import contact_sheet, panels
from pixprep.show.drawing import CROP, class_colour
from support.broken_data import make
from support.images import png
from support.records import coco_annotations, write_coco, write_folder

ORANGE = tuple(int(CROP[at : at + 2], 16) for at in (1, 3, 5))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def batch_of(source, pipeline, **options):
    with pp.Loader(source, pipeline, batch_size=len(source), shard=(0, 1), **options) as loader:
        return next(iter(loader))


@pytest.mark.parametrize("options", [{}, {"layout": "w1hc"}, {"dtype": "float16"}, {"color": "bgr"}])
def test_a_panel_has_the_colours_of_the_photo_and_the_text_of_the_parameters(tmp_path, options):
    write_folder(tmp_path)
    source = pp.read.files(tmp_path)
    color = options.pop("color", "rgb")
    ops = [
        pp.decode(color=color),
        pp.random_resized_crop(height=256, width=256),
        pp.random_flip(),
        *serving_counterpart(256),
    ]
    normalize = pp.normalize(mean=MEAN[:: -1 if color == "bgr" else 1], std=STD)
    training = pp.Pipeline([*ops, normalize, pp.tensor(**options)]).for_training()
    levels = pp.Pipeline([*ops, pp.tensor(dtype="uint8", layout="hwc")]).for_training()
    batch, expected = batch_of(source, training), batch_of(source, levels)["tensor"]
    shown = panels(training, batch, source.classes)
    for row, panel in enumerate(shown):
        pixels = expected[row][:, :, ::-1] if color == "bgr" else expected[row]
        assert np.array_equal(panel.pixels, pixels.repeat(2, axis=0).repeat(2, axis=1))
        crop = batch.placed[row].draws["random_resized_crop#0"]
        assert panel.words[0] == (
            "random_resized_crop#0: top {top}, left {left}, height {height}, width {width}".format(**crop)
        )
        assert panel.words[1] == f"random_flip#0: flip {batch.placed[row].draws['random_flip#0']['flip']}"
        assert panel.title == source[row]["name"]
        assert panel.line.startswith(f"label {('china', 'flower')[source[row]['label']]}, 90 x 120, sample {row}")


def test_parameters_of_colour_ops_are_shown_below_the_picture(tmp_path):
    write_folder(tmp_path)
    source = pp.read.files(tmp_path)
    drawing = [
        pp.rand_augment(),
        pp.random_affine(9, (0.1, 0.1)),
        pp.random_erasing(p=1.0),
        pp.random_gaussian_blur(3, p=0),
    ]
    pipeline = pp.Pipeline(
        [pp.decode(), *serving_counterpart(64), pp.random_resized_crop(64), *drawing, pp.tensor()]
    ).for_training()
    batch = batch_of(source, pipeline)
    for row, panel in enumerate(panels(pipeline, batch, source.classes)):
        draws = batch.placed[row].draws
        steps = [
            f"{each['op']} {each['magnitude']:.4g}" if "magnitude" in each else each["op"]
            for each in draws["rand_augment#0"]["ops"]
        ]
        (rectangle,) = draws["random_erasing#0"]["rectangles"]
        assert panel.words[1] == f"rand_augment#0: ops [{', '.join(steps)}]"
        assert panel.words[2].startswith(f"random_affine#0: angle {draws['random_affine#0']['angle']:.4g}, translate [")
        assert panel.words[3] == f"random_erasing#0: rectangles [{rectangle}]"
        assert panel.words[4] == "random_gaussian_blur#0: sigma none"


def frames(panel):
    """Return a mask of the orange pixels, which are the frames of boxes."""
    return (panel.pixels == ORANGE).all(axis=2)


@pytest.fixture
def objects(tmp_path):
    content = coco_annotations(3)
    write_coco(tmp_path, 3, content)
    found = pp.read.coco(tmp_path / "images", tmp_path / "instances.json")
    return [{name: found[index][name] for name in ("image", "boxes")} for index in range(len(found))]


def detection(*first, **boxes):
    """Return a pipeline with boxes. They belong to its last tensor, or to its first tensor, which is mirrored."""
    resize = pp.resize(height=256, width=256)
    before = [pp.flip(), pp.boxes(**boxes), pp.tensor(name="mirrored"), pp.flip()] if first else [pp.boxes(**boxes)]
    return pp.Pipeline([pp.decode(), resize, *before, pp.tensor()]).for_training()


@pytest.mark.parametrize(
    "boxes",
    [
        {"format": "xywh"},
        {"format": "cxcywh"},
        {"normalized": True},
        {"format": "cxcywh", "normalized": True},
        {"pad": 7},
    ],
)
@pytest.mark.parametrize("first", [(), (True,)])
def test_boxes_are_drawn_in_the_same_place_for_every_format(objects, boxes, first):
    plain, other = detection(*first), detection(*first, **boxes)
    count = len(plain.outputs)
    expected, found = (panels(each, batch_of(objects, each))[count - 1 :: count] for each in (plain, other))
    assert not frames(expected[0]).any()
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours.pixels, theirs.pixels)
    # Sample 1 has a single box, from (0.5, 2.25) to (10.5, 22.375). The image has 120 x 90 pixels, like the panel.
    rows, columns = np.nonzero(frames(expected[1]))
    side = len(expected[1].pixels)
    bottom, right = 22.375 / 90 * side, 10.5 / 120 * side
    assert abs(rows.max() + 1 - bottom) <= 1
    assert abs(columns.min() - 0.5 / 120 * side) <= 1
    assert abs(columns[rows == rows.max()].max() + 1 - right) <= 1


@pytest.mark.parametrize("turn", [pp.rotate(180), pp.rotate(90, expand=True), pp.affine(translate=(40, 24))])
@pytest.mark.parametrize("last", [True, False], ids=["boxes last", "boxes first"])
def test_boxes_are_drawn_where_a_rotated_image_has_them(objects, turn, last):
    resize, boxes = pp.resize(height=256, width=256), pp.boxes()
    middle = [turn, boxes] if last else [boxes, pp.tensor(name="straight"), turn]
    turned = pp.Pipeline([pp.decode(), resize, *middle, pp.tensor()]).for_training()
    panel = panels(turned, batch_of(objects, turned))[1 if last else 3]
    rows, columns = np.nonzero(frames(panel))
    left, top, right, bottom = np.array([0.5, 2.25, 10.5, 22.375]) * ([256 / 120, 256 / 90] * 2)
    if turn == pp.rotate(180):
        left, right, top, bottom = 256 - right, 256 - left, 256 - bottom, 256 - top
    elif turn == pp.rotate(90, expand=True):
        left, right, top, bottom = top, bottom, 256 - right, 256 - left
    else:
        left, right, top, bottom = left + 40, right + 40, top + 24, bottom + 24
    scale = len(panel.pixels) / 256
    assert [rows.min(), columns.min(), columns[rows == rows.max()].max() + 1, rows.max() + 1] == pytest.approx(
        np.array([top, left, right, bottom]) * scale, abs=1.5
    )


def test_a_class_has_one_colour_in_frames_texts_and_masks_and_texts_do_not_overlap():
    photo = np.full((128, 128, 3), 100, np.uint8)
    corners = [[10, 10, 60, 60], [12, 12, 50, 50], [90, 70, 128, 128]]
    shapes = np.zeros((3, 128, 128), np.uint8)
    for shape, (left, top, right, bottom) in zip(shapes, corners, strict=True):
        shape[top:bottom, left:right] = 1
    sample = {"image": png(photo), "boxes": corners, "labels": [0, 1, 0], "masks": shapes}
    ops = [pp.decode(), pp.resize(height=256, width=256), pp.boxes(), pp.masks(), pp.tensor(dtype="uint8")]
    pipeline = pp.Pipeline(ops).for_training()
    (panel,) = panels(pipeline, batch_of([sample], pipeline), ("car", "a long name " * 9))
    colours = [class_colour(0), class_colour(1)]
    first, second = ((panel.pixels == colour).all(axis=2) for colour in colours)
    for has, (left, top, right, bottom) in zip((first, second, first), np.array(corners) * 4, strict=True):
        assert has[top : bottom - 1, left].all()  # the frame of the box is drawn
        assert has[bottom - 1, left : right - 1].all()
    # the text of the third box is above the box, not at its end
    assert first[400:420, :].sum() < first[260:280, :].sum()
    assert np.nonzero(second.any(axis=0))[0].max() <= 48 + 256 + 6  # a label takes at most half of the picture's width
    halves = [tuple((100 + level) // 2 for level in colour) for colour in colours]
    assert (panel.pixels[220, 160], panel.pixels[150, 150], panel.pixels[400, 400]) == (
        pytest.approx(halves[0]),
        pytest.approx(halves[1]),
        pytest.approx(halves[0]),
    )


def test_every_tensor_is_shown_with_its_own_parameters_and_boxes(tmp_path):
    write_folder(tmp_path)
    boxed = [{**pp.read.files(tmp_path)[index], "boxes": [[0, 0, 120, 90]]} for index in range(3)]
    ops = [
        pp.decode(name="photo"), pp.random_resized_crop(64, name="large"), pp.boxes(min_visible=0),
        pp.tensor(name="one", only="training"), pp.random_resized_crop(32, from_="photo", name="small"),
        pp.random_erasing(p=1.0), pp.tensor(name="two", only="training"),
    ]  # fmt: skip
    pipeline = pp.Pipeline(ops).for_training()
    shown = panels(pipeline, batch_of(boxed, pipeline))
    assert [panel.line.partition(":")[0] for panel in shown] == ['"one"', '"two"'] * 3
    assert [[words.partition(":")[0] for words in panel.words] for panel in shown[:2]] == [
        ["large"],
        ["small", "random_erasing#0"],
    ]
    assert frames(shown[0]).any()
    assert not frames(shown[1]).any()
    assert contact_sheet(boxed, pipeline, count=2).height == contact_sheet(boxed, pipeline, count=1).height


def test_a_sheet_has_all_samples_and_names_the_broken_ones(tmp_path):
    broken = make(tmp_path, 32)
    source = pp.read.files(tmp_path)
    pipeline = pp.Pipeline([pp.decode(), pp.center_crop(64), pp.tensor()]).for_training()
    sheet = contact_sheet(source, pipeline, count=32, seed=1)
    whole = pp.read.files(sorted(path for path in tmp_path.rglob("*.jpg") if "-" not in path.name))
    heights = [contact_sheet(whole, pipeline, count=count).height for count in (21, 24)]
    row = heights[1] - heights[0]
    assert sheet.height == heights[1] + 3 * row + len(broken) * 23  # 8 + 3 rows of three, and a line for each


def test_the_same_seed_and_epoch_give_the_same_sheet(tmp_path):
    write_folder(tmp_path)
    pipeline = pp.Pipeline(
        [pp.decode(), pp.random_resized_crop(height=64, width=64), *serving_counterpart(64), pp.tensor()]
    ).for_training()
    sheets = [
        np.asarray(contact_sheet(pp.read.files(tmp_path), pipeline, count=6, seed=seed, epoch=epoch))
        for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    assert np.array_equal(sheets[0], sheets[1])
    assert not any(np.array_equal(sheets[0], other) for other in sheets[2:])


def test_the_command_writes_either_mode(tmp_path, capsys):
    write_folder(tmp_path / "data")
    ops = [pp.decode(), pp.random_resized_crop(height=64, width=64), *serving_counterpart(64), pp.tensor()]
    pp.Pipeline(ops).save(tmp_path / "p.json")
    words = ["preview", str(tmp_path / "p.json"), str(tmp_path / "data"), "--count", "4", "--output"]
    assert main([*words, str(tmp_path / "s.png")]) == 0
    assert capsys.readouterr().err == f"{tmp_path / 's.png'}: shows the samples after training preprocessing\n"
    assert main([*words, str(tmp_path / "t.png"), "--serving"]) == 0
    assert capsys.readouterr().err == f"{tmp_path / 't.png'}: shows the samples after serving preprocessing\n"
    with Image.open(tmp_path / "s.png") as training, Image.open(tmp_path / "t.png") as serving:
        assert training.width == serving.width == 1696
        assert training.tobytes() != serving.tobytes()


def serving_counterpart(side):
    """Return serving ops that correspond to a random_resized_crop."""
    return [pp.resize(side, only="serving"), pp.center_crop(side, only="serving")]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("s.jpg", "s.jpg: the picture is written as PNG: choose a file name that ends in .png"),
        ("data/s.png", "data/s.png is inside the data set, where it would become a sample: choose a file outside data"),
    ],
)
def test_previews_that_cannot_be_written_are_rejected(tmp_path, monkeypatch, capsys, output, text):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "data")
    pp.Pipeline([pp.decode(), pp.center_crop(64), pp.tensor()]).save(tmp_path / "p.json")
    assert main(["preview", "p.json", "data", "--output", output]) == 1
    assert capsys.readouterr().err == f"pixprep: {text}\n"
    assert not (tmp_path / output).exists()


def test_labels_are_drawn_over_the_picture_without_ignored_and_background_labels():
    photo = np.full((40, 60, 3), 100, np.uint8)
    mask = np.zeros((40, 60), np.uint8)
    mask[:10], mask[10:20], mask[20:30] = 1, 2, 255
    sample = {"image": png(photo), "mask": mask, "masks": np.stack([mask == 1, mask == 2])}
    for op in (pp.mask(), pp.masks()):
        ops = [pp.decode(), pp.crop(0, 0, 40, 60), op, pp.tensor(dtype="uint8")]
        pipeline = pp.Pipeline(ops).for_training()
        (panel,) = panels(pipeline, batch_of([sample], pipeline))
        rows = panel.pixels[:: len(panel.pixels) // 40, 0]
        assert (rows[20:] == 100).all()
        assert (rows[:10] == rows[0]).all()
        assert (rows[10:20] == rows[10]).all()
        assert len({tuple(rows[at].tolist()) for at in (0, 10, 20)}) == 3
