"""Engines of servers: how they are started, and what they measure, from `engines.yaml`."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows
from gpu_tenancy.model.fields import Count, Positive


class Argument(Row):
    """An argument that follows from the stack.

    Attributes:
        short: its short name; empty without.
        value: with placeholders; None for a switch.
        of: the pods that have it; `none` if it would contradict the stack.
        key: of the server, which sets it.
    """

    name: Annotated[str, Field(pattern=r"^--[a-z-]+$")]
    short: str = ""
    value: str | None = None
    of: Literal["all", "groups", "workers", "none"] = "all"
    key: str


class KeyCheck(Row):
    """How an engine asks requests for a key.

    Attributes:
        env: variable with the key.
        paths: prefixes of the paths for which it asks.
    """

    env: str
    paths: tuple[str, ...]


class Engine(Fact):
    """An engine.

    Attributes:
        version: of the package that its facts were read in.
        command: how it is started; the path of the model follows.
        user: user and `group` of its image that are not root.
        gpu_memory: percent of a GPU's memory that it fills.
        api_key: how it asks for a key.
        metrics: names of its metrics, by key of `metrics` of a server.
        buckets: bounds of its histograms in seconds, by the same keys.
    """

    title: str
    version: str
    command: tuple[str, ...]
    arguments: tuple[Argument, ...]
    port: Positive
    health: str
    user: Positive
    group: Count
    gpu_memory: Annotated[int, Field(ge=1, le=100)]
    api_key: KeyCheck
    env: Mapping[str, str]
    metrics: Mapping[str, str]
    buckets: Mapping[str, tuple[float, ...]]


@cache
def engines() -> Mapping[str, Engine]:
    """The engines by the value of `engine` of a server."""
    return read_rows("engines", dict[str, Engine])
