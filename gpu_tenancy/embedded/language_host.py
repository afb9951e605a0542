"""Runs programs and policy packs for an engine that was built without Pulumi's own language host for Python.

It serves the same protocol with the server of Pulumi's Automation API, and expects the packages of the program, and the
plugins beside the CLI, to be installed.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
from pulumi.automation._server import LanguageServer  # pyright: ignore[reportPrivateUsage]
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

_POLL: Final = 2.0  # seconds between checks that the engine still runs


class LanguageHost(LanguageServer):
    """Runs the program of each request in this process."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """Runs a program in its folder."""
        os.chdir(request.pwd)
        program = Path(request.info.program_directory, request.info.entry_point)
        sys.path.insert(0, str(program))
        sys.argv = [str(program)]

        def run() -> None:
            runpy.run_path(str(program), run_name="__main__")

        self.program = run
        response = super().Run(request, context)  # pyright: ignore[reportUnknownMemberType] - the SDK has no types
        if response.error:  # it is in the diagnostics already
            response.error, response.bail = "", True
        return response

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - the protocol's name
        """Runs a policy pack as a process with the packages of the program; its first line is its port."""
        program = Path(request.info.program_directory, request.info.entry_point)
        environment = dict(variable.split("=", 1) for variable in request.env)
        command = [sys.executable, str(program), *request.args]
        with subprocess.Popen(command, cwd=request.pwd, env=environment or None, stdout=subprocess.PIPE) as pack:
            context.add_callback(pack.terminate)  # when the engine ends the call
            for line in pack.stdout or ():
                yield language_pb2.RunPluginResponse(stdout=line)
        yield language_pb2.RunPluginResponse(exitcode=pack.returncode)


def serve() -> None:
    """Serves on loopback until the engine interrupts this process or is gone; the first line printed is the port."""
    engine = os.getppid()
    server = grpc.server(ThreadPoolExecutor(8))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    with suppress(KeyboardInterrupt):
        while server.wait_for_termination(_POLL) and os.getppid() == engine:
            pass


if __name__ == "__main__":
    serve()
