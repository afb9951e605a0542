"""What teams used in a month, from the output of `tenancy cost -o json`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.model.outlook.shares import spent

_FIX: Final = "write it by `tenancy cost STACK --month YYYY-MM -o json`"


@dataclass(frozen=True, slots=True)
class Used:
    """What the GPUs that teams used in a month cost.

    Attributes:
        month: such as `2026-10`.
        teams: US dollars by team; None where a price is unknown.
    """

    month: str
    teams: Mapping[str, float | None]

    def of(self, teams: Iterable[str]) -> float | None:
        """US dollars of some teams."""
        return spent((1.0, self.teams.get(team, 0.0)) for team in teams)


class _Line(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    team: str
    used: float
    usd_per_gpu_hour: float | None


class _Month(BaseModel):
    stack: str
    month: str
    teams: list[_Line]


def read_used(file: Path, stack: str) -> Used:
    """Reads a month of a stack.

    Raises:
        ConsoleError: the file cannot be read, is something else, or of another stack.
    """
    try:
        month = _Month.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ConsoleError(f"{file}: cannot read the file: {error.strerror}", _FIX) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise ConsoleError(f"{file}: not a month's GPU-hours: {what}", _FIX) from error
    if month.stack != stack:
        raise ConsoleError(f"{file}: of stack '{month.stack}', not of '{stack}'", _FIX)
    lines: dict[str, list[tuple[float, float | None]]] = {}
    for line in month.teams:
        lines.setdefault(line.team, []).append((line.used, line.usd_per_gpu_hour))
    return Used(month.month, {team: spent(own) for team, own in lines.items()})
