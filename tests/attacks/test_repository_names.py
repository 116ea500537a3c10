"""Attack: A repository contains invalid names and numbers: bytes that are not UTF-8, control sequences, or "²" as a
version.

Defence: Versions must consist of ASCII digits, and unprintable characters are escaped in the output.

Outcome: Each problem is reported in one printable line. Before the fixes, a directory named "²" caused a traceback, and
a name could send control sequences to the terminal.
"""

import json
import os
from dataclasses import asdict

import pytest

from attacks.repositories import CONFIG, OUTPUT, problems
from pixprep.serving import repository


@pytest.mark.parametrize("name", ["²", "٣", "①", "-1", "+1", " 1", "1_0", "0", "00", "0x1", "1.0", "\n1"])
def test_a_directory_that_is_not_a_version_is_ignored(models, name):
    (models / "m" / name).mkdir()
    assert problems(models) == []


def test_a_model_whose_name_is_not_text_is_named_with_escapes(models):
    os.mkdir(os.fsencode(models) + b"/\xff\xfe")  # noqa: PTH102  (bytes)
    first, second = problems(models)
    assert first == r"\udcff\udcfe: has no version directory: create \udcff\udcfe/1"
    assert second.startswith(r"\udcff\udcfe/config.pbtxt: is missing")
    assert json.dumps([asdict(problem) for problem in repository.check(models)]).isascii()


def test_a_model_whose_name_is_a_control_sequence_cannot_control_the_terminal(models):
    (models / "\x1b[2J\nm: no problem found").mkdir()
    assert all(line.startswith(r"\x1b[2J\nm: no problem found") for line in problems(models))


@pytest.mark.parametrize(
    "text",
    [
        'name: "\\033[31m"',
        'backend: "pixprep"\nparameters { key: "\\033[31m" value { string_value: "x" } }',
        'backend: "pixprep"\nparameters { key: "on_error" value { string_value: "\\033[31m\\n" } }',
        'backend: "pixprep"\nparameters { key: "threads" value { string_value: "\\302\\262" } }',
        'backend: "pixprep"\nparameters { key: "max_pixels" value { string_value: "%s" } }' % ("9" * 5000),
        'backend: "pixprep"\ninput { name: "\\033[31m" data_type: TYPE_FP32 dims: [ 1 ] }',
        'backend: "pixprep"\noutput { name: "\\033[31m" data_type: TYPE_FP32 dims: [ 1 ] }',
        f'{OUTPUT} label_filename: "\\033[31m" }}',
        f'{OUTPUT} label_filename: "a\\000b" }}',
        f'{OUTPUT} label_filename: "{"x" * 300}" }}',
        'backend: "python"\ndefault_model_filename: "%s"' % ("x" * 300),
        '"\\033[31m',
        "\x1b[31m",
    ],
    ids=ascii,
)
def test_a_configuration_with_invalid_names_is_one_printable_line(models, text):
    (models / CONFIG).write_text(text)
    assert problems(models)


def test_a_configuration_that_is_not_utf_8_is_reported_as_invalid(models):
    (models / CONFIG).write_bytes(b'backend: "pixprep"\xff\xfe')
    (line,) = problems(models)
    assert line.startswith(f"{CONFIG}: cannot be parsed: 'utf-8' codec")
