"""Protocol of a cloud's description of its API, IAM policies, and names that clouds keep."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict

from gpu_tenancy.engine.recording import Registration

Inputs: TypeAlias = Mapping[str, Any]  # of one resource as Pulumi sends them: plain JSON, camelCase keys

Place: TypeAlias = tuple[str | int, ...]  # keys and list positions in the inputs


class Description(Protocol):
    """A cloud's description of its API: it maps inputs of Pulumi's provider, and reports inputs without a mapping."""

    stacks: Sequence[str]  # names of the stacks on this cloud
    types: frozenset[str]  # type tokens of the described resources, such as `aws:eks/nodeGroup:NodeGroup`
    undescribed: Mapping[str, str]  # type tokens of the cloud's other resources, and why they are not described

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        """The cloud's errors: unknown names, values outside an enumeration or pattern, missing values."""
        ...

    def required(self, token: str, inputs: Inputs) -> list[Place]: ...

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]: ...


# A model of what clouds keep of a stack that was destroyed: the names that are in use when it is created again


LISTED: Final = "aws:cloudwatch/getLogGroups:getLogGroups"  # Pulumi's function that lists log groups
LOG_GROUP: Final = "aws:cloudwatch/logGroup:LogGroup"
# Types of encryption keys: without the key, its data is lost.
KEYS: Final = {"aws:kms/key:Key", "gcp:kms/cryptoKey:CryptoKey"}
Name: TypeAlias = tuple[str, ...]


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: list[str] = []
    after: Literal["free", "kept", "returns"] = "free"
    empty: bool = False
    source: str = ""


@cache
def rows() -> Mapping[str, Row]:
    table: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "names.yaml").read_text(encoding="utf-8"))
    return {type_: Row.model_validate(row) for type_, row in table.items()}


class InUseError(Exception):
    """Another resource, which stays, is in the deleted one."""


class TakenError(Exception):
    """A name is in use, or its resource differs from the declared one."""


@dataclass
class Clouds:
    """All accounts: inputs of existing resources, by type and name."""

    exist: dict[Name, Mapping[str, Any]] = field(default_factory=dict[Name, Mapping[str, Any]])
    scheduled: list[str] = field(default_factory=list[str])  # keys whose deletion was scheduled, by name in the program
    _made: int = 0

    def answers(self) -> Mapping[str, Mapping[str, Any]]:
        """Answers to the program before it registers anything."""
        return {LISTED: {"logGroupNames": [name[1] for name in self.exist if name[0] == LOG_GROUP], "arns": []}}

    def create(self, stack: Iterable[Registration]) -> dict[str, Name | None]:
        """Creates a stack's resources or takes over imported ones; returns names by URN. Raises TakenError."""
        state: dict[str, Name | None] = {}
        for one in stack:
            state[one.urn] = self._create(one, state)
        return state

    def _create(self, one: Registration, state: Mapping[str, Name | None]) -> Name | None:
        row = rows()[one.type]
        if not row.name:
            return None
        parts = dict(one.inputs)
        if "name" in row.name and "name" not in parts:
            self._made += 1  # Pulumi adds hexadecimal digits, which the state keeps
            parts["name"] = f"{one.name}-{self._made:07x}"
        for key, needed in one.property_dependencies.items():  # its real value is that of the resource
            parts[key] = "/".join("/".join(state.get(urn) or ()) for urn in needed)
        name = (one.type, *(str(parts[key]) for key in row.name))
        if name in self.exist:
            self._take_over(name, one)
        self.exist[name] = parts
        return name

    def _take_over(self, name: Name, one: Registration) -> None:
        if one.import_id != name[-1]:
            raise TakenError(f"{name} exists")
        differing = {key for key, value in one.inputs.items() if self.exist[name].get(key) != value}
        if differing - {*one.ignore_changes}:
            raise TakenError(f"inputs to import do not match {name}: {differing}")

    def destroy(self, stack: Iterable[Registration], state: Mapping[str, Name | None]) -> None:
        """Destroys a stack's resources in order. Raises InUseError if something stays in a deleted network."""
        ordered = list(stack)
        inside: dict[str, set[str]] = {}  # for each resource, in which of those that are deleted empty it is
        for one in reversed(ordered):
            needed = {urn for urns in one.property_dependencies.values() for urn in urns}
            inside[one.urn] = {outer for urn in needed for outer in (urn, *inside.get(urn, ()))}
        emptied = {one.urn for one in ordered if rows()[one.type].empty and not one.retain_on_delete}
        for one in ordered:
            if one.retain_on_delete and (left := inside[one.urn] & emptied):
                raise InUseError(f"{one.urn} stays in {left}")
            row, name = rows()[one.type], state[one.urn]
            if one.retain_on_delete:
                continue
            if one.type in KEYS:
                self.scheduled.append(one.name)
            if name and row.after == "free":
                del self.exist[name]
            elif name and row.after == "returns":
                self.exist[name] = {"name": name[-1]}
