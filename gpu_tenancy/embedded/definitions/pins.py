"""The pinned custom resource definitions with versions and checksums, and the choice for a stack.

They are in the descriptions of operators (`model.catalogue.operators`), and in `pins.yaml`. To move to a new version,
change `version`, `sum` and `goModSum` there (`go mod download -json MODULE@VERSION` prints both as Sum and GoModSum),
and the checksums of the files (an error names each new one).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.yaml import read_table

PINS: Final = Path(__file__).parent / "pins.yaml"


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module with a definition; `sums` is its go.sum, or None if the go.sum of a folder has it."""

    name: str
    version: str
    folder: str
    sums: tuple[str, str] | None = None

    @property
    def query(self) -> str:
        """The argument for `go mod download`."""
        return f"{self.name}@{self.version}"

    @property
    def go_sum(self) -> str:
        """The lines of a go.sum; without them, Go would ask its checksum database."""
        if self.sums is None:
            raise ValueError(f"{self.query} has no checksums")
        of_module, of_go_mod = self.sums
        return f"{self.name} {self.version} {of_module}\n{self.name} {self.version}/go.mod {of_go_mod}\n"


@dataclass(frozen=True, slots=True)
class Pin:
    """One file with one custom resource definition."""

    operator: str  # its chart, such as `kueue`, or a part of it
    version: str
    file: str  # `GROUP_PLURAL.yaml`
    sha256: str  # in hexadecimal
    source: Module | str  # the Go module or the URL to download it from

    @property
    def group(self) -> str:
        """The API group of the defined kind."""
        return self.file.partition("_")[0]

    @property
    def path(self) -> str:
        """Path in a folder of copies (`GPU_TENANCY_UPSTREAM`)."""
        return f"crds/{self.operator}/{self.file}"


class Definitions(BaseModel):
    """The definitions of one version of an operator, from one place."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    name: str  # by default the operator's release
    version: str
    module: str | None = None
    folder: str | None = None
    sum: str | None = None  # checksum as in a go.sum
    go_mod_sum: str | None = None  # the same of its go.mod
    url: str | None = None  # to download from, if no module has the definitions
    # Of the API, served by every file, if an earlier version of the operator served others
    versions: tuple[str, ...] = ()
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]  # with the sha256 of each

    @model_validator(mode="after")
    def _has_one_source(self) -> "Definitions":
        of_module = [value is not None for value in (self.module, self.folder, self.sum, self.go_mod_sum)]
        if all(of_module) != any(of_module) or all(of_module) == (self.url is not None):
            raise ValueError(f"{self.name}: set 'module', 'folder', 'sum' and 'goModSum', or 'url'")
        return self

    def pins(self) -> Iterator[Pin]:
        """Each file."""
        for file, sha256 in self.files.items():
            source: Module | str = f"{self.url}/{file}"
            if self.module and self.sum and self.go_mod_sum:
                source = Module(self.module, self.version, self.folder or "", (self.sum, self.go_mod_sum))
            yield Pin(self.name, self.version, file, sha256, source)


@cache
def read_definitions() -> tuple[Definitions, ...]:
    """The definitions of all operators, and others that stacks need."""
    of_operators: list[Mapping[str, Any]] = [
        {"name": operator.release, **entry} for operator in operators().values() for entry in operator.definitions
    ]
    return tuple(Definitions.model_validate(entry) for entry in (*of_operators, *read_table(PINS)))


@cache
def read_pins() -> tuple[Pin, ...]:
    """All pinned definitions."""
    return tuple(pin for definitions in read_definitions() for pin in definitions.pins())


def needed(pins: Iterable[Pin], groups: Iterable[str], operators: Iterable[str] = ()) -> tuple[Pin, ...]:
    """All definitions of these operators, and of each operator that defines a kind in these API groups."""
    listed, wanted = tuple(pins), set(groups)
    chosen = {pin.operator for pin in listed if pin.group in wanted}.union(operators)
    return tuple(pin for pin in listed if pin.operator in chosen)
