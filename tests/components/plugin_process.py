"""The plugin as Pulumi's engine runs it: a separate process, called over gRPC, with a monitor that records."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from google.rpc import status_pb2  # Pulumi's own copy cannot be loaded beside the one of Google's libraries.
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    errors_pb2,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)
from repository import ROOT
from starts import GUARD

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.recording import SECRET, SIGNATURE, UNKNOWN, RecordingMonitor, Registration, decode

PLUGIN: Final = ROOT / "provider"
PROJECT: Final = "web"
STACK: Final = "dev"
STACK_URN: Final = f"urn:pulumi:{STACK}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{STACK}"
BUCKET: Final = f"urn:pulumi:{STACK}::{PROJECT}::aws:s3/bucket:Bucket::weights"
# Marks an output value: https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/sig/sig.go
_OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_OPTIONS: Final = (("grpc.enable_http_proxy", 0),)

Values = Mapping[str, Any]


def secret(value: Any) -> dict[str, Any]:
    """A secret as an engine without output values sends it."""
    return {SIGNATURE: SECRET, "value": value}


def output(value: Any = UNKNOWN, *, hidden: bool = False, needs: Sequence[str] = ()) -> dict[str, Any]:
    """An output value, unknown unless a value is given; `hidden` makes it secret."""
    known = {} if value == UNKNOWN else {"value": value}
    return {SIGNATURE: _OUTPUT, **known, "secret": hidden, "dependencies": list(needs)}


@dataclass(frozen=True)
class Constructed:
    """A component that the plugin constructed, with its registrations and logs."""

    urn: str
    outputs: Mapping[str, Json]
    unknown_outputs: frozenset[str]
    registrations: tuple[Registration, ...]
    warnings: tuple[str, ...]

    def one(self, kind: str, name: str = "") -> Registration:
        (registration,) = (
            registration
            for registration in self.registrations
            if registration.type.endswith(kind) and name in {"", registration.name}
        )
        return registration


class ConstructError(Exception):
    """The engine's error for a refused component; `problems` are by path, as in `InputPropertiesError`."""

    def __init__(self, error: grpc.RpcError) -> None:
        call = cast("grpc.Call", error)
        self.code = call.code()
        self.message = call.details() or ""
        self.problems: list[tuple[str, str]] = []
        for key, value in call.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in status_pb2.Status.FromString(cast("bytes", value)).details:
                    reported = errors_pb2.InputPropertiesError()
                    detail.Unpack(reported)
                    self.problems += [(one.property_path, one.reason) for one in reported.errors]
        super().__init__(self.message)

    @property
    def text(self) -> str:
        return "\n".join([self.message, *(f"{path}: {reason}" for path, reason in self.problems)])


@dataclass
class Plugin:
    """A running plugin; `stub` is its protocol `ResourceProvider`, whose calls the SDK's stubs do not type."""

    process: "subprocess.Popen[str]"
    port: int
    stub: Any
    _engine: "_Engine"

    def schema(self) -> str:
        return self.stub.GetSchema(provider_pb2.GetSchemaRequest(version=0), timeout=GUARD).schema

    def version(self) -> str:
        return self.stub.GetPluginInfo(Empty(), timeout=GUARD).version

    def construct(  # noqa: PLR0913 - the fields of the request that matter
        self,
        kind: str,
        inputs: Values,
        *,
        name: str = "ml",
        preview: bool = False,
        parent: str = STACK_URN,
        providers: Mapping[str, str] | None = None,
        needs: Sequence[str] = (),
        input_needs: Mapping[str, Sequence[str]] | None = None,
    ) -> Constructed:
        self._engine.warnings.clear()
        with _monitor() as (monitor, address):
            for reference in (providers or {}).values():
                _declare(monitor, reference)
            request = provider_pb2.ConstructRequest(
                project=PROJECT,
                stack=STACK,
                type=f"gpu-tenancy:index:{kind}",
                name=name,
                parent=parent,
                inputs=_struct(inputs),
                providers=providers,
                dependencies=needs,
                inputDependencies={
                    key: provider_pb2.ConstructRequest.PropertyDependencies(urns=urns)
                    for key, urns in (input_needs or {}).items()
                },
                dryRun=preview,
                monitorEndpoint=address,
                accepts_output_values=True,
            )
            try:
                response = self.stub.Construct(request, timeout=GUARD)
            except grpc.RpcError as error:
                raise ConstructError(error) from error
            decoded = decode(response.state)
            return Constructed(
                response.urn,
                decoded.properties,
                frozenset(str(path[0]) for path in decoded.unknown_paths),
                tuple(sorted(monitor.registrations, key=lambda registration: registration.urn)),
                tuple(self._engine.warnings),
            )

    def refusal(self, kind: str, inputs: Values, *, preview: bool = False) -> ConstructError:
        """The error for a component that the plugin must refuse."""
        with pytest.raises(ConstructError) as refused:
            self.construct(kind, inputs, preview=preview)
        return refused.value

    def words(self) -> str:
        """Ends the plugin by its own process id and returns its standard error."""
        self.process.terminate()
        _, words = self.process.communicate(timeout=GUARD)
        return words


def _declare(monitor: RecordingMonitor, provider: str) -> None:
    """Registers a provider of the program, whose id is its name, before the component."""
    kind, name, _ = provider.split("::")[-3:]
    monitor.RegisterResource(resource_pb2.RegisterResourceRequest(type=kind, name=name, custom=True))
    monitor.registrations.clear()


def _struct(values: Values) -> Struct:
    struct = Struct()
    struct.update(json.loads(json.dumps(values)))
    return struct


class _Engine(engine_pb2_grpc.EngineServicer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def Log(self, request: engine_pb2.LogRequest, context: grpc.ServicerContext) -> Empty:  # noqa: N802, ARG002 - the protocol's
        if request.severity == engine_pb2.WARNING:
            self.warnings.append(request.message)
        return Empty()


class _Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """The calls of a recording monitor as a service of gRPC, whose methods take a context too."""

    def __init__(self, recording: RecordingMonitor) -> None:
        for name in ("GetDeploymentInfo", "Invoke", "ReadResource", "RegisterResource", "RegisterResourceOutputs"):
            setattr(self, name, partial(_called, getattr(recording, name)))


def _called(method: Callable[[Any], Any], request: Any, context: grpc.ServicerContext) -> Any:
    del context
    return method(request)


@contextmanager
def _server() -> Generator[tuple[grpc.Server, str]]:
    """A gRPC server on loopback; one worker, because the recording monitor is not safe for threads."""
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    port = server.add_insecure_port("127.0.0.1:0")
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


@contextmanager
def _monitor() -> Generator[tuple[RecordingMonitor, str]]:
    recording = RecordingMonitor(PROJECT, STACK)
    with _server() as (server, address):
        resource_pb2_grpc.add_ResourceMonitorServicer_to_server(_Monitor(recording), server)
        server.start()
        yield recording, address


@contextmanager
def plugin(folder: Path = PLUGIN, python: str = sys.executable, **variables: str) -> Generator[Plugin]:
    """Starts a plugin as the Pulumi CLI does, `python FOLDER ENGINE`, and ends it."""
    # Source: `RunPlugin` in https://github.com/pulumi/pulumi/blob/master/sdk/python/cmd/pulumi-language-python/main.go
    engine = _Engine()
    with _server() as (server, address):
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        server.start()
        process = subprocess.Popen(
            [python, str(folder), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.strip().isdigit(), process.communicate()
            with grpc.insecure_channel(f"127.0.0.1:{int(line)}", options=_OPTIONS) as channel:
                yield Plugin(process, int(line), provider_pb2_grpc.ResourceProviderStub(channel), engine)
        finally:
            process.terminate()
            process.communicate(timeout=GUARD)
