"""Tests of the notes of ``build``, ``check`` and the page about preprocessing that a model repeats or lacks."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import pixprep as pp
from pixprep.cli import main
from pixprep.serving.repository import build, check, side_notes
from pixprep.serving.repository.door import Door, door_notes, explain_onnx
from pixprep.serving.repository.ports import load_onnx
from serving.classifier_models import save
from support.faces import PLAN

MEAN, STD = np.array(pp.presets.IMAGENET_MEAN), np.array(pp.presets.IMAGENET_STD)
IMAGENET = pp.normalize(pp.presets.IMAGENET_MEAN, pp.presets.IMAGENET_STD)
UNIT = pp.normalize()
CENTERED = pp.normalize(0.5, 0.5)
CAFFE = pp.normalize((123.675, 116.28, 103.53), 1.0, scale=1)

# Last nodes of every model in this file; their input is "begin".
REST = [
    ("Conv", ["begin", "kernel"], ["conv"]),
    ("BatchNormalization", ["conv", *"GBMV"], ["norm"]),
    ("GlobalAveragePool", ["norm"], ["pool"]),
    ("Flatten", ["pool"], ["logits"]),
]


def channels(values, shape=(1, 3, 1, 1)):
    return np.asarray(values, np.float32).reshape(shape)


def pipeline(*normalize, resize=True, layout="chw"):
    size = [pp.resize(256), pp.center_crop(224)] if resize else [pp.center_crop(224)]
    return pp.Pipeline([pp.decode(), *size, *normalize, pp.tensor(layout=layout)])


def notes(folder, nodes, normalize=IMAGENET, constants=None, shape=("n", 3, 224, 224), **options):
    """Return the notes on a model that starts with ``nodes``. The last of these nodes outputs ``begin``."""
    rng = np.random.default_rng(0)
    arrays = {"kernel": rng.normal(size=(4, 3, 3, 3)), **{name: rng.random(4) + 3 for name in "GBMV"}}
    arrays = {name: np.asarray(values) for name, values in (arrays | (constants or {})).items()}
    tensors = [
        numpy_helper.from_array(values.astype(np.int64 if values.dtype.kind == "i" else np.float32), name)
        for name, values in arrays.items()
    ]
    save(folder, [*nodes, *REST], {"x": shape}, {"logits": ["n", 4]}, tensors)
    normalize = normalize if isinstance(normalize, tuple) else (normalize,)
    return look(folder / "1" / "model.onnx", pipeline(*normalize, **options), {"x": "tensor"})


def look(path, source, pairs, **options):
    return door_notes(
        source, [Door("model.onnx", lambda: load_onnx(path)[1], *pair) for pair in pairs.items()], **options
    )


def sub_div(mean, std):
    """Return the nodes that normalize the input, and their constants."""
    nodes = [("Sub", ["x", "mean"], ["s"], {"name": "/Sub"}), ("Div", ["s", "std"], ["begin"], {"name": "/Div"})]
    return nodes, {"mean": channels(mean, (-1, 1, 1)), "std": channels(std, (-1, 1, 1))}


def mul_add(scale, offset):
    nodes = [("Mul", ["factor", "x"], ["s"]), ("Add", ["s", "offset"], ["begin"])]
    return nodes, {"factor": np.array(scale), "offset": np.array(offset)}


# Models that cause a warning.


TWICE = "the input again: the pipeline returns"
TAKE_OUT = "remove normalize from the pipeline"


@pytest.mark.parametrize(
    ("model", "normalize", "said"),
    [
        (
            sub_div(MEAN * 255, STD * 255),
            IMAGENET,
            f'Sub "/Sub" and Div "/Div" normalize {TWICE} -2.12..2.64, which become -2.15..-1.76; {TAKE_OUT}',
        ),
        (
            sub_div(MEAN, STD),
            IMAGENET,
            f'Sub "/Sub" and Div "/Div" normalize {TWICE} -2.12..2.64, which become -11.4..9.93; set mean to 0 and '
            "std to 1 in normalize",
        ),
        (
            ([("Div", ["x", "std"], ["begin"])], {"std": np.array(255.0)}),
            UNIT,
            f'Div "begin" normalizes {TWICE} 0..1, which become 0..0.00392; {TAKE_OUT}',
        ),
    ],
    ids=["of levels", "of 0 to 1", "of one node"],
)
def test_a_repeated_normalization_is_found_with_the_op_to_remove(tmp_path, model, normalize, said):
    assert notes(tmp_path, model[0], normalize, model[1]) == [
        f"model.onnx: {said}, or export the model without this step"
    ]


DOUBLE = {
    "Keras's Rescaling": (CENTERED, mul_add(1 / 127.5, -1.0)),
    "-1 to 1 twice": (CENTERED, mul_add(2.0, -1.0)),
    "two different ones": (IMAGENET, mul_add(2.0, -1.0)),
    "the mean twice": (CAFFE, ([("Sub", ["x", "mean"], ["begin"])], {"mean": channels((123.675, 116.28, 103.53))})),
    "1 / 255 twice": (UNIT, ([("Mul", ["x", "factor"], ["begin"])], {"factor": np.array(1 / 255)})),
    "by a constant of one number": (
        IMAGENET,
        ([("Constant", [], ["c"], {"value_float": 255.0}), ("Div", ["x", "c"], ["begin"])], {}),
    ),
    "CLIP's twice": (
        pp.normalize(pp.presets.CLIP_MEAN, pp.presets.CLIP_STD),
        sub_div(pp.presets.CLIP_MEAN, pp.presets.CLIP_STD),
    ),
}


@pytest.mark.parametrize("case", DOUBLE)
def test_other_normalizations_are_found(tmp_path, case):
    normalize, (nodes, constants) = DOUBLE[case]
    assert len(notes(tmp_path, nodes, normalize, constants)) == 1


def test_casts_and_moved_axes_are_skipped(tmp_path):
    nodes = [
        ("Identity", ["x"], ["a"]),
        ("Cast", ["a"], ["b"], {"to": TensorProto.FLOAT}),
        ("Transpose", ["b"], ["c"], {"perm": [0, 3, 1, 2]}),
        ("Constant", [], ["raw"], {"value": numpy_helper.from_array(channels(STD * 255, (3,)))}),
        ("Unsqueeze", ["raw", "axes"], ["std"]),
        ("Div", ["c", "std"], ["begin"]),
        ("Shape", ["x"], ["unused"]),
    ]
    found = notes(tmp_path, nodes, IMAGENET, {"axes": np.array([0, 2, 3])}, shape=("n", 224, 224, 3), layout="hwc")
    assert len(found) == 1
    assert "normalizes the input" in found[0]


def test_a_batch_norm_of_the_input_is_found_if_it_is_the_normalization(tmp_path):
    batch_norm = [("BatchNormalization", ["x", "one", "zero", "mean", "variance"], ["begin"])]
    constants = {"one": np.ones(3), "zero": np.zeros(3), "mean": MEAN * 255, "variance": (STD * 255) ** 2}
    assert len(notes(tmp_path, batch_norm, IMAGENET, constants)) == 1
    assert notes(tmp_path, batch_norm, (), constants) == []


PLAIN = [("Identity", ["x"], ["begin"])]
BARE = (
    "model.onnx: receives pixel values 0 to 255, which neither the pipeline nor the model normalizes: add normalize "
    "before tensor, or pass --odd-range if the training did not normalize them"
)


def test_unnormalized_pixel_values_are_reported(tmp_path):
    assert notes(tmp_path, PLAIN, ()) == [BARE]
    assert notes(tmp_path, PLAIN, pp.normalize(scale=1)) == [BARE]
    assert notes(tmp_path, PLAIN, UNIT) == []
    nodes, constants = sub_div(0, 255)
    assert notes(tmp_path, nodes, (), constants) == []


def test_they_are_reported_for_a_detector(tmp_path):
    nodes = [
        ("Pad", ["x", "pads"], ["p"]),
        ("Conv", ["p", "kernel"], ["boxes"]),
        ("Conv", ["p", "kernel"], ["scores"]),
    ]
    kernel = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "kernel")
    pads = numpy_helper.from_array(np.array([0, 0, 2, 2, 0, 0, 2, 2]), "pads")
    save(tmp_path, nodes, {"x": ("n", 3, 224, 224)}, {"boxes": ["n", 4, 226, 226], "scores": ["n", 4]}, [kernel, pads])
    path, pairs = tmp_path / "1" / "model.onnx", {"x": "tensor"}
    assert look(path, pipeline(), pairs) == [BARE]
    assert look(path, pipeline(), pairs, odd_range=True) == []
    assert look(path, pipeline(IMAGENET), pairs) == []
    of_bytes = pp.Pipeline([*pipeline().ops[:-1], pp.tensor(dtype="uint8")])
    assert look(path, of_bytes, pairs) == []


DOUBTS = {
    "a mean of each image is taken away": ([("ReduceMean", ["x"], ["m"]), ("Sub", ["x", "m"], ["begin"])], {}),
    "each channel has its own scale": (
        [
            *[("Gather", ["x", f"i{i}"], [f"c{i}"], {"axis": 1}) for i in range(3)],
            *[("Mul", [f"c{i}", "factor"], [f"d{i}"]) for i in range(3)],
            ("Concat", ["d0", "d1", "d2"], ["begin"], {"axis": 1}),
        ],
        {"factor": np.array(1 / 255), **{f"i{i}": np.array([i]) for i in range(3)}},
    ),
    "a learned batch norm": (
        [("BatchNormalization", ["x", *"hijk"], ["begin"])],
        {"h": np.ones(3), "i": np.zeros(3), "j": np.ones(3), "k": np.ones(3)},
    ),
    "YOLOX's focus, of levels": (
        [
            *[("Slice", ["x", f"s{i}", "ends", "axes", "two"], [f"c{i}"]) for i in range(2)],
            ("Concat", ["c0", "c1"], ["begin"], {"axis": 1}),
        ],
        {"s0": np.array([0]), "s1": np.array([1]), "ends": np.array([999]), "axes": np.array([3]), "two": [2]},
    ),
    "a function of somebody's": ([("Rescale", ["x"], ["begin"], {"domain": "acme"})], {}),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_unnormalized_pixel_values_are_not_reported_in_doubtful_cases(tmp_path, case):
    nodes, constants = DOUBTS[case]
    assert notes(tmp_path, nodes, (), constants) == []


def test_pixel_values_pass_through_a_quantization(tmp_path):
    nodes = [
        ("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        ("DequantizeLinear", ["q", "scale", "zero"], ["begin"]),
    ]
    constants = {"scale": np.array(1.0), "zero": np.array(0)}
    assert notes(tmp_path, nodes, (), constants) == [BARE]


@pytest.mark.parametrize("source", ["sizes", "scales", "computed"])
def test_a_resize_of_the_input_is_found(tmp_path, source):
    constants = {"sizes": np.array([1, 3, 299, 299]), "scales": np.array([1.0, 1.0, 1.5, 1.5]), "roi": np.ones(8)}
    inputs = {"sizes": ["x", "", "", "sizes"], "scales": ["x", "roi", "scales"], "computed": ["x", "", "", "runtime"]}[
        source
    ]
    nodes = [
        ("Shape", ["x"], ["shape"]),
        ("Mul", ["shape", "shape"], ["runtime"]),
        ("Resize", inputs, ["begin"], {"name": "/Resize", "mode": "linear"}),
    ]
    expected = [
        'model.onnx: both Resize "/Resize" and the pipeline resize the image, so it is resampled twice: export the '
        "model without this node"
    ]
    assert notes(tmp_path, nodes, UNIT, constants) == expected
    assert notes(tmp_path, nodes, UNIT, constants, resize=False) == []


@pytest.mark.parametrize("name", ["image", "classes"])
def test_a_model_that_returns_an_image_resizes_for_its_own_purpose(name, tmp_path):
    nodes = [
        ("Resize", ["x", "", "scales"], ["large"], {"mode": "cubic"}),
        ("Conv", ["large", "kernel"], ["y"], {"pads": [1, 1, 1, 1]}),
    ]
    count = 3 if name == "image" else 21
    constants = {"scales": np.array([1, 1, 2, 2], np.float32), "kernel": np.ones((count, 3, 3, 3), np.float32)}
    tensors = [numpy_helper.from_array(values, key) for key, values in constants.items()]
    save(tmp_path, nodes, {"x": ("n", 3, 224, 224)}, {"y": ["n", count, 448, 448]}, tensors)
    found = look(tmp_path / "1" / "model.onnx", pipeline(UNIT), {"x": "tensor"})
    assert len(found) == (name == "classes")
    assert all("it is resampled twice" in note for note in found)


@pytest.mark.parametrize(("dtype", "words"), [("UINT8", "without normalize"), ("FLOAT", "must include normalize")])
def test_a_model_that_accepts_pixel_values_needs_no_normalize(dtype, words, tmp_path):
    value = onnx.helper.make_tensor_value_info("x", getattr(TensorProto, dtype), ["n", 3, 8, 8])
    end = onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    kernel = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "kernel")
    begin, first = ([onnx.helper.make_node("Cast", ["x"], ["f"], to=1)], "f") if dtype == "UINT8" else ([], "x")
    nodes = [*begin, onnx.helper.make_node("Conv", [first, "kernel"], ["c"])]
    nodes += [
        onnx.helper.make_node(kind, [a], [b]) for kind, a, b in (("GlobalAveragePool", "c", "p"), ("Flatten", "p", "y"))
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value], [end], [kernel])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    (line,) = [each for each in explain_onnx(tmp_path / "model.onnx") if "does not preprocess it" in each]
    assert words in line


def test_both_problems_are_reported(tmp_path):
    nodes = [("Resize", ["x", "", "", "sizes"], ["r"], {"mode": "linear"}), ("Div", ["r", "std"], ["begin"])]
    constants = {"sizes": np.array([1, 3, 299, 299]), "std": np.array(255.0)}
    assert len(notes(tmp_path, nodes, IMAGENET, constants)) == 2


# Models that do not cause a warning.


INNOCENT = {
    "no preprocessing": ([("Identity", ["x"], ["begin"])], {}),
    "a resize to the size that comes": (
        [("Resize", ["x", "", "", "sizes"], ["begin"])],
        {"sizes": np.array([1, 3, 224, 224])},
    ),
    "a resize by one": ([("Upsample", ["x", "scales"], ["begin"])], {"scales": np.ones(4)}),
    "a position embedding": ([("Add", ["x", "place"], ["begin"])], {"place": np.ones((1, 3, 224, 224))}),
    "a learned batch norm": (
        [("BatchNormalization", ["x", *"hijk"], ["begin"])],
        {"h": [1.2, 0.9, 1.1], "i": [0.1, 0, -0.2], "j": [0.05, -0.1, 0], "k": [1.1, 0.8, 1.3]},
    ),
    "a reversed subtraction": ([("Sub", ["half", "x"], ["begin"])], {"half": np.array(0.5)}),
    "a division by nothing": ([("Div", ["x", "nothing"], ["begin"])], {"nothing": np.array(0.0)}),
    "a product with itself": ([("Mul", ["x", "x"], ["begin"])], {}),
    "an addition of what is computed": ([("ReduceMean", ["x"], ["m"]), ("Sub", ["x", "m"], ["begin"])], {}),
    "torchvision's transform_input, channel by channel": (
        [
            *[("Gather", ["x", f"i{i}"], [f"c{i}"], {"axis": 1}) for i in range(3)],
            *[("Mul", [f"c{i}", "factor"], [f"d{i}"]) for i in range(3)],
            ("Concat", ["d0", "d1", "d2"], ["begin"], {"axis": 1}),
        ],
        {"factor": np.array(0.458), **{f"i{i}": np.array([i]) for i in range(3)}},
    ),
    "a network as PyTorch exports it, whose normalization comes later": (
        [
            ("Conv", ["x", "patch"], ["/embed/Conv_output_0"], {"name": "/embed/Conv", "strides": [16, 16]}),
            ("Constant", [], ["/Constant_output_0"], {"value": numpy_helper.from_array(channels(MEAN))}),
            ("Sub", ["/embed/Conv_output_0", "/Constant_output_0"], ["/Sub_output_0"], {"name": "/Sub"}),
            ("Div", ["/Sub_output_0", "std"], ["begin"], {"name": "/Div"}),
        ],
        {"patch": np.ones((3, 3, 16, 16)), "std": STD},
    ),
    "a circle": ([("Identity", ["x"], ["x"]), ("Identity", ["y"], ["begin"])], {}),
}


@pytest.mark.parametrize("case", INNOCENT)
def test_nothing_is_reported_for_correct_models(tmp_path, case):
    nodes, constants = INNOCENT[case]
    assert notes(tmp_path, nodes, IMAGENET, {name: np.asarray(values) for name, values in constants.items()}) == []


COMPLEMENTS = {
    "the pipeline scales, the model has the mean and std": (UNIT, sub_div(MEAN, STD)),
    "the pipeline scales, the model makes it -1 to 1": (UNIT, mul_add(2.0, -1.0)),
    "the pipeline scales, the model has a dark mean and a small std": (UNIT, sub_div([0.13] * 3, [0.09] * 3)),
    "the pipeline returns levels": ((), sub_div(MEAN * 255, STD * 255)),
    "the pipeline takes the mean, the model scales": (CAFFE, ([("Div", ["x", "c"], ["begin"])], {"c": STD * 255})),
}


@pytest.mark.parametrize("case", COMPLEMENTS)
def test_nothing_is_reported_if_both_share_the_normalization(tmp_path, case):
    normalize, (nodes, constants) = COMPLEMENTS[case]
    constants = {name: channels(values, (-1, 1, 1)) if values.ndim else values for name, values in constants.items()}
    assert notes(tmp_path, nodes, normalize, constants) == []


@pytest.mark.parametrize("spoil", [b"", b"\0"], ids=["in another file", "broken"])
def test_unreadable_constants_are_skipped(tmp_path, spoil):
    nodes, constants = sub_div(MEAN, STD)
    assert notes(tmp_path, nodes, IMAGENET, constants) != []
    path = tmp_path / "1" / "model.onnx"
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        tensor.raw_data = spoil or tensor.raw_data
    onnx.save(model, path, save_as_external_data=not spoil, location="weights", size_threshold=0)
    assert look(path, pipeline(IMAGENET), {"x": "tensor"}) == []


def test_an_output_that_is_not_an_image_has_no_normalization(tmp_path):
    nodes, constants = sub_div(MEAN, STD)
    notes(tmp_path, nodes, IMAGENET, constants)
    two_outputs = pp.Pipeline([*pipeline(IMAGENET).ops, pp.transform()])
    path = tmp_path / "1" / "model.onnx"
    assert look(path, two_outputs, {"x": "transform"}) == []
    assert look(path, two_outputs, {"x": "tensor"}) != []


# Notes of ``build``.


def test_build_reports_it_and_builds(tmp_path):
    nodes, constants = sub_div(MEAN * 255, STD * 255)
    (note,) = notes(tmp_path, nodes, IMAGENET, constants)
    built = build(tmp_path / "models", pipeline=pipeline(IMAGENET), onnx=tmp_path / "1" / "model.onnx")
    assert built.notes == (note,)
    assert (tmp_path / "models" / "classifier" / "1" / "model.onnx").exists()
    right = build(tmp_path / "models", pipeline=pipeline(), onnx=tmp_path / "1" / "model.onnx")
    assert right.notes == ()


# Notes on a repository, and on a single file.


@pytest.fixture
def models(tmp_path):
    """Return a function that builds a repository with a pipeline and a model of these nodes. It returns the path and
    the notes.
    """

    def make(source, nodes=PLAIN, constants=None, **options):
        notes(tmp_path, nodes, UNIT, constants)
        built = build(tmp_path / "models", pipeline=source, onnx=tmp_path / "1" / "model.onnx", **options)
        return tmp_path / "models", built.notes

    return make


def test_build_and_check_report_the_same_for_a_repository(models):
    repository, built = models(pipeline())
    assert built == (BARE,)
    assert check(repository) == []
    assert side_notes(repository) == [f"{repository}/classifier/1/{BARE}"]
    two_outputs = pp.Pipeline([*pipeline().ops[:-1], pp.tensor(name="x"), pp.tensor(name="spare")])
    repository, built = models(two_outputs)
    spare_note = ALONE.replace('"tensor"', '"spare"')  # no model uses this output
    assert built == (BARE, spare_note)
    pipeline_path = f"{repository}/preprocess/1/pipeline.json"
    assert side_notes(repository) == [f"{repository}/classifier/1/{BARE}", f"{pipeline_path}: {spare_note}"]
    repository, built = models(pipeline(UNIT))
    assert (built, side_notes(repository)) == ((), [])
    nodes, constants = sub_div(MEAN * 255, STD * 255)
    repository, built = models(pipeline(), nodes, constants)
    assert (built, side_notes(repository)) == ((), [])
    repository, built = models(pipeline(IMAGENET), nodes, constants)
    assert side_notes(repository) == [f"{repository}/classifier/1/{note}" for note in built] != []


def test_intended_pixel_values_are_not_reported_again(models):
    repository, built = models(pipeline(), odd_range=True)
    assert (built, side_notes(repository)) == ((), [])


def test_check_accepts_the_option_that_its_note_names(models, capsys):
    repository, _ = models(pipeline())
    assert main(["check", str(repository), "--odd-range"]) == 0
    assert capsys.readouterr().out == f"{repository}: no problem found\n"


def test_a_model_elsewhere_is_not_read(models, tmp_path):
    """``check`` reports a link to a target outside the repository, and does not read the target."""
    repository, _ = models(pipeline())
    assert len(side_notes(repository)) == 1
    (repository / "classifier").rename(tmp_path / "classifier")
    ensemble = repository / "ensemble" / "config.pbtxt"
    written = ensemble.read_text()
    for name in ("../classifier", "a\\000b", "", ".."):
        ensemble.write_text(written.replace('"classifier"', f'"{name}"'))
        assert side_notes(repository) == [f"{repository}/preprocess/1/pipeline.json: {ALONE}"]
    (repository / "classifier").symlink_to(tmp_path / "classifier")
    ensemble.write_text(written)
    assert side_notes(repository) == [f"{repository}/preprocess/1/pipeline.json: {ALONE}"]


def test_an_ensemble_input_that_no_pipeline_provides_is_a_problem_and_not_a_note(models):
    repository, _ = models(pipeline(UNIT))
    ensemble = repository / "ensemble" / "config.pbtxt"
    ensemble.write_text(ensemble.read_text().replace('output_map { key: "tensor"', 'output_map { key: "gone"'))
    assert [problem.where for problem in check(repository)] == ["ensemble/config.pbtxt"]
    assert side_notes(repository) == []


ALONE = (
    '"tensor" contains pixel values 0 to 255 as float32: add normalize before tensor, unless its model was trained '
    "with such values"
)


def test_without_an_onnx_file_the_model_is_unknown(models, tmp_path):
    repository, _ = models(pipeline())
    (repository / "classifier" / "1" / "model.onnx").write_bytes(b"no ONNX")
    assert side_notes(repository) == [f"{repository}/preprocess/1/pipeline.json: {ALONE}"]
    (tmp_path / "my.plan").write_bytes(PLAN)
    words = ["x:FP32:3x224x224", "logits:FP32:4"]
    options = {"plan": tmp_path / "my.plan", "classifier_io": words, "classifier": "tensorrt", "name": "other"}
    assert build(repository, pipeline=pipeline(), **options).notes == (ALONE,)


def test_a_single_file_reports_it(tmp_path, capsys):
    file = tmp_path / "p.json"
    pipeline().save(file)
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: no problem found\n{file}: {ALONE}\n"
    assert main(["check", str(file), "--odd-range"]) == 0
    assert capsys.readouterr().out == f"{file}: no problem found\n"


def of_a_library():
    """Return Keras's own preprocessing for a model that scales its input itself."""
    origin = pp.Origin(library="keras", version="3.0.0", name="EfficientNetB0", profile="tensorflow")
    return pp.Pipeline(pipeline().ops, origin=origin)


@pytest.mark.parametrize(
    "source",
    [
        of_a_library(),
        pipeline(IMAGENET),
        pp.Pipeline([*pipeline().ops[:-1], pp.tensor(dtype="uint8")]),
        pp.Pipeline([*pipeline().ops[:-1], pp.tensor(only="training")]),
    ],
    ids=["a library's", "normalized", "of bytes", "for training alone"],
)
def test_pixel_values_of_a_single_file_are_not_reported_for_a_model_that_normalizes(tmp_path, source):
    source.save(tmp_path / "p.json")
    assert not any(ALONE in note for note in side_notes(tmp_path / "p.json"))
