"""Outputs of resources that cost nothing until a program reads them.

The SDK makes an output of each property of each resource: five futures, a task, and a value decoded and converted to
the property's type. Programs read few of them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import pulumi


class Resolver(Protocol):
    """Ends the wait for one property, as `pulumi.runtime.rpc.Resolver`."""

    def __call__(  # noqa: D102 - the class says it
        self,
        value: Any,
        is_known: bool,  # noqa: FBT001 - the SDK's signature
        is_secret: bool,  # noqa: FBT001 - the SDK's signature
        deps: Iterable[pulumi.Resource] | None,
        failed: Exception | None,
        /,
    ) -> None: ...


class Outstanding(set["asyncio.Future[Any]"]):
    """The outputs that a program waits for at its end, one after another.

    The SDK lists all of them, clears the set and waits until any is done, and does so again for each: its time is
    quadratic in their number. Here a list of the set has one output, which is no longer in the set.
    """

    def __iter__(self) -> Iterator["asyncio.Future[Any]"]:
        yield self.pop()

    def clear(self) -> None:
        """Keeps the outputs that were not listed."""


class Deferred(pulumi.Output[Any]):
    """An output whose future is made when it is read for the first time."""

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


class Properties(dict[str, Any]):
    """The outputs of one resource, by name; their values are decoded when the first of them is read.

    The SDK passes it from `transfer_properties` to `resolve_outputs`, as a dict of resolvers.

    Args:
        resource: whose outputs they are.
        data: makes what an output's future has as its result; the arguments are those of `_OutputData`.
    """

    def __init__(self, resource: pulumi.Resource, data: Callable[..., Any]) -> None:
        super().__init__()
        self._resource = resource
        self._data = data
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._resolve: Callable[[dict[str, Resolver]], None] | None = None

    def output(self, name: str) -> Deferred:
        """The output of a property."""
        return Deferred(self._read, name)

    def settle(self, resolve: Callable[[dict[str, Resolver]], None]) -> None:
        """Sets what calls the resolvers of properties that are read, now or later.

        Raises:
            Exception: the SDK cannot decode the resource's outputs, of which one was read.
        """
        self._resolve = resolve
        if self._waiting:
            resolve({name: self._resolver(future) for name, future in self._waiting.items()})
            self._waiting.clear()

    def _read(self, name: str) -> "asyncio.Future[Any]":
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
                future.set_result(self._data({*(deps or ()), self._resource}, value, is_known, is_secret))

        return resolve
