"""A policy pack as a process, started the way Pulumi's engine starts it."""

import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, cast

import grpc
import yaml
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi.runtime.proto.analyzer_pb2_grpc import AnalyzerStub

from gpu_tenancy.console.errors import ConsoleError

PATIENCE: Final = 60.0
"""Seconds that a pack has to say its port, and to answer."""
_LARGEST: Final = 400 * 1024 * 1024
"""Bytes of one message, as the engine takes."""
_NO_ENGINE: Final = "127.0.0.1:1"
"""Where a pack would find the engine: packs in Python never ask it anything."""


class Client:
    """The way to ask a pack that runs.

    Attributes:
        stub: the protocol's own client, whose answers have no types.
    """

    def __init__(self, stub: AnalyzerStub) -> None:
        self.stub: Any = stub

    def info(self) -> wire.AnalyzerInfo:
        """What the pack is, and its rules."""
        return self.stub.GetAnalyzerInfo(Empty(), timeout=PATIENCE)

    def configure(self, request: wire.ConfigureAnalyzerRequest) -> None:
        """Gives the pack levels and settings."""
        self.stub.Configure(request, timeout=PATIENCE)

    def open(self, project: str, stack: str) -> None:
        """Tells the pack which stack comes."""
        request = wire.AnalyzerStackConfigureRequest(
            project=project, stack=stack, organization="organization", dry_run=True
        )
        self.stub.ConfigureStack(request, timeout=PATIENCE)

    def analyze(self, request: wire.AnalyzeRequest) -> list[wire.AnalyzeDiagnostic]:
        """What the pack says of one resource."""
        return list(self.stub.Analyze(request, timeout=PATIENCE).diagnostics)

    def analyze_stack(self, request: wire.AnalyzeStackRequest) -> list[wire.AnalyzeDiagnostic]:
        """What the pack says of all resources together."""
        return list(self.stub.AnalyzeStack(request, timeout=PATIENCE).diagnostics)

    def remediate(self, request: wire.AnalyzeRequest) -> list[wire.Remediation]:
        """How the pack mends one resource, remedy after remedy."""
        return list(self.stub.Remediate(request, timeout=PATIENCE).remediations)


@contextmanager
def pack_process(folder: Path) -> Generator[Client]:
    """A pack's process while the context lasts, and the way to ask it; the process is ended in any case.

    It runs in its folder, by the interpreter of the virtual environment that its `PulumiPolicy.yaml` names where that
    is there, else by this program's: sdk/python/cmd/pulumi-language-python/main.go in pulumi/pulumi, `RunPlugin`.

    Raises:
        ConsoleError: the folder holds no pack in Python, or the pack does not start.
    """
    command = [_interpreter(folder), "-u", "-m", "pulumi.policy", _NO_ENGINE, str(folder.resolve())]
    with TemporaryFile() as words:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, bufsize=0
        )
        try:
            port = _port(process, folder, words)
            sizes = [("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST)]
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=sizes) as channel:
                try:
                    yield Client(AnalyzerStub(channel))
                except grpc.RpcError as error:
                    raise _unanswered(folder, error, words) from error
        finally:
            _end(process)


def _interpreter(folder: Path) -> str:
    file = folder / "PulumiPolicy.yaml"
    if not file.is_file():
        raise ConsoleError(f"{folder} is no policy pack: it has no PulumiPolicy.yaml", "name the folder of one")
    described: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    runtime = _map(described).get("runtime")
    name = _map(runtime).get("name", runtime)
    if name != "python":
        raise ConsoleError(
            f"the pack {folder} is in {name or 'no language that it names'}", "ask it by `pulumi preview`"
        )
    place = _map(_map(runtime).get("options")).get("virtualenv")
    own = folder / place / "bin" / "python" if isinstance(place, str) else None
    return str(own) if own and own.is_file() else sys.executable


def _map(value: object) -> dict[str, Any]:
    """A map of YAML; an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _port(process: "subprocess.Popen[bytes]", folder: Path, words: IO[bytes]) -> int:
    """The first line that a pack prints, within reason."""
    assert process.stdout is not None  # noqa: S101 - asked for above
    until, line = time.monotonic() + PATIENCE, b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        more = process.stdout.read(1) if ready else b""
        if not more:
            raise ConsoleError(f"the pack {folder} does not start: {_last(words)}", "install what it needs, or mend it")
        line += more
    if not line.strip().isdigit():
        said = line.decode(errors="replace").strip()
        raise ConsoleError(f"the pack {folder} prints {said!r} before its port", "let it print nothing")
    return int(line)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends one process, by its own handle."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _unanswered(folder: Path, error: grpc.RpcError, words: IO[bytes]) -> ConsoleError:
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return ConsoleError(f"the pack {folder} refuses its configuration: {error.details()}", "mend its JSON file")
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    return ConsoleError(f"the pack {folder} does not answer: {details}; {_last(words)}", "tell its owners")


def _last(words: IO[bytes]) -> str:
    """The last of what a pack said on its way down."""
    words.seek(0)
    lines = words.read().decode(errors="replace").split("\n")
    return "; ".join(line.strip() for line in lines[-4:] if line.strip()) or "it says nothing"
