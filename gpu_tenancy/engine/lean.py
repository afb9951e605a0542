"""Pulumi's SDK without bookkeeping that only an engine uses.

For each resource the SDK takes a traceback, makes a dozen outputs with five futures each, and walks all outputs that
are not done. During an offline preview, functions here replace functions of the SDK, with the same results:
`tests/engine/test_engine_lean.py` compares the registrations of every stack. If the source of an SDK function does not
have the digest in `_REPLACED`, no function is replaced.
"""

import asyncio
import contextlib
import hashlib
import importlib
import importlib.metadata
import inspect
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import pulumi
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import source_pb2

READ_VERSION: Final = "3.272.0"  # version of the SDK whose functions have the digests

_PLAIN: Final = frozenset({bool, float, int, str, type(None)})
_DATA: Final = "pulumi.output._OutputData"
_EXPAND: Final = "pulumi.runtime._depends_on._expand_dependencies"
Resolver: TypeAlias = Callable[..., None]  # ends the wait for one property, as `pulumi.runtime.rpc.Resolver`


class Outstanding(set["asyncio.Future[Any]"]):
    """The outputs that a program waits for at its end; a list of the set has one output, which leaves the set.

    The SDK lists all outputs again after each one that is done: its time is quadratic in their number.
    """

    def __iter__(self) -> Iterator["asyncio.Future[Any]"]:
        yield self.pop()

    def clear(self) -> None:
        """Keeps the outputs that were not listed."""


class _Deferred(pulumi.Output[Any]):
    def __init__(self, start: Callable[..., "asyncio.Future[Any]"], *arguments: Any) -> None:
        # In `__dict__` and with names that no property has: other names are properties of the value.
        self.__dict__["__start"] = (start, arguments)

    @property
    def _data(self) -> "asyncio.Future[Any]":  # pyright: ignore[reportIncompatibleVariableOverride] - made when read
        own = self.__dict__
        if "__data" not in own:
            start, arguments = own.pop("__start")
            own["__data"] = start(*arguments)
        return own["__data"]


class _Properties(dict[str, Any]):
    """The outputs of one resource by name, decoded when the first is read; the SDK uses it as a dict of resolvers."""

    def __init__(self, resource: pulumi.Resource) -> None:
        super().__init__()
        self._resource = resource
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._resolve: Callable[[dict[str, Resolver]], None] | None = None

    def settle(self, resolve: Callable[[dict[str, Resolver]], None]) -> None:
        """Sets the function that calls the resolvers of properties, for reads so far and later."""
        self._resolve = resolve
        if self._waiting:
            resolve({name: self._resolver(future) for name, future in self._waiting.items()})
            self._waiting.clear()

    def read(self, name: str) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._resolve is None:
            self._waiting[name] = future
            return future
        try:
            self._resolve({name: self._resolver(future)})
        except Exception as failure:  # noqa: BLE001 - a future passes any exception to its reader
            future.set_exception(failure)
        return future

    def _resolver(self, future: "asyncio.Future[Any]") -> Resolver:
        def resolve(
            value: Any,
            is_known: bool,  # noqa: FBT001 - the SDK's signature
            is_secret: bool,  # noqa: FBT001 - the SDK's signature
            deps: Iterable[pulumi.Resource] | None,
            failed: Exception | None,
        ) -> None:
            if failed is not None:
                future.set_exception(failed)
            else:
                future.set_result(_original(_DATA)({*(deps or ()), self._resource}, value, is_known, is_secret))

        return resolve


def differences() -> list[str]:
    """Returns the functions of the installed SDK that differ from the SDK for which this module was written."""

    def digest(name: str) -> str:
        try:
            return hashlib.sha256(inspect.getsource(_original(name)).encode()).hexdigest()[:16]
        except (AttributeError, ImportError, OSError, TypeError):
            return "missing"

    return [name for name, (_, known) in _REPLACED.items() if digest(name) != known]


@cache
def _supported() -> bool:
    return importlib.metadata.version("pulumi") == READ_VERSION or not differences()


@cache
def _original(name: str) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


_LOCK: Final = threading.Lock()
_PREVIEWS: Final[list[None]] = []  # one entry for each preview that runs, in any thread


@contextlib.contextmanager
def lean() -> Generator[None]:
    """Replaces the functions of the SDK while at least one preview runs, in any thread."""
    if not _supported():
        yield
        return
    with _LOCK:
        _PREVIEWS.append(None)
        if len(_PREVIEWS) == 1:
            for name in (*_REPLACED, _EXPAND, _DATA):
                _original(name)
            _set({name: function for name, (function, _) in _REPLACED.items()})
    try:
        yield
    finally:
        with _LOCK:
            _PREVIEWS.pop()
            if not _PREVIEWS:
                _set({name: _original(name) for name in _REPLACED})


def _set(functions: Mapping[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, function)


def _create_urn(name: Any, type_: Any, parent: Any = None, *others: Any) -> pulumi.Output[str]:
    """Without tasks, for known texts; the SDK calls it for each resource and uses it only without a monitor."""
    if not (isinstance(name, str) and isinstance(type_, str) and isinstance(parent, str)):
        return _original("pulumi.runtime.resource.create_urn")(name, type_, parent, *others)

    def known(value: str) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(_original(_DATA)(set(), value, is_known=True, is_secret=False))
        return future

    return _Deferred(known, f"{parent[: parent.rfind('::')]}${type_}::{name}")


def _collapse_alias_to_urn(alias: Any, *others: Any) -> pulumi.Output[str]:
    """Only programs under an engine without alias specifications read it."""
    original = _original("pulumi.resource.collapse_alias_to_urn")
    return _Deferred(lambda: original(alias, *others)._data)


async def _resolve_depends_on_urns(depends_on: Any, from_resource: pulumi.Resource | None = None) -> set[str]:
    """For a list of resources, without making an output of each."""
    listed = cast("list[Any]", depends_on) if isinstance(depends_on, list) else [depends_on]
    if not all(isinstance(item, pulumi.Resource) for item in listed):
        return await _original("pulumi.runtime.resource._resolve_depends_on_urns")(depends_on, from_resource)
    return set(await _original(_EXPAND)(set(listed), from_resource))


def _transfer_properties(
    res: pulumi.Resource,
    props: Mapping[str, Any],
    custom: bool,  # noqa: FBT001 - the SDK's signature
) -> _Properties:
    properties = _Properties(res)
    for name in props:
        if name != "urn" and not (name == "id" and custom):
            res.__dict__[name] = _Deferred(properties.read, name)
    return properties


def _resolve_outputs(
    res: pulumi.Resource,
    given: Struct,
    returned: Struct,
    deps: Any,
    resolvers: _Properties,
    *flags: bool,
    **named: bool,
) -> None:
    """Keeps the bytes of both structures, which take a tenth of their memory, until an output is read."""
    inputs = given.SerializeToString(deterministic=True)
    outputs = returned.SerializeToString(deterministic=True)
    if inputs == outputs:
        inputs = outputs

    def decode(waiting: dict[str, Resolver]) -> None:
        original = _original("pulumi.runtime.rpc.resolve_outputs")
        original(res, Struct.FromString(inputs), Struct.FromString(outputs), deps, waiting, *flags, **named)

    resolvers.settle(decode)


def _resolve_outputs_due_to_exception(resolvers: _Properties, exn: Exception) -> None:
    original = _original("pulumi.runtime.rpc.resolve_outputs_due_to_exception")
    resolvers.settle(lambda waiting: original(waiting, exn))


def _contains_unknowns(val: Any) -> bool:
    return type(val) not in _PLAIN and _original("pulumi.runtime.rpc.contains_unknowns")(val)


async def _serialize_property(value: Any, *others: Any, **named: Any) -> Any:
    if type(value) in _PLAIN and not named.get("return_protobuf_value"):
        return value
    return await _original("pulumi.runtime.rpc.serialize_property")(value, *others, **named)


_UNWRAPPED: Final[dict[int, tuple[Any, Any]]] = {}
"""Types by their id. Each is kept, so its id stays its own; unions are equal in any order of their members."""


def _unwrap_type(val: Any) -> Any:
    known = _UNWRAPPED.get(id(val))
    if known is None:
        known = _UNWRAPPED[id(val)] = (val, _original("pulumi._types.unwrap_type")(val))
    return known[1]


@cache
def _input_type_py_to_pulumi_names(input_type_cls: type) -> dict[str, str]:
    return _original("pulumi._types.input_type_py_to_pulumi_names")(input_type_cls)


_REPLACED: Final[Mapping[str, tuple[Callable[..., Any], str]]] = MappingProxyType(
    {
        "pulumi._types.input_type_py_to_pulumi_names": (_input_type_py_to_pulumi_names, "c80765937c2c2bca"),
        "pulumi._types.unwrap_type": (_unwrap_type, "6ccd35036cb0b3d4"),
        "pulumi.output.contains_unknowns": (_contains_unknowns, "7a62cfc4a045e138"),
        "pulumi.resource.collapse_alias_to_urn": (_collapse_alias_to_urn, "9e6f1a29605d68d4"),
        # A resource's place in the program is only for the engine's messages.
        "pulumi.runtime.resource._get_stack_trace": (source_pb2.StackTrace, "3943b22730169251"),
        "pulumi.runtime.resource._resolve_depends_on_urns": (_resolve_depends_on_urns, "0cf5c16d45fca656"),
        "pulumi.runtime.resource.create_urn": (_create_urn, "b4efa209c920a83a"),
        "pulumi.runtime.rpc.contains_unknowns": (_contains_unknowns, "1f1f335b6f48b960"),
        "pulumi.runtime.rpc.resolve_outputs": (_resolve_outputs, "18f65c1be3ad95f4"),
        "pulumi.runtime.rpc.resolve_outputs_due_to_exception": (_resolve_outputs_due_to_exception, "8b5ea6db6871b682"),
        "pulumi.runtime.rpc.serialize_property": (_serialize_property, "7e1361fad73506d2"),
        "pulumi.runtime.rpc.transfer_properties": (_transfer_properties, "0e7c02ffa04ff20b"),
    }
)
"""The replacement of each SDK function, and a digest of the function's source."""
