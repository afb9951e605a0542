"""Imports that wait until a module is used, so that `tenancy` starts at once."""

import builtins
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _Module(ModuleType):
    """Stands for a module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


class _Package(ModuleType):
    """Stands for the package from which a statement imports modules."""

    def __getattr__(self, name: str) -> _Module:
        return _Module(f"{self.__name__}.{name}")


def _import(name: str, *_: Any, **__: Any) -> ModuleType:
    return _Package(name)


@contextmanager
def lazily() -> Generator[None]:
    """Inside, `from PACKAGE import MODULE` imports nothing until a name of the module is used.

    Python 3.15 has a statement for it: https://peps.python.org/pep-0810/.
    """
    eager = builtins.__import__
    builtins.__import__ = _import
    try:
        yield
    finally:
        builtins.__import__ = eager
