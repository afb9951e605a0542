"""Machines and GPUs that the properties of any resource name: which properties do, and what their values mean.

The tables are in coverage.yaml.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from cloud_rules import aws_attributes
from cloud_rules.machines import Machines
from cloud_rules.machines import table as read_table
from rule_engine import Unknown, UnknownValueError, View

NAMING: Final = ("machines", "families", "others", "attributes", "gpus", "texts", "templates")
"""Kinds of properties that name machines or GPUs, as in coverage.yaml."""
_WHOLE: Final = frozenset({"attributes", "gpus", "ignored"})
"""Kinds of properties whose parts are not read as properties."""
_SAGEMAKER: Final = "ml."
"""Prefix of EC2's machine types in SageMaker."""
_WORDS: Final = re.compile(r"[\w.-]+")
_GPU_MAKER: Final = "nvidia"
"""Part of the names of GPUs; other accelerators have none."""


@cache
def table() -> Mapping[str, Any]:
    """The content of coverage.yaml: blocks of facts, each with source and date."""
    return read_table("coverage.yaml")


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A value of a property that can name a machine.

    Attributes:
        kinds: what its property names: keys of `properties` in coverage.yaml.
        view: the value, which can be unknown.
    """

    kinds: frozenset[str]
    view: View

    def gpus(self, known: Machines) -> list[str]:
        """Names of the machines with GPUs, or of the GPUs, that it names.

        Raises:
            UnknownValueError: its property names machines or GPUs only, and the value is unknown.
        """
        if "attributes" in self.kinds:
            machines = aws_attributes.machines(View({"instanceRequirements": self.view.value}, self.view.path[:-1]))
            return [machine.name for machine in machines if machine.gpus(known) != 0]
        if "gpus" in self.kinds:
            return list(_gpus(self.view))
        if isinstance(self.view.value, Unknown) and not self.kinds.isdisjoint({"machines", "texts"}):
            raise UnknownValueError(self.view.path, self.view.value.why)
        if isinstance(self.view.value, str) and "texts" in self.kinds:
            return [word for word in _WORDS.findall(self.view.value) if known.gpus_of(word)]
        return self._machine(self.view.value, known) if isinstance(self.view.value, str) else []

    def _machine(self, text: str, known: Machines) -> list[str]:
        name = text.rsplit("/", 1)[-1].removeprefix(_SAGEMAKER)  # Google Cloud has paths of machine types too
        is_machine = not self.kinds.isdisjoint({"machines", "others", "named"}) and known.gpus_of(name) != 0
        is_family = "families" in self.kinds and any(known.has_gpus(f"{name}{end}") for end in (".*", "-*"))
        return [name] if is_machine or is_family else []


def named_values(view: View) -> Iterator[Named]:
    """The values below that can name machines, in the order of paths; those under tags and labels cannot."""
    pending = [(frozenset[str](), view)]
    while pending:
        kinds, part = pending.pop()
        if kinds - {"ignored"}:
            yield Named(kinds, part)
        if _WHOLE.isdisjoint(kinds):
            pending += reversed(list(_parts(kinds, part)))


def _parts(kinds: frozenset[str], view: View) -> Iterator[tuple[frozenset[str], View]]:
    """The entries of a map, each with the kinds of its property; the items of a list, with those of the list."""
    if isinstance(view.value, dict):
        for name, value in sorted(view.value.items()):
            describes_machine = name == "name" and "named" in kinds
            yield kinds if describes_machine else _kinds(name), View(value, (*view.path, name))
    elif isinstance(view.value, list):
        for index, value in enumerate(view.value):
            yield kinds, View(value, (*view.path, str(index)))


@cache
def _kinds(name: str) -> frozenset[str]:
    """What a property with this name names."""
    properties: Mapping[str, Any] = table()["properties"]
    return frozenset(
        kind
        for kind in (*NAMING, "named", "ignored")
        if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in properties[kind])
    )


def _gpus(view: View) -> Iterator[str]:
    """The GPUs of a block with type and number, of a list of blocks, or a name of GPUs."""
    if isinstance(view.value, list):
        for item in view.items():
            yield from _gpus(item)
    elif isinstance(view.at().value, dict):
        counts = [view.number(key) for key in ("count", "acceleratorCount") if view.has(key)]
        texts = [entry.value for entry in view.entries().values() if isinstance(entry.value, str)]
        if 0 not in counts:
            yield from (name for text in texts for name in _gpu_names(text, view))
    elif isinstance(view.value, str):
        yield from _gpu_names(view.value, view)


def _gpu_names(text: str, view: View) -> Iterator[str]:
    name = text.rsplit("/", 1)[-1]
    if _GPU_MAKER in name.lower() or any(key.lower() in {"gpu", "gpus"} for key in view.path[-2:]):
        yield name
