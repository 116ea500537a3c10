"""The command ``pixprep install-backend``."""

from __future__ import annotations

from pixprep.options import Folder

EXAMPLE = "install-backend /opt/tritonserver/backends"


def run(directory: Folder) -> int:
    """Write the backend, including this package, to the backend directory of a Triton server.

    Args:
        directory: The backend directory, in which the folder `pixprep` is created.
    """
    from pixprep.cli.output import say
    from pixprep.serving.repository.backend import install_backend

    say(install_backend(directory))
    return 0
