"""The files of a model repository, as Triton reads them."""

from __future__ import annotations

import os
from pathlib import Path

from pixprep.errors import PipelineError, needing
from pixprep.pipeline.file import read_bytes
from pixprep.pipeline.pipeline import Pipeline
from pixprep.serving.triton.config import CONFIG_FILE, PIPELINE_FILE, Config, options

_NO_CLIENT = 'reading a config.pbtxt needs tritonclient: pip install ".[client]" in a checkout of pixprep'
_MAX_BYTES = 256 << 10  # of a larger configuration, parsing takes seconds


def pipeline_files(model_repository: Path) -> list[Path]:
    """The pipeline file of each version of each model, as ``model_repository/MODEL/1/pipeline.json``."""
    return sorted(path for path in model_repository.glob(f"*/*/{PIPELINE_FILE}") if path.parent.name.isdecimal())


def newest_pipelines(model_repository: Path) -> dict[str, Path]:
    """Pipeline file of each model's newest version, which Triton serves."""
    files = sorted(pipeline_files(model_repository), key=lambda file: int(file.parent.name))
    return {file.parents[1].name: file for file in files}


def newest(model: Path) -> str:
    """The newest version in a model's directory, which Triton serves; empty if there is none."""
    versions = (path.name for path in model.iterdir() if path.name.isdecimal()) if model.is_dir() else ()
    return max(versions, key=int, default="")


def read_config(model: Path) -> Config:
    """The ``config.pbtxt`` in a model's directory in its JSON form, ``{}`` where there is none.

    Raises:
        PipelineError: it cannot be parsed.
        SetupError: tritonclient is not installed.
    """
    path = model / CONFIG_FILE
    with needing(_NO_CLIENT):
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (comes with tritonclient)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415  (300 ms, and not needed to build)
    if not os.path.lexists(path):
        return {}
    try:
        text = read_bytes(path, most=_MAX_BYTES)
        if len(text) > _MAX_BYTES:
            raise PipelineError(f"{CONFIG_FILE}: has over {_MAX_BYTES:,} bytes, which no configuration needs")
        message = text_format.Parse(text.decode(), model_config_pb2.ModelConfig())
    except OSError as error:
        raise PipelineError(f"{CONFIG_FILE}: cannot be read: {error.strerror}") from None
    except (text_format.ParseError, UnicodeDecodeError) as error:
        fields = "the fields are those of Triton's model_config.proto"
        raise PipelineError(f"{CONFIG_FILE}: cannot be parsed: {str(error).rstrip('.')}: {fields}") from None
    config: Config = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return config


def config_text(config: Config) -> str:
    """A configuration as the text of ``config.pbtxt``.

    Raises:
        SetupError: tritonclient is not installed.
    """
    with needing(_NO_CLIENT):
        from google.protobuf import json_format, text_format  # noqa: PLC0415  (comes with tritonclient)
        from tritonclient.grpc import model_config_pb2  # noqa: PLC0415  (as above)
    message = json_format.ParseDict(config, model_config_pb2.ModelConfig())
    text: str = text_format.MessageToString(message, as_utf8=True)
    return text


def read_pipeline(file: Path) -> Pipeline:
    """The pipeline of a version of a model, with the installed operators that its ``config.pbtxt`` allows.

    Raises:
        PipelineError: a file cannot be read or is wrong.
        SetupError: an installed operator does not load, or tritonclient is needed and not installed.
    """
    try:
        return Pipeline.load(file)
    except PipelineError:  # few pipelines name an operator; the configuration of the others need not be read
        allowed = options(read_config(file.parents[1])).allow_operators
        if not allowed:
            raise
    return Pipeline.load(file, operators=allowed)
