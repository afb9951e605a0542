"""A policy pack as a process, started the way Pulumi's engine starts it."""

import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, TypeAlias, cast

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi.runtime.proto.analyzer_pb2_grpc import AnalyzerStub

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import patient
from gpu_tenancy.model.yaml import read_mapping
from gpu_tenancy.packs.findings import Outcome

_TIMEOUT: Final = 60.0  # timeout in seconds for a pack's start, and for each call
_LARGEST: Final = 400 * 1024 * 1024  # maximum message size in bytes, as in the engine
_NO_ENGINE: Final = "127.0.0.1:1"  # the engine's address for the pack: packs in Python never call it
_OUTCOMES: Final = "gpu-rules-outcomes"  # trailing metadata with outcomes, from policy/rule_engine/server.py
_TYPE: Final = "gpu-rules-type"  # trailing metadata: no rule checks the resource's type, so no more calls are needed
_METADATA: Final = 16 * 1024 * 1024  # bytes of trailing metadata: gRPC's default of 8 KiB is too small for large stacks

Reported: TypeAlias = tuple[wire.AnalyzeDiagnostic, Outcome | None]  # None: the pack does not report outcomes
_KNOWN: Final = frozenset(Outcome)


class Client:
    """Client of a running pack."""

    def __init__(self, stub: AnalyzerStub) -> None:
        self.stub: Any = stub  # its responses have no types
        self._timeout = patient(_TIMEOUT)
        self._unchecked: set[str] = set()  # types that no rule of the pack checks, as it answered

    def info(self) -> wire.AnalyzerInfo:
        """Name, version and rules of the pack."""
        return self.stub.GetAnalyzerInfo(Empty(), timeout=self._timeout)

    def configure(self, request: wire.ConfigureAnalyzerRequest) -> None:
        """Sets levels and settings of the rules."""
        self.stub.Configure(request, timeout=self._timeout)

    def open(self, project: str, stack: str) -> None:
        """Announces the stack."""
        request = wire.AnalyzerStackConfigureRequest(
            project=project, stack=stack, organization="organization", dry_run=True
        )
        self.stub.ConfigureStack(request, timeout=self._timeout)

    def analyze(self, request: wire.AnalyzeRequest) -> list[Reported]:
        """Diagnostics about one resource, with their outcomes; none for a type that the pack does not check."""
        if request.type in self._unchecked:
            return []
        response, call = self.stub.Analyze.with_call(request, timeout=self._timeout)
        if any(key == _TYPE for key, _ in call.trailing_metadata() or ()):
            self._unchecked.add(request.type)
        return _reported(response, call)

    def analyze_stack(self, request: wire.AnalyzeStackRequest) -> list[Reported]:
        """Diagnostics about all resources of a stack, with their outcomes."""
        return _reported(*self.stub.AnalyzeStack.with_call(request, timeout=self._timeout))

    def remediate(self, request: wire.AnalyzeRequest) -> list[wire.Remediation]:
        """The remedies for one resource, each with the changes of those before it."""
        return list(self.stub.Remediate(request, timeout=self._timeout).remediations)


def _reported(response: wire.AnalyzeResponse, call: grpc.Call) -> list[Reported]:
    metadata = {key: value for key, value in call.trailing_metadata() or () if key == _OUTCOMES}
    outcomes = str(metadata.get(_OUTCOMES, "")).split(",")
    diagnostics = list(response.diagnostics)
    known = len(outcomes) == len(diagnostics) and all(outcome in _KNOWN for outcome in outcomes)
    return list(zip(diagnostics, map(Outcome, outcomes) if known else [None] * len(diagnostics), strict=True))


@contextmanager
def pack_process(folder: Path) -> Generator[Client]:
    """Starts a pack's process in its folder, yields its client, and terminates the process on exit.

    The interpreter is from the virtual environment in `PulumiPolicy.yaml` if it exists, else this program's:
    sdk/python/cmd/pulumi-language-python/main.go in pulumi/pulumi, `RunPlugin`. Raises ConsoleError if the folder has
    no pack in Python, or the pack does not start.
    """
    command = [_interpreter(folder), "-u", "-m", "pulumi.policy", _NO_ENGINE, str(folder.resolve())]
    with TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, bufsize=0
        )
        try:
            port = _port(process, folder, log)
            sizes = [
                ("grpc.max_receive_message_length", _LARGEST),
                ("grpc.max_send_message_length", _LARGEST),
                ("grpc.max_metadata_size", _METADATA),
            ]
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=sizes) as channel:
                try:
                    yield Client(AnalyzerStub(channel))
                except grpc.RpcError as error:
                    raise _no_response(folder, error, log) from error
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _interpreter(folder: Path) -> str:
    file = folder / "PulumiPolicy.yaml"
    if not file.is_file():
        raise ConsoleError(
            f"{folder} is not a policy pack: PulumiPolicy.yaml is missing", "specify the folder of a policy pack"
        )
    runtime = read_mapping(file, "{runtime: python}").get("runtime")
    name = _map(runtime).get("name", runtime)
    if name != "python":
        raise ConsoleError(
            f"policy pack {folder}: {f'runtime {name} is not supported' if name else 'runtime is missing'}",
            "use a pack in Python, or `pulumi preview --policy-pack`",
        )
    place = _map(_map(runtime).get("options")).get("virtualenv")
    own = folder / place / "bin" / "python" if isinstance(place, str) else None
    return str(own) if own and own.is_file() else sys.executable


def _map(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _port(process: "subprocess.Popen[bytes]", folder: Path, log: IO[bytes]) -> int:
    assert process.stdout is not None  # noqa: S101 - set by the caller
    until, line = time.monotonic() + patient(_TIMEOUT), b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        byte = process.stdout.read(1) if ready else b""
        if not byte:
            problem = f"policy pack {folder} did not start: {_last_lines(log)}"
            raise ConsoleError(problem, "install its dependencies, or fix the error")
        line += byte
    if not line.strip().isdigit():
        printed = line.decode(errors="replace").strip()
        problem = f"policy pack {folder} printed {printed!r} before its port"
        raise ConsoleError(problem, "remove the output to stdout")
    return int(line)


def _no_response(folder: Path, error: grpc.RpcError, log: IO[bytes]) -> ConsoleError:
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return ConsoleError(f"policy pack {folder} rejected its configuration: {error.details()}", "fix its JSON file")
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    problem = f"policy pack {folder} did not respond: {details}; last log lines: {_last_lines(log)}"
    return ConsoleError(problem, "report it to the pack owner")


def _last_lines(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    return "; ".join(line.strip() for line in lines[-4:] if line.strip()) or "no output"
