"""The inputs of a component as plain data, with the places of secrets and of values that a preview does not know."""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, Final, TypeAlias, cast

import pulumi
from pulumi.output import Unknown
from pulumi.runtime.rpc import is_rpc_secret, unwrap_rpc_secret

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.source import Source, value_at

Late: TypeAlias = "pulumi.Output[Any] | Unknown"
"""A value that only Pulumi may read: a secret, or one that is unknown in a preview."""

_UNREAD: Final = object()
"""In place of a value that the plan must not read. It is valid nowhere, so the model leaves its place out, with every
problem that depends on it."""
_WORKLOADS: Final = frozenset({"serving", "training"})
_TEXTS: Final = {"image": 5, "command": 6, "args": 6, "env": 6}
"""Keys of a workload that reach its pods unchanged, with the length of the path of their texts."""
_CHART: Final = ("operators", "values")
"""Section and key of the Helm values of an operator, which its release gets unchanged."""


@dataclass
class Inputs:
    """The inputs of a component."""

    # Plain values. A text that is secret or unknown and is passed on unchanged has a placeholder; any other value that
    # is secret or unknown is left out.
    sections: dict[str, Any] = field(default_factory=dict[str, Any])
    late: dict[str, Late] = field(default_factory=dict[str, Late], repr=False)  # by placeholder
    secrets: list[Path] = field(default_factory=list[Path])  # places of other secrets, which the plan would show
    unknown: list[Path] = field(default_factory=list[Path])  # of other unknown values, without which there is no plan
    needs: set[pulumi.Resource] = field(default_factory=set[pulumi.Resource])  # from whose outputs the inputs are made

    @property
    def source(self) -> Source:
        """The inputs as the source of a stack, in which neither secrets nor unknown values are read."""
        return Source(self.sections, unread=(*self.secrets, *self.unknown))

    def refusals(self) -> list[Problem]:
        """One problem for each secret that the plan would show."""
        rule = "is secret, but the names and amounts of a plan are plain values"
        fix = (
            "pass a plain value; only image, command, args and env of a server or job, and texts in the values of an"
            " operator, can be secret"
        )
        return [Problem(path, rule, fix) for path in self.secrets]

    def is_secret(self, path: Path) -> bool:
        """Whether the value at a place is secret, contains a secret or is part of one."""
        hidden = [*self.secrets, *(place for place, late in self._late.items() if late)]
        return any(all(a == b for a, b in zip(path, place, strict=False)) for place in hidden)

    _late: dict[Path, bool] = field(default_factory=dict[Path, bool])
    """Places of placeholders, and whether their values are secret."""

    def placeholder(self, path: Path, value: Late, *, secret: bool) -> str:
        """A text that is valid as an image and as any other text of a pod, in place of a late value."""
        text = f"late-{len(self.late)}.invalid/value:0"
        self.late[text] = value
        self._late[path] = secret
        return text


async def read_inputs(inputs: Mapping[str, Any]) -> Inputs:
    """Reads the inputs of a component as the SDK hands them to a provider.

    Args:
        inputs: by key. Secrets and values with dependencies are Outputs at any depth; numbers are floats, because the
            wire has no other, and keys have no order: the first size of notebooks is the first by name.
    """
    read = Inputs()
    read.sections = {key: await _plain(read, (key,), value) for key, value in inputs.items()}
    return read


async def _plain(read: Inputs, path: Path, value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    if isinstance(value, pulumi.Output):
        return await _of_output(read, path, cast("pulumi.Output[Any]", value))
    if is_rpc_secret(value):  # a secret of an engine without output values
        return await _secret(read, path, pulumi.Output.secret(unwrap_rpc_secret(value)))
    if isinstance(value, Unknown):
        return _unknown(read, path, value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {key: await _plain(read, (*path, key), part) for key, part in mapping.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        entries = cast("Sequence[Any]", value)
        return [await _plain(read, (*path, index), entry) for index, entry in enumerate(entries)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


async def _of_output(read: Inputs, path: Path, output: "pulumi.Output[Any]") -> Any:
    read.needs |= await output.resources()
    if await output.is_secret():
        return await _secret(read, path, output)
    value = await output.future(with_unknowns=True)
    if value is None and not await output.is_known():
        return _unknown(read, path, output)
    return await _plain(read, path, value)


def _unknown(read: Inputs, path: Path, value: Late) -> Any:
    if is_passed_on(path):
        return read.placeholder(path, value, secret=False)
    read.unknown.append(path)
    return _UNREAD


async def _secret(read: Inputs, path: Path, output: "pulumi.Output[Any]") -> Any:
    """A secret text, list of texts or map of texts that is passed on unchanged; any other secret is refused."""
    value: Any = await output.future(with_unknowns=True)
    parts: list[tuple[Path, Any]] = [(path, value)]
    if isinstance(value, dict):
        parts = [((*path, key), part) for key, part in cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        parts = [((*path, index), part) for index, part in enumerate(cast("list[Any]", value))]
    if not all((part is None or isinstance(part, str | Unknown)) and is_passed_on(place) for place, part in parts):
        read.secrets.append(path)
        return _UNREAD
    if isinstance(value, dict):
        return {place[-1]: read.placeholder(place, output[place[-1]], secret=True) for place, _ in parts}
    if isinstance(value, list):
        return [read.placeholder(place, output[place[-1]], secret=True) for place, _ in parts]
    return read.placeholder(path, output, secret=True)


def is_passed_on(path: Path) -> bool:
    """Whether a pod or a chart gets the text at a place unchanged: `teams.ml.serving.chat.env.TOKEN`."""
    match path:
        case ("teams", _, "training", _, "roles", _, key, *_):
            return _TEXTS.get(str(key)) == len(path) - 2
        case ("teams", _, "serving", _, "worker", key, *_):
            return _TEXTS.get(str(key)) == len(path) - 1
        case ("teams", _, section, _, key, *_):
            return section in _WORKLOADS and _TEXTS.get(str(key)) == len(path)
        case (section, _, key, _, *_):
            return (section, key) == _CHART
        case _:
            return False


def without_secrets(source: Source) -> Inputs:
    """The sections of a stack without the values that the engine decrypted.

    A text that is passed on unchanged has a placeholder; any other place is one of `secrets`.
    """
    read = Inputs(deepcopy(dict(source.sections)))
    for path in source.secrets:
        around: Any = value_at(read.sections, path[:-1])
        value = around[path[-1]]
        if is_passed_on(path) and isinstance(value, str):
            around[path[-1]] = read.placeholder(path, pulumi.Output.secret(value), secret=True)
        else:
            read.secrets.append(path)
            around[path[-1]] = _UNREAD
    return read


def filling(late: Mapping[str, Late]) -> pulumi.ResourceTransformation:
    """Puts late values into the properties of resources, in the process that registers them."""
    # Most texts are skipped by one search, whatever the number of placeholders.
    common = commonprefix(list(late))  # noqa: RUF071 - of characters, not of parts of paths

    def fill(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        return pulumi.ResourceTransformationResult(filled(args.props, late, common), args.opts)

    return fill


def filled(value: Any, late: Mapping[str, Late], common: str = "") -> Any:
    """A copy of a resource's properties with the late values in place of their placeholders."""
    if isinstance(value, str):
        return _filled_text(value, late) if common in value else value
    if isinstance(value, Mapping):
        return {key: filled(part, late, common) for key, part in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [filled(part, late, common) for part in cast("Sequence[Any]", value)]
    return value


def _filled_text(text: str, late: Mapping[str, Late]) -> Any:
    if text in late:
        return late[text]
    for placeholder, value in late.items():
        if placeholder in text:
            before, _, after = text.partition(placeholder)
            return pulumi.Output.concat(filled(before, late), cast("Any", value), filled(after, late))
    return text


_PLAIN_KEY: Final = re.compile(r"[^.\[\]\"\s]+")


def property_path(path: Path) -> str:
    """A place as Pulumi writes it: `pools.a100.labels["example.com/pool"]`, `teams.ml.training.fit.args[0]`.

    Source: https://www.pulumi.com/docs/iac/concepts/options/ignorechanges/
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            quoted = part.replace('"', '\\"')
            text += f'["{quoted}"]'
    return text
