"""The record of the controllers that one embedded platform has started."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_tenancy.base.writing import write_private
from gpu_tenancy.embedded.processes import Started


class Controller(BaseModel):
    """One started controller.

    Attributes:
        name: the Deployment in the chart.
        chart: in the table of controllers.
        version: of the chart's module.
        fingerprint: of program, configuration and chart.
        ports: on loopback, by their names in the table.
        started: its process.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    chart: str
    version: str
    fingerprint: str
    ports: Mapping[str, int]
    started: Started

    @property
    def runs(self) -> bool:
        """Whether its process is alive."""
        return self.started.process is not None


_RECORD = TypeAdapter(tuple[Controller, ...])


def read_record(file: Path) -> tuple[Controller, ...]:
    """The started controllers, whether or not they still run, in the order of their start."""
    try:
        return _RECORD.validate_json(file.read_bytes())
    except FileNotFoundError:
        return ()


def write_record(file: Path, controllers: Iterable[Controller]) -> None:
    """Replaces the record."""
    write_private(file, _RECORD.dump_json(tuple(controllers), indent=2).decode())
