"""The pinned custom resource definitions with versions and checksums, and those that a stack needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, model_validator

from gpu_tenancy.base.tables import read_table

PINS: Final = Path(__file__).parent / "pins.yaml"


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module that has a definition.

    Attributes:
        name: module path, such as `sigs.k8s.io/kueue`.
        version: module version, such as `v0.19.2`.
        folder: folder of the definition in the module.
    """

    name: str
    version: str
    folder: str

    @property
    def query(self) -> str:
        """The argument for `go mod download`."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Pin:
    """One file with one custom resource definition.

    Attributes:
        operator: name of the operator's chart, such as `kueue`.
        version: of the operator.
        file: file name, `GROUP_PLURAL.yaml`.
        sha256: checksum of the file, in hexadecimal.
        source: the Go module or the URL to download it from.
    """

    operator: str
    version: str
    file: str
    sha256: str
    source: Module | str

    @property
    def group(self) -> str:
        """The API group of the defined kind."""
        return self.file.partition("_")[0]

    @property
    def path(self) -> str:
        """Path in a folder of copies (`GPU_TENANCY_UPSTREAM`)."""
        return f"crds/{self.operator}/{self.file}"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    operator: str
    version: str
    module: str | None = None
    folder: str | None = None
    url: str | None = None
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]

    @model_validator(mode="after")
    def _has_one_source(self) -> "_Entry":
        if (self.module is None) == (self.url is None) or (self.module is None) != (self.folder is None):
            raise ValueError(f"{self.operator}: set 'module' and 'folder', or 'url'")
        return self

    def pins(self) -> Iterable[Pin]:
        for file, sha256 in self.files.items():
            source = Module(self.module, self.version, self.folder or "") if self.module else f"{self.url}/{file}"
            yield Pin(self.operator, self.version, file, sha256, source)


@cache
def read_pins(file: Path = PINS) -> tuple[Pin, ...]:
    """The pinned definitions of a file such as `pins.yaml`."""
    entries = TypeAdapter(list[_Entry]).validate_python(read_table(file))
    return tuple(pin for entry in entries for pin in entry.pins())


def needed(pins: Iterable[Pin], groups: Iterable[str], operators: Iterable[str] = ()) -> tuple[Pin, ...]:
    """All definitions of these operators, and of each operator that defines a kind in these API groups.

    The definitions of an operator are installed together, as by its chart.
    """
    listed, wanted = tuple(pins), set(groups)
    chosen = {pin.operator for pin in listed if pin.group in wanted}.union(operators)
    return tuple(pin for pin in listed if pin.operator in chosen)
