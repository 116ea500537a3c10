"""The main job, end to end: build the demo repository, serve it, send photos over HTTP and gRPC, stop.

python -m pixprep.demo client_examples/images --model-repository model_repository
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from pixprep import cli, files
from pixprep.errors import PixprepError
from pixprep.printing import say
from pixprep.repository import build
from pixprep.serve import supervisor
from pixprep.serve.server import Server


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pixprep.demo", description=__doc__)
    parser.add_argument("photos", type=Path, nargs="+", help="files or folders")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--stay", action="store_true", help="keep serving on ports 8000, 8001, 8002 until Ctrl-C")
    arguments = parser.parse_args()
    http, grpc, metrics = (8000, 8001, 8002) if arguments.stay else (0, 0, 0)
    server = Server(arguments.model_repository, http_port=http, grpc_port=grpc, metrics_port=metrics)
    codes = []

    def send() -> None:
        say(f"ready     http {server.http_url}  grpc {server.grpc_url}")
        for protocol, url in (("http", server.http_url), ("grpc", server.grpc_url)):
            command = ["send", *map(str, arguments.photos), "--protocol", protocol, "--url", url]
            say("", f"$ pixprep {shlex.join(command)}")
            codes.append(cli.main(command))
        if arguments.stay:
            say("", "serving until Ctrl-C; try", f"$ {server.curl}")

    try:
        files.expand(arguments.photos)
        say(f"building  {arguments.model_repository}: preprocess, classifier (EfficientNet-lite0), ensemble")
        build(arguments.model_repository, force=True)
        say("starting  Triton")
        if arguments.stay:
            supervisor.serve(server, on_ready=send)
        else:
            with server:
                send()
    except PixprepError as error:
        first, *more = error.args
        say(f"pixprep: {first}", *more, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    say("", "stopped")
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
