"""Break the product in one named way at a time: a named test must fail each time, or nothing would notice.

    .venv/bin/python tools/mutants.py                    all of them, and writes docs/mutants.md
    .venv/bin/python tools/mutants.py --only decoders/   those whose file or name has this word; writes nothing

Works on copies of the working tree. Exit status 1 where a mutant survives, where its old text does not stand exactly
once in its file, or where its test fails without it.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "mutants.md"
FAILED = 1  # pytest's exit status where a test failed, or took so long that it hangs; others say that none ran
HANG_S = 120
HEAD = """# Mutants

Each row is a mistake that somebody could make in the product, and the test that fails when it is made. `make mutants`
makes them one by one in a copy of the tree, and ends with an error where a test does not notice its mistake. The
mistakes themselves are in [tools/mutants.py](../tools/mutants.py).

| what goes wrong | where | caught by | s |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        name: what goes wrong.
        file: where, in ``backend/pixprep``.
        old, new: a text that stands there once, and what stands there instead.
        test: what notices it, in ``tests``.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = (
    # clips
    Mutant(
        "the frames of a clip are one off",
        "sampling.py",
        "index * (count - 1) // max(self.frames - 1, 1) for index",
        "min(index * count // max(self.frames - 1, 1), count - 1) for index",
        "unit/test_video.py::test_which_frames",
    ),
    Mutant(
        "logits are averaged over clips in place of frames",
        "repository/averaging.py",
        "[-1, frames, *tensor.shape[1:]]",
        "[frames, -1, *tensor.shape[1:]]",
        "unit/test_averaging.py::test_the_outputs_are_the_means_over_the_frames_of_each_clip",
    ),
    Mutant(
        "pictures of H.265 that others need are left out",
        "decoders/clips/ffmpeg.py",
        "_UNUSED = {0, 2, 4, 6, 8}",
        "_UNUSED = {0, 1, 2, 4, 6, 8}",
        "unit/test_video_decoder.py::test_the_number_of_each_frame_is_the_one_that_is_wanted",
    ),
    Mutant(
        "a clip is turned the other way",
        "decoders/clips/ffmpeg.py",
        "np.rot90(pixels, turn // 90)",
        "np.rot90(pixels, -turn // 90)",
        "unit/test_video_decoder.py::test_a_clip_is_turned_as_its_container_says",
    ),
    Mutant(
        "what FFmpeg paints over counts as decoded",
        "decoders/clips/ffmpeg.py",
        "if frame.is_corrupt:",
        "if False:",
        "unit/test_video_decoder.py::test_damage_is_an_error_and_never_a_frame_of_noise",
    ),
    Mutant(
        "every frame of a variable rate lasts as long",
        "decoders/clips/ffmpeg.py",
        "(stamp - stamps[0]) * self._stream.time_base for stamp in stamps",
        "Fraction(index, 30) for index, stamp in enumerate(stamps)",
        "unit/test_video_decoder.py::test_times_are_those_of_a_variable_rate",
    ),
    Mutant(
        "NVDEC begins at any key frame",
        "decoders/clips/nvdec.py",
        "next(filter(may_begin, before), None)",
        "next(before, None)",
        "device/test_gpu_clips.py::test_every_frame_of_a_clip_is_the_one_that_is_wanted",
    ),
    Mutant(
        "NVDEC has clips of two matrices",
        "decoders/clips/nvdec.py",
        "if len(headers) != 1 or not",
        "if not",
        "device/test_gpu_clips.py::test_what_nvdec_might_show_otherwise_goes_to_the_cpu_and_is_counted",
    ),
    Mutant(
        "a surface has the colours of BT.601",
        "decoders/clips/nvdec.py",
        "coefficients(first.format.name, first.colorspace, first.color_range)",
        "coefficients(first.format.name, 5, first.color_range)",
        "device/test_gpu_clips.py::test_colours_are_by_the_matrix_and_the_range_of_the_stream",
    ),
    Mutant(
        "an angle of the request is forgotten",
        "placement.py",
        '{"angle": 0.0 if numbers is None else float(numbers[0])}',
        '{"angle": 0.0}',
        "device/test_inputs.py::test_an_angle_that_comes_with_the_image_turns_it_as_a_fixed_one_does",
    ),
    # policies and the training side of imports
    Mutant(
        "a policy shears about the middle",
        "policies.py",
        "replace(self.look, center=(0.0, 0.0))",
        "self.look",
        "unit/test_policies.py",
    ),
    Mutant(
        "the magnitudes of a policy are rounded twice",
        "policies.py",
        "return float(_F32(float(_F32(last)) - step * (count - 1 - index)))",
        "return float(_F32(last) - _F32(step * (count - 1 - index)))",
        "unit/test_policies.py",
    ),
    Mutant(
        "a random transform is served",
        "importers/torchvision.py",
        'if is_random and self.side == "serving":',
        "if False:",
        "unit/test_import_torchvision.py",
    ),
    Mutant(
        "what is imported for serving alone is trained with, too",
        "importers/assembly.py",
        'made += [_only(op, "serving") for op in serving[first:last]]',
        "made += serving[first:last]",
        "unit/test_import_sides.py",
    ),
    # what is done to colours
    Mutant(
        "Pillow's luma is cut off",
        "kernels/colours.py",
        "+ blue * 7471 + 32768) >> 16",
        "+ blue * 7471) >> 16",
        "unit/test_colours.py::test_blends_are_pillows",
    ),
    Mutant(
        "torchvision's product is rounded before the sum",
        "kernels/colours.py",
        "return m.real(m.double(a) * b + m.double(c))",
        "return m.real(m.double(m.real(m.double(a) * b)) + m.double(c))",
        "unit/test_colours.py::test_blends_are_torchvisions_fused",
    ),
    Mutant(
        "Pillow's hue is rounded to a byte",
        "kernels/colours.py",
        'return int(shift * 255) % 256 if like == "pillow"',
        'return round(shift * 255) % 256 if like == "pillow"',
        "unit/test_colours.py::test_a_turn_is_a_byte_of_pillows_and_torchvisions_own_number",
    ),
    Mutant(
        "the hue of one library is turned as the other's",
        "kernels/colours.py",
        'hues = _turned_pillow if like == "pillow" else _turned_torchvision',
        'hues = _turned_torchvision if like == "pillow" else _turned_pillow',
        "unit/test_verify.py::test_every_op_that_makes_levels_equals_its_frozen_results[hue torchvision]",
    ),
    Mutant(
        "a hue falls where it rises",
        "kernels/colours.py",
        "phi = m.where((sector & 1) == 1, phi, 255 - phi)",
        "phi = m.where((sector & 1) == 0, phi, 255 - phi)",
        "unit/test_colours.py::test_the_hue_is_pillows",
    ),
    Mutant(
        "contrast is saturation",
        "kernels/levels.py",
        'case Blend() if step.gray == "mean":',
        'case Blend() if step.gray == "none":',
        "unit/test_colours.py::test_contrast_takes_the_mean_of_the_whole_image_and_each_image_its_own",
    ),
    Mutant(
        "torchvision's mean gray is whole",
        "kernels/levels.py",
        'if like == "pillow":\n        return int(total / count + 0.5)',
        "if like:\n        return int(total / count + 0.5)",
        "unit/test_colours.py::test_means_are_rounded_as_each_library_does",
    ),
    Mutant(
        "equalized levels begin again after 255",
        "kernels/levels.py",
        "return values.clip(0, 255).astype(np.uint8)",
        "return values.astype(np.int64).astype(np.uint8)",
        "unit/test_colours.py::test_equalized_levels_end_at_255",
    ),
    Mutant(
        "the mean counts what fills up the last group of pixels",
        "kernels/compiled.py",
        "self._memory[self.count :] = 0",
        "self._memory[self.count :] = 255",
        "unit/test_colours.py::test_machine_code_equals_numpy[contrast-pillow]",
    ),
    Mutant(
        "a hue that is turned by nothing is left out",
        "levels.py",
        "if isinstance(step, Blend) and step.factor == 1:",
        "if (isinstance(step, Blend) and step.factor == 1) or (isinstance(step, Hue) and not step.shift):",
        "unit/test_colours.py::test_neighbouring_curves_are_one_and_nothing_else_is",
    ),
    Mutant(
        "two curves fold backwards",
        "levels.py",
        "made[-1] = Curve(step.of(np.frombuffer(last.table, np.uint8)).tobytes())",
        "made[-1] = Curve(last.of(np.frombuffer(step.table, np.uint8)).tobytes())",
        "unit/test_colours.py::test_neighbouring_curves_are_one_and_nothing_else_is",
    ),
    Mutant(
        "a rotation turns about a point half a pixel beside the middle",
        "motion.py",
        "x, y = (width / 2, height / 2) if center is None else center",
        "x, y = (width / 2 + 0.5, height / 2) if center is None else center",
        "unit/test_warp.py::test_frozen_results_of_the_libraries_are_ours",
    ),
    Mutant(
        "a rotation turns the other way",
        "motion.py",
        "    angle = -radians(angle)\n",
        "    angle = radians(angle)\n",
        "unit/test_warp.py::test_frozen_results_of_the_libraries_are_ours",
    ),
    Mutant(
        "a quarter turn is of the other hand",
        "motion.py",
        "if angle == 270:",
        "if angle == 90:",
        "unit/test_warp.py::test_turns_by_a_quarter_move_pixels_and_change_none",
    ),
    Mutant(
        "a window of a warp forgets that the warp has one",
        "levels.py",
        "last.top + step.top, last.left + step.left",
        "step.top, step.left",
        "unit/test_warp.py::test_a_window_of_a_window_of_a_warp_counts_both",
    ),
    Mutant(
        "the second column weighs in the first's place at the edge",
        "kernels/warp_code.py",
        "dx = code.where(first > most, code.lanes(REAL, [1] * COUNT), dx)",
        "dx = code.where(first > most, code.lanes(REAL, [0] * COUNT), dx)",
        "unit/test_warp.py::test_machine_code_equals_the_formula",
    ),
    Mutant(
        "a warp reads behind the last pixel",
        "kernels/warp.py",
        "last = max((height - 1) * pitch + (image.shape[1] - 1) * apart + channels - 8, 0)",
        "last = max((height - 1) * pitch + image.shape[1] * apart + 8, 0)",
        "unit/test_warp.py::test_no_warp_reads_beyond_the_pixels",
    ),
    Mutant(
        "a box that was cut off comes back when it turns",
        "data/boxes.py",
        "    kept: Bools = (_sides(seen) > 0).all(axis=1)\n",
        "    kept: Bools = (_sides(seen) >= 0).all(axis=1)\n",
        "unit/test_warp.py::test_a_box_that_is_cut_off_before_a_rotation_stays_away",
    ),
    Mutant(
        "a blur repeats the edge",
        "kernels/filters.py",
        'mode="reflect"',
        'mode="edge"',
        "unit/test_warp.py::test_a_blur_keeps_what_is_of_one_colour_and_mirrors_the_edge",
    ),
    Mutant(
        "an erasing forgets the channels",
        "kernels/cpu.py",
        "np.reshape(erase.values, (-1, 1, 1))",
        "erase.values[0]",
        "unit/test_warp.py::test_an_erasing_after_normalize_is_one_of_the_tensor",
    ),
    Mutant(
        "all rectangles of an image have the same noise",
        "erasing.py",
        "counters[:, 0], counters[:, 1] = np.arange(len(counters)), which",
        "counters[:, 0], counters[:, 1] = np.arange(len(counters)), 0",
        "unit/test_warp.py::test_noise_is_what_its_docstring_says",
    ),
    Mutant(
        "a jitter of some images is done to the others",
        "augment.py",
        "if more and more[0][0] >= self.p:",
        "if more and more[0][0] < self.p:",
        "unit/test_colours.py::test_a_jitter_of_some_images_draws_for_these_what_it_draws_for_all",
    ),
    Mutant(
        "the certificate of a training side fixes a flip that was not drawn",
        "verify/drawn.py",
        'return [ops.Flip(op.axis)] if words["flip"] else []',
        "return [ops.Flip(op.axis)]",
        "unit/test_verify.py::test_a_training_side_is_compared_with_the_fixed_ops_of_each_draw",
    ),
    Mutant(
        "a string of operators is taken for its letters",
        "operators.py",
        "isinstance(operators, Sequence) and not isinstance(operators, str)",
        "isinstance(operators, Sequence)",
        "unit/test_operators.py::test_operators_are_a_list_of_operators_or_names[acme.means]",
    ),
    Mutant(
        "a GPU looks noise up by the upper half of a word first",
        "kernels/levels.cu",
        "noise[word[k / 2] >> 16 * (k % 2) & 0xFFFF]",
        "noise[word[k / 2] >> 16 * (1 - k % 2) & 0xFFFF]",
        "device/test_cuda_levels.py::test_rectangles_of_the_tensor_are_erased_in_their_order",
    ),
    Mutant(
        "every jitter has the same order",
        "augment.py",
        "drawn = sorted(zip(ranks, self._spans.items(), factors, strict=True), key=lambda each: each[0])",
        "drawn = sorted(zip(ranks, self._spans.items(), factors, strict=True), key=lambda each: each[1][0])",
        "unit/test_colours.py::test_a_jitter_draws_its_factors_in_their_spans_and_in_every_order",
    ),
    Mutant(
        "a random op is done to the others",
        "augment.py",
        "numbers.blocks(self.key, 0, 1)[0, 0] < self.p",
        "numbers.blocks(self.key, 0, 1)[0, 0] >= self.p",
        "unit/test_colours.py::test_a_random_op_is_done_as_often_as_it_says",
    ),
    # what training reads
    Mutant(
        "an XML file hides a document type in UTF-16",
        "data/sources/voc.py",
        'if b"\\0" in data:',
        'if b"\\0\\0\\0\\0\\0" in data:',
        "attacks/test_data_xml_bombs.py::test_an_xml_bomb_costs_its_sample_and_nothing_else",
    ),
    Mutant(
        "an XML file may define entities",
        "data/sources/voc.py",
        'if b"<!DOCTYPE" in data:',
        'if b"<!doctype" in data:',
        "attacks/test_data_xml_bombs.py::test_an_xml_bomb_costs_its_sample_and_nothing_else",
    ),
    Mutant(
        "a box of VOC's counts from 1",
        "data/sources/voc.py",
        "boxes[:, :2] -= 1",
        "boxes[:, :2] -= 0",
        "unit/test_source_voc.py::test_boxes_count_from_0_and_end_where_the_last_pixel_does",
    ),
    Mutant(
        "a box of COCO's ends at its width",
        "data/sources/coco.py",
        "xywh[:, :2] + xywh[:, 2:]], axis=1)",
        "xywh[:, 2:]], axis=1)",
        "unit/test_source_coco.py::test_boxes_are_corners_and_labels_count_without_gaps",
    ),
    Mutant(
        "a broken annotation costs nothing",
        "data/sources/coco.py",
        "for at in np.flatnonzero(has_image & (wrong | ~has_label)).tolist():",
        "for at in []:",
        "unit/test_source_coco.py::test_a_broken_annotation_costs_its_image",
    ),
    Mutant(
        "a record of a changed file is read short",
        "data/sources/tfrecord.py",
        "if len(record) < size:",
        "if len(record) < 0:",
        "unit/test_source_tfrecord.py::test_a_file_that_changes_after_it_was_scanned_is_seen",
    ),
    Mutant(
        "a record longer than its file is taken",
        "data/sources/tfrecord.py",
        "if end > size:",
        "if end > size + (1 << 62):",
        "unit/test_source_tfrecord.py::test_a_file_that_ends_early_costs_its_last_record",
    ),
    Mutant(
        "members of a tar sample may come back later",
        "data/sources/tar.py",
        "            if key in seen:",
        "            if key in ():",
        "unit/test_source_tar.py::test_members_that_are_not_next_to_each_other_cost_their_sample",
    ),
    Mutant(
        "links in a tar file have data",
        "data/sources/tar.py",
        'if kind in b"123456":',
        'if kind in b"":',
        "attacks/test_data_tar_headers.py::test_links_have_no_data_whatever_they_say",
    ),
    Mutant(
        "classes are numbered as the disk lists them",
        "data/sources/files.py",
        "return sorted(folders), sorted(images), sorted(others)",
        "return sorted(folders, reverse=True), sorted(images), sorted(others)",
        "unit/test_source_files.py::test_folders_are_classes_sorted_by_name_with_all_that_is_inside",
    ),
    Mutant(
        "a FIFO among the images is waited for",
        "data/sources/__init__.py",
        "os.O_RDONLY | os.O_NONBLOCK",
        "os.O_RDONLY",
        "attacks/test_data_special_files.py",
    ),
    # what the user writes: ops, the pipeline and its file
    Mutant(
        "a crop of no pixels is let in",
        "ops/geometry.py",
        "if not 0 < self.fraction <= 1",
        "if not 0 <= self.fraction <= 1",
        "unit/test_ops.py::test_an_op_that_contradicts_itself_is_refused_in_words",
    ),
    Mutant(
        "a colour may have the level 256",
        "ops/op.py",
        "if not 0 <= value <= 255:",
        "if not 0 <= value <= 256:",
        "unit/test_ops.py::test_an_op_that_contradicts_itself_is_refused_in_words",
    ),
    Mutant(
        "the range of values is wrong where a factor is negative",
        "ops/levels.py",
        "low=min(ends) + 0.0",
        "low=ends[0] + 0.0",
        "unit/test_ops.py::test_an_op_says_the_spec_of_its_result",
    ),
    Mutant(
        "a uint8 tensor may hold normalized values",
        "ops/outputs.py",
        'if self.dtype == "uint8" and image.values == "normalized":',
        'if self.dtype == "float16" and image.values == "normalised":',
        "unit/test_pipeline.py::test_a_wrong_graph_is_refused_in_words",
    ),
    Mutant(
        "the shorter side is taken for the longer one",
        "spec.py",
        'if (height <= width) == (side == "shorter"):',
        'if (height <= width) == (side == "longer"):',
        "unit/test_ops.py::test_the_other_side_is_rounded_down_as_torchvision_does",
    ),
    Mutant(
        "an op takes the image before it, whatever it names",
        "pipeline.py",
        "taken = -1 if last is None else last if op.from_ is None else names[op.from_]",
        "taken = -1 if last is None else last",
        "unit/test_pipeline.py::test_an_op_takes_the_image_of_the_op_before_it_or_of_the_one_it_names",
    ),
    Mutant(
        "outputs may take terabytes",
        "pipeline.py",
        "if n_bytes > MAX_OUTPUT_BYTES:",
        "if n_bytes < 0:",
        "attacks/test_pipeline_terabytes.py::test_outputs_of_hundreds_of_gigabytes_are_refused_with_both_numbers",
    ),
    Mutant(
        "a field of the file that is not known is passed over",
        "pipeline_file.py",
        "if key not in (*FIELDS, SCHEMA_FIELD):",
        "if not key:",
        "unit/test_pipeline_file.py::test_a_mistake_is_refused_in_words",
    ),
    Mutant(
        "a field may stand twice in an op",
        "pipeline_file.py",
        "if len(result) < len(pairs):",
        "if len(result) > len(pairs):",
        "attacks/test_pipeline_duplicate_keys.py",
    ),
    Mutant(
        "defaults are saved too",
        "pipeline_file.py",
        "if _is(op, fewer):",
        "if not fewer:",
        "unit/test_pipeline_file.py::test_the_bytes_of_a_file_are_pinned",
    ),
    Mutant(
        "a value that is no default is not saved",
        "pipeline_file.py",
        "return msgspec.convert(fields, type(op)) == op",
        "return msgspec.convert(fields, type(op)) is not None",
        "unit/test_pipeline_file.py::test_only_what_differs_from_the_defaults_is_saved",
    ),
    Mutant(
        "a default of the format changes",
        "ops/geometry.py",
        "fill: Fill = 114",
        "fill: Fill = 0",
        "unit/test_pipeline_file.py::test_the_defaults_of_the_format_never_change",
    ),
    # the compiler and the plan
    Mutant(
        "two margins may have two colours, and one is lost",
        "compiler.py",
        "if self.fill not in (None, colour):",
        "if self.fill == ():",
        "unit/test_pipeline.py::test_a_wrong_graph_is_refused_in_words",
    ),
    Mutant(
        "a crop before the resize pads a smaller image",
        "compiler.py",
        'replace(step, beyond="refuse_smaller") if',
        "step if",
        "device/test_engine.py::test_an_image_without_a_place_is_refused_in_words_whichever_output_is_asked_for",
    ),
    Mutant(
        "the second of two normalizations adds its offset alone",
        "compiler.py",
        "tuple(o * a + b for (a, b), _, o in pairs)",
        "tuple(o + b for (a, b), _, o in pairs)",
        "unit/test_plan.py::test_arithmetic_folds_into_one_factor_and_one_offset_a_channel",
    ),
    Mutant(
        "the sides of a letterbox are cut off, not rounded",
        "compiler.py",
        'rounding="half_even",\n            )\n            return _resized(',
        'rounding="down",\n            )\n            return _resized(',
        "unit/test_plan.py::test_folded_ops_look_where_the_ops_one_by_one_look",
    ),
    Mutant(
        "the constants of the fused arithmetic are quotients, not PyTorch's products",
        "compiler.py",
        "return tuple(float(np.float32(value) * np.float32(factor)) for value in values)",
        "return tuple(float(np.float32(value / (1 / factor))) for value in values)",
        "unit/test_import_transformers.py::test_fused_constants_are_products_of_float32_as_in_pytorch",
    ),
    Mutant(
        "half an odd margin of a centre crop is rounded down",
        "placement.py",
        "return rounded((length - window) / 2, step.rounding)",
        "return (length - window) // 2",
        "unit/test_plan.py::test_a_centre_crop_rounds_half_a_pixel_to_even",
    ),
    Mutant(
        "the odd pixel of a margin lies above",
        "placement.py",
        "return -((window - length) // 2)",
        "return -((window - length + 1) // 2)",
        "unit/test_plan.py::test_a_letterbox_puts_the_odd_margin_below",
    ),
    Mutant(
        "a crop after a flip cuts from the wrong side",
        "placement.py",
        "self.begin += cut_after if self.is_flipped else cut_before",
        "self.begin += cut_before",
        "unit/test_plan.py::test_folded_ops_look_where_the_ops_one_by_one_look",
    ),
    Mutant(
        "the transform forgets the crop after the resize",
        "placement.py",
        "offset -= self.region[axis]",
        "offset -= 0",
        "unit/test_plan.py::test_the_transform_says_where_a_point_of_the_image_went",
    ),
    Mutant(
        "the transform of an image that no pixel is seen of ends at the canvas",
        "placement.py",
        "self.at = first - start",
        "self.at = max(0, min(first - start, length))",
        "unit/test_plan.py::test_the_transform_brings_a_point_where_the_ops_one_by_one_bring_it",
    ),
    Mutant(
        '"cover" names the side that "fit" does',
        "placement.py",
        'if self.rule in ("longer", "fit") else',
        'if self.rule in ("longer", "cover") else',
        "unit/test_plan.py::test_the_side_that_a_rule_names_is_met_exactly",
    ),
    Mutant(
        "DALI's part of the image grows without bound",
        "placement.py",
        "(max(side, whole / 10) for side, whole",
        "(max(side, whole / 1000) for side, whole",
        "unit/test_plan.py::test_a_subpixel_scale_grows_the_part_looked_at_no_more_than_tenfold",
    ),
    Mutant(
        "an image is resized to gigabytes",
        "placement.py",
        "if resized[0] * resized[1] > MAX_RESIZED_PIXELS:",
        "if resized[0] > MAX_RESIZED_PIXELS:",
        "unit/test_plan.py::test_a_resize_beyond_the_limit_is_refused",
    ),
    Mutant(
        "a reduced decode leaves one pixel for each that the resize makes",
        "plan.py",
        "if fraction * SPARE <= least",
        "if fraction <= least",
        "device/test_reduced.py::test_the_fraction_leaves_two_pixels_for_each",
    ),
    Mutant(
        "an image needs a place in the first output alone",
        "plan.py",
        "        for geometry, (names, has_tensor) in self._geometries.items():",
        "        for geometry, (names, has_tensor) in [*self._geometries.items()][:1]:",
        "device/test_engine.py::"
        "test_an_image_that_only_a_later_output_has_no_place_for_is_refused_whichever_output_is_asked_for",
    ),
    Mutant(
        "a float64 step rounds to float32 first",
        "plan.py",
        "values = values.astype(np.float64) * scale + offset",
        "values = values * scale.astype(np.float32) + offset.astype(np.float32)",
        "device/test_kernel.py::test_every_level_of_every_dtype_is_what_float64_says",
    ),
    # what is drawn in training
    Mutant(
        "the sides are not compared",
        "pipeline.py",
        "            if len(with_tensor) == 2:",
        "            if len(with_tensor) > 2:",
        "unit/test_sides.py::test_sides_that_contradict_each_other_are_refused_in_words",
    ),
    Mutant(
        "a random op draws by its place among all of its kind, named or not",
        "pipeline.py",
        "counts[op_name(op)] += op.name is None",
        "counts[op_name(op)] += 1",
        "unit/test_draw.py::test_a_draw_does_not_depend_on_other_ops",
    ),
    Mutant(
        "the epoch changes no draw",
        "draw.py",
        "_rounds(even, odd, (seed, epoch))",
        "_rounds(even, odd, (seed, 0))",
        "unit/test_draw.py::test_each_seed_epoch_sample_attempt_and_op_has_numbers_of_its_own",
    ),
    Mutant(
        "samples beyond 2^32 draw what earlier ones did",
        "draw.py",
        "even[0], odd[0] = (indices & _LOW)[:, None], (indices >> _HALF)[:, None]",
        "even[0], odd[0] = (indices & _LOW)[:, None], 0",
        "unit/test_draw.py::test_each_seed_epoch_sample_attempt_and_op_has_numbers_of_its_own",
    ),
    Mutant(
        "Philox has nine rounds",
        "draw.py",
        "_WEYL = np.arange(10,",
        "_WEYL = np.arange(9,",
        "unit/test_draw.py::test_philox_gives_the_known_answers_of_random123",
    ),
    Mutant(
        "a box that is smaller than the least window is never tried",
        "draw.py",
        "box[-1] >= overlap * least",
        "box[-1] >= least",
        "unit/test_draw.py::test_an_iou_crop_is_the_first_trial_that_has_the_overlap",
    ),
    Mutant(
        "labels stay when their box goes",
        "data/boxes.py",
        "                results[field] = values[kept]",
        "                results[field] = values",
        "unit/test_annotations.py::test_what_is_said_of_a_box_goes_with_it_and_nothing_else",
    ),
    Mutant(
        "a box whose middle an IoU crop cuts off stays",
        "data/boxes.py",
        "            kept &= placed.kept[step.key]",
        "            kept &= True",
        "unit/test_annotations.py::test_a_box_whose_middle_is_outside_the_window_goes",
    ),
    Mutant(
        "a photo that is turned against its annotation is taken",
        "data/boxes.py",
        "    if annotated_size is None or tuple(annotated_size) == (height, width):",
        "    if annotated_size is None or sorted(annotated_size) == sorted((height, width)):",
        "unit/test_annotations.py::test_an_image_that_is_turned_against_its_annotation_fails_alone",
    ),
    # decoders
    Mutant(
        "a JPEG is decoded before its size is looked at",
        "decoders/header.py",
        "limits.check_size(header.height, header.width, len(encoded))",
        "limits.check_size(1, 1, len(encoded))",
        "device/test_decode.py::test_what_is_refused_is_refused_in_words",
    ),
    Mutant(
        "an image that fits nowhere is decoded first",
        "decoders/cpu.py",
        "            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))",
        '            if (warning := _warning(encoded, "GRAY")) is not None:\n'
        "                raise _jpeg_error(warning, len(encoded))\n"
        "            placed = place(*header.size(is_upright=self._plan.apply_exif_orientation))",
        "device/test_engine.py::test_an_image_without_a_place_is_refused_before_it_is_decoded",
    ),
    Mutant(
        "a photo on its side stays so",
        "decoders/cpu.py",
        "if orientation >= 5:",
        "if orientation > 8:",
        "device/test_decode.py::test_exif_orientation_turns_the_image_upright",
    ),
    Mutant(
        "a JPEG that ends early becomes an image",
        "decoders/cpu.py",
        "pixels = self._turbojpeg(encoded, buffer, is_strict=True)",
        "pixels = self._turbojpeg(encoded, buffer, is_strict=False)",
        "device/test_damage.py::test_a_jpeg_that_ends_early_is_refused_or_what_libjpeg_turbo_makes_of_it",
    ),
    Mutant(
        "a damaged JPEG shows the image of another client",
        "decoders/cpu.py",
        "if buffer[-1, -1, -1] != level:",
        "if buffer.size:",
        "device/test_damage.py::test_the_image_before_never_shows_through",
    ),
    Mutant(
        "damage of a CMYK JPEG is not looked for",
        "decoders/cpu.py",
        'warning = _warning(encoded, "CMYK") if header.components == 4 else None',
        "warning = None",
        "device/test_damage.py::test_damage_of_cmyk_is_refused_although_pillow_says_nothing",
    ),
    Mutant(
        "two images are decoded into one buffer",
        "decoders/cpu.py",
        "self._buffer = self._buffers.popleft()",
        "self._buffer = self._buffers[0]",
        "device/test_decode.py::test_no_buffer_is_two_images_at_once",
    ),
    Mutant(
        "images wait for nothing, however many pixels are in memory",
        "decoders/cpu.py",
        "self._used == 0 or self._used + pixels <= self._limit",
        "self._limit",
        "device/test_engine.py::test_images_over_the_budget_of_pixels_wait_for_their_turn",
    ),
    Mutant(
        "a colour, or the entries of a palette, are never transparent",
        "decoders/cpu.py",
        '("A" in image.getbands() or image.info.get("transparency") is not None)',
        '"A" in image.getbands()',
        "parity/test_decode.py::test_white_shows_through_what_is_transparent",
    ),
    Mutant(
        "an image that waits for memory is never told that there is some",
        "decoders/cpu.py",
        "                self._changed.notify_all()\n",
        "",
        "device/test_engine.py::test_images_over_the_budget_of_pixels_wait_for_their_turn",
    ),
    Mutant(
        "transparent images are laid on black",
        "decoders/cpu.py",
        'white = Image.new("RGBA", image.size, "white")',
        'white = Image.new("RGBA", image.size, "black")',
        "parity/test_decode.py::test_white_shows_through_what_is_transparent",
    ),
    Mutant(
        "a reduced image that was turned begins at a whole pixel",
        "decoders/cpu.py",
        "return Reduction(denominator, (y, x))",
        "return Reduction(denominator, (0.0, 0.0))",
        "device/test_reduced.py::test_a_slope_stays_where_it_is",
    ),
    Mutant(
        "a JPEG with less data than its header needs is decoded",
        "decoders/header.py",
        "if is_strict and len(encoded) - header.scan < header.least:",
        "if is_strict and len(encoded) < header.scan:",
        "device/test_damage.py::test_a_header_that_promises_more_than_the_data_can_hold_is_refused_at_once",
    ),
    Mutant(
        "a flat JPEG is taken for one that ends early",
        "decoders/header.py",
        "_BITS_A_BLOCK = {0xC0: 2, 0xC1: 2, 0xC2: 1}",
        "_BITS_A_BLOCK = {0xC0: 3, 0xC1: 3, 0xC2: 2}",
        "device/test_damage.py::test_no_whole_jpeg_is_smaller_than_its_header_needs",
    ),
    Mutant(
        "one scan more than the limit is read",
        "decoders/header.py",
        "if scans > max_scans:",
        "if scans > max_scans + 1:",
        "device/test_decode.py::test_what_is_refused_is_refused_in_words",
    ),
    Mutant(
        "tags of a TIFF may claim gigabytes",
        "decoders/header.py",
        "    if claimed > len(tiff):\n        raise",
        "    if claimed < 0:\n        raise",
        "device/test_decode.py::test_what_is_refused_is_refused_in_words",
    ),
    Mutant(
        "of several EXIF segments the first alone is read",
        "decoders/header.py",
        "exif.append(segment[6:] if exif else segment)",
        "exif[:] = exif or [segment]",
        "unit/test_exif.py::test_several_segments_of_a_jpeg_are_one_as_in_pillow",
    ),
    Mutant(
        "an orientation is a number of two bytes",
        "decoders/header.py",
        "if type_ not in _NUMBERS:",
        "if type_ != 3:",
        "unit/test_exif.py::test_the_orientation_is_the_one_that_pillow_reads",
    ),
    Mutant(
        "junk behind a table counts as harmless",
        "decoders/flaws.py",
        "or before < _APP0:",
        "or before < 0:",
        "device/test_damage.py::test_what_costs_pixels_is_refused",
    ),
    Mutant(
        "a lost colour space counts as harmless",
        "decoders/flaws.py",
        "if has_junk and not (has_jfif",
        "if False and not (has_jfif",
        "device/test_damage.py::test_what_costs_pixels_is_refused",
    ),
    Mutant(
        "chroma that Pillow interpolates passes for repeated",
        "decoders/cpu.py",
        "in ((2, 1), (1, 2), (2, 2)) for",
        "in ((2, 1), (2, 2)) for",
        "device/test_decode.py::test_chroma_of_every_sampling_is_repeated_or_refused_where_pillow_would_interpolate_it",
    ),
    Mutant(
        "a GPU decodes damaged JPEGs that the CPU refuses",
        "decoders/gpu.py",
        "        if self._readers:\n            are_whole",
        "        if not self._readers:\n            are_whole",
        "device/test_gpu_engine.py::test_every_output_error_and_count_equals_the_cpu_engines_alone_and_in_a_batch[plain]",
    ),
    Mutant(
        "what a GPU could not decode is kept for the next image",
        "decoders/gpu.py",
        "zip(decoded, needs, strict=True) if image is not None]",
        "zip(decoded, needs, strict=True)]",
        "device/test_gpu_engine.py"
        "::test_an_image_that_nvimagecodec_fails_on_costs_no_other_one_in_this_batch_or_the_next",
    ),
    Mutant(
        "a GPU decodes more at once than its memory holds",
        "decoders/gpu.py",
        "if index > start and used + image.n_bytes > self._budget:",
        "if index > start and used > 1 << 60:",
        "device/test_gpu_engine.py::test_a_batch_is_cut_by_the_memory_of_its_pixels_and_so_that_chunks_overlap",
    ),
    Mutant(
        "a GPU decodes red, green and blue as YCbCr",
        "decoders/gpu.py",
        " and not header.is_rgb",
        "",
        "device/test_gpu_engine.py::test_a_jpeg_of_red_green_and_blue_gets_the_cpu_decoders_pixels",
    ),
    Mutant(
        "the hardware JPEG engine is left with a few images of a call",
        "decoders/gpu.py",
        "islice(cycle(small), MOST - len(each_once))",
        "islice(cycle(small), 0)",
        "device/test_gpu_engine.py::test_the_hardware_engine_decodes_all_that_it_can_however_many_come",
    ),
    Mutant(
        "the hardware JPEG engine decodes consistently, whatever its pixels",
        "decoders/gpu.py",
        "name in pixels and np.array_equal(each, pixels[name])",
        "name in pixels",
        "device/test_gpu_engine.py::test_both_decoders_decode_consistently_where_their_pixels_are_equal",
    ),
    Mutant(
        "an image that a GPU has not turned is taken for one that it has",
        "decoders/gpu.py",
        "tuple(image.shape[:2]) == (placed.height, placed.width)",
        "len(image.shape) == 3",
        "device/test_gpu_engine.py::test_an_image_of_another_shape_than_its_header_says_goes_to_the_cpu",
    ),
    Mutant(
        "a GPU's decoder goes while its images are worked on",
        "decoders/gpu.py",
        "if self._chunks or not self._is_used",
        "if not self._is_used",
        "device/test_gpu_engine.py::test_no_decoder_goes_while_its_images_are_worked_on",
    ),
    Mutant(
        "restart markers may come in any order",
        "decoders/structure.py",
        "if marker != 0xD0 + turn or not interval:",
        "if marker & 0xF8 != 0xD0 or not interval:",
        "unit/test_structure.py::test_restart_markers_that_are_missing_doubled_or_swapped_are_found",
    ),
    Mutant(
        "restart markers may be missing",
        "decoders/header.py",
        "if structure.interval and structure.restarts !=",
        "if structure.interval < 0 and structure.restarts !=",
        "unit/test_structure.py::test_restart_markers_that_are_missing_doubled_or_swapped_are_found",
    ),
    Mutant(
        "Adobe's transform decides although there is JFIF",
        "decoders/header.py",
        "if frame[5] != 3 or has_jfif:",
        "if frame[5] != 3:",
        "unit/test_structure.py::test_colours_are_found_by_libjpegs_rule",
    ),
    Mutant(
        "base64 that stands for more than the limits allow is decoded",
        "decoders/text.py",
        "if sum(map(len, images)) > _longest(request_bytes):",
        "if sum(map(len, images)) > 9 * _longest(request_bytes):",
        "unit/test_text.py::test_base64_of_more_bytes_than_may_come_is_not_decoded",
    ),
    Mutant(
        "URL-safe base64 is another image",
        "decoders/text.py",
        'bytes.maketrans(b"-_", b"+/")',
        'bytes.maketrans(b"-_", b"/+")',
        "unit/test_text.py::test_every_common_way_of_base64_is_read",
    ),
    Mutant(
        "base64 with padding that does not fit is read",
        "decoders/text.py",
        "len(text) - len(digits) not in (0, missing)",
        "len(text) - len(digits) > 2",
        "unit/test_text.py::test_broken_base64_is_left_as_it_is",
    ),
    # the engine
    # numbers that come with an image
    Mutant(
        "the edges of a box are cut off, not rounded",
        "inputs.py",
        "(round(edge) for edge in np.clip(",
        "(int(edge) for edge in np.clip(",
        "device/test_inputs.py::test_edges_are_rounded_as_pillow_rounds_them",
    ),
    Mutant(
        "a box is in pixels of the canvas, whatever was cut off before",
        "placement.py",
        "_on_canvas(numbers.astype(np.float64)[None], rows, columns)[0]",
        "numbers.astype(np.float64)",
        "device/test_inputs.py::test_a_box_is_in_pixels_of_the_upright_photo_whatever_ops_come_before_the_crop",
    ),
    Mutant(
        "a bad box fails the boxes behind it",
        "engine.py",
        "[row if isinstance(row, ImageError) else replace(result, placed=row) for row in result.placed.rows]",
        "[row if isinstance(row, ImageError) else replace(result, placed=row) for row in result.placed.rows[::-1]]",
        "device/test_inputs.py::test_a_bad_box_fails_only_itself_and_is_named",
    ),
    Mutant(
        "a box may lie outside the photo",
        "inputs.py",
        "if left >= right or top >= bottom:",
        "if left > right or top > bottom:",
        "device/test_inputs.py::test_a_bad_box_fails_only_itself_and_is_named",
    ),
    Mutant(
        "any number of boxes is let in",
        "inputs.py",
        "if most is not None and count > most:",
        "if most is not None and count > most << 20:",
        "attacks/test_image_boxes.py",
    ),
    Mutant(
        "boxes may cover any number of pixels",
        "plan.py",
        "left -= pixels",
        "left -= 0",
        "attacks/test_image_boxes.py",
    ),
    Mutant(
        "the margins of every image have the first one's colour",
        "kernels/cpu.py",
        "zip(planes, self._table, placement.fill or self._plan.fill, strict=True)",
        "zip(planes, self._table, self._plan.fill, strict=True)",
        "device/test_inputs.py::test_a_colour_is_as_the_input_says",
    ),
    Mutant(
        "on a GPU the canvas has the plan's colour, whatever an input says",
        "kernels/plain.cu",
        "image.fill >> 8 * plan.channel[c] & 255",
        "plan.fill[c]",
        "device/test_gpu_engine.py::test_numbers_that_come_with_an_image_give_the_cpu_engines_values_and_errors",
    ),
    Mutant(
        "a reduced decode is as coarse as the largest box allows",
        "plan.py",
        "denominator = min((row.denominator",
        "denominator = max((row.denominator",
        "device/test_inputs.py::test_a_reduced_decode_is_as_fine_as_the_smallest_box_needs",
    ),
    Mutant(
        "an error is put in the place of another image",
        "engine.py",
        "batch.errors[row] = each",
        "batch.errors[row - 1] = each",
        "device/test_engine.py::test_a_broken_image_fails_only_itself",
    ),
    Mutant(
        "the row of a refused image shows an earlier batch",
        "engine.py",
        "array[rows[row]] = 0",
        "array[rows[row]] = array[rows[row]]",
        "device/test_engine.py::test_the_row_of_a_broken_image_is_zeros_in_every_output",
    ),
    Mutant(
        "a refused image takes its neighbours along",
        "engine.py",
        "array[rows[row]] = 0",
        "array[rows[row] :] = 0",
        "device/test_fuzz.py",
    ),
    Mutant(
        "recovered images are counted of the last chunk alone",
        "engine.py",
        "recovered += sum(image.is_recovered for image in images)",
        "recovered = sum(image.is_recovered for image in images)",
        "device/test_damage.py::test_an_answer_is_the_same_alone_and_in_a_batch",
    ),
    Mutant(
        "fallbacks are not counted",
        "engine.py",
        "fallbacks += sum(image.is_fallback for image in images)",
        "fallbacks += 0",
        "device/test_gpu_engine.py::test_what_nvimagecodec_does_not_read_goes_to_the_cpu_decoder_and_is_counted",
    ),
    Mutant(
        "a batch that fails leaves a thread behind that writes into it",
        "engine.py",
        "wait(others)  #",
        "others.clear()  #",
        "device/test_engine.py::test_a_batch_that_fails_waits_for_its_threads_and_the_next_one_runs",
    ),
    Mutant(
        "any word is a policy of damage",
        "engine.py",
        "if value is not None and value not in choices:",
        "if value is not None and not value:",
        "device/test_engine.py::test_an_engine_that_cannot_be_is_refused_in_words",
    ),
    # profiles: what each library does
    Mutant(
        "the vertical pass of Pillow 13 comes first at exactly twice the columns",
        "profiles/pillow.py",
        "lost > 2 * (",
        "lost >= 2 * (",
        "device/test_engine.py::test_pillow12_differs_from_pillow_where_its_order_of_passes_does_and_nowhere_else",
    ),
    Mutant(
        "pillow12 has the order of Pillow 13",
        "profiles/pillow.py",
        'PROFILE_12 = replace(PROFILE, title="Pillow 12", is_vertical_first=never_vertical_first)',
        'PROFILE_12 = replace(PROFILE, title="Pillow 12")',
        "device/test_engine.py::test_pillow12_differs_from_pillow_where_its_order_of_passes_does_and_nowhere_else",
    ),
    Mutant(
        "another constant of the Hamming window",
        "profiles/formula.py",
        "np.float32(0.54)",
        "np.float32(0.5)",
        "unit/test_profiles.py::test_pillows_weights_are_those_of_the_definition",
    ),
    Mutant(
        "the window ends half a position too early",
        "profiles/formula.py",
        "last = np.minimum((middles + support + 0.5)",
        "last = np.minimum((middles + support)",
        "unit/test_profiles.py::test_pillows_weights_are_those_of_the_definition",
    ),
    Mutant(
        "torchvision's weights have a bit less",
        "profiles/formula.py",
        "NARROW_BITS = 15",
        "NARROW_BITS = 14",
        "unit/test_verify.py::test_every_op_that_makes_levels_equals_its_frozen_results",
    ),
    Mutant(
        "TensorFlow antialiases by default",
        "profiles/tensorflow.py",
        "antialias=False,",
        "antialias=True,",
        "unit/test_pipeline_file.py::test_the_defaults_of_the_format_never_change",
    ),
    Mutant(
        "OpenCV's bicubic is Pillow's",
        "profiles/opencv.py",
        "a = np.float32(-0.75)",
        "a = np.float32(-0.5)",
        "unit/test_verify.py::test_every_op_that_makes_levels_equals_its_frozen_results",
    ),
    Mutant(
        "OpenCV's lanczos4 looks a pixel too far to the right",
        "profiles/opencv.py",
        "_uniform(first - 3, _fixed(_lanczos4(t)))",
        "_uniform(first - 2, _fixed(_lanczos4(t)))",
        "unit/test_verify.py::test_every_op_that_makes_levels_equals_its_frozen_results",
    ),
    Mutant(
        "OpenCV's lanczos4 rounds between its passes",
        "kernels/resample.py",
        '"opencv_lanczos": (_integer, _fixed)',
        '"opencv_lanczos": (_linear_first, _fixed)',
        "unit/test_verify.py::test_every_op_that_makes_levels_equals_its_frozen_results",
    ),
    Mutant(
        "an AVIF's data may be larger than its container says",
        "decoders/boxes.py",
        "if (coded.height, coded.width) != (height, width):",
        "if coded.height < height or coded.width < width:",
        "attacks/test_image_avif_heic.py::test_an_avif_that_lies_is_refused[of 16 pixels around 65536]",
    ),
    Mutant(
        "a frame of AV1 is believed to have the size of its sequence",
        "decoders/bitstreams.py",
        "height * width if is_reduced else 1 << across + down",
        "height * width",
        "attacks/test_image_avif_heic.py::test_an_avif_that_lies_is_refused[of 16 pixels whose frames may say 65536]",
    ),
    Mutant(
        "the items of an AVIF may share their bytes without end",
        "decoders/boxes.py",
        "self._n_bytes += length",
        "self._n_bytes = length",
        "attacks/test_image_avif_heic.py::test_an_avif_that_lies_is_refused[of 1,000 tiles of one megabyte]",
    ),
    # kernels on the CPU
    Mutant(
        "NumPy's resize cuts off in place of rounding",
        "kernels/resample.py",
        "sums += 1 << (windows.bits - 1)",
        "sums += 0",
        "unit/test_compiled.py::test_a_resize_equals_numpys",
    ),
    Mutant(
        "machine code cuts off in place of rounding",
        "kernels/llvm.py",
        "value = builder.ashr(builder.add(total, half), bits)",
        "value = builder.ashr(total, bits)",
        "device/test_kernel.py::test_a_pipeline_equals_pillow",
    ),
    Mutant(
        "a flip after the resize is forgotten",
        "kernels/cpu.py",
        "flips=placement.flips,",
        "flips=(False, False),",
        "device/test_kernel.py::test_a_pipeline_equals_pillow",
    ),
    Mutant(
        "a box comes back with x and y swapped",
        "coordinates.py",
        "array[..., 1::-1], array[..., 3:1:-1]",
        "array[..., :2], array[..., 2:]",
        "unit/test_coordinates.py::test_boxes_in_the_tensor_come_back_to_the_photo",
    ),
    Mutant(
        "a mirrored box has its left edge on the right",
        "coordinates.py",
        "return np.concatenate([np.minimum(first, last), np.maximum(first, last)], axis=-1)",
        "return np.concatenate([first, last], axis=-1)",
        "unit/test_coordinates.py::test_boxes_in_the_tensor_come_back_to_the_photo",
    ),
    Mutant(
        "a margin before the resize counts no pixels in the transform",
        "placement.py",
        "1 / ratio, (box[0] + box[1]) / 2, (margins[1] - margins[0]) / 2",
        "1 / ratio, (box[0] + box[1]) / 2, 0.0",
        "unit/test_plan.py::test_the_transform_brings_a_point_where_the_ops_one_by_one_bring_it",
    ),
    Mutant(
        "a filter that reaches over the image's edge sees none of the margin before the resize",
        "placement.py",
        "reach = REACH * max(ratio, 1.0) + 1",
        "reach = 0.0",
        "device/test_kernel.py::test_a_margin_before_the_resize_is_resampled_like_any_pixel",
    ),
    Mutant(
        "the plain CUDA kernels see the image's edge in the margin before the resize",
        "kernels/plain.cu",
        "return line.fill >> 8 * c & 255;",
        "position = position < 0 ? 0 : line.inside - 1;",
        "device/test_cuda.py::test_the_kernels_equal_the_cpu_bit_for_bit",
    ),
    Mutant(
        "a margin is not normalized",
        "kernels/cpu.py",
        "plane[...] = table[fill]",
        "plane[...] = fill",
        "device/test_kernel.py::test_the_margin_is_normalized_like_any_pixel",
    ),
    Mutant(
        "every table of float32 is taken for a line",
        "kernels/compiled.py",
        "if table.dtype == np.float32 and np.array_equal(",
        "if table.dtype == np.float32 or np.array_equal(",
        "unit/test_compiled.py::test_one_call_gives_what_several_do",
    ),
    Mutant(
        "BGR is RGB",
        "kernels/compiled.py",
        "channels[0], 1 if channels[-1] >= channels[0] else -1",
        "0, 1",
        "device/test_kernel.py::test_bgr_is_rgb_backwards",
    ),
    # kernels on a GPU
    Mutant(
        "the fast CUDA kernels take a byte of the wrong channel",
        "kernels/fast.cu",
        "pixels[1], 0x0630)",
        "pixels[1], 0x0631)",
        "device/test_cuda.py::test_the_kernels_equal_the_cpu_bit_for_bit",
    ),
    Mutant(
        "the fast CUDA kernels cut off in place of rounding",
        "kernels/fast.cu",
        "d ? 0 : 1 << (BITS - 1)",
        "0",
        "device/test_cuda.py::test_the_kernels_equal_the_cpu_bit_for_bit",
    ),
    Mutant(
        "the plain CUDA kernels cut off in place of rounding",
        "kernels/plain.cu",
        "return clip8((sum + (1 << (bits - 1))) >> bits);",
        "return clip8(sum >> bits);",
        "device/test_cuda.py::test_the_plain_kernels_do_what_the_fast_ones_do",
    ),
    Mutant(
        "white is no level of the CUDA kernels",
        "kernels/canvas.cu",
        "level > 255 ? 255",
        "level > 255 ? 254",
        "device/test_cuda.py::test_the_kernels_equal_the_cpu_bit_for_bit",
    ),
    Mutant(
        "a GPU's bilinear rotation interpolates between rows alone",
        "kernels/levels.cu",
        "__dmul_rn(right - left, share)",
        "0",
        "device/test_cuda_levels.py::test_every_step_equals_the_cpus_bit_for_bit",
    ),
    Mutant(
        "a step that looks elsewhere has no memory of its own on a GPU",
        "kernels/canvases.py",
        "size, turn = size_after([step], *size), 1 - turn",
        "size = size_after([step], *size)",
        "device/test_cuda_levels.py::test_what_steps_need_of_memory_does_not_overlap",
    ),
    Mutant(
        "a GPU's steps are checked with the example's alone",
        "devices/gpu.py",
        "placements.append(_with_all_steps(placements[0], plan))",
        "placements.append(placements[0])",
        "device/test_gpu_engine.py::test_no_engine_changes_levels_as_the_cpu_does_not",
    ),
    Mutant(
        "a GPU gets machine code that it does not understand",
        "kernels/nvrtc.py",
        "{'sm' if best // 10 == capability // 10 else 'compute'}",
        "{'sm' if best else 'compute'}",
        "unit/test_nvrtc.py::test_a_gpu_gets_code_that_it_understands",
    ),
    Mutant(
        "a GPU's wrong pixels are served",
        "decoders/gpu.py",
        "if apart > LARGEST_MEAN:",
        "if apart > 8:",
        "device/test_gpu_engine.py::test_a_gpu_decoder_that_decodes_something_else_stops_the_engine",
    ),
    Mutant(
        "a GPU's wrong kernels are used",
        "devices/gpu.py",
        "    if np.array_equal(ours, expected):",
        "    if ours.size:",
        "device/test_gpu_engine.py::test_no_engine_computes_something_else_than_the_cpu",
    ),
    Mutant(
        "the kernels do not wait for what their caller has queued",
        "devices/gpu.py",
        "if self._queued is not None:",
        "if self._queued is self:",
        "device/test_gpu_engine.py::test_the_kernels_wait_for_what_the_caller_has_queued",
    ),
    Mutant(
        "pixels that become ready on another stream are not waited for",
        "devices/gpu.py",
        'if said["stream"] != cupy.cuda.get_current_stream().ptr:',
        'if said["stream"] == -1:',
        "device/test_gpu_engine.py::test_pixels_that_become_ready_on_the_lanes_stream_are_not_waited_for",
    ),
    Mutant(
        "the parts of a chunk have the places of one launch between the passes",
        "kernels/launch.py",
        "begins[first:last] -= np.uint64(used)",
        "begins[first:last] -= np.uint64(0)",
        "device/test_cuda.py::test_images_are_launched_in_parts_that_have_room_between_the_passes",
    ),
    Mutant(
        "machine code mirrors no columns on a GPU",
        "kernels/llvm.py",
        'p["mirror_1"] if axis else SIZE(0)',
        "SIZE(0)",
        "device/test_cuda.py::test_machine_code_fills_structs_and_windows_as_the_host_does",
    ),
    Mutant(
        "a GPU keeps its decoder after the engine's end",
        "decoders/gpu.py",
        "        self._decoder = None  #",
        "        self._readers = None  #",
        "device/test_gpu_engine.py::test_a_closed_engine_has_no_threads_and_no_decoder_any_more",
    ),
    # what a reader is told
    Mutant(
        "a subtraction is told as an addition",
        "explain.py",
        "{'+' if offset > 0 else '-'}",
        "{'-' if offset > 0 else '+'}",
        "unit/test_explain.py::test_the_pipeline_its_plan_and_every_shape_are_explained",
    ),
    Mutant(
        "channels are named as they were decoded",
        "explain.py",
        '("red", "green", "blue")[channel]',
        '("red", "green", "blue")[index]',
        "unit/test_explain.py::test_channels_are_named_in_the_order_of_the_tensor",
    ),
    Mutant(
        "a filter that is near is called exact",
        "explain.py",
        "is_near = resize.filter in profile.near",
        "is_near = resize.filter in profile.real",
        "unit/test_explain.py::test_it_says_how_exact_a_resize_is",
    ),
    Mutant(
        "BGR is drawn in its true colours, as if the model saw them",
        "pictures.py",
        "shown_as(shown.tensor, low, high)",
        "shown_as(shown.tensor[:, :, np.argsort(shown.plan.channels)], low, high)",
        "unit/test_pictures.py::test_the_third_picture_shows_the_first_channel_as_red",
    ),
    Mutant(
        "the frame on the photo forgets the crop after the resize",
        "preview.py",
        "sorted((edge - offset) / scale for edge in edges)",
        "sorted(edge / scale for edge in edges)",
        "unit/test_preview.py::test_it_says_which_part_of_the_photo_is_seen",
    ),
    Mutant(
        "a margin counts as photo",
        "preview.py",
        "return pixels[top:bottom, left:right] if self._mask is None else pixels[self._mask][:, None]",
        "return pixels",
        "unit/test_preview.py::test_a_margin_is_left_out_of_what_is_said_of_the_photo",
    ),
    Mutant(
        "a name is HTML in a notebook",
        "notebook.py",
        "return escape(printable(text))",
        "return printable(text)",
        "attacks/test_notebook_html.py::test_a_name_is_text_wherever_it_stands",
    ),
    Mutant(
        "a classifier that never ends holds a build up",
        "repository/trial.py",
        "timeout=limit_s",
        "timeout=10 * limit_s + 60",
        "unit/test_trial.py::test_a_model_that_takes_too_long_is_left",
    ),
    Mutant(
        "ours is drawn where the original should be",
        "verify/picture.py",
        "shown_as(theirs, low, high)",
        "shown_as(ours, low, high)",
        "unit/test_verify_picture.py::test_both_results_stand_side_by_side_and_the_difference_is_amplified_to_white",
    ),
    # the importers of other libraries
    Mutant(
        "any class may call itself a transform of torchvision",
        "importers/torchvision.py",
        "if not is_own:",
        "if not name:",
        "unit/test_import_torchvision.py::test_what_is_not_a_transform_is_refused_by_its_class",
    ),
    Mutant(
        "timm's share of the crop is rounded, not cut off",
        "importers/timm.py",
        "return floor(size[0] / share), floor(size[1] / share)",
        "return round(size[0] / share), round(size[1] / share)",
        "unit/test_import_timm.py::test_the_geometry_of_a_crop_mode",
    ),
    Mutant(
        "the middle crop of transformers rounds to even",
        "importers/transformers.py",
        'return CenterCrop(window[0], window[1], rounding="down")',
        "return CenterCrop(window[0], window[1])",
        "unit/test_import_transformers.py::test_clip_becomes_five_ops",
    ),
    Mutant(
        "a field of a configuration that nobody asked for is passed over",
        "importers/fields.py",
        "            if name in self._left:",
        "            if name not in self._values:",
        "unit/test_import_fields.py::test_a_field_that_nobody_asked_for_is_refused",
    ),
    Mutant(
        "Keras's caffe mode keeps RGB",
        "importers/keras.py",
        'color="bgr" if mode == "caffe" else "rgb"',
        'color="rgb"',
        "unit/test_import_keras.py::test_the_values_are_those_of_load_img_and_of_the_mode_caffe",
    ),
    Mutant(
        "Ultralytics letterboxes like Pillow",
        "importers/ultralytics.py",
        'Letterbox(height=height, width=width, like="opencv")',
        "Letterbox(height=height, width=width)",
        "unit/test_import_ultralytics.py::test_an_exported_model_says_its_preprocessing",
    ),
    Mutant(
        "DALI's GPU decoder gets fancy chroma",
        "importers/dali.py",
        'chroma="fancy" if on_cpu or is_fancy else "fast",',
        'chroma="fancy",',
        "unit/test_import_dali.py::test_the_pipeline_of_every_dali_tutorial_becomes_five_ops",
    ),
    Mutant(
        "DALI's mirror is forgotten",
        "importers/dali.py",
        'if fields.choice("mirror", _NO_YES, 0):',
        'if not fields.choice("mirror", _NO_YES, 1):',
        "unit/test_import_dali.py::test_crop_mirror_normalize_keeps_its_meaning",
    ),
    # what is verified
    Mutant(
        "what is not a number is no difference",
        "verify/report.py",
        "difference[np.isnan(difference)] = np.inf",
        "difference[np.isnan(difference)] = 0",
        "unit/test_verify.py::test_a_difference_is_shown_where_it_arises",
    ),
    Mutant(
        "the first image is named as the worst",
        "verify/report.py",
        "if difference.max() > self.max:",
        "if self.worst is None and difference.max():",
        "unit/test_verify.py::test_the_worst_image_is_named",
    ),
    Mutant(
        "a level is allowed where pixels are called exact",
        "verify/report.py",
        "self.beyond += int(np.count_nonzero(difference > allowed))",
        "self.beyond += int(np.count_nonzero(difference > allowed + 1))",
        "unit/test_verify.py::test_one_level_is_allowed_only_where_a_filter_claims_no_exactness",
    ),
    # inside Triton
    Mutant(
        "a request gets the tensors of another one",
        "triton/model.py",
        "batch.outputs[name][rows]",
        "batch.outputs[name][: rows.stop - rows.start]",
        "unit/test_model.py::test_each_request_gets_its_own_images_back_in_order",
    ),
    Mutant(
        "a broken image is the server's fault",
        "triton/model.py",
        "return _error(_message(_bad(batch, spans), len(spans)), pb_utils.TritonError.INVALID_ARG)",
        "return _error(_message(_bad(batch, spans), len(spans)), pb_utils.TritonError.INTERNAL)",
        "unit/test_model.py::test_a_broken_image_fails_only_its_own_request",
    ),
    Mutant(
        "a client sees our traceback",
        "triton/model.py",
        'return _error("internal error of pixprep; the server\'s log says more", pb_utils.TritonError.INTERNAL)',
        "return _error(traceback.format_exc(), pb_utils.TritonError.INTERNAL)",
        "unit/test_model.py::test_a_bug_of_ours_is_logged_and_never_shown",
    ),
    Mutant(
        "Triton is told numbers while images are decoded",
        "triton/model.py",
        "with self._metrics.pause, self._watchdog",
        "with self._watchdog",
        "unit/test_model.py::test_while_triton_is_told_a_number_no_image_is_decoded",
    ),
    Mutant(
        "a length that lies reads beyond its tensor",
        "triton/model.py",
        "if end > len(buffer) or begin + 4 > len(buffer):",
        "if begin > len(buffer):",
        "unit/test_model.py::test_lengths_that_lie_are_refused",
    ),
    Mutant(
        "the parameter damage reaches no engine",
        "triton/model.py",
        "            damage=options.damage,\n",
        "",
        "unit/test_model.py::test_damaged_jpegs_that_are_decoded_all_the_same_are_counted",
    ),
    Mutant(
        "an unknown parameter is passed over",
        "triton/config.py",
        "if key not in _PARAMETERS and not key.isupper():",
        "if not key and not key.isupper():",
        "unit/test_repository.py::test_each_mistake_is_found_and_nothing_else",
    ),
    Mutant(
        "each of several instances takes all cores",
        "triton/config.py",
        "share = max(1, len(os.sched_getaffinity(0)) // instances)",
        "share = max(instances, len(os.sched_getaffinity(0)))",
        "unit/test_config.py::test_instances_share_the_cores",
    ),
    Mutant(
        "refused images are not counted by their reason",
        "triton/metrics.py",
        'Counter(error.reason if error else "ok" for',
        'Counter("refused" if error else "ok" for',
        "unit/test_model.py::test_everything_is_counted",
    ),
    Mutant(
        "a hung batch goes on for ever",
        "triton/watchdog.py",
        "if now > self._deadline:",
        "if now < 0:",
        "unit/test_watchdog.py::test_a_batch_that_takes_for_ever_ends_the_process_and_says_where_it_was",
    ),
    Mutant(
        "a pool for one batch is taken for enough",
        "triton/pool.py",
        "* (instances + 2)",
        "* instances",
        "unit/test_pool.py::test_a_batch_in_each_step_and_one_that_waits_must_fit",
    ),
    Mutant(
        "a pinned pool is no danger",
        "triton/pool.py",
        'elif environment.get(PINNED_VARIABLE) != "0":',
        'elif environment.get(PINNED_VARIABLE) == "1":',
        "unit/test_pool.py::test_a_pinned_pool_is_a_danger_unless_somebody_says_that_there_is_none",
    ),
    Mutant(
        "base64 is accepted unasked",
        "triton/model.py",
        "if self._accepts_base64:",
        "if images:",
        "unit/test_model.py::test_base64_is_taken_where_the_model_accepts_it_and_images_as_ever",
    ),
    # the files that Triton reads
    Mutant(
        "an ensemble's tensors may have two shapes",
        "repository/wiring.py",
        "if have and want and not (have.data_type == want.data_type and _fits(have, want)):",
        "if have and want and have.data_type != want.data_type:",
        "unit/test_repository.py::test_each_mistake_is_found_and_nothing_else",
    ),
    Mutant(
        "labels that are not there are not missed",
        "repository/check.py",
        'if name := entry.get("label_filename", ""):',
        'if name := entry.get("labels", ""):',
        "unit/test_repository.py::test_each_mistake_is_found_and_nothing_else",
    ),
    Mutant(
        "dims that the pipeline does not give are let in",
        "triton/config.py",
        'if (data_type, dims) != (want["data_type"], want["dims"]):',
        'if data_type != want["data_type"]:',
        "unit/test_repository.py::test_each_mistake_is_found_and_nothing_else",
    ),
    Mutant(
        "build writes over a stranger's files",
        "repository/build.py",
        "if not output.exists() or not any(output.iterdir()):",
        "if not output.is_file():",
        "unit/test_repository.py::test_a_folder_of_someone_else_is_not_touched_unless_forced",
    ),
    Mutant(
        "a link out of the repository is followed",
        "repository/check.py",
        "if not Path(os.path.realpath(path)).is_relative_to(root):",
        "if not Path(path).is_relative_to(path):",
        "attacks/test_repository_links.py",
    ),
    # what a user runs
    Mutant(
        "microseconds are reported as milliseconds",
        "serve/perf.py",
        "numbers = {name: float(row[column]) / 1000 for",
        "numbers = {name: float(row[column]) for",
        "unit/test_perf.py::test_a_report_becomes_numbers_in_milliseconds",
    ),
    Mutant(
        "a batch larger than the model's is sent",
        "serve/client.py",
        "if not 1 <= batch <= max(1, model_input.max_batch_size):",
        "if batch < 1:",
        "unit/test_client.py::test_a_batch_that_one_request_cannot_carry_is_refused",
    ),
    Mutant(
        "answers go to the wrong files after one that cannot be read",
        "serve/client.py",
        "else next(places)",
        "else paths.index(path)",
        "server/test_perf_and_examples.py::test_one_bad_file_does_not_stop_the_others_whatever_the_batch",
    ),
    Mutant(
        "a server that does not answer is waited for",
        "serve/client.py",
        '{"client_timeout": timeout_s}',
        "{}",
        "server/test_perf_and_examples.py::test_a_server_that_does_not_answer_in_time_is_said_to",
    ),
    Mutant(
        "a crash deploys what lies on disk",
        "serve/server.py",
        "self.command(wheel, self.snapshot.folder,",
        "self.command(wheel, self._repository.resolve(),",
        "server/test_supervision.py::test_what_changes_on_disk_is_not_what_comes_back",
    ),
    Mutant(
        "a file that was renamed has the same hash",
        "serve/snapshot.py",
        "counts.update(os.fsencode(name) + ",
        "counts.update(",
        "unit/test_snapshot.py::test_a_hash_is_that_of_names_and_contents",
    ),
    Mutant(
        "a change on disk that was refused stays in the copy",
        "serve/supervisor.py",
        "other = snapshot.put(other)",
        "pass",
        "server/test_supervision.py::test_watch_deploys_a_good_edit_and_refuses_a_broken_one",
    ),
    Mutant(
        "a model that died is left dead",
        "serve/supervisor.py",
        "if self._running() < self._count:",
        "if self._running() < 0:",
        "server/test_supervision.py::test_of_two_instances_one_is_missed_while_the_other_goes_on",
    ),
    Mutant(
        "a model that fails every request is left alone while its process runs",
        "serve/supervisor.py",
        "return status == 500 or (is_idle",
        "return (is_idle",
        "server/test_sick_model.py",
    ),
    Mutant(
        "an ensemble that only lacks a failed model is blamed too",
        "serve/failure.py",
        r"ensemble (\S+) (contains .*)",
        r"ensemble (\S+) (.*)",
        "unit/test_server_setup.py::test_each_failing_model_has_its_line_and_the_ensemble_that_only_lacks_it_has_none",
    ),
    Mutant(
        "the page answers to any name that leads to this machine",
        "page/server.py",
        "if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):",
        "if len(hosts) != 1:",
        "attacks/test_page.py::test_a_name_that_was_bound_to_this_machine_is_refused",
    ),
    Mutant(
        "any website may send the page a photo",
        "page/server.py",
        'if origin is not None and origin != f"http://{hosts[0]}":',
        "if False:",
        "attacks/test_page.py::test_no_other_site_sends_a_photo",
    ),
    Mutant(
        "the page reads a photo of any length",
        "page/server.py",
        "if length > limit_bytes:",
        "if False:",
        "attacks/test_page.py::test_a_photo_over_the_limit_is_refused_before_it_comes",
    ),
    Mutant(
        "the four numbers of a transform are classes",
        "serve/client.py",
        "if len(lists) == 1 and not is_preprocessing",
        "if len(lists) == 1",
        "server/test_page.py::test_what_a_pipeline_gives_beside_the_tensor_is_no_list_of_classes",
    ),
    Mutant(
        "a shard takes the samples of its neighbour",
        "data/order.py",
        "begin + size * rank // world",
        "begin + size * (rank + 1) // world",
        "unit/test_order.py",
    ),
    Mutant(
        "every epoch has the order of the first",
        "data/order.py",
        "return np.array([seed, epoch], np.uint64)",
        "return np.array([seed, 0], np.uint64)",
        "unit/test_order.py::test_epochs_and_seeds_have_orders_of_their_own",
    ),
    Mutant(
        "samples that fill a batch up are counted twice",
        "data/order.py",
        "places >= self.samples, end)",
        "places > self.samples, end)",
        "unit/test_order.py::test_every_sample_comes_exactly_once_an_epoch",
    ),
    Mutant(
        "memory of encoded files is given out while it is in use",
        "data/recycling.py",
        "unused = [place for place in range(count) if sys.getrefcount(self._blocks[place]) == _UNUSED]",
        "unused = list(range(count))",
        "unit/test_recycling.py::test_memory_is_nobodys_twice_and_used_again_when_it_is_let_go",
    ),
    Mutant(
        "a Loader keeps its memory when an epoch is left",
        "data/loader.py",
        "        if not is_whole:\n            self._maker.rest()",
        "        if is_whole:\n            self._maker.rest()",
        "unit/test_loader.py::test_memory_is_kept_for_the_next_epoch_and_given_back_when_one_is_left",
    ),
    Mutant(
        "a state counts what was made ahead",
        "data/loader.py",
        "        self._position, self._is_begun = position, True",
        "        self._position, self._is_begun = position + self.order.global_size, True",
        "unit/test_loader.py::test_a_state_counts_what_was_delivered_and_not_what_was_made_ahead",
    ),
    Mutant(
        "an array is used again while a view of it lives",
        "data/recycling.py",
        "sys.getrefcount(self._memories[place]) == _UNUSED",
        "sys.getrefcount(self._memories[place]) != 0",
        "unit/test_loader.py::test_arrays_are_used_again_only_when_the_consumer_has_let_go",
    ),
    Mutant(
        "a replacement is drawn as if it were the sample's own turn",
        "data/making.py",
        "_Rows(others, [attempt] * len(left))",
        "_Rows(others, [0] * len(left))",
        "unit/test_loader.py::test_broken_samples_are_replaced_and_named",
    ),
    Mutant(
        "broken samples have no cap",
        "data/making.py",
        "if len(met) > self.most_errors:",
        "if len(met) > 10 * self.most_errors:",
        "unit/test_loader.py::test_too_many_broken_samples_end_the_epoch",
    ),
    Mutant(
        "a skipped sample leaves its row of zeros",
        "data/making.py",
        "self._run_into(made, holes, others, epoch, rows)",
        "pass",
        "unit/test_loader.py::test_skipped_samples_are_missing_and_all_others_are_there",
    ),
    Mutant(
        "the cache grows over its bound",
        "data/cache.py",
        "n_bytes > self._left",
        "n_bytes < 0",
        "unit/test_loader.py::test_the_cache_is_bounded",
    ),
    # pixels in place of files, and operators
    Mutant(
        "BGR frames are taken for RGB",
        "decoders/pixels.py",
        'pixels[:, :, ::-1] if self._order == "bgr" else pixels',
        "pixels",
        "unit/test_pixels.py::test_a_tensor_of_pixels_is_that_of_the_file_that_has_them",
    ),
    Mutant(
        "the last pixel of a row of three-byte pixels is left out",
        "kernels/compiled.py",
        "by_planes, at = pixels[:, -1:], wide[:, -1:]",
        "by_planes, at = pixels[:, :1], wide[:, :1]",
        "unit/test_pixels.py::test_a_tensor_of_pixels_is_that_of_the_file_that_has_them",
    ),
    Mutant(
        "frames have no limits",
        "decoders/pixels.py",
        "self._limits.check_size(*pixels.shape[:2])",
        "pass",
        "unit/test_pixels.py::test_an_array_that_does_not_fit_is_an_error_in_its_place",
    ),
    Mutant(
        "floats are taken for levels",
        "decoders/pixels.py",
        "if array.dtype != np.uint8:",
        "if array.dtype == np.int8:",
        "unit/test_pixels.py::test_what_is_no_list_of_arrays_is_refused_in_words",
    ),
    Mutant(
        "an installed operator is taken without being allowed",
        "operators.py",
        "if not found and name in allowed:",
        "if not found and _entries(name):",
        "attacks/test_pipeline_operators.py::test_a_name_alone_gives_no_function",
    ),
    Mutant(
        "an operator of another version is taken",
        "operators.py",
        "if one.version == version:",
        "if one.version <= version:",
        "attacks/test_pipeline_operators.py::test_another_version_is_refused",
    ),
    Mutant(
        "a package may have another operator under a name",
        "operators.py",
        "or made.name != name:",
        "or not made.name:",
        "attacks/test_pipeline_operators.py::test_a_package_that_has_no_such_operator_is_the_operators_trouble",
    ),
    Mutant(
        "an operator's exception fails the batch",
        "operators.py",
        "except (Exception, SystemExit) as error:",
        "except LookupError as error:",
        "unit/test_operators.py::test_a_mistake_fails_its_image_alone",
    ),
    Mutant(
        "an operator may change the size of the image",
        "operators.py",
        "tuple(result.shape) != tuple(shape)",
        "len(result.shape) != len(shape)",
        "unit/test_operators.py::test_a_mistake_fails_its_image_alone",
    ),
    Mutant(
        "a crop behind an operator comes before it",
        "levels.py",
        "return isinstance(step, Curve | Hue) or",
        "return isinstance(step, Curve | Hue | Extern) or",
        "unit/test_operators.py::test_an_image_before_a_crop_may_have_any_size",
    ),
    Mutant(
        "a mirror behind an operator comes before it",
        "levels.py",
        "isinstance(step, Warp | Take | Erase | Extern)",
        "isinstance(step, Warp | Take | Erase)",
        "unit/test_operators.py::test_a_mirror_behind_an_operator_stays_there",
    ),
    Mutant(
        "apply draws the same for every image of a list",
        "applying.py",
        "sample = seed, epoch, index + place",
        "sample = seed, epoch, index",
        "unit/test_applying.py::test_random_ops_draw_what_a_loader_draws",
    ),
)


@dataclass(frozen=True)
class Found:
    """What became of a mutant: the seconds that its test took, or what is wrong with it."""

    mutant: Mutant
    seconds: float = 0.0
    fault: str = ""


def copy(folder: Path) -> None:
    """The files of the working tree that git knows, or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def pytest(folder: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy until one fails."""
    paths = [str(folder / "tests" / test) for test in tests]
    hang = ["-o", f"faulthandler_timeout={HANG_S}"]
    command = [sys.executable, "-m", "pytest", "-qx", "-m", "", "-p", "no:cacheprovider", *hang, *paths]
    # Python takes a .pyc for current by the second of its source
    environment = os.environ | {"PYTHONPATH": str(folder / "backend"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def outcome(mutant: Mutant, folder: Path) -> Found:
    """Make the mistake in a copy, run its test, and take the mistake back."""
    path = folder / "backend" / "pixprep" / mutant.file
    whole = path.read_text(encoding="utf-8")
    if whole.count(mutant.old) != 1:
        return Found(mutant, fault=f"its old text stands {whole.count(mutant.old)} times in its file")
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    start = time.monotonic()
    try:
        done = pytest(folder, [mutant.test])
    finally:
        path.write_text(whole, encoding="utf-8")
    seconds = time.monotonic() - start
    if done.returncode == 0:
        return Found(mutant, seconds, "survives")
    if done.returncode != FAILED:
        return Found(mutant, seconds, f"its test did not run: {done.stdout.strip()[-300:]}")
    return Found(mutant, seconds)


def row(found: Found) -> str:
    """One line of the table."""
    mutant = found.mutant
    file, _, test = mutant.test.partition("::")
    words = test.partition("[")[0].removeprefix("test_").replace("_", " ") or Path(file).stem.replace("_", " ")
    return f"| {mutant.name} | `{mutant.file}` | [{words}](../tests/{file}) | {found.seconds:.1f} |"


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)  # noqa: T201


def run(mutants: Sequence[Mutant], jobs: int) -> list[Found]:
    """The outcome of each, in order; all of their tests pass without them."""
    with TemporaryDirectory(prefix="pixprep-mutants-") as name, ThreadPoolExecutor(jobs) as pool:
        folders: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            copy(Path(name) / str(number))
            folders.put(Path(name) / str(number))

        def one(mutant: Mutant) -> Found:
            folder = folders.get()
            try:
                return outcome(mutant, folder)
            finally:
                folders.put(folder)

        say(f"{len(mutants)} mutants; their tests without them first")
        done = pytest(Path(name) / "0", dict.fromkeys(mutant.test for mutant in mutants))
        if done.returncode:
            said = done.stdout[-2000:] + done.stderr[-1000:]
            raise SystemExit(f"{said}\na test fails, or is not there, without any mutant")
        results = []
        for found in pool.map(one, mutants):
            say(f"{found.fault or 'caught':<8} {found.seconds:5.1f} s  {found.mutant.file}: {found.mutant.name}")
            results.append(found)
        return results


def main() -> int:
    """Make the mistakes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a word of the file or the name")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once (default: the cores)")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if arguments.only in f"{mutant.file} {mutant.name}"]
    results = run(chosen, arguments.jobs)
    faults = [found for found in results if found.fault]
    if not arguments.only and not faults:
        TABLE.write_text(HEAD + "\n".join(map(row, results)) + "\n", encoding="utf-8")
    say(f"{len(results) - len(faults)} of {len(results)} are caught")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
